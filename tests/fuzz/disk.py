"""A disk that fails: at its n-th call it breaks, runs full, ends the process, or loses what was not flushed.

`Disk(root)` sees every call below a folder that writes, flushes, names or removes something, and every read. It passes
them on to the real folder, and beside that remembers what a power cut could leave of it: of the calls after the last
`fsync` of a file or a folder, any part may have reached the disk, in any order.
"""

import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

WRITING = ("create", "write", "mkdir")  # what a full disk refuses
FAULTS = ("EIO", "ENOSPC", "full", "short", "kill")


class Killed(BaseException):
    """The process is dead: nothing of what it does from now on reaches the disk."""


@dataclass
class Node:
    """A file or a folder as a list of changes, of which the first `flushed` are on the disk for certain."""

    folder: bool
    changes: list[tuple[Any, ...]] = field(default_factory=list)
    flushed: int = 0

    def names(self, persists: Callable[[], bool] = lambda: True) -> dict[str, "Node"]:
        """A folder's entries, with those of the changes after the last flush that persist."""
        entries: dict[str, Node] = {}
        for number, (name, node) in enumerate(self.changes):
            if number < self.flushed or persists():
                for old in [old for old, other in entries.items() if other is node]:
                    del entries[old]  # it is renamed
                entries.pop(name, None)
                if node is not None:
                    entries[name] = node
        return entries

    def content(self, persists: Callable[[], bool], torn: Random) -> bytes:
        """A file's bytes: a write that does not persist leaves a hole or an earlier end, and the last may be torn."""
        content = bytearray()
        for number, (offset, data) in enumerate(self.changes):
            if number >= self.flushed:
                if not persists():
                    continue
                if data and torn.random() < 0.5:
                    data = data[: torn.randrange(len(data))]
            if data is None:
                del content[offset:]
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data or b"")] = data or b""
        return bytes(content)


class Disk:
    """Everything below a folder; the `at`-th call that changes or flushes something, or reads with `reading`, fails."""

    def __init__(self, root: Path, fault: str = "", at: int = 0, reading: bool = False) -> None:
        self.root, self.fault, self.at, self.reading = root.resolve(), fault, at, reading
        self.calls: list[str] = []
        self.dead = False
        self.tree = self.adopted(self.root)
        self.opened: dict[int, Node] = {}

    def adopted(self, path: Path) -> Node:
        """What lies on the real disk already, flushed."""
        node = Node(path.is_dir())
        if node.folder:
            node.changes = [(entry.name, self.adopted(entry)) for entry in path.iterdir()]
        else:
            with REAL_OPEN(path, "rb") as file:
                node.changes = [(0, file.read())]
        node.flushed = len(node.changes)
        return node

    def node(self, path: Path) -> Node:
        """The file or folder of that name; one that other libraries wrote is new here, and not flushed."""
        if path == self.root:
            return self.tree
        parent = self.node(path.parent)
        entries = parent.names()
        if path.name not in entries:
            entries[path.name] = self.adopted(path)
            entries[path.name].flushed = 0
            parent.changes.append((path.name, entries[path.name]))
        return entries[path.name]

    def below(self, path: Any) -> Path | None:
        """The path, if it is in this folder."""
        if not isinstance(path, str | os.PathLike):
            return None
        absolute = Path(os.path.abspath(path))  # noqa: PTH100 (what a link points to is not followed)
        return absolute if absolute.is_relative_to(self.root) else None

    def call(self, kind: str, path: Path) -> bool:
        """Count a call, and let it fail if it is its turn; whether it is to be carried out in part only."""
        if self.dead:
            raise Killed
        if (kind == "read") != self.reading:
            return False
        self.calls.append(f"{kind} {path.relative_to(self.root)}")
        turn = len(self.calls) == self.at
        if self.fault == "full" and self.at and len(self.calls) >= self.at and kind in WRITING:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if turn and self.fault in ("EIO", "ENOSPC"):
            number = getattr(errno, self.fault)
            raise OSError(number, os.strerror(number), str(path))
        if turn and self.fault == "kill":
            self.dead = True
            if kind != "write":
                raise Killed
        return turn and self.fault in ("short", "kill")

    @contextmanager
    def attached(self) -> Iterator["Disk"]:
        """Within, Python's calls go through this disk."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("rename", "replace", "mkdir", "unlink", "remove", "rmdir"):
                patch.setattr(os, name, self.naming(name, getattr(os, name)))
            for name in ("open", "close", "fsync"):
                patch.setattr(os, name, getattr(self, f"_{name}")(getattr(os, name)))
            patch.setattr(shutil, "_use_fd_functions", False)  # a tree is removed by its paths
            for module in ("builtins.open", "io.open"):
                patch.setattr(module, self.file)
            yield self

    def naming(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        """A call that gives a name or takes one away."""

        def call(path: Any, *others: Any, **options: Any) -> None:
            place = self.below(path)
            if place is None:
                return real(path, *others, **options)
            self.call(name, place)
            node = None if name == "mkdir" else self.node(place) if place.exists() else None
            real(path, *others, **options)
            parent = self.node(place.parent)
            if name in ("rename", "replace"):
                target = self.below(others[0])
                assert target is not None and target.parent == place.parent
                parent.changes.append((target.name, node))
            else:
                parent.changes.append((place.name, Node(folder=True) if name == "mkdir" else None))
            return None

        return call

    def _open(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, *others: Any, **options: Any) -> int:
            descriptor = real(path, *others, **options)
            place = self.below(path)
            if place is not None:
                self.opened[descriptor] = self.node(place)
            return descriptor

        return call

    def _close(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            self.opened.pop(descriptor, None)
            real(descriptor)

        return call

    def _fsync(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            node = self.opened.get(descriptor)
            if node is None:
                return real(descriptor)
            self.call("fsync", self.root / ("folder" if node.folder else "file"))
            node.flushed = len(node.changes)
            return None

        return call

    def file(self, path: Any, mode: str = "r", buffering: int = -1, *others: Any, **options: Any) -> Any:
        """What `open` returns."""
        place = self.below(path)
        if place is None:
            return REAL_OPEN(path, mode, buffering, *others, **options)
        raw = Raw(self, place, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        reader = io.BufferedReader(raw) if mode[0] == "r" else io.BufferedWriter(raw)
        return reader if "b" in mode else io.TextIOWrapper(reader, *others, **options)

    def power_cut(self, place: Path, random: Random, folders: float, files: float) -> Path:
        """A folder as the disk may hold it: of what was not flushed, these shares of names and of content persist."""

        def lay(node: Node, path: Path) -> None:
            if node.folder:
                path.mkdir()
                for name, entry in node.names(lambda: random.random() < folders).items():
                    lay(entry, path / name)
            else:
                path.write_bytes(node.content(lambda: random.random() < files, random))

        lay(self.tree, place)
        return place


REAL_OPEN = io.open


class Raw(io.FileIO):
    """A file below the disk's folder, without a buffer."""

    def __init__(self, disk: Disk, path: Path, mode: str) -> None:
        self.disk, self.path = disk, path
        new = not path.exists()
        if disk.dead:
            raise Killed
        if mode[0] != "r":
            disk.call("create", path)
        super().__init__(path, mode)
        node = disk.node(path)
        if new:
            node.changes.clear()
        elif mode[0] == "w":
            node.changes.append((0, None))
        self.node = disk.opened[self.fileno()] = node

    def write(self, data: Any) -> int:
        content = bytes(data)
        if self.disk.dead:
            return len(content)
        if self.disk.call("write", self.path):
            content = content[: len(content) // 2]
        offset = os.fstat(self.fileno()).st_size if "a" in self.mode else self.tell()
        self.node.changes.append((offset, content))
        super().write(content)
        if self.disk.dead:
            raise Killed
        return len(content)

    def truncate(self, size: int | None = None) -> int:
        self.disk.call("truncate", self.path)
        length = self.tell() if size is None else size
        self.node.changes.append((length, None))
        return super().truncate(length)

    def readinto(self, buffer: Any) -> int | None:
        short = self.disk.call("read", self.path)
        if self.disk.fault == "trickle":  # a read may always return less than what was requested
            return super().readinto(memoryview(buffer)[:7])
        return 0 if short else super().readinto(buffer)

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return self.readall()
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer) or 0])

    def readall(self) -> bytes:
        content = bytearray()
        while chunk := self.read(1 << 16):
            content += chunk
        return bytes(content)

    def close(self) -> None:
        if not self.closed:
            self.disk.opened.pop(self.fileno(), None)
        super().close()
