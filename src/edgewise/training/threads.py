"""How many threads a training step is worth, and how they wait for one another beside other programs.

Their number sets the order of sums: it is read off the work of a step, never off a clock, so that a run repeats.
"""

import sys
import time
from collections.abc import Callable
from math import prod
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

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        y = func(*args, **(kwargs or {}))
        if not func.is_view:
            moved = sum(x.numel() * x.element_size() for x in tree_leaves((args, kwargs, y)) if isinstance(x, Tensor))
            self.operations += 1
            self.seconds += moved / BYTES + _flops(func.__name__.split(".")[0], args, y) / FLOPS
        return y


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


# Involuntary context switches a second, over so many seconds, from which on other programs use the cores: with two busy
# loops on two cores there are 50 to 5000 for a process; and how long it must be quiet until threads spin again.
BUSY, WINDOW, QUIET = 20.0, 0.25, 1.0


class Waiting:
    """Lets threads that wait sleep while other programs use the cores; on idle cores they spin, which is faster.

    GNU's OpenMP, PyTorch's on Linux, hardly spins while it has more threads than there are cores: while it is busy, a
    thread that sleeps holds a second team. A waiting thread that spins keeps those that it waits for from running: a
    step of `digits-vit` takes 2600 ms beside six other processes on two cores, and 30 ms with threads that sleep.
    """

    def __init__(self, threads: int) -> None:
        self.watches = threads > 1 and sys.platform == "linux"
        self.since, self.switches = time.perf_counter(), _switches() if self.watches else 0
        self.busy, self.release = 0.0, Event()
        self.holder: Thread | None = None

    def look(self) -> None:
        """After a step: begin or end to sleep."""
        now = time.perf_counter()
        if not self.watches or now - self.since < WINDOW:
            return
        switches = _switches()
        if switches - self.switches > BUSY * (now - self.since):
            self.busy = now
            self.sleep()
        elif now - self.busy > QUIET:
            self.close()
        self.since, self.switches = now, switches

    def sleep(self) -> None:
        """From now on, threads that wait sleep."""
        if self.holder is None:
            self.release.clear()
            self.holder = Thread(target=_hold, args=(self.release,), name="waiting", daemon=True)
            self.holder.start()

    def close(self) -> None:
        """From now on, they spin."""
        if self.holder is not None:
            self.release.set()
            self.holder.join()
            self.holder = None


def _hold(release: Event) -> None:
    torch.ones(1 << 17).add_(1)  # enough for a team of threads, which lives as long as this one
    release.wait()


def _switches() -> int:
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
