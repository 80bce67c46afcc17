"""How many threads a training step is worth, and how they wait for one another beside other programs.

Their number sets the order of sums: it is read off the work of a step, never off a clock, so that a run repeats.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from math import prod
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# A region of two threads begins and ends in 5 to 15 µs on two cores of an AMD EPYC, and in milliseconds where other
# programs use them: a thread must have this much of the mean operation to do.
WORTH = 25e-6  # seconds
FLOPS, BYTES = 8e10, 1e10  # a second, of one such core in float32: matrix products, and all other operations


def worthwhile(compute: Callable[[], object], most: int) -> int:
    """The number of threads, from 1 to `most`, of which each has WORTH of a computation's mean operation to do.

    Edge cases  one pass is carried out to count its operations: it follows from shapes alone, whatever else runs
    Example
        >>> small, large = torch.zeros(8, 8), torch.zeros(1000, 1000)
        >>> worthwhile(lambda: small @ small, most=4), worthwhile(lambda: large @ large, most=4)
        (1, 4)
    """
    if most == 1:
        return 1
    with _Work() as work, torch.no_grad(), torch.random.fork_rng(devices=[]):
        compute()
    return max(1, min(most, int(work.seconds / max(1, work.operations) / WORTH)))


class _Work(TorchDispatchMode):
    """Counts what is carried out inside: operations, and the seconds that they would take on one thread."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations, self.seconds = 0, 0.0


def _count(work: _Work, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    y = func(*args, **(kwargs or {}))
    if not func.is_view:
        moved = sum(x.numel() * x.element_size() for x in tree_leaves((args, kwargs, y)) if isinstance(x, Tensor))
        work.operations += 1
        work.seconds += moved / BYTES + _flops(func.__name__.split(".")[0], args, y) / FLOPS
    return y


# Outside of the class: what is defined inside, PyTorch wraps so that the first operation imports the compiler (1.1 s).
_Work.__torch_dispatch__ = _count  # type: ignore[assignment, method-assign]


def _flops(name: str, args: Any, y: Any) -> int:
    """Multiplications and additions of a product; 0 of any other operation, whose bytes count."""
    if name in ("mm", "bmm"):
        return 2 * y.numel() * args[0].shape[-1]
    if name in ("addmm", "baddbmm"):
        return 2 * y.numel() * args[1].shape[-1]
    if name == "convolution":
        return 2 * y.numel() * prod(args[1].shape[1:])
    if name.startswith("_scaled_dot_product"):
        return 4 * args[0].numel() * args[1].shape[-2]
    return 0


# Involuntary context switches a second, over so many seconds of steps, from which on other programs may use the cores:
# two busy loops on two cores cause 50 to 5000. And the seconds from one comparison to the next, at first and at most:
# they double while a comparison confirms the one before.
BUSY, WINDOW, SOON, LATE = 20.0, 0.25, 1.0, 60.0


class Way(Enum):
    """How threads wait for one another."""

    SPIN = "each on a core, busily"
    SLEEP = "each on a core, asleep"
    TOGETHER = "all on one core, asleep"


class Waiting:
    """Chooses how threads wait: they spin on idle cores; beside other programs they sleep, or share a core.

    A thread that spins keeps those that it waits for from running: a step of `digits-vit` takes 2600 ms beside six
    other processes on two cores, and 30 ms with threads that sleep; on idle cores 6 and 13 ms. One that sleeps waits
    for a core at each of a step's hundreds of regions. On one core, threads take turns: a step takes what it takes on
    one thread, with the sums of several. Beside two busy loops, `digits-vit` takes 12 to 44 ms on two threads that spin
    or sleep, 12 to 13 on two that share a core, and 12 to 25 on one. So the three are timed where the machine seems
    busy, and from time to time while threads do not spin.

    GNU's OpenMP, PyTorch's on Linux, hardly spins while it has more threads than there are cores: for that a thread
    which sleeps holds a second team.
    """

    def __init__(self, threads: int) -> None:
        self.watches = threads > 1 and sys.platform == "linux"
        self.way, self.best = Way.SPIN, Way.SPIN
        self.took: dict[Way, float] = {}  # a step's seconds in each way, during a comparison
        self.release = Event()
        self.holder: Thread | None = None
        self.cores: dict[int, set[int]] = {}  # those of each thread, while they share one
        self.patience, self.next = SOON, 0.0
        self._begin()

    def _begin(self) -> None:
        self.seconds, self.steps, self.switches = 0.0, 0, _switches() if self.watches else 0

    def look(self, seconds: float) -> None:
        """After a step that took so many seconds: compare the ways, where it is time, and go on with the fastest."""
        self.seconds, self.steps = self.seconds + seconds, self.steps + 1
        if not self.watches or self.seconds < WINDOW:
            return
        now = time.perf_counter()
        busy = self.way is not Way.SPIN or _switches() - self.switches > BUSY * self.seconds
        if self.took or (busy and now >= self.next):
            self.took[self.way] = self.seconds / self.steps
            untried = [way for way in Way if way not in self.took]
            self.wait(untried[0] if untried else self._fastest(now))
        self._begin()

    def _fastest(self, now: float) -> Way:
        best = min(self.took, key=self.took.__getitem__)
        self.patience = min(LATE, 2 * self.patience) if best is self.best else SOON
        self.best, self.next, self.took = best, now + self.patience, {}
        return best

    def wait(self, way: Way) -> None:
        """From now on, threads wait in this way."""
        self.way = way
        if way is Way.TOGETHER and not self.cores:
            self.cores = _gather()
        elif way is not Way.TOGETHER and self.cores:
            self.cores = _scatter(self.cores)
        if way is not Way.SPIN and self.holder is None:
            self.release.clear()
            self.holder = Thread(target=_hold, args=(self.release,), name="waiting", daemon=True)
            self.holder.start()
        elif way is Way.SPIN and self.holder is not None:
            self.release.set()
            self.holder.join()
            self.holder = None

    def close(self) -> None:
        """From now on, they spin."""
        self.wait(Way.SPIN)


def _hold(release: Event) -> None:
    torch.ones(1 << 17).add_(1)  # enough for a team of threads, which lives as long as this one
    release.wait()


def _switches() -> int:
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _gather() -> dict[int, set[int]]:
    """Put this thread and OpenMP's on the core where this one runs; the cores that each had. Python's others stay."""
    core = int(Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[36])
    python = {thread.native_id for thread in threading.enumerate()} - {threading.get_native_id()}
    had: dict[int, set[int]] = {}
    for number in _numbers() - python:
        with suppress(OSError):  # it ended, or may not move
            had[number] = os.sched_getaffinity(number)
            os.sched_setaffinity(number, {core})
    return had


def _scatter(had: dict[int, set[int]]) -> dict[int, set[int]]:
    """Give the threads their cores back, and this one's to those that inherited the one core meanwhile; {}."""
    here = os.sched_getaffinity(0)
    for number in _numbers():
        with suppress(OSError):
            if number in had or os.sched_getaffinity(number) == here:
                os.sched_setaffinity(number, had.get(number, had[threading.get_native_id()]))
    return {}


def _numbers() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}
