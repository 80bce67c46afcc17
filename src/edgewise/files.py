"""Files that appear whole, and where what one process has prepared is cached for later ones."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4


def cache_path(*parts: str) -> Path:
    """Where something is cached, or is to be: in $XDG_CACHE_HOME/edgewise, or ~/.cache/edgewise where that is not set.

    Edge cases  without a home folder, or where it cannot be written, it is in the folder of temporary files; what is in
                a folder that can only be read is found there; a relative $XDG_CACHE_HOME does not count, as XDG asks
    """
    places = [root.joinpath("edgewise", *parts) for root in _roots()]
    present = [place for place in places if os.path.exists(place)]  # noqa: PTH110 - Path.exists raises where it may not look
    return next(iter(present + [place for place in places if _can_be_made(place)] + places))


def _roots() -> Iterator[Path]:
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if chosen.is_absolute():
        yield chosen
    else:
        with suppress(RuntimeError):  # the user has neither $HOME nor an entry in the list of users
            yield Path.home() / ".cache"
    yield Path(tempfile.gettempdir()) / f"cache-{getattr(os, 'getuid', int)()}"


def _can_be_made(place: Path) -> bool:
    above = next(folder for folder in place.parents if os.path.exists(folder))  # noqa: PTH110
    return above.is_dir() and os.access(above, os.W_OK)


@contextmanager
def whole(path: Path, alone: bool = False) -> Iterator[Path]:
    """A place beside `path` to write to, which gets that name at the end: a reader sees the whole file or none.

    What was written is on the disk before it gets the name, and the name before this returns, so that after a power cut
    too there is the whole new file, or what was there before.

    Symbols     alone = no other process writes this file, so that what a killed one left half-written is replaced
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
    part = path.with_name(f".writing-{path.name}" if alone else f".{path.name}.{uuid4().hex}.part")
    try:
        make_folder(path.parent)
        yield part
        flush(part)
        part.replace(path)
        flush(path.parent)
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


def flush(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, would survive a power cut. Windows opens no folders."""
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
