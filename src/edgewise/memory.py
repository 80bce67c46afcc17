"""How much memory there is, a refusal before more of it is asked for, and what becomes of that which is freed."""

import ctypes
import os
import re
import sys
from functools import lru_cache
from pathlib import Path

from edgewise.errors import ConfigError, GraphError

SHARE = 0.5  # of the machine's memory, beyond which one value is refused
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # options of mallopt
KEPT, LARGEST = 1 << 29, 1 << 25  # bytes: free memory that glibc keeps, and the largest block there is in it
SHORT = re.compile(
    r"(?<!illegal )memory(?! format)|Storage size"
)  # in errors of PyTorch that say that it is too little
LIMITS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"  # of a container, in bytes


@lru_cache
def machine() -> int | None:
    """The memory of this machine, or of the process's container, in bytes; None where it is not known."""
    try:
        known = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):
        return None
    for path in map(Path, LIMITS):
        try:
            known.append(int(path.read_text(encoding="ascii")))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    return min(known)


def _known() -> int | None:
    return machine()


_known._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile runs it while it traces


def check_fits(size: int, what: str, *numbers: object, error: type[Exception] = GraphError) -> None:
    """Raise an error that says what is too large, and by how much, before it is allocated.

    Symbols     what = it in words, as a template of `str.format` for the numbers: torch.compile traces no text of sizes
                that may change, and none is made where it fits
    """
    memory = _known()
    if memory is not None and size > SHARE * memory:
        have = f"{in_words(memory)} of memory, of which one value may take {SHARE:.0%}"
        raise error(f"{what.format(*numbers)} takes {in_words(size)}, and there are {have}")


def was_short(error: BaseException) -> bool:
    """Whether an error says that there was too little memory: Python's, or one of PyTorch's of any device.

    >>> was_short(MemoryError()), was_short(RuntimeError("CUDA out of memory")), was_short(RuntimeError("a shape"))
    (True, True, False)
    """
    return isinstance(error, MemoryError | OverflowError) or bool(SHORT.search(str(error)))


def keep_freed() -> None:
    """Have glibc keep freed memory and PyTorch ask for large pages, where the user has not said what they are to do.

    By itself it gives much of that back to the system, from which it comes as fresh pages that have to be cleared: a
    fifth of a step of `cora-gat`, a tenth of one of `multi30k-de-en`, on an AMD EPYC. The process's peak stays.
    On small pages sums and attention on 100,000 nodes took 2 to 5 times as long on an Intel Xeon (Granite Rapids).
    """
    said = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    if sys.platform == "linux" and not said and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(TRIM_THRESHOLD, KEPT)
        libc.mallopt(MMAP_THRESHOLD, LARGEST)
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # which PyTorch reads at its first tensor


def in_words(size: float) -> str:
    """A number of bytes as a person writes it.

    >>> in_words(8e9), in_words(1536)
    ('8.0 GB', '1.5 kB')
    """
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} B" if unit == "B" else f"{size:,.1f} {unit}"


UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_size(text: str) -> int:
    """The number of bytes that a person writes.

    >>> parse_size("2GB"), parse_size("1.5 kB"), parse_size("0")
    (2000000000, 1500, 0)
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([kKMGT]?)B?\s*", text, re.ASCII)
    if found is None:
        raise ConfigError(f"{text[:40]!r} is no size: write it as 500MB or 2GB")
    return int(float(found[1]) * UNITS[found[2].upper()])
