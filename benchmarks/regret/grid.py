"""How good the planner's choices are: its backend's time beside the best one's, over densities, sizes and patterns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any

import torch

from benchmarks import inputs
from benchmarks.inputs import Attention
from benchmarks.regret.measuring import Problem, measure
from edgewise.graphs import Graph, causal, complete, window
from edgewise.kernels import Dot

DENSITIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SIZES, SIZES_QUICK = (64, 256, 1024, 4096), (64, 256)
OF_PAIRS = ("dense", "tiled")  # backends whose time follows all pairs, not the edges alone
SHAPES, SHAPES_QUICK = ((1, 64), (4, 32), (8, 16)), ((4, 32),)


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
    started, measured = time.perf_counter(), {}
    drawn = list(enumerate(configurations(quick=quick)))
    Random(0).shuffle(drawn)  # what the seconds suffice for is a sample of all
    try:
        for number, (name, make) in drawn:
            if time.perf_counter() - started <= seconds:
                measured[number] = measure(name, Problem.of(make().to(device, dtype)))
    finally:
        torch.set_num_threads(before)
    rows, left_out = [measured[number] for number in sorted(measured)], len(drawn) - len(measured)
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
    """The density at which all pairs are computed as fast as the edges alone, between measured ones by logs.

    Edge cases  None where one of them wins at every density that was measured
    """
    points = []
    for row in sorted(rows, key=lambda row: row["density"]):
        times = row["milliseconds"]
        pairs = [t for name, t in times.items() if name in OF_PAIRS]
        edges = [t for name, t in times.items() if name not in OF_PAIRS]
        if pairs and edges:
            points.append((math.log(row["density"]), math.log(min(edges) / min(pairs))))
    for (x0, y0), (x1, y1) in pairwise(points):
        if y0 < 0 <= y1:
            return math.exp(x0 - y0 * (x1 - x0) / (y1 - y0))
    return None
