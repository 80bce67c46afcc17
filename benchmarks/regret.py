"""How good the planner's choices are: its backend's time beside the best one's, over densities, sizes and patterns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch

from benchmarks import inputs
from benchmarks.inputs import Attention
from edgewise.graphs import Graph, causal, complete, window
from edgewise.kernels import BACKENDS, Dot, attend
from edgewise.kernels.call import Attend
from edgewise.kernels.choose.planner import candidates

DENSITIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SIZES, SIZES_QUICK = (64, 256, 1024, 4096), (64, 256)
SHAPES, SHAPES_QUICK = ((1, 64), (4, 32), (8, 16)), ((4, 32),)
LONGEST, HOPELESS = 0.2, 10  # a backend is not measured beyond both predicted seconds and times the choice's
TRIES, CLOSE = 3, 2.0  # calls, the best of which decides: what takes so many times the fastest's time is left at that
ROUNDS, FEWEST, ROUND, SAMPLE = 15, 3, 0.3, 2e-3  # measurements; seconds: of them all together, of each at least
DOUBTED, AGAIN = 0.05, 5  # a regret beyond this is measured again, so many times as long: that is what counts


def regret(
    *,
    quick: bool = False,
    threads: int = 2,
    seconds: float = 180.0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """Measure every backend that does not refuse, forward and backward, and compare the planner's choice with the best.

    Equation    regret = t(choice) / t(best) − 1
    Symbols     device, dtype = where and in what the calls compute
    Cost        two to three minutes; configurations that the seconds leave no time for are counted, not measured
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    started, rows, left_out = time.perf_counter(), [], 0
    try:
        for name, make in configurations(quick=quick):
            if time.perf_counter() - started > seconds:
                left_out += 1
                continue
            rows.append(measure(name, make().to(device, dtype)))
    finally:
        torch.set_num_threads(before)
    where = {"device": device, "dtype": str(dtype).removeprefix("torch."), "threads": threads}
    return where | {"left_out": left_out, "rows": rows} | summary(rows)


def configurations(*, quick: bool) -> Iterator[tuple[dict[str, Any], Callable[[], Attention]]]:
    """What is measured: random graphs by density, windows, batches of small graphs and the plain patterns."""
    for heads, channels in SHAPES_QUICK if quick else SHAPES:
        for name, graph in _graphs(quick=quick):
            described = name | {"heads": heads, "channels": channels}
            yield (
                described,
                lambda graph=graph, heads=heads, channels=channels: inputs.attention(  # type: ignore[misc]
                    graph(), heads, channels, Dot()
                ),
            )


def _graphs(*, quick: bool) -> Iterator[tuple[dict[str, Any], Callable[[], Graph]]]:
    for n in SIZES_QUICK if quick else SIZES:
        for density in DENSITIES:
            if n * density >= 1:
                yield {"graph": "random", "n": n, "density": density}, lambda n=n, d=density: random(n, d)  # type: ignore[misc]
        if n <= 1024:
            yield {"graph": "complete", "n": n}, lambda n=n: complete(n)  # type: ignore[misc]
            yield {"graph": "causal", "n": n}, lambda n=n: causal(n)  # type: ignore[misc]
        for radius in (8, 32, 128):
            if 2 * radius < n and n >= 256:
                yield {"graph": f"window {radius}", "n": n}, lambda n=n, r=radius: window(n, r)  # type: ignore[misc]
    for count in (8, 64) if quick else (8, 64, 256):
        sizes = inputs.molecule_sizes(count)
        yield (
            {"graph": f"{count} complete molecules", "n": sum(sizes)},
            lambda sizes=sizes: Graph.batch([complete(n) for n in sizes]),  # type: ignore[misc]
        )
        yield {"graph": f"{count} molecules' bonds", "n": sum(sizes)}, lambda count=count: inputs.molecules(count)  # type: ignore[misc]


def random(n: int, density: float) -> Graph:
    """Every pair is an edge with the same probability."""
    mask = torch.rand(n, n, generator=torch.Generator().manual_seed(n)) < density
    return Graph.from_edge_index(mask.nonzero().T, num_nodes=n)


def measure(name: dict[str, Any], case: Attention) -> dict[str, Any]:
    """Milliseconds of every backend, the planner's choice and its regret."""
    call = Attend(case.graph, case.q, case.k, case.v, case.score)
    predicted = {one.backend: one.seconds for one in candidates(call) if one.seconds is not None}
    choice = next(iter(predicted))
    steps = {
        backend: _step(case, backend)
        for backend, record in BACKENDS.items()
        if backend in predicted and record.is_chosen_on(case.graph.device.type)
        if predicted[backend] < max(LONGEST, HOPELESS * predicted[choice])
    }
    found = {backend: 1e3 * seconds for backend, seconds in _seconds(steps, choice).items()}
    best = min(found, key=lambda backend: found[backend])
    return name | {
        "edges": case.graph.num_edges,
        "milliseconds": found,
        "choice": choice,
        "best": best,
        "regret": found[choice] / found[best] - 1,
    }


def _step(case: Attention, backend: str) -> Callable[[], None]:
    leaves = list(case.leaves.values())

    def step() -> None:
        y = attend(case.graph, case.q, case.k, case.v, case.score, backend=backend)
        torch.autograd.grad(y, leaves, case.gradient)
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
    """The median of so many times the usual rounds, of some calls of each."""
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    started = time.perf_counter()
    for n in range(times * ROUNDS):
        if n >= FEWEST and time.perf_counter() - started >= times * ROUND:
            break
        for name, count in calls.items():
            rounds[name].append(_timed(steps[name], count))
    return {name: statistics.median(taken) for name, taken in rounds.items()}


def _timed(step: Callable[[], None], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - start) / calls


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and worst regret, and the break-even density of every size and shape."""
    if not rows:
        return {"median": 0.0, "worst": 0.0, "worst_at": None, "break_even": []}
    worst = max(rows, key=lambda row: row["regret"])
    found = []
    random_rows = [row for row in rows if row["graph"] == "random"]
    for key in dict.fromkeys((row["n"], row["heads"], row["channels"]) for row in random_rows):
        same = [row for row in random_rows if (row["n"], row["heads"], row["channels"]) == key]
        found.append({"n": key[0], "heads": key[1], "channels": key[2], "density": break_even(same)})
    return {
        "median": statistics.median(row["regret"] for row in rows),
        "worst": worst["regret"],
        "worst_at": {name: worst[name] for name in ("graph", "n", "heads", "channels", "edges", "choice", "best")},
        "break_even": found,
    }


def break_even(rows: list[dict[str, Any]]) -> float | None:
    """The density at which the dense backend becomes as fast as the best sparse one, between measured ones by logs.

    Edge cases  None where one of them wins at every density that was measured
    """
    points = []
    for row in sorted(rows, key=lambda row: row["density"]):
        times = dict(row["milliseconds"])
        dense = times.pop("dense", None)
        if dense is not None and times:
            points.append((math.log(row["density"]), math.log(min(times.values()) / dense)))
    for (x0, y0), (x1, y1) in pairwise(points):
        if y0 < 0 <= y1:
            return math.exp(x0 - y0 * (x1 - x0) / (y1 - y0))
    return None
