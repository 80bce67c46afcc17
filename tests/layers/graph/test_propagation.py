import pytest
import torch

from edgewise import Graph
from edgewise.errors import GraphError
from edgewise.layers import APPNP, GCN, SGC, ChebNet
from layers.parity import assert_parity, leaf, messy_graph

pyg = pytest.importorskip("torch_geometric.nn")


def symmetric() -> Graph:
    """With self-loops, parallel edges and an isolated node."""
    index = messy_graph().edge_index()
    return Graph.from_edge_index(torch.cat([index, index.flip(0)], 1), 7)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_chebnet_is_pygs(order: int, weighted: bool) -> None:
    graph, x, peer = symmetric(), leaf(7, 5), pyg.ChebConv(5, 3, order).double()
    index = graph.edge_index()
    weight = (1.0 + index.sum(0) % 3).double() if weighted else None  # symmetric, as the graph is
    expected = peer(x, index, weight, lambda_max=2.0)
    weights = {"linear.weight": torch.cat([lin.weight for lin in peer.lins]), "bias": peer.bias}
    leaves = [x, *peer.parameters()]
    assert_parity(ChebNet(5, 3, order).double(), weights, (graph, x, weight), expected, leaves)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_sgc_and_appnp_are_pygs(steps: int, weighted: bool) -> None:
    graph, x = messy_graph(), leaf(7, 5)
    weight = torch.linspace(0, 3, graph.num_edges, dtype=torch.float64) if weighted else None
    peer = pyg.SGConv(5, 3, steps).double()
    weights = {"linear.weight": peer.lin.weight, "bias": peer.lin.bias}
    expected = peer(x, graph.edge_index(), weight)
    assert_parity(SGC(5, 3, steps).double(), weights, (graph, x, weight), expected, [x, *peer.parameters()])
    W, b = leaf(3, 5, seed=1), leaf(3, seed=2)
    expected = pyg.APPNP(steps, 0.2)(x @ W.T + b, graph.edge_index(), weight)
    weights = {"linear.weight": W, "linear.bias": b}
    assert_parity(APPNP(5, 3, steps, 0.2).double(), weights, (graph, x, weight), expected, [x, W, b])


def test_one_step_is_gcn() -> None:
    layer, peer, x = SGC(3, 4, steps=1).double(), GCN(3, 4).double(), leaf(7, 3)
    peer.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(messy_graph(), x), peer(messy_graph(), x))


@pytest.mark.parametrize("kind", [ChebNet, SGC, APPNP])
def test_a_sampled_hop_has_too_few_nodes_for_several_steps(kind: type) -> None:
    hop = Graph.from_edge_index([[2, 1], [0, 0]], num_nodes=3, num_receivers=1)
    with pytest.raises(
        GraphError, match="which takes several steps along the edges, needs receivers and senders to be"
    ):
        kind(3, 2)(hop, torch.randn(3, 3))
