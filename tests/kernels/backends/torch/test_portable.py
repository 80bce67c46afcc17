"""The backend of exported programs computes what the equation says, on graphs of every form."""

import pytest
import torch

from edgewise import (
    Additive,
    Dot,
    EdgeBias,
    EdgeNetwork,
    EdgeVectors,
    Filter,
    GatedAdditive,
    Gaussian,
    Graph,
    Kernel,
    RelativeBias,
    SenderBias,
    Uniform,
    aggregate,
    attend,
    causal,
    collect,
    complete,
    plan,
    use_backend,
    window,
)
from edgewise.graphs import blocks
from edgewise.graphs.patterns import fixed_parts
from edgewise.kernels.backends.torch import portable

N, E = 7, 13
GRAPHS = {
    "edges": lambda: Graph.from_edge_index(torch.randint(N - 1, (2, E)), N),  # the last node is isolated
    "causal": lambda: causal(N),
    "complete": lambda: complete(N),
    "window": lambda: window(N, 2),
    "summaries": lambda: fixed_parts(N, 3)[1],  # the first nodes listen to nobody
    "blocks": lambda: blocks([3, 4]),
    "later": lambda: causal(N).rows(4, N),
}
SCORES = {
    "dot": lambda graph: Dot(),
    "scaled": lambda graph: Dot(scale=torch.rand(4)),
    "capped": lambda graph: Dot(cap=2.0),
    "relative": lambda graph: Dot() + RelativeBias(torch.randn(4, 5)),
    "senders": lambda graph: Dot() + SenderBias(torch.randn(N, 4)) + RelativeBias(torch.randn(1, 3)),
    "biased": lambda graph: Dot() + EdgeBias(torch.randn(graph.num_edges, 4)),
    "vectors": lambda graph: (
        Dot() + EdgeVectors(torch.randn(graph.num_edges, 4, 3), torch.randn(graph.num_edges, 4, 5))
    ),
    "gaussian": lambda graph: Gaussian(),
    "kernel": lambda graph: Kernel(torch.nn.functional.softplus),
    "additive": lambda graph: Additive(0.2, torch.randn(4, 3), torch.randn(4, 3)),
    "gated": lambda graph: GatedAdditive(torch.randn(4, 3)),
    "uniform": lambda graph: Uniform() + SenderBias(torch.randn(N, 4)),
}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", GRAPHS)
def test_attention_is_that_of_the_equation(name: str, score: str) -> None:
    graph, batch = GRAPHS[name](), ((), (2,), (2, 3))[(len(name) + len(score)) % 3]
    made = SCORES[score](graph)
    q, k, v = torch.randn(*batch, graph.num_receivers, 4, 3), torch.randn(*batch, N, 2, 3), torch.randn(*batch, N, 2, 5)
    if score == "vectors":
        k, v = torch.randn(*batch, N, 4, 3), torch.randn(*batch, N, 4, 5)
    if score == "uniform":
        q, k, v = None, None, torch.randn(*batch, N, 4, 5)
    expected = attend(graph, q, k, v, made, backend="reference")
    with use_backend(portable.BACKEND):
        torch.testing.assert_close(attend(graph, q, k, v, made), expected, rtol=1e-5, atol=3e-6)
        y, p = attend(graph, q, k, v, made, return_weights=True)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=3e-6)
    assert p.shape == (*batch, graph.num_edges, 4)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("name", GRAPHS)
def test_sums_are_those_of_the_equation(name: str, reduce: str) -> None:
    graph, x = GRAPHS[name](), torch.randn(2, N, 3)
    ones, heads = torch.randn(graph.num_edges), torch.randn(2, graph.num_edges, 2)
    for features, weight in ((x, None), (x[0], None), (x, ones), (torch.randn(2, N, 2, 3), heads)):
        expected = aggregate(graph, features, weight, reduce, backend="reference")
        with use_backend(portable.BACKEND):
            torch.testing.assert_close(aggregate(graph, features, weight, reduce), expected, rtol=1e-5, atol=1e-6)


def test_messages_are_those_of_the_equation() -> None:
    graph, h = GRAPHS["edges"](), torch.randn(N, 4)
    maps = ((torch.randn(3, 4), torch.randn(3)),)
    network = EdgeNetwork(maps, torch.relu, receivers=h, senders=torch.randn(N, 4), activated=True)
    for message, reduce in (
        (torch.randn(E, 3), "max"),
        (network, "mean"),
        (network, None),
        (network.then([(torch.randn(2, 3), None)]), "sum"),
        (Filter(torch.randn(E, 4), h, both_ways=True), "sum"),
        (Filter(torch.randn(E, 1), h), "min"),
    ):
        expected = collect(graph, message, reduce, backend="reference")
        with use_backend(portable.BACKEND):
            found = collect(graph, message, reduce)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_planner_does_not_know_it() -> None:
    assert "portable" not in str(plan(causal(16)))
