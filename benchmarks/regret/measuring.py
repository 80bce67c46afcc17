"""The time of every backend for one call, forward and backward, and what the planner's choice costs beyond the best."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.inputs import Attention
from edgewise.kernels import BACKENDS
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.choose import dispatch
from edgewise.kernels.choose.planner import candidates

LONGEST, HOPELESS = 0.2, 10  # a backend is not measured beyond both predicted seconds and times the choice's
TRIES, CLOSE = 3, 2.0  # calls, the best of which decides: what takes so many times the fastest's time is left at that
ROUNDS, FEWEST, ROUND, SAMPLE = 15, 3, 0.3, 2e-3  # measurements; seconds: of them all together, of each at least
DOUBTED, AGAIN = 0.05, 5  # a regret beyond this is measured again, so many times as long: that is what counts


@dataclass(frozen=True)
class Problem:
    """A call, what it is differentiated with respect to, and dL/dy."""

    call: Call
    leaves: list[Tensor]
    gradient: Tensor

    @classmethod
    def of(cls, case: Attention) -> Problem:
        """Attention as the benchmarks' cases have it."""
        call = Attend(case.graph, case.q, case.k, case.v, case.score)
        return cls(call, list(case.leaves.values()), case.gradient)


def measure(name: dict[str, Any], problem: Problem) -> dict[str, Any]:
    """Milliseconds of every backend, the planner's choice and its regret."""
    call = problem.call
    predicted = {one.backend: one.seconds for one in candidates(call) if one.seconds is not None}
    choice = next(iter(predicted))
    steps = {
        backend: _step(problem, backend)
        for backend, record in BACKENDS.items()
        if backend in predicted and record.is_chosen_for(call)
        if predicted[backend] < max(LONGEST, HOPELESS * predicted[choice])
    }
    found = {backend: 1e3 * seconds for backend, seconds in _seconds(steps, choice).items()}
    best = min(found, key=lambda backend: found[backend])
    return name | {
        "edges": call.graph.num_edges,
        "milliseconds": found,
        "choice": choice,
        "best": best,
        "regret": found[choice] / found[best] - 1,
    }


def _step(problem: Problem, backend: str) -> Callable[[], None]:
    def step() -> None:
        y = dispatch.run(problem.call, backend)
        assert isinstance(y, Tensor)
        torch.autograd.grad(y, problem.leaves, problem.gradient)
        if y.device.type == "cuda":
            torch.cuda.synchronize()

    return step


def _seconds(steps: dict[str, Callable[[], None]], choice: str) -> dict[str, float]:
    """Of one call of each: what is close to the fastest, and the choice, take turns."""
    for step in steps.values():
        step()
    found = {name: min(_timed(step, 1) for _ in range(TRIES)) for name, step in steps.items()}
    close = [name for name in steps if name == choice or found[name] <= CLOSE * min(found.values())]
    if len(close) == 1:
        return found
    calls = {name: max(1, round(SAMPLE / found[name])) for name in close}
    found |= _in_turns(steps, calls, 1)
    if found[choice] > (1 + DOUBTED) * min(found.values()):
        found |= _in_turns(steps, calls, AGAIN)
    return found


def _in_turns(steps: dict[str, Callable[[], None]], calls: dict[str, int], times: int) -> dict[str, float]:
    """The lower quartile of so many times the usual rounds, of some calls of each: all else only adds to a time."""
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    started = time.perf_counter()
    for n in range(times * ROUNDS):
        if n >= FEWEST and time.perf_counter() - started >= times * ROUND:
            break
        for name, count in calls.items():
            rounds[name].append(_timed(steps[name], count))
    return {name: statistics.quantiles(taken, n=4)[0] for name, taken in rounds.items()}


def _timed(step: Callable[[], None], calls: int) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for _ in range(calls):
        step()
    return (clock() - start) / calls
