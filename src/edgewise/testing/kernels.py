"""A backend beside `reference`: small graphs of every kind, every score and reduction, and gradients."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from edgewise.errors import BackendRefusal
from edgewise.graphs import PATTERNS, Graph
from edgewise.kernels import (
    BACKENDS,
    Additive,
    Dot,
    EdgeBias,
    GatedAdditive,
    Gaussian,
    Kernel,
    RelativeBias,
    Score,
    SenderBias,
    Uniform,
    aggregate,
    attend,
    collect,
)
from edgewise.testing.layers import EXACT, distance, expect, with_gradients


def check_kernel(
    backend: str, dtype: torch.dtype = torch.float64, device: str = "cpu", tolerance: float = EXACT
) -> dict[str, str]:
    """Compare a backend with `reference` on small graphs of every kind x every score and reduction, and gradients.

    A node that is NaN or infinite must spoil its own receivers alone.

    Shapes      batches of 2, 4 query heads that share 2 key/value heads; graphs with isolated nodes, parallel edges, an
                offset, other senders than receivers, no nodes
    Returns     what the backend refused, as {case: its reason}
    Errors      AssertionError that names the case and the tensor, or when everything is refused; BackendRefusal for a
                backend that does not exist
    Cost        a second or two

    Example
        >>> check_kernel("segment")  # refuses nothing
        {}
    """
    if backend not in BACKENDS:
        raise BackendRefusal(f"there is no backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    refused, ran = {}, 0
    for case, graph, leaves, function in _kernel_cases(dtype, device):
        expected = _values_and_gradients(function, leaves, "reference")
        try:
            results = _values_and_gradients(function, leaves, backend)
        except BackendRefusal as refusal:
            refused[case] = str(refusal)
            continue
        ran += 1
        for name, value in results.items():
            error = distance(value, expected[name])
            expect(error <= tolerance, f"{backend}: {case}: the {name} is off by {error:.1e}, {tolerance:.0e} expected")
        _expect_isolated(f"{backend}: {case}", graph, leaves, lambda some: function(some, backend), tolerance)  # noqa: B023
    expect(ran > 0, f"{backend} refuses everything: {next(iter(refused.values()), '')}")
    return refused


Leaves = dict[str, Tensor]
Function = Callable[[Leaves, str], Tensor]


def _kernel_cases(dtype: torch.dtype, device: str) -> Iterator[tuple[str, Graph, Leaves, Function]]:
    """Every graph x every score and reduction: a name, the graph, the tensors that need gradients, and the call."""
    for shape, graph in _kernel_graphs().items():
        graph = graph.to(device)
        generator = torch.Generator().manual_seed(0)

        def draw(*sizes: int, generator: torch.Generator = generator) -> Tensor:
            return torch.randn(*sizes, dtype=torch.float64, generator=generator).to(device, dtype)

        receivers, senders, edges = graph.num_receivers, graph.num_senders, graph.num_edges
        leaves = {
            "q": draw(2, receivers, 4, 6),
            "k": draw(2, senders, 2, 6),
            "v": draw(2, senders, 2, 5),
            "a": draw(4, 6),
            "b": draw(4, 6),
            "edge bias": draw(edges, 4),
            "sender bias": draw(2, senders, 4),
            "table": draw(4, 5),
            "weight": draw(edges),
            "x": draw(2, senders, 3),
            "m_ij": draw(2, edges, 3),
        }
        for name, (reads, attention) in _attention_calls(graph).items():
            yield f"attend {name} on {shape}", graph, {key: leaves[key] for key in reads}, attention
        for reduce in ("sum", "mean", "max", "min"):
            for call, *needs in (("aggregate", "x"), ("aggregate weighted", "x", "weight"), ("collect", "m_ij")):
                yield f"{call} {reduce} on {shape}", graph, {key: leaves[key] for key in needs}, _reduced(graph, reduce)


def _expect_isolated(
    what: str, graph: Graph, leaves: Leaves, function: Callable[[Leaves], Tensor], tolerance: float
) -> None:
    """A receiver has the result of its own senders, whatever other nodes hold."""
    if not graph.num_senders:
        return
    clean, sender = function(leaves), graph.num_senders - 1
    others = graph.multiplicity()[:, sender] == 0
    for name in ("k", "v", "x"):
        for bad in (float("nan"), float("inf")) if name in leaves else ():
            spoilt = leaves[name].clone()
            spoilt[:, sender] = bad
            try:
                y = function(leaves | {name: spoilt})
            except BackendRefusal:  # as a Gaussian of points at infinity is
                continue
            error = distance(y[:, others], clean[:, others])
            expect(
                error <= tolerance,
                f"{what}: {bad} in {name} of sender {sender} reaches receivers without an edge to it",
            )
            if bad != bad and name != "k":
                expect(bool(y[:, ~others].isnan().all()), f"{what}: {bad} in {name} of sender {sender} gets lost")


def _kernel_graphs() -> dict[str, Graph]:
    edges = [
        [0, 2, 2, 4, 1, 1, 3],
        [1, 1, 1, 0, 0, 4, 4],
    ]  # 2 -> 1 twice; 2 and 3 have no senders; 0 sends to 1 alone
    given = Graph.from_edge_index(edges, num_nodes=5)
    return {
        "complete": PATTERNS["complete"](5),
        "complete, other senders": PATTERNS["complete"](3, 5),
        "causal": PATTERNS["causal"](6),
        "causal, last rows": PATTERNS["causal"](6).rows(4, 6),
        "window": PATTERNS["window"](7, 1),
        "window of the past": PATTERNS["window"](7, 2, sides="past"),
        "blocks": PATTERNS["blocks"]([2, 3]),
        "strided": PATTERNS["strided"](6, 2),
        "grid": PATTERNS["grid"](2, 3),
        "bipartite": PATTERNS["bipartite"](2, 3),
        "given edges": given,
        "given edges, two graphs": Graph.batch([given, PATTERNS["causal"](2)]),
        "no edges": Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=3),
        "no nodes": Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=0),
    }


def _attention_calls(graph: Graph) -> dict[str, tuple[tuple[str, ...], Function]]:
    """The scores, alone and with biases: the tensors that each reads, and its call."""

    def call(score: Callable[[Leaves], Score], *needs: str) -> tuple[tuple[str, ...], Function]:
        def function(leaves: Leaves, backend: str) -> Tensor:
            q, k = leaves.get("q"), leaves.get("k")
            of_score = score(leaves)
            if of_score.end_width == 1 and q is not None and k is not None:
                q, k = q[..., :1], k[..., :1]
            return attend(graph, q, k, leaves["v"], of_score, backend=backend)

        return (*needs, "v"), function

    ends = ("q", "k")
    return {
        "Dot": call(lambda leaves: Dot(), *ends),
        "Dot, scaled and capped": call(lambda leaves: Dot(scale=0.3, cap=2.0), *ends),
        "Dot + EdgeBias": call(lambda leaves: Dot() + EdgeBias(leaves["edge bias"]), *ends, "edge bias"),
        "Dot + RelativeBias": call(lambda leaves: Dot() + RelativeBias(leaves["table"]), *ends, "table"),
        "Dot + SenderBias": call(lambda leaves: Dot() + SenderBias(leaves["sender bias"]), *ends, "sender bias"),
        "Additive": call(lambda leaves: Additive(), *ends),
        "Additive with a": call(lambda leaves: Additive(0.2, leaves["a"], leaves["b"]), *ends, "a", "b"),
        "GatedAdditive": call(lambda leaves: GatedAdditive(leaves["a"]), *ends, "a"),
        "Gaussian": call(lambda leaves: Gaussian(1.5), *ends),
        "Uniform": call(lambda leaves: Uniform()),
        "Kernel": call(lambda leaves: Kernel(torch.nn.functional.softplus), *ends),
    }


def _reduced(graph: Graph, reduce: str) -> Function:
    """`collect` of messages where there are any, else `aggregate`."""

    def function(leaves: Leaves, backend: str) -> Tensor:
        if "m_ij" in leaves:
            return collect(graph, leaves["m_ij"], reduce, backend=backend)
        return aggregate(graph, leaves["x"], leaves.get("weight"), reduce, backend=backend)

    return function


def _values_and_gradients(function: Function, leaves: Leaves, backend: str) -> dict[str, Tensor]:
    leaves = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
    return with_gradients(function(leaves, backend), leaves, seed=1)
