import pytest
import torch

from edgewise import Graph, complete, record
from edgewise.layers import GAT, GATv2
from layers.parity import assert_parity, each, leaf, messy_graph

KINDS = [GAT, GATv2]


@pytest.fixture
def pyg():
    return pytest.importorskip("torch_geometric.nn")


@pytest.mark.parametrize(("heads", "concatenate"), each([1, 3], [True, False]))
def test_gat_is_pygs(pyg, heads, concatenate):
    graph, x = messy_graph(), leaf(7, 5)
    peer = pyg.GATConv(5, 4, heads, concat=concatenate, negative_slope=0.3).double()
    weights = {
        "W.weight": peer.lin.weight,
        "a_receiver": peer.att_dst[0],
        "a_sender": peer.att_src[0],
        "bias": peer.bias,
    }
    expected = peer(x, graph.edge_index())
    layer = GAT(5, 4, heads, concatenate).double()
    layer.slope = 0.3
    assert_parity(layer, weights, (graph, x), expected, [x, *peer.parameters()])


@pytest.mark.parametrize(("heads", "concatenate"), each([1, 3], [True, False]))
def test_gatv2_is_pygs(pyg, heads, concatenate):
    graph, x = messy_graph(), leaf(7, 5)
    peer = pyg.GATv2Conv(5, 4, heads, concat=concatenate, negative_slope=0.3).double()
    weights = {
        "W.weight": torch.cat([peer.lin_r.weight, peer.lin_l.weight]),
        "W.bias": torch.cat([peer.lin_r.bias, peer.lin_l.bias]),
        "a": peer.att[0],
        "bias": peer.bias,
    }
    expected = peer(x, graph.edge_index())
    layer = GATv2(5, 4, heads, concatenate).double()
    layer.slope = 0.3
    assert_parity(layer, weights, (graph, x), expected, [x, *peer.parameters()])


def test_the_ranking_of_neighbours_depends_on_who_asks_in_gatv2_only():
    """Brody et al.: with GAT all receivers agree on who is most interesting, whatever the weights."""

    def favourites(layer):
        with record() as seen:
            layer(complete(8), x)
        return seen[0].weights.view(8, 8).argmax(-1).unique()

    x = torch.eye(8, dtype=torch.float64)
    for seed in range(5):
        torch.manual_seed(seed)
        assert len(favourites(GAT(8, 16).double())) == 1
    assert max(len(favourites(GATv2(8, 16).double())) for _ in range(5)) > 1


@pytest.mark.parametrize(("kind", "edges"), each(KINDS, [0, 2]))
def test_some_rows_of_a_graph_read_what_they_read_in_the_whole(kind, edges):
    graph, x = messy_graph(), leaf(7, 5)
    layer = kind(5, 4, heads=2, edges=edges).double()
    e = leaf(graph.num_edges, edges, seed=1) if edges else None
    some = None if e is None else e[(graph.receivers >= 3) & (graph.receivers < 7)]
    assert torch.allclose(layer(graph.rows(3, 7), x, some), layer(graph, x, e)[3:7], atol=1e-12)


@pytest.mark.parametrize(("heads", "concatenate"), each([1, 3], [True, False]))
def test_gat_with_edge_features_is_pygs(pyg, heads, concatenate):
    graph, x = messy_graph(), leaf(7, 5)
    e = leaf(graph.num_edges, 3, seed=1)
    peer = pyg.GATConv(5, 4, heads, concat=concatenate, edge_dim=3).double()
    # The peer reads edges along an `a` of their own; W_edge with that a of the senders' is the same score.
    ratio = (peer.att_edge / peer.att_src).detach().view(-1, 1)
    weights = {
        "W.weight": peer.lin.weight,
        "a_receiver": peer.att_dst[0],
        "a_sender": peer.att_src[0],
        "bias": peer.bias,
        "edge.weight": peer.lin_edge.weight * ratio,
    }
    edge_index, features = without_loops(graph, e)
    expected = peer(x, edge_index, features)
    layer = GAT(5, 4, heads, concatenate, edges=3).double()
    graph = Graph.from_edge_index(edge_index, num_nodes=7)
    leaves = [x, e, peer.lin.weight, peer.att_dst, peer.bias, peer.lin_edge.weight]
    assert_parity(layer, weights, (graph, x, graph.sort_edges(features)), expected, leaves)


@pytest.mark.parametrize(("heads", "concatenate"), each([1, 3], [True, False]))
def test_gatv2_with_edge_features_is_pygs(pyg, heads, concatenate):
    graph, x = messy_graph(), leaf(7, 5)
    e = leaf(graph.num_edges, 3, seed=1)
    peer = pyg.GATv2Conv(5, 4, heads, concat=concatenate, edge_dim=3).double()
    weights = {
        "W.weight": torch.cat([peer.lin_r.weight, peer.lin_l.weight]),
        "W.bias": torch.cat([peer.lin_r.bias, peer.lin_l.bias]),
        "a": peer.att[0],
        "bias": peer.bias,
        "edge.weight": peer.lin_edge.weight,
    }
    edge_index, features = without_loops(graph, e)
    expected = peer(x, edge_index, features)
    layer = GATv2(5, 4, heads, concatenate, edges=3).double()
    graph = Graph.from_edge_index(edge_index, num_nodes=7)
    assert_parity(layer, weights, (graph, x, graph.sort_edges(features)), expected, [x, e, *peer.parameters()])


def without_loops(graph, e):
    """The edges between two nodes: PyTorch Geometric replaces the features of self-loops that are there."""
    edge_index = graph.edge_index()
    others = edge_index[0] != edge_index[1]
    return edge_index[:, others], e[others]


@pytest.mark.parametrize("kind", KINDS)
def test_two_sides_are_pygs(pyg, kind):
    graph, x, y = complete(3, 5).keep_edges(torch.rand(15) < 0.6), leaf(3, 4), leaf(5, 4, seed=1)
    layer = kind(4, 2, heads=2, edges=3).double()
    e = leaf(graph.num_edges, 3, seed=2)
    peer = {GAT: pyg.GATConv, GATv2: pyg.GATv2Conv}[kind](4, 2, 2, edge_dim=3, add_self_loops=False).double()
    with torch.no_grad():
        peer.lin_edge.weight.copy_(layer.edge.weight)
        if kind is GAT:
            peer.lin.weight.copy_(layer.W.weight)
            peer.att_dst[0], peer.att_src[0], peer.att_edge[0] = layer.a_receiver, layer.a_sender, layer.a_sender
        else:
            for side, weight in zip((peer.lin_r, peer.lin_l), layer.W.weight.chunk(2), strict=True):
                side.weight.copy_(weight), side.bias.zero_()
            peer.att[0] = layer.a
    expected = peer((y, x), graph.edge_index(), e)
    torch.testing.assert_close(layer(graph, (x, y), e), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sampled_receiver_attends_to_itself(kind):
    hop = Graph.from_edge_index([[2, 1], [0, 0]], num_nodes=3, num_receivers=2)
    layer, x, e = kind(4, 2, edges=3).double(), leaf(3, 4), leaf(2, 3, seed=1)
    whole = Graph.from_edge_index([[0, 1, 2, 1, 2], [0, 0, 0, 1, 2]], num_nodes=3)
    features = torch.stack([e.mean(0), *e, *torch.zeros(2, 3, dtype=torch.float64)])
    torch.testing.assert_close(layer(hop, x, e), layer(whole, x, features)[:2])
