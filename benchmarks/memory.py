"""How much memory a process holds, and the most that it held during a step."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MEGABYTE = 2**20


def resident() -> float:
    """Megabytes of this process that are in memory now."""
    return _status("VmRSS") if STATUS.exists() else _greatest()


def give_back() -> None:
    """Return what is free to the system, so that a later peak counts it again."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def peak_above(step: Callable[[], object]) -> float:
    """Megabytes that a step needs at its peak, above what is resident just before it.

    Edge cases  where the system cannot reset its high-water mark, the growth of the highest ever: possibly 0
    """
    give_back()
    if CLEAR.exists():
        CLEAR.write_text("5", encoding="ascii")
    before = resident()
    kept = step()
    highest = _status("VmHWM") if STATUS.exists() else _greatest()
    del kept
    return max(0.0, highest - before)


def _status(field: str) -> float:
    for line in STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _greatest() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE
