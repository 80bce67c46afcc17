"""What the verbs, scores and messages make of a small call, of other arguments, and of arguments that they refuse."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

from edgewise import (
    Additive,
    Dot,
    EdgeBias,
    EdgeVectors,
    GatedAdditive,
    Gaussian,
    Graph,
    Kernel,
    RelativeBias,
    SenderBias,
    Uniform,
    aggregate,
    attend,
    collect,
    complete,
    ends,
    plan,
)
from edgewise.kernels import EdgeInput, EdgeNetwork, Filter, TensorProduct, dropout, gaussians
from recorded import check_recorded
from variations import outcomes

DRAWN = torch.Generator().manual_seed(0)
RECEIVERS, SENDERS, HEADS, CHANNELS = 4, 5, 4, 3
GRAPH = Graph.from_edge_index(torch.stack([torch.randint(n, (12,), generator=DRAWN) for n in (5, 4)]), 5, 4)
EDGES = GRAPH.num_edges


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=DRAWN)


ENDS = {"q": draw(RECEIVERS, HEADS, CHANNELS), "k": draw(SENDERS, HEADS, CHANNELS), "v": draw(SENDERS, HEADS, 2)}
ONE = {"q": draw(RECEIVERS, HEADS, 1), "k": draw(SENDERS, HEADS, 1), "v": ENDS["v"]}
A, B = draw(HEADS, CHANNELS), draw(HEADS, CHANNELS)
MAPS = {"weight": draw(2, 3), "bias": draw(2), "receivers": draw(RECEIVERS, 3), "senders": draw(SENDERS, 3)}
Call = tuple[Callable[..., Any], dict[str, Any]]


def scored(score: Callable[..., Any], given: dict[str, Any] = ENDS, **options: Any) -> Call:
    """Attention by a score that is made of further arguments."""

    def call(graph: Graph, q: Any, k: Any, v: Any, **made: Any) -> Any:
        return attend(graph, q, k, v, score(**made))

    return call, {"graph": GRAPH, **given, **options}


def network(graph: Graph, **given: Any) -> Any:
    edges = EdgeInput((given["edge_weight"], None), given["edges"], given["reach"])
    maps, gate = ((given["weight"], given["bias"]),), (given["gate"], None)
    made = EdgeNetwork(
        maps, functional.silu, receivers=given["receivers"], senders=given["senders"], edges=edges,
        scale=given["scale"], gate=gate,
    )  # fmt: skip
    return collect(graph, made, given["reduce"])


def readout(graph: Graph, weight: Any, bias: Any, senders: Any, activated: bool, reduce: str) -> Any:
    first = EdgeNetwork(((weight, bias),), torch.relu, senders=senders, activated=activated)
    return list(collect(graph, first.then([(weight[:, :2], None)]), reduce))


def product(graph: Graph, weight: Any, h: Any, harmonics: Any, reduce: str) -> Any:
    paths = (((0, 0), (0,)), ((0, 1), (1,)), ((1, 0), (1,)))
    coefficients = (torch.ones(1, 1), torch.ones(3, 3), torch.ones(3, 3))
    return list(collect(graph, TensorProduct(weight, h, harmonics, paths, coefficients), reduce))


VERBS: dict[str, Call] = {
    "aggregate": (aggregate, {"graph": GRAPH, "x": draw(SENDERS, 3), "weight": draw(EDGES), "reduce": "sum"}),
    "aggregate by heads": (
        aggregate,
        {"graph": GRAPH, "x": draw(SENDERS, 2, 3), "weight": draw(EDGES, 2), "reduce": "max"},
    ),
    "aggregate by a shared head": (
        aggregate,
        {"graph": GRAPH, "x": draw(SENDERS, 2, 3), "weight": draw(EDGES, 1), "reduce": "mean"},
    ),
    "collect": (collect, {"graph": GRAPH, "message": draw(EDGES, 3), "reduce": "mean"}),
    "ends": (ends, {"graph": GRAPH, "x": draw(RECEIVERS, 3), "senders": draw(SENDERS, 2)}),
    "dropout": (
        lambda **given: [torch.manual_seed(0), dropout(**given)][1],
        {"x": draw(7, 3), "p": 0.4, "training": True},
    ),
    "gaussians": (gaussians, {"length": draw(5, 1).abs(), "count": 4, "reach": 2.0}),
    "plan": (
        lambda **given: str(plan(complete(9), **given)),
        {"verb": "attend", "heads": 2, "channels": 8, "reduce": "sum"},
    ),
    "plan of sums": (
        lambda **given: str(plan(GRAPH, **given)),
        {"verb": "aggregate", "heads": 2, "channels": 8, "reduce": "max"},
    ),
}
SCORES: dict[str, Call] = {
    "dot": scored(Dot, scale=0.5, cap=2.0),
    "dot of shared keys": scored(Dot, ENDS | {"k": ENDS["k"][:, :2], "v": ENDS["v"][:, :2]}),
    "dot scaled by heads": scored(Dot, scale=draw(HEADS).abs()),
    "additive": scored(Additive, ONE, slope=0.3),
    "additive with a": scored(Additive, a_receiver=A, a_sender=B),
    "gated": scored(GatedAdditive, a=A, slope=0.3),
    "gaussian": scored(Gaussian, sigma=1.5),
    "gaussian by heads": scored(Gaussian, sigma=draw(HEADS).abs() + 1),
    "uniform": scored(Uniform, {"q": None, "k": None, "v": ENDS["v"]}),
    "kernel": scored(lambda: Kernel(torch.exp)),
    "edge bias": scored(lambda values: Dot() + EdgeBias(values), values=draw(EDGES, HEADS)),
    "sender bias": scored(lambda values: Dot() + SenderBias(values), values=draw(SENDERS, HEADS)),
    "kernel with a bias": scored(lambda values: Kernel(torch.exp) + SenderBias(values), values=draw(SENDERS, HEADS)),
    "relative bias": scored(lambda table: Dot() + RelativeBias(table), table=draw(HEADS, 5)),
    "two biases": scored(
        lambda one, two: Dot() + EdgeBias(one) + EdgeBias(two), one=draw(EDGES, 1), two=draw(EDGES, HEADS)
    ),
    "vectors of edges": scored(
        lambda keys, values: Dot() + EdgeVectors(keys, values), keys=draw(EDGES, HEADS, CHANNELS), values=None
    ),
    "values of edges": scored(lambda values: Dot() + EdgeVectors(None, values), values=draw(EDGES, HEADS, 2)),
    "additive with vectors": scored(
        lambda keys: Additive(a_receiver=A, a_sender=B) + EdgeVectors(keys), keys=draw(EDGES, HEADS, CHANNELS)
    ),
    "weights": (
        lambda **given: list(attend(GRAPH, **given, return_weights=True)),
        {**ENDS, "score": Dot(), "dropout": 0.0},
    ),
}
MESSAGES: dict[str, Call] = {
    "network": (
        network,
        {"graph": GRAPH, **MAPS, "edges": draw(EDGES, 1).abs(), "edge_weight": draw(3, 4), "reach": 2.0}
        | {"scale": draw(EDGES, 1), "gate": draw(1, 2), "reduce": "sum"},
    ),
    "network returned": (
        lambda graph, weight, senders: collect(
            graph, EdgeNetwork(((weight, None),), torch.relu, senders=senders), None
        ),
        {"graph": GRAPH, "weight": MAPS["weight"], "senders": MAPS["senders"]},
    ),
    "readout": (
        readout,
        {"graph": GRAPH, "weight": draw(2, 3), "bias": draw(2), "senders": draw(SENDERS, 3)}
        | {"activated": True, "reduce": "mean"},
    ),
    "filter": (
        lambda graph, weight, senders, both_ways, reduce: collect(graph, Filter(weight, senders, both_ways), reduce),
        {"graph": GRAPH, "weight": draw(EDGES, 3), "senders": draw(SENDERS, 3), "both_ways": False, "reduce": "sum"},
    ),
    "filter both ways": (
        lambda graph, weight, senders, reduce: collect(graph, Filter(weight, senders, both_ways=True), reduce),
        {"graph": complete(5), "weight": draw(25, 3), "senders": draw(SENDERS, 3), "reduce": "sum"},
    ),
    "tensor product": (
        product,
        {"graph": GRAPH, "weight": draw(EDGES, 6), "h": draw(SENDERS, 4, 2), "harmonics": draw(EDGES, 4)}
        | {"reduce": "sum"},
    ),
}
CALLS = {"verbs": VERBS, "scores": SCORES, "messages": MESSAGES}


def lines(part: str) -> Iterator[str]:
    for name, (call, given) in CALLS[part].items():
        yield from outcomes(name, call, given)


@pytest.mark.parametrize("part", CALLS)
def test_results_are_those_on_record(part: str) -> None:
    check_recorded(f"calls/{part}", lines(part))
