"""Time and memory of a step for each edge, from 10⁴ to 10⁸ edges.

    python -m benchmarks.whole.growth VERB GRAPH [EDGES ...]

VERB is attend (`Dot`, 4 heads of 16 channels) or aggregate (a mean of 64 channels); forward and backward, float32.
GRAPH has 100 edges a node: random, from anywhere, or near, from among 2,000 nodes around each receiver. All sizes lie
in one process, the small ones first; the median of the rounds, and the peak above what the graph and its tensors take.
Then the slope of the logarithm of time over that of edges.
"""

import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import Tensor

from benchmarks.memory import peak_above
from benchmarks.statistic import slope
from edgewise.graphs import Graph
from edgewise.kernels import aggregate, attend

HEADS, CHANNELS, DEGREE, AROUND = 4, 16, 100, 1000
SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
SECONDS, ROUNDS = 3.0, 3  # of a size at most, but so many rounds at least


def random(nodes: int, edges: int, generator: torch.Generator) -> Tensor:
    """Both ends from anywhere."""
    return torch.randint(nodes, (2, edges), generator=generator)


def near(nodes: int, edges: int, generator: torch.Generator) -> Tensor:
    """Each sender from among the nodes around its receiver."""
    receivers = torch.randint(nodes, (edges,), generator=generator)
    apart = torch.randint(-AROUND, AROUND + 1, (edges,), generator=generator)
    return torch.stack([(receivers + apart).remainder_(nodes), receivers])


VERBS, GRAPHS = ("attend", "aggregate"), {"random": random, "near": near}


def measured(verb: str, kind: str, edges: int) -> dict[str, float]:
    """Milliseconds of a step, and nanoseconds and bytes for each edge."""
    nodes, generator = max(1, edges // DEGREE), torch.Generator().manual_seed(edges)
    graph = Graph.from_edge_index(GRAPHS[kind](nodes, edges, generator), nodes)
    shape = (nodes, HEADS, CHANNELS) if verb == "attend" else (nodes, HEADS * CHANNELS)
    *inputs, dy = (torch.randn(shape, generator=generator) for _ in range(4 if verb == "attend" else 2))
    run = _step(graph, [x.requires_grad_() for x in inputs], dy)
    for _ in range(2):
        run()  # plans the graph, and turns it around for the backward pass
    started = time.perf_counter()
    seconds: list[float] = []
    while len(seconds) < ROUNDS or (time.perf_counter() - started < SECONDS and len(seconds) < 200):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    peak = peak_above(run) * 2**20
    return {"edges": edges, "ms": 1e3 * median(seconds), "ns": 1e9 * median(seconds) / edges, "bytes": peak / edges}


def _step(graph: Graph, inputs: Sequence[Tensor], dy: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    def run() -> tuple[Tensor, ...]:
        x, *others = inputs
        y = attend(graph, x, others[0], others[1]) if others else aggregate(graph, x, reduce="mean")
        return torch.autograd.grad(y, list(inputs), dy)

    return run


def slopes(rows: Sequence[dict[str, float]]) -> tuple[float, float]:
    """Of the logarithm of time over that of edges: of the line through all sizes, and the steepest between two."""
    edges, times = [row["edges"] for row in rows], [row["ms"] for row in rows]
    return slope(edges, times), max(slope(edges[n : n + 2], times[n : n + 2]) for n in range(len(rows) - 1))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, a line for each size, and print the slopes."""
    given = sys.argv[1:] if argv is None else list(argv)
    verb, kind, sizes = given[0] if given else "", given[1] if len(given) > 1 else "", given[2:]
    if verb not in VERBS or kind not in GRAPHS:
        print(f"growth: error: say one of {', '.join(VERBS)}, then one of {', '.join(GRAPHS)}", file=sys.stderr)
        return 2
    print(f"{verb}, {kind}, {torch.get_num_threads()} threads")
    print("| edges | ms | ns an edge | bytes an edge |\n" + 4 * "| --- " + "|")
    rows = []
    for edges in [int(size) for size in sizes] or SIZES:
        rows.append(measured(verb, kind, edges))
        print("| {edges:,} | {ms:.3g} | {ns:.1f} | {bytes:.0f} |".format(**rows[-1]), flush=True)
    if len(rows) > 1:
        print("slope {:.2f}, steepest {:.2f}".format(*slopes(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
