"""Gates of ones change nothing, gates of zero remove an edge, and their gradient is that of the messages' factors."""

from typing import Any

import pytest
import torch
from torch import Tensor

from edgewise import (
    Additive,
    Dot,
    EdgeBias,
    EdgeVectors,
    Gaussian,
    Graph,
    Kernel,
    Uniform,
    aggregate,
    attend,
    collect,
    record,
)
from edgewise.kernels import Filter
from edgewise.kernels.call import Call
from edgewise.kernels.gates import Gates, gated
from edgewise.layers import LAYERS, MoNet

GRAPH = Graph.from_edge_index([[0, 1, 2, 3, 1, 0], [2, 2, 0, 2, 3, 3]], num_nodes=4)  # node 1 has no senders


def ones(call: Call) -> Tensor:
    return torch.ones(call.graph.num_edges)


@pytest.mark.parametrize("name", [name for name, layer in LAYERS.items() if hasattr(layer, "example")])
def test_gates_of_ones_leave_every_layer_as_it_is(name: str) -> None:
    layer, graph, inputs = LAYERS[name].example()
    layer.eval()
    expected = layer(graph, *inputs)
    for removing in (False, True):
        with gated(Gates(ones, removing)):
            given = layer(graph, *inputs)
        torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)


SCORES: dict[str, Any] = {
    "dot": lambda: Dot(),
    "bias": lambda: Dot() + EdgeBias(torch.randn(6, 2)),
    "vectors": lambda: Dot() + EdgeVectors(torch.randn(6, 2, 3), torch.randn(6, 2, 3)),
    "additive": lambda: Additive(0.2, torch.randn(2, 3), torch.randn(2, 3)),
    "gaussian": lambda: Gaussian(0.7),
    "kernel": lambda: Kernel(torch.nn.functional.softplus),
    "uniform": lambda: Uniform(),
}


@pytest.mark.parametrize("name", SCORES)
def test_attention_under_gates_is_its_equation(name: str) -> None:
    torch.manual_seed(0)
    score, m = SCORES[name](), torch.rand(6)
    q, k, v = (torch.randn(4, 2, 3) for _ in range(3))
    ends: Any = (None, None) if name == "uniform" else (q, k)
    p = attend(GRAPH, *ends, v, score, return_weights=True)[1]
    v_ij = v[GRAPH.senders] + (score.vectors.values if name == "vectors" else 0)
    y = torch.zeros(4, 2, 3).index_add(0, GRAPH.receivers, (m[:, None] * p)[..., None] * v_ij)
    with gated(Gates(lambda call: m)), record() as seen:
        torch.testing.assert_close(attend(GRAPH, *ends, v, score), y)
    torch.testing.assert_close(seen[0].weights, p)
    kept = m > 0.5
    weights = p * kept[:, None]
    total = torch.zeros(4, 2).index_add(0, GRAPH.receivers, weights)[GRAPH.receivers]
    weights = torch.where(total > 0, weights / total, 0.0)
    y = torch.zeros(4, 2, 3).index_add(0, GRAPH.receivers, weights[..., None] * v_ij)
    with gated(Gates(lambda call: kept.float(), removing=True)):
        torch.testing.assert_close(attend(GRAPH, *ends, v, score), y)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_removing_an_edge_is_the_verb_on_the_graph_without_it(reduce: str) -> None:
    x, m_ij, w, kept = torch.randn(4, 3), torch.randn(6, 3), torch.rand(6), torch.tensor([1, 0, 1, 1, 0, 1]) > 0
    smaller = GRAPH.keep_edges(kept)
    with gated(Gates(lambda call: kept.float(), removing=True)):
        found = aggregate(GRAPH, x, w, reduce), aggregate(GRAPH, x, None, reduce), collect(GRAPH, m_ij, reduce)
    without = aggregate(smaller, x, w[kept], reduce), aggregate(smaller, x, None, reduce)
    torch.testing.assert_close(found, (*without, collect(smaller, m_ij[kept], reduce)))


def test_what_is_divided_by_its_neighbours_is_divided_by_those_that_remain() -> None:
    w, x, u, kept = torch.rand(6, 3), torch.randn(4, 3), torch.rand(6, 2), torch.tensor([1, 0, 1, 1, 0, 1]) > 0
    smaller, layer = GRAPH.keep_edges(kept), MoNet(3, 4)
    with gated(Gates(lambda call: kept.float(), removing=True)):
        found = collect(GRAPH, Filter(w, x, normalised=1e-6)), layer(GRAPH, x, u)
    torch.testing.assert_close(
        found, (collect(smaller, Filter(w[kept], x, normalised=1e-6)), layer(smaller, x, u[kept]))
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_under_gates_keeps_half_precisions(dtype: torch.dtype) -> None:
    q = torch.randn(4, 2, 3).to(dtype)
    with gated(Gates(ones)):
        assert attend(GRAPH, q, q, q, Dot()).dtype is dtype


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_gates_scale_messages(reduce: str) -> None:
    x, m_ij, w, m = torch.randn(4, 3), torch.randn(6, 3), torch.rand(6), torch.rand(6)
    heads, by_head = torch.randn(4, 2, 3), torch.rand(6, 2)
    with gated(Gates(lambda call: m)):
        scaled = aggregate(GRAPH, x, w, reduce), collect(GRAPH, m_ij, reduce)
        several = aggregate(GRAPH, heads, by_head, reduce)
    torch.testing.assert_close(scaled[0], aggregate(GRAPH, x, w * m, reduce))
    torch.testing.assert_close(scaled[1], collect(GRAPH, m_ij * m[:, None], reduce))
    torch.testing.assert_close(several, aggregate(GRAPH, heads, by_head * m[:, None], reduce))


def test_an_edge_with_nearly_all_the_weight_leaves_exact_weights_behind() -> None:
    star = Graph.from_edge_index([[0, 1, 2], [3, 3, 3]], num_nodes=4)
    score = Dot() + EdgeBias(torch.tensor([[200.0], [0.0], [1.0]]))
    v, kept = torch.randn(4, 1, 3), torch.tensor([0.0, 1.0, 1.0])
    with gated(Gates(lambda call: kept, removing=True)):
        y = attend(star, torch.zeros(4, 1, 3), torch.zeros(4, 1, 3), v, score)
    p = torch.tensor([0.0, 1.0]).softmax(0)
    torch.testing.assert_close(y[3], p[0] * v[1] + p[1] * v[2])


def test_gates_beside_whole_numbers_are_not_cut() -> None:
    x, m = torch.arange(8).reshape(4, 2), torch.rand(6)
    with gated(Gates(lambda call: m)):
        y, collected = aggregate(GRAPH, x), collect(GRAPH, x[GRAPH.senders], "sum")
    torch.testing.assert_close(y, aggregate(GRAPH, x.float(), m))
    torch.testing.assert_close(collected, y)
