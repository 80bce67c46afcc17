"""What a run reports while it trains: `metrics.jsonl`, a progress bar or a few lines, and TensorBoard where wanted."""

import errno
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from edgewise.errors import CheckpointError, ConfigError, installing
from edgewise.files import flush, lock

METRICS = "metrics.jsonl"
QUIET = 10.0  # seconds between two lines where there is no terminal
CHUNK = 1 << 20  # bytes


class Journal:
    """`metrics.jsonl`, one JSON object per line, each on its way to the disk before training goes on.

    Only one process may write it: a second one that trains the same run is refused.
    """

    def __init__(self, run: Path, tensorboard: bool = False) -> None:
        self.path = run / METRICS
        with self.writing():
            self.file = self.path.open("ab", buffering=0)
        try:
            if not lock(self.file):
                raise ConfigError(f"another process is training {run}; wait for it or stop it")
            with self.writing():
                flush(run)  # so that its name survives a power cut
                self.digest = digest(self.path)
            self.curves = summary_writer()(str(run / "tensorboard")) if tensorboard else None
        except BaseException:
            self.file.close()
            raise

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within, an error of the file system names the file."""
        try:
            yield
        except OSError as error:
            raise CheckpointError(f"cannot write {self.path}: {error.strerror}") from error

    def write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        with self.writing():
            written = 0
            while written < len(line):  # a disk that is almost full takes a part and says so only at the next write
                written += self.file.write(line[written:])
        self.digest.update(line)
        if self.curves is not None:
            parts = {"": record} | {f"{part}/": scores for part, scores in record.items() if isinstance(scores, dict)}
            for part, scores in parts.items():  # "valid/loss" is the curve of {"valid": {"loss": 2.0}}
                for name, value in scores.items():
                    if isinstance(value, int | float) and name != "step":
                        self.curves.add_scalar(f"{part}{name}", value, record["step"])

    def known(self) -> dict[str, Any]:
        """Wait until all of it is on the disk; its length in bytes and its sha256."""
        with self.writing():
            os.fsync(self.file.fileno())
            return {"bytes": os.fstat(self.file.fileno()).st_size, "sha256": self.digest.hexdigest()}

    def cut(self, length: int) -> None:
        """Remove what was written after a checkpoint, and a line without its end: the resumed run writes them anew."""
        with self.writing():
            self.file.truncate(_whole_lines(self.path, min(length, os.fstat(self.file.fileno()).st_size)))
            self.digest = digest(self.path)

    def close(self) -> None:
        self.file.close()
        if self.curves is not None:
            self.curves.close()


def _whole_lines(path: Path, length: int) -> int:
    """How many of a file's first bytes are whole lines."""
    with path.open("rb") as file:
        content = file.read(length)
    if left := length - len(content):
        raise OSError(errno.EIO, f"{left:,} bytes could not be read", str(path))
    return content.rfind(b"\n") + 1


def digest(path: Path, length: int | None = None) -> "hashlib._Hash":
    """The sha256 of a file, or of its first bytes."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        left = path.stat().st_size if length is None else length
        while chunk := file.read(min(CHUNK, left)):
            sha256.update(chunk)
            left -= len(chunk)
    if left:
        raise OSError(errno.EIO, f"{left:,} bytes could not be read", str(path))
    return sha256


def summary_writer() -> Any:
    """TensorBoard's writer, which is an extra."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(f"train.log.tensorboard needs the extra: {installing('tensorboard')}") from None
    return SummaryWriter


def say(text: str) -> None:
    """Print one line for the user on the standard error, apart from what a program may read. Where it takes none, as a
    closed pipe or a full disk, the line is lost, and nothing else."""
    with suppress(OSError):
        tqdm.write(text, file=sys.stderr)


class Display:
    """A progress bar on a terminal, elsewhere one line every few seconds; nothing where it is not `shown`."""

    def __init__(self, steps: int, done: int, shown: bool) -> None:
        self.shown = shown
        self.steps = steps
        self.last_line = time.perf_counter()
        terminal = shown and sys.stderr.isatty()
        self.bar = tqdm(total=steps, initial=done, unit="step", dynamic_ncols=True) if terminal else None

    def advance(self) -> None:
        if self.bar is not None:
            self.bar.update()

    def scores(self, step: int, text: str, last: bool) -> None:
        """Show the latest scores."""
        if self.bar is not None:
            self.bar.set_postfix_str(text, refresh=False)
        elif self.shown and (last or time.perf_counter() - self.last_line > QUIET):
            self.last_line = time.perf_counter()
            say(f"step {step}/{self.steps}  {text}")

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
