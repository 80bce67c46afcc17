"""Time contenders side by side: each in its own process, rounds interleaved, medians with spread and peak memory."""

from __future__ import annotations

import json
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection

Step = Callable[[], float]  # one training step, returning its loss so that contenders can be compared
Contender = Callable[[], Step]  # makes a step; a function of a module, since every process imports it afresh


@dataclass(frozen=True)
class Timing:
    """Milliseconds a step over the rounds, and the peak resident memory above what was there before the steps."""

    name: str
    milliseconds: float
    lower_quartile: float
    upper_quartile: float
    extra_megabytes: float
    losses: tuple[float, ...]


def _serve(contender: Contender, threads: int, pipe: Connection) -> None:
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    step = contender()
    before = _peak_megabytes()
    while (steps := pipe.recv()) is not None:
        start = time.perf_counter()
        losses = [step() for _ in range(steps)]
        pipe.send(((time.perf_counter() - start) / steps * 1e3, losses, _peak_megabytes() - before))


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def race(contenders: dict[str, Contender], rounds: int = 15, steps: int = 10, threads: int = 2) -> list[Timing]:
    """Run `rounds` rounds of `steps` steps of every contender in turn, after one round to warm up."""
    context = multiprocessing.get_context("spawn")
    runners = {}
    for name, contender in contenders.items():
        pipe, far_end = context.Pipe()
        process = context.Process(target=_serve, args=(contender, threads, far_end), daemon=True)
        process.start()
        runners[name] = (pipe, process)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    losses: dict[str, list[float]] = {name: [] for name in contenders}
    memory = dict.fromkeys(contenders, 0.0)
    for turn in range(rounds + 1):
        for name, (pipe, _) in runners.items():
            pipe.send(steps)
            milliseconds, some, memory[name] = pipe.recv()
            losses[name] += some
            if turn:
                times[name].append(milliseconds)
    for pipe, process in runners.values():
        pipe.send(None)
        process.join()
    timings = []
    for name, found in times.items():
        low, middle, high = statistics.quantiles(found, n=4)
        timings.append(Timing(name, middle, low, high, memory[name], tuple(losses[name])))
    return timings


def report(title: str, timings: list[Timing]) -> None:
    """Print a table with each contender's ratio to the last one, the peer, and the same as one line of JSON."""
    peer = timings[-1]
    print(title)
    print(f"{'':24} {'ms a step':>10} {'quartiles':>17} {'ratio':>7} {'extra MB':>9}")
    for one in timings:
        spread = f"{one.lower_quartile:.2f}–{one.upper_quartile:.2f}"
        ratio = one.milliseconds / peer.milliseconds
        print(f"{one.name:24} {one.milliseconds:10.2f} {spread:>17} {ratio:7.3f} {one.extra_megabytes:9.0f}")
    rows = [{key: value for key, value in asdict(one).items() if key != "losses"} for one in timings]
    print(json.dumps({"title": title, "timings": rows}))
