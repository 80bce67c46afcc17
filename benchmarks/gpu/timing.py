"""Time on a card, by events; on a CPU, for a dry run, by the clock. And how long the whole benchmark may still take."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import BackendRefusal

ROUND = 2e-3  # seconds that one measurement lasts at least: shorter work is repeated without waiting in between
ROUNDS = 15  # measurements of each contender, in turns with the others'
MEGABYTE = 2**20


class BrokenError(Exception):
    """A contender took the card's context down with it: this process can compute no more."""


class Device:
    """Where everything computes, and until when.

    Symbols     dry = on the CPU, where no figure means anything; toy = at toy sizes, without what compiles for long
    """

    def __init__(self, dry: bool, seconds: float, toy: bool | None = None) -> None:
        self.dry, self.toy, self.kind = dry, dry if toy is None else toy, "cpu" if dry else "cuda"
        self.started, self.seconds = time.perf_counter(), seconds
        self.cache = MEGABYTE if self.toy else torch.cuda.get_device_properties(0).L2_cache_size
        self.bandwidth = 0.0
        self.without: frozenset[str] = frozenset()  # contenders that took a context down before

    def left(self) -> float:
        """Seconds until the benchmark has to end."""
        return self.seconds - (time.perf_counter() - self.started)

    def wait(self) -> None:
        """Until the card has done what it was asked for."""
        if not self.dry:
            torch.cuda.synchronize()

    def broken(self) -> bool:
        """Whether the card's context is lost, as after a read of memory that is not there."""
        try:
            self.wait()
        except RuntimeError:
            return True
        return False

    def clear(self) -> None:
        """Give back the memory that nothing holds any more."""
        gc.collect()
        if not self.dry:
            torch.cuda.empty_cache()

    def seconds_of(self, works: Sequence[Callable[[], Any]]) -> float:
        """Mean seconds of pieces of work done one after another."""
        self.wait()
        if self.dry:
            start = time.perf_counter()
            for work in works:
                work()
            return (time.perf_counter() - start) / len(works)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for work in works:
            work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / len(works)

    def waited(self, work: Callable[[], Any]) -> float:
        """Seconds by the clock until one piece of work is done."""
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - start

    def peak(self, work: Callable[[], Any]) -> float | None:
        """Megabytes that work holds at its peak above what is there before."""
        if self.dry:
            work()
            return None
        self.wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = work()
        self.wait()
        del kept
        return (torch.cuda.max_memory_allocated() - before) / MEGABYTE

    def measure_bandwidth(self) -> float:
        """Bytes read and written per second by a large copy: what every other figure is compared with."""
        source = torch.rand(MEGABYTE if self.toy else 2**30, device=self.kind)
        target = torch.empty_like(source)
        found = [self.seconds_of([lambda: target.copy_(source)]) for _ in range(9)]
        self.bandwidth = 2 * 4 * source.numel() / statistics.median(found[2:])
        return self.bandwidth


class Turns:
    """Several pieces of work, timed in turns, each on its sets of inputs one after another.

    Symbols     works = for each name, one callable for every set of inputs
    """

    def __init__(self, device: Device, works: dict[str, list[Callable[[], Any]]]) -> None:
        self.device, self.works = device, works
        self.seconds: dict[str, list[float]] = {name: [] for name in works}
        self.at = 0

    def run(self, rounds: int = ROUNDS, seconds: float = 10.0) -> dict[str, float]:
        """The median seconds of each."""
        repeats = {}
        for name, sets in self.works.items():  # also the last of the warm-up: every set is touched once
            once = self.device.seconds_of(sets)
            repeats[name] = 1 if self.device.toy else max(1, min(200, round(ROUND / max(once, 1e-7))))
        started = time.perf_counter()
        for done in range(3 if self.device.toy else rounds):
            if done >= 3 and (time.perf_counter() - started > seconds or self.device.left() < 5):
                break
            for place, (name, sets) in enumerate(self.works.items()):
                # Not those that the one before has just read, which the cache may hold.
                turn = [sets[(self.at + place + n) % len(sets)] for n in range(repeats[name])]
                self.seconds[name].append(self.device.seconds_of(turn))
            self.at += 1
        return {name: statistics.median(found) for name, found in self.seconds.items()}


def replay(work: Callable[[], Any], times: int = 3) -> Callable[[], None]:
    """The same work captured in a CUDA graph, which asks the card for all of it at once."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()
    assert kept is not None
    return graph.replay


def sets_beyond_cache(device: Device, size: int) -> int:
    """How many sets of inputs of that many bytes the cache cannot hold, two thirds of them at most."""
    return max(1, min(8, -(-3 * device.cache // max(1, size)))) if size < 3 * device.cache else 1


def size_of(tensors: Sequence[Tensor]) -> int:
    """Bytes."""
    return sum(x.numel() * x.element_size() for x in tensors)


def stopped(error: Exception) -> dict[str, Any]:
    """What a row says of a contender that raised an error: the reason, and that it failed, where it did not refuse.

    Example
        >>> stopped(BackendRefusal("no")), stopped(TypeError("off"))
        ({'refused': 'BackendRefusal: no'}, {'refused': 'TypeError: off', 'failed': True})
    """
    return {"refused": reason(error)} | ({} if isinstance(error, BackendRefusal) else {"failed": True})


def reason(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, torch.OutOfMemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
