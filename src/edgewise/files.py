"""Files: read within bounds, written whole, and where what one process has prepared is cached for later ones."""

import codecs
import errno
import gzip
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

from edgewise.errors import DataError, EdgewiseError

if TYPE_CHECKING:
    from torch import Tensor

MAX_JSON = 1 << 23  # bytes of a JSON file; "[]," takes 25 times as much in memory
MAX_HEADER = 1 << 22
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # how such a text begins
SHOWN = 200  # characters of a parser's own words in a message


@contextmanager
def reading(path: Path | str, expected: str, error: type[EdgewiseError] = DataError) -> Iterator[None]:
    """The boundary around every parser that is not ours: whatever it raises is an error that names the file.

    Symbols     expected = what the file is not, such as "a CSV file"
    Edge cases  our own errors and a user's interrupt pass; a panic of a parser in Rust, no `Exception`, does not; a
                file that is missing or may not be read is called so

    Example
        >>> with reading("names.json", "a list of names"):
        ...     json.loads("[")
        Traceback (most recent call last):
            ...
        edgewise.errors.DataError: names.json: not a list of names (Expecting value: line 1 column 2 (char 1))
    """
    try:
        yield
    except EdgewiseError:
        raise
    except BaseException as cause:
        if not isinstance(cause, Exception) and type(cause).__name__ != "PanicException":
            raise
        if isinstance(cause, OSError) and str(cause.filename) == str(path):
            raise error(f"{path}: cannot be read ({cause.strerror})") from cause
        said = re.sub(r"<[\w.]+ object at 0x\w+>", "", str(cause))  # a place in memory is for nobody to know
        what = " ".join(said.split())[:SHOWN] or type(cause).__name__
        raise error(f"{path}: not {expected} ({what})") from cause


def path_of(value: Path | str, what: str, error: type[EdgewiseError]) -> Path:
    """A path; the error, for what is none.

    >>> path_of(None, "run", EdgewiseError)
    Traceback (most recent call last):
    edgewise.errors.EdgewiseError: run must be a path, not None
    """
    try:
        path = Path(value)
    except TypeError:
        raise error(f"{what} must be a path, not {value!r}") from None
    if "\0" in str(path):
        raise error(f"{what} must be a path, and {value!r} holds a zero, which no path does")
    return path


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """A whole file, or a DataError that names it: missing, a directory, unreadable, or longer than max_bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path}: cannot be read ({reason})") from error
    if len(content) > max_bytes:
        raise DataError(f"{path}: longer than the {max_bytes:,} bytes that such a file may have")
    return content


def check_folder(folder: Path) -> None:
    """Refuse a folder of data that is not there."""
    if not folder.is_dir():
        what = "not a folder" if folder.exists() else "no such folder"
        raise DataError(f"{folder}: {what}: give --task.folder")


def folder_name(folder: Path) -> str:
    """What a folder is called, the current one and the one above too."""
    return folder.resolve().name if folder.name in ("", "..") else folder.name


def spelt(path: Path | str) -> str:
    """A path with slashes, as text that can be written in UTF-8, whatever bytes the names of files are.

    >>> spelt(Path("a/Z\\udcfcrich.png"))
    'a/Z\\\\udcfcrich.png'
    """
    return Path(path).as_posix().encode(errors="backslashreplace").decode()


def holds(folder: Path, name: str) -> bool:
    """Whether a name that a file gave, however long or odd, is that of a file of this folder and of no other."""
    with suppress(OSError, ValueError):
        return Path(name).name == name and "\\" not in name and (folder / name).is_file()
    return False


def read_json(path: Path, expected: str, max_bytes: int = MAX_JSON) -> Any:
    """The data of a JSON file; what is none, nests too deeply or is too long is a DataError that names the file."""
    content = read_bytes(path, max_bytes)
    with reading(path, expected):
        return json.loads(content)


def check_header(start: bytes) -> None:
    """Refuse a file of safetensors, by its first 8 bytes, with a header of over `MAX_HEADER` bytes: a tensor without
    values takes a hundred bytes there, and thousands in memory."""
    length = int.from_bytes(start[:8], "little")
    if length > MAX_HEADER:
        raise ValueError(f"its header of {length:,} bytes is longer than {MAX_HEADER:,}")


def gunzip(path: Path, content: bytes, max_bytes: int) -> bytes:
    """What a gzip file holds, or a DataError that names it: damaged, cut off, or longer than max_bytes.

    Edge cases  several gzip files one after the other are one, and zeros at the end are nothing, as gzip has it
    """
    ends_early = DataError(f"{path}: not an intact gzip file (it ends too early)")
    if not content:
        raise ends_early
    with reading(path, "an intact gzip file"), gzip.open(BytesIO(content)) as file:
        try:
            unpacked = file.read(max_bytes + 1)
        except EOFError as error:
            raise ends_early from error
    if len(unpacked) > max_bytes:
        raise DataError(f"{path}: unpacks to more than the {max_bytes:,} bytes that it may have")
    return unpacked


def decode(path: Path, content: bytes) -> str:
    """UTF-8 text, or UTF-16 with a byte order mark, without the mark; a DataError names the file and the first wrong
    byte, and of UTF-8 its line."""
    if content.startswith(UTF16):
        with reading(path, "UTF-16 text, as its byte order mark says"):
            return content.decode("utf-16")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        what = f"not UTF-8 text: byte {error.start} is {content[error.start]:#04x}, on line {line}"
        raise DataError(f"{path}: {what}; save it as UTF-8") from error


def cache_path(*parts: str) -> Path:
    """Where something is cached, or is to be: in $XDG_CACHE_HOME/edgewise, or ~/.cache/edgewise where that is not set.

    Edge cases  without a home folder, or where it cannot be written, it is in the folder of temporary files; what is in
                a folder that can only be read is found there; a relative $XDG_CACHE_HOME does not count, as XDG asks
    """
    places = [root.joinpath("edgewise", *parts) for root in _roots()]
    present = [place for place in places if os.path.exists(place)]  # noqa: PTH110 - Path.exists raises where it may not look
    return next(iter(present + [place for place in places if can_be_made(place)] + places))


def _roots() -> Iterator[Path]:
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if chosen.is_absolute():
        yield chosen
    else:
        with suppress(RuntimeError):  # the user has neither $HOME nor an entry in the list of users
            yield Path.home() / ".cache"
    yield Path(tempfile.gettempdir()) / f"cache-{getattr(os, 'getuid', int)()}"


def can_be_made(place: Path) -> bool:
    """Whether a file or folder may be put at a place, as far as the folders above it say."""
    above = next(folder for folder in place.parents if os.path.exists(folder))  # noqa: PTH110
    return above.is_dir() and os.access(above, os.W_OK)


@contextmanager
def whole(path: Path, alone: bool = False) -> Iterator[Path]:
    """A place beside `path` to write to, which gets that name at the end: a reader sees the whole file or none.

    What was written is on the disk before it gets the name, and the name before this returns, so that after a power cut
    too there is the whole new file, or what was there before.

    Symbols     alone = no other process writes this file, so that what a killed one left half-written is replaced
    Errors      IsADirectoryError; OSError for what is no file, such as /dev/null, whose place a file would take
    Edge cases  folders that are missing are made; where writing fails, nothing of it is left behind

    Example
        >>> path = Path(tempfile.mkdtemp()) / "new" / "numbers.txt"
        >>> with whole(path) as part:
        ...     written = part.write_text("1 2 3")
        ...     path.exists()
        False
        >>> path.read_text()
        '1 2 3'
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "Not a file that can be replaced", str(path))
    part = path.with_name(f".writing-{path.name}" if alone else f".{path.name}.{uuid4().hex}.part")
    try:
        make_folder(path.parent)
        yield part
        flush(part)
        part.replace(path)
        flush(path.parent)
    except OSError as error:
        if error.filename == str(part):
            error.filename = str(path)  # the name that its user knows
        raise
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Write a file that only this process writes, whole or not at all."""
    with whole(path, alone=True) as part:
        part.write_bytes(content)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, so that they would survive a power cut."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    if made:
        path.mkdir(parents=True, exist_ok=True)
    for folder in made:
        flush(folder.parent)


def lock(file: IO[bytes] | int, wait: bool = False) -> bool:
    """Keep other processes from locking a file, or an open folder, until it is closed; False where one has done so,
    unless it is to wait for that one.

    Edge cases  Windows and some file systems have no such locks: there it is True
    """
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def claimed(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Whether a folder is this process's own, once it is free if that is to be waited for; within the block no other
    process can claim it.

    Edge cases  where there are no locks, every process may have it; a process that is killed has it no longer
    """
    if sys.platform == "win32":
        yield True
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:  # another process may have given it another name, or removed it, before it could be locked
        yield lock(descriptor, wait) and os.path.samestat(os.fstat(descriptor), folder.stat())
    finally:
        os.close(descriptor)


def flush(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, would survive a power cut.

    Edge cases  Windows opens no folders, and some file systems do not flush them: there nothing is done
    """
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


Tensors = dict[str, "Tensor"]
Shapes = Mapping[str, tuple[int, ...]]


def digest(key: object) -> str:
    """A name for all that decides what is prepared.

    Example
        >>> digest(("nbody", 5))
        '7f549435eb10bbe4'
    """
    return hashlib.sha256(repr(key).encode()).hexdigest()[:16]


def cached(
    folder: str, key: object, make: Callable[[], Tensors], shapes: Shapes | None = None, worth: float = 0.0
) -> Tensors:
    """The tensors that `make` prepares, read from the cache where an earlier process has written them.

    Symbols     folder = the task's own, in the cache; key = all that decides the tensors, of which `repr` is taken;
                shapes = those of some of the tensors, by name;
                worth = seconds that `make` must take for its tensors to be written
    Edge cases  a file that is damaged, or holds other shapes, is replaced; a cache that cannot be written costs
                time only
    """
    import safetensors.torch

    path = cache_path(folder, f"{digest(key)}.safetensors")
    with suppress(DataError), reading(path, "cached tensors"):
        tensors: Tensors = safetensors.torch.load_file(path)
        if all(name in tensors and tensors[name].shape == shape for name, shape in (shapes or {}).items()):
            return tensors
    start = time.perf_counter()
    tensors = {name: tensor.contiguous() for name, tensor in make().items()}
    if time.perf_counter() - start >= worth:
        with suppress(OSError, safetensors.SafetensorError), whole(path) as part:
            safetensors.torch.save_file(tensors, part)
    return tensors
