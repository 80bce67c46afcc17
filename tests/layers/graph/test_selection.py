import pytest
import torch

from edgewise import Graph
from edgewise.errors import ConfigError, ShapeError
from edgewise.layers import GCN, ProjectionScore, top_k_pool
from layers.parity import assert_same, leaf, messy_graph

pyg = pytest.importorskip("torch_geometric.nn")


@pytest.mark.parametrize("ratio", [0.3, 0.5, 0.99])
@pytest.mark.parametrize("kind", ["top-k", "sag"])
def test_it_is_pygs_of_a_batch_but_for_the_order(kind: str, ratio: float) -> None:
    members = [messy_graph(), Graph.from_edge_index(torch.randint(20, (2, 60)), 20), messy_graph()]
    graph, x = Graph.batch(members), leaf(34, 5)
    member, index = torch.arange(3).repeat_interleave(graph.sizes), graph.edge_index()
    if kind == "top-k":
        score, peer = ProjectionScore(5).double(), pyg.TopKPooling(5, ratio).double()
        weights, leaves = {"direction.weight": peer.select.weight}, [x, *peer.parameters()]
    else:
        score, peer = GCN(5, 1).double(), pyg.SAGPooling(5, ratio, pyg.GCNConv).double()
        peer.select.weight.data.fill_(1.0)
        weights, leaves = {"linear.weight": peer.gnn.lin.weight, "bias": peer.gnn.bias}, [x, *peer.gnn.parameters()]
    y, edges, _, of, nodes, _ = peer(x, index, None, member)
    kept = top_k_pool(graph, x, torch.func.functional_call(score, weights, (graph, x)), ratio)
    order = nodes.argsort()
    assert torch.equal(kept.nodes, nodes[order]) and torch.equal(kept.graph.sizes, of.bincount(minlength=3))
    assert kept.graph == Graph.from_edge_index(order.argsort()[edges], len(nodes))
    assert_same(kept.x, y[order], leaves)


def test_features_of_edges_stay_with_them() -> None:
    graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], 3, edge_attr=torch.tensor([[1.0], [2.0], [3.0]]))
    kept = top_k_pool(graph, torch.ones(3, 1), torch.tensor([[0.0], [1.0], [1.0]]))
    assert kept.graph.edge_attr.tolist() == [[2.0]]
    many = Graph.from_edge_index([[], []], 20)  # 0.55 · 20 is 11, though in floating point it is more
    assert len(top_k_pool(many, torch.ones(20, 1), torch.ones(20, 1), 0.55).nodes) == 11


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"score is .*, but must be \[7, 1\]"):
        top_k_pool(messy_graph(), torch.ones(7, 2), torch.ones(7, 2))
    with pytest.raises(ConfigError, match="ratio must be"):
        top_k_pool(messy_graph(), torch.ones(7, 2), torch.ones(7, 1), ratio=0.0)
