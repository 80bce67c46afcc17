import pytest
import torch

from edgewise import Graph, ShapeError, complete
from edgewise.models import (
    Features,
    GraphNetworkModel,
    GraphNetworkSettings,
)
from layers.parity import each

GRAPH = Graph.from_edge_index([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]], num_nodes=5)
BATCH = Graph.batch([GRAPH, complete(2)])


@pytest.mark.parametrize(("whole", "depth", "reduce"), each([True, False], [0, 2], ["sum", "mean"]))
def test_every_choice_trains(whole, depth, reduce):
    model = GraphNetworkModel(GraphNetworkSettings(8, depth, reduce), Features(6, 3, whole_graph=whole))
    y = model(BATCH, torch.randn(7, 6))
    assert y.shape == ((2, 3) if whole else (7, 3))
    y.square().sum().backward()
    reached = [p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters()]
    assert all(reached) if whole else sum(reached) > len(reached) // 2  # the last whole answers nobody


@pytest.mark.parametrize("whole", [True, False])
def test_members_of_a_batch_do_not_mix_and_their_order_does_not_matter(whole):
    model = GraphNetworkModel(GraphNetworkSettings(8, 2), Features(6, 3, whole_graph=whole)).double()
    x = torch.randn(7, 6, dtype=torch.float64)
    alone = torch.cat([model(GRAPH, x[:5]), model(complete(2), x[5:])])
    assert torch.allclose(model(BATCH, x), alone, atol=1e-12)
    perm = torch.randperm(5)
    again = model(GRAPH.permute(perm), x[perm])
    assert torch.allclose(again, alone[:1] if whole else alone[:5][perm], atol=1e-12)


def test_what_is_known_of_the_wholes_reaches_every_node_of_its_own_graph_only():
    for whole in (True, False):
        model = GraphNetworkModel(GraphNetworkSettings(8, 2), Features(6, 3, whole_graph=whole, whole=4)).double()
        x, u = torch.randn(7, 6, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
        y = model(BATCH, x, None, u)
        alone = torch.cat([model(GRAPH, x[:5], None, u[:1]), model(complete(2), x[5:], None, u[1:])])
        assert torch.allclose(y, alone, atol=1e-12)
        for row, member in enumerate([0, 1] if whole else [0] * 5 + [1] * 2):
            (gradient,) = torch.autograd.grad(y[row].sum(), u, retain_graph=True)
            assert bool(gradient[member].all()) and not bool(gradient[1 - member].any())
        with pytest.raises(ShapeError, match="and 0 of the whole"):
            model(BATCH, x)


def test_the_wholes_are_read_as_the_equation_says():
    """Depth 0: e = φ_e([x_i ‖ x_j ‖ u]), x = φ_v([x ‖ ē ‖ u]), y = W φ_u([mean e ‖ mean x ‖ u]) + b, densely."""
    model = GraphNetworkModel(GraphNetworkSettings(8, 0), Features(6, 3, whole_graph=True, whole=4)).double()
    x, u = torch.randn(5, 6, dtype=torch.float64), torch.randn(1, 4, dtype=torch.float64)
    edge, node, whole = model.encode.edge.mlp, model.encode.node.mlp, model.encode.whole.mlp
    adjacency = GRAPH.dense_mask().double()
    rows = u.expand(5, 5, -1)
    e = edge(torch.cat([x[:, None].expand(-1, 5, -1), x.expand(5, -1, -1), rows], -1)) * adjacency[:, :, None]
    arriving = e.sum(1) / adjacency.sum(1).clamp(min=1)[:, None]
    h = node(torch.cat([x, arriving, rows[0]], -1))
    wanted = model.decode(whole(torch.cat([e.sum((0, 1)) / adjacency.sum(), h.mean(0), u[0]], -1)))
    assert torch.allclose(model(GRAPH, x, None, u)[0], wanted, atol=1e-12)
