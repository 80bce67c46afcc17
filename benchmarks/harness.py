"""Time contenders side by side: each in its own process, checked first, rounds interleaved, medians with quartiles."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS
from benchmarks.worker import LAZY, Order, exact_file, serve, write_exact

LEAST, MOST = 3, 60  # rounds
SLOW = 20.0  # seconds: a slower step is measured once
# What a quick run's processes have loaded already; one that is not installed is passed over.
PRELOADED = ["benchmarks.contenders", "benchmarks.exact", *LAZY, "torch_geometric.nn"]
PATIENCE = 600.0  # seconds until a contender that does not answer is given up
LEAVE = 10.0  # seconds until one that does not end is killed


@dataclass(frozen=True)
class Budget:
    """How long to measure: seconds for each part and number of threads, or a number of rounds."""

    seconds: float = 20.0
    rounds: int | None = None
    gigabytes: float = 16.0
    size: float = 1.0
    quick: bool = False  # processes are copies of one that has loaded PyTorch, and nothing that compiles takes part


@dataclass(frozen=True)
class Spread:
    """The median of several measurements, the quartiles around it, and how many there were."""

    median: float
    low: float
    high: float
    rounds: int


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles.

    Example
        >>> spread([3.0, 1.0, 2.0, 5.0, 4.0])
        Spread(median=3.0, low=2.0, high=4.0, rounds=5)
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high, len(values))


@dataclass
class Measurement:
    """What one contender did in one part of a case on so many threads: a refusal, or errors, seconds and megabytes."""

    case: str
    part: str
    contender: str
    threads: int
    refused: str | None = None
    errors: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, Spread] = field(default_factory=dict)  # by kind: forward, step
    megabytes: dict[str, float] = field(default_factory=dict)


Entrant = tuple[str, int]  # a contender, and on how many threads


def race(
    case: str,
    part: str,
    entrants: Sequence[Entrant],
    budget: Budget,
    say: Callable[[str], None] = lambda line: None,
) -> list[Measurement]:
    """Measure the entrants of one part: start all, check all, then interleave their rounds.

    Time is that of the processor where all run on one thread, and else by the clock.
    """
    found = {entrant: Measurement(case, part, *entrant) for entrant in entrants}
    running: dict[Entrant, Runner] = {}
    by_clock = any(threads > 1 for _, threads in entrants)
    with tempfile.TemporaryDirectory() as folder:
        order = Order(case, part, "", 1, budget.size, exact_file(Path(folder)), budget.gigabytes, by_clock)
        _in_process(write_exact, order, budget)
        try:
            for entrant in entrants:
                name, threads = entrant
                if budget.quick and (why := CONTENDERS[name].too_slow_to_start()):
                    found[entrant].refused = f"left out of a quick run: {why}"
                    continue
                say(f"{case} {part} {name}".replace("  ", " "))
                runner = Runner(replace(order, contender=name, threads=threads), budget)
                answer = runner.receive()
                if "ready" in answer:
                    running[entrant] = runner
                    found[entrant].errors = answer["ready"]["errors"]
                    runner.kinds = answer["ready"]["kinds"]
                else:
                    found[entrant].refused = answer["refused"]
                    runner.stop()
            _measure(running, found, budget)
        finally:
            for runner in running.values():
                runner.stop()
    return list(found.values())


def _measure(running: dict[Entrant, Runner], found: Mapping[Entrant, Measurement], budget: Budget) -> None:
    times: dict[tuple[Entrant, str], list[float]] = {}
    repeats: dict[tuple[Entrant, str], int] = {}

    def ask(entrant: Entrant, what: str, kind: str, steps: int = 1) -> Any:
        answer = running[entrant].ask(what, kind, steps)
        if isinstance(answer, dict) and "refused" in answer:
            found[entrant].refused = answer["refused"]
            running.pop(entrant).stop()
            return None
        return answer

    for entrant, kind in _turns(running):
        answer = ask(entrant, "memory", kind)
        if answer:
            found[entrant].megabytes[kind] = answer["megabytes"]
            if answer["seconds"] > SLOW:
                times[entrant, kind] = [answer["seconds"]]
    slow = set(times)
    for entrant, kind in _turns(running):
        if (entrant, kind) not in slow:
            repeats[entrant, kind] = ask(entrant, "calibrate", kind) or 1
    started, rounds = time.perf_counter(), 0
    while repeats and not _enough(rounds, time.perf_counter() - started, budget):
        for entrant, kind in _turns(running):
            if (entrant, kind) in slow:
                continue
            seconds = ask(entrant, "time", kind, repeats[entrant, kind])
            if seconds is not None:
                times.setdefault((entrant, kind), []).append(seconds)
        rounds += 1
    for (entrant, kind), values in times.items():
        if entrant in running:
            found[entrant].seconds[kind] = spread(values)


def _turns(running: dict[Entrant, Runner]) -> Iterator[tuple[Entrant, str]]:
    for entrant in list(running):
        for kind in running[entrant].kinds:
            if entrant in running:
                yield entrant, kind


def _enough(rounds: int, seconds: float, budget: Budget) -> bool:
    if budget.rounds is not None:
        return rounds >= budget.rounds
    return rounds >= MOST or (rounds >= LEAST and seconds >= budget.seconds)


class Runner:
    """A contender's process and the pipe to it."""

    def __init__(self, order: Order, budget: Budget) -> None:
        self.kinds: list[str] = []
        self.orderly = not budget.quick
        context = context_of(budget)
        self.pipe, far_end = context.Pipe()
        with environment(environment_of(order.threads) | dict(CONTENDERS[order.contender].environment)):
            self.process = context.Process(target=serve, args=(order, far_end))
            self.process.start()
        far_end.close()

    def receive(self) -> Any:
        """The next answer; a refusal where the process is gone or takes too long."""
        return _receive(self.pipe)

    def ask(self, what: str, kind: str, steps: int) -> Any:
        """Ask for one measurement."""
        try:
            self.pipe.send((what, kind, steps))
        except OSError:
            return {"refused": "its process ended"}
        return self.receive()

    def stop(self) -> None:
        """End the process: at once in a quick run, else in order, so that it gives back its semaphores."""
        if self.orderly:
            with suppress(OSError):
                self.pipe.send(None)
            self.process.join(LEAVE)
        self.process.kill()
        self.process.join()
        self.pipe.close()


def context_of(budget: Budget) -> Any:
    """How processes start: afresh, or in a quick run as copies of one that has loaded PyTorch and started nothing."""
    if not budget.quick:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _receive(pipe: Connection) -> Any:
    try:
        if pipe.poll(PATIENCE):
            return pipe.recv()
    except (EOFError, OSError):
        return {"refused": "its process ended without an answer"}
    return {"refused": f"gave no answer within {PATIENCE:.0f} seconds"}


def _in_process(function: Callable[[Order], None], order: Order, budget: Budget) -> None:
    process = context_of(budget).Process(target=function, args=(order,))
    process.start()
    process.join()


def environment_of(threads: int) -> dict[str, str]:
    """What tells every library of a contender how many threads it has."""
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Variables that a process started inside the block inherits: the allocator reads its own when it starts."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
