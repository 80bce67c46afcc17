"""How much memory there is, and a refusal before more of it is asked for."""

import os
from functools import lru_cache
from pathlib import Path

from edgewise.errors import GraphError

SHARE = 0.5  # of the machine's memory, beyond which one value is refused
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


def check_fits(size: int, what: str, error: type[Exception] = GraphError) -> None:
    """Raise an error that says what is too large, and by how much, before it is allocated."""
    memory = machine()
    if memory is not None and size > SHARE * memory:
        have = f"{in_words(memory)} of memory, of which one value may take {SHARE:.0%}"
        raise error(f"{what} takes {in_words(size)}, and there are {have}")


check_fits._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile runs it while it traces


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
