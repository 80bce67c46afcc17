import pytest
import torch

from edgewise import BackendRefusal, Dot, EdgeBias, Graph, attend, causal, plan, use_backend


def test_the_loop_agrees_with_the_reference():
    graph = Graph.from_edge_index([[0, 1, 2, 2], [1, 2, 0, 1]], num_nodes=4)
    q, k, v = torch.randn(3, 4, 2, 3, dtype=torch.float64)
    for any_graph in (graph, causal(4)):
        expected = attend(any_graph, q, k, v, backend="reference")
        assert torch.allclose(attend(any_graph, q, k, v, backend="loop"), expected, atol=1e-12)


def test_the_planner_knows_its_price_and_its_refusal():
    x = torch.ones(4, 1, 2)
    assert "loop" in [one.backend for one in plan(causal(4)).candidates if one.seconds is not None]
    with use_backend("loop"), pytest.raises(BackendRefusal, match="'loop' cannot run this call: it adds no EdgeBias"):
        attend(causal(4), x, x, x, Dot() + EdgeBias(torch.zeros(10, 1)))
