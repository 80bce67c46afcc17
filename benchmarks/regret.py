"""The planner's regret on calls that are drawn at random: verbs, scores, graphs, sizes, heads, biases, batches.

    python -m benchmarks.regret --count 200 --seed 1

Nothing was fitted to them. The same seed draws the same calls. What seems to miss the bar is measured twice more at the
end, since another program may have been in the way, and the median of the three counts.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import inputs
from benchmarks.report import markdown
from edgewise.apps.arguments import Parser, whole
from edgewise.apps.console import columns
from edgewise.errors import ConfigError, EdgewiseError
from edgewise.graphs import Graph, causal, complete, radius_graph, window
from edgewise.kernels import BACKENDS, Additive, Dot, EdgeBias, EdgeVectors, GatedAdditive, RelativeBias, Score
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import EdgeNetwork, Filter, Message
from edgewise.kernels.messages.network import EdgeInput
from edgewise.kernels.planning import dispatch
from edgewise.kernels.planning.planner import candidates

MOST_EDGES, MOST_NUMBERS = 2_000_000, 64_000_000  # of a graph; of features on all edges
HEADS, CHANNELS = (1, 2, 3, 4, 6, 8, 12), (4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)
WIDEST = 512  # heads times channels
RAW = 16  # features of an edge
BAR = 0.1  # the regret beyond which a call is measured again
LONGEST, HOPELESS = 0.2, 10  # a backend is not measured beyond both predicted seconds and times the choice's
TRIES, CLOSE = 3, 2.0  # calls, the best of which decides: what takes so many times the fastest's time is left at that
ROUNDS, FEWEST, ROUND, SAMPLE = 25, 3, 0.5, 2e-3  # measurements; seconds: of them all together, of each at least

Batch = tuple[int, ...]
Described = tuple[str, "Problem"]


@dataclass(frozen=True)
class Problem:
    """A call, what it is differentiated with respect to, and dL/dy."""

    call: Call
    leaves: list[Tensor]
    gradient: Tensor


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
    """Of one call of each, by its best tries; what is close to the fastest, and the choice, then take turns, and the
    lower quartile counts: all else only adds to a time."""
    for step in steps.values():
        step()
    found = {name: min(_timed(step, 1) for _ in range(TRIES)) for name, step in steps.items()}
    close = [name for name in steps if name == choice or found[name] <= CLOSE * min(found.values())]
    if len(close) == 1:
        return found
    calls = {name: max(1, round(SAMPLE / found[name])) for name in close}
    rounds: dict[str, list[float]] = {name: [] for name in close}
    started = time.perf_counter()
    for n in range(ROUNDS):
        if n >= FEWEST and time.perf_counter() - started >= ROUND:
            break
        for name, count in calls.items():
            rounds[name].append(_timed(steps[name], count))
    return found | {name: statistics.quantiles(taken, n=4)[0] for name, taken in rounds.items()}


def _timed(step: Callable[[], None], calls: int) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for _ in range(calls):
        step()
    return (clock() - start) / calls


@dataclass
class Drawing:
    """Choices of one generator."""

    generator: np.random.Generator

    def one_of(self, *options: Any, weights: Sequence[float] | None = None) -> Any:
        """One of the options, each with its weight."""
        p = None if weights is None else np.array(weights) / sum(weights)
        return options[int(self.generator.choice(len(options), p=p))]

    def between(self, low: float, high: float) -> float:
        """A number whose logarithm is evenly distributed."""
        return float(np.exp(self.generator.uniform(np.log(low), np.log(high))))

    def chance(self, p: float) -> bool:
        """True so often."""
        return bool(self.generator.random() < p)

    def tensor(self, *shape: int) -> Tensor:
        """Normal numbers that are differentiated."""
        return torch.from_numpy(self.generator.standard_normal(shape, np.float32)).requires_grad_()


def random(n: int, density: float) -> Graph:
    """Every pair is an edge with the same probability."""
    mask = torch.rand(n, n, generator=torch.Generator().manual_seed(n)) < density
    return Graph.from_edge_index(mask.nonzero().T, num_nodes=n)


def draw(count: int, seed: int) -> Iterator[tuple[dict[str, Any], Problem]]:
    """So many calls that fit, one after the other."""
    drawing = Drawing(np.random.default_rng(seed))
    while count:
        name, graph = _graph(drawing)
        heads, channels = drawing.one_of(*HEADS), drawing.one_of(*CHANNELS)
        batch = drawing.one_of((), (2,), (4,), (16,), weights=(6, 1, 1, 1))
        numbers = max(graph.num_edges, graph.num_senders) * heads * channels * max((1, *batch))
        if not 0 < graph.num_edges <= MOST_EDGES or heads * channels > WIDEST or numbers > MOST_NUMBERS:
            continue
        verb = drawing.one_of(_attend, _aggregate, _collect, _message, weights=(12, 6, 2, 2))
        what, problem = verb(drawing, graph, batch, heads, channels)
        yield {"graph": name, "n": graph.num_receivers, "heads": heads, "channels": channels, "what": what}, problem
        count -= 1


def _graph(drawing: Drawing) -> tuple[str, Graph]:
    n = round(drawing.between(32, 16384))
    kinds: dict[str, Callable[[], Graph]] = {
        "random": lambda: random(min(n, 4096), drawing.between(1e-3, 1)),
        "power law": lambda: inputs.power_law(n, min(MOST_EDGES, round(n * drawing.between(1, 100)))),
        "window": lambda: window(n, min(n // 2, round(drawing.between(2, 256))), sides=drawing.one_of("both", "past")),
        "causal": lambda: causal(min(n, 2048)),
        "complete": lambda: complete(min(n, 1400)),
        "complete molecules": lambda: Graph.batch([complete(m) for m in inputs.molecule_sizes(2 + n // 40)]),
        "molecules": lambda: inputs.molecules(2 + n // 40),
        "random graphs": lambda: Graph.batch(
            [random(m, 0.2) for m in drawing.generator.integers(8, 200, 1 + n // 200).tolist()]
        ),
        "two sides": lambda: _two_sides(drawing, n),
        "neighbours in space": lambda: radius_graph(torch.rand(n, 3) * (n / 5.3) ** (1 / 3), drawing.between(0.7, 1.5)),
    }
    name = drawing.one_of(*kinds, weights=(3, 2, 1, 1, 1, 1, 1, 1, 1, 1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(drawing.generator.integers(1 << 31)))
        return name, kinds[name]()


def _two_sides(drawing: Drawing, n: int) -> Graph:
    receivers = max(1, round(n * drawing.between(0.05, 5)))
    edges = min(MOST_EDGES, round(max(n, receivers) * drawing.between(1, 50)))
    ends = np.stack([drawing.generator.integers(n, size=edges), drawing.generator.integers(receivers, size=edges)])
    return Graph.from_edge_index(torch.from_numpy(ends), n, receivers)


def _attend(drawing: Drawing, graph: Graph, batch: Batch, heads: int, channels: int) -> Described:
    kind = drawing.one_of("Dot", "Additive", "GatedAdditive", weights=(6, 2, 2))
    width = 1 if kind == "Additive" else channels
    q = drawing.tensor(*batch, graph.num_receivers, heads, width)
    k = drawing.tensor(*batch, graph.num_senders, heads, width)
    v = k if kind == "GatedAdditive" else drawing.tensor(*batch, graph.num_senders, heads, channels)
    leaves, what = [q, k, *([] if v is k else [v])], [kind]
    score: Score = Dot() if kind == "Dot" else Additive()
    if kind == "GatedAdditive":
        a = drawing.tensor(heads, channels)
        score, leaves = GatedAdditive(a), [*leaves, a]
    added = drawing.one_of("", "bias", "distances", "features", weights=(12, 3, 2, 3))
    if added == "bias":
        values = drawing.tensor(graph.num_edges, heads)
        score, leaves = score + EdgeBias(values), [*leaves, values]
    elif added == "distances":
        table = drawing.tensor(heads, 33)
        score, leaves = score + RelativeBias(table), [*leaves, table]
    elif added == "features" and graph.num_edges * heads * channels <= MOST_NUMBERS // 4:
        raw = drawing.tensor(graph.num_edges, RAW).detach()
        maps = [drawing.tensor(heads * c, RAW) for c in (width, channels)]
        score = score + EdgeVectors(*(EdgeInput((one, None), raw) for one in maps))
        leaves += maps
    call = Attend(graph, q, k, v, score, drawing.one_of(0.0, 0.1, weights=(4, 1)), False)
    what += [added] * bool(added) + ["dropout"] * bool(call.dropout) + [f"batch {n}" for n in batch]
    return ", ".join(what), Problem(call, leaves, drawing.tensor(*batch, graph.num_receivers, heads, channels).detach())


def _aggregate(drawing: Drawing, graph: Graph, batch: Batch, heads: int, channels: int) -> Described:
    reduce = drawing.one_of("sum", "mean", "max", weights=(3, 2, 1))
    kind = "none" if reduce == "max" else drawing.one_of("none", "edges", "heads")
    shape = (heads, channels) if kind == "heads" else (heads * channels,)
    x = drawing.tensor(*batch, graph.num_senders, *shape)
    weight, leaves = None, [x]
    if kind != "none":
        weight = drawing.tensor(graph.num_edges, *([heads] if kind == "heads" else []))
        if drawing.chance(0.5):
            leaves.append(weight)
        else:
            weight = weight.detach()
    what = f"{reduce}, weights: {kind}" + ", learned" * (len(leaves) == 2) + "".join(f", batch {n}" for n in batch)
    gradient = drawing.tensor(*batch, graph.num_receivers, *shape).detach()
    return what, Problem(Aggregate(graph, x, weight, reduce), leaves, gradient)


def _collect(drawing: Drawing, graph: Graph, batch: Batch, heads: int, channels: int) -> Described:
    reduce, width = drawing.one_of("sum", "mean", "max"), heads * channels
    m_ij = drawing.tensor(*batch, graph.num_edges, width)
    gradient = drawing.tensor(*batch, graph.num_receivers, width).detach()
    what = f"collect {reduce}" + "".join(f", batch {n}" for n in batch)
    return what, Problem(Collect(graph, m_ij, reduce), [m_ij], gradient)


def _message(drawing: Drawing, graph: Graph, batch: Batch, heads: int, channels: int) -> Described:
    """A network of both ends and the edge, its sum or its use as a filter; sizes as above, without a batch."""
    width, reduce = min(heads * channels, 128), drawing.one_of("sum", "mean", "max", weights=(3, 2, 1))
    a, b = drawing.tensor(graph.num_receivers, width), drawing.tensor(graph.num_senders, width)
    own, raw = drawing.tensor(width, RAW), drawing.tensor(graph.num_edges, RAW).detach()
    maps = tuple((drawing.tensor(width, width), None) for _ in range(int(drawing.generator.integers(3))))
    activation = drawing.one_of(functional.relu, functional.silu)
    network = EdgeNetwork(
        maps, activation, receivers=a, senders=b, edges=EdgeInput((own, None), raw), activated=not maps
    )
    leaves, what = [a, b, own, *(weight for weight, _ in maps)], f"network of {1 + len(maps)} maps, {reduce}"
    message: Message[Tensor] = network
    if drawing.chance(0.4):
        x = drawing.tensor(graph.num_senders, width)
        message, leaves, what = Filter(network, x), [*leaves, x], "filter by a " + what
    gradient = drawing.tensor(graph.num_receivers, width).detach()
    return what, Problem(Collect(graph, message, reduce), leaves, gradient)


def main(argv: Sequence[str] | None = None) -> int:
    """Draw, measure, and print the worst and the summary."""
    parser = Parser(prog="python -m benchmarks.regret", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=whole(1, 100_000), default=200, help="calls (default: 200)")
    parser.add_argument("--seed", type=whole(0), default=1, help="of the calls (default: 1)")
    parser.add_argument("--threads", type=whole(1, 1024), default=2, help="(default: 2)")
    parser.add_argument("--from", type=whole(0), default=0, dest="first", help="pass over so many first (default: 0)")
    parser.add_argument("--out", type=Path, help="write a line of JSON here for each call, behind those that are there")
    try:
        args = parser.parse_args(argv)
        if args.first >= args.count:
            raise ConfigError(f"--from {args.first} passes over all of --count {args.count}")
        torch.set_num_threads(args.threads)
        rows = {}
        for number, (name, problem) in enumerate(draw(args.count, args.seed)):
            if number < args.first:
                continue
            rows[number] = measure(name, problem)
            if args.out:
                with args.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(rows[number]) + "\n")
        rows |= again({number: row for number, row in rows.items() if row["regret"] > BAR}, args.seed)
    except EdgewiseError as error:
        print("regret: error: " + " ".join(str(error).split()), file=sys.stderr)
        return 2
    print(table(list(rows.values()), args.seed))
    return 0


def again(doubted: dict[int, dict[str, Any]], seed: int) -> dict[int, dict[str, Any]]:
    """Calls of a seed by their numbers, measured twice more: of each the measurement with the median regret."""
    found = {number: [row] for number, row in doubted.items()}
    for _ in range(2 if doubted else 0):
        for number, (name, problem) in enumerate(draw(max(doubted) + 1, seed)):
            if number in found:
                found[number].append(measure(name, problem))
    return {number: sorted(three, key=lambda row: row["regret"])[1] for number, three in found.items()}


def table(rows: Sequence[dict[str, Any]], seed: int) -> str:
    """The ten worst, and all together."""
    heads = ("graph", "n", "edges", "heads", "channels", "what", "choice", "best")
    worst = sorted(rows, key=lambda row: -row["regret"])[:10]
    lines = [{name: name for name in heads} | {"regret": "regret"}]
    lines += [{name: str(row[name]) for name in heads} | {"regret": f"{row['regret']:.1%}"} for row in worst]
    found, first = [row["regret"] for row in rows], worst[0]
    summary = {
        "seed": str(seed),
        "threads": str(torch.get_num_threads()),
        "calls": str(len(rows)),
        "with a choice": str(sum(len(row["milliseconds"]) > 1 for row in rows)),
        "median": f"{statistics.median(found):.1%}",
        "within 10 %": str(sum(one <= BAR for one in found)),
        "worst": f"{max(found):.1%}",
        "at": f"{first['what']} on {first['edges']:,} edges, {first['heads']} × {first['channels']} channels",
    }
    return f"{columns(lines)}\n\n{markdown([summary])}"


if __name__ == "__main__":
    sys.exit(main())
