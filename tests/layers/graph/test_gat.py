import pytest
import torch

from edgewise import Graph, complete, record
from edgewise.layers import GAT, GATv2
from layers.parity import assert_parity, each, leaf, messy_graph

KINDS = [GAT, GATv2]


@pytest.fixture
def pyg():
    return pytest.importorskip("torch_geometric.nn")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("heads", "concatenate", "edges"), [(1, True, 0), (3, False, 0), (3, True, 3), (1, False, 3)])
def test_it_is_pygs_with_edge_features_or_without(pyg, kind, heads, concatenate, edges):
    graph, x, e = messy_graph(), leaf(7, 5), leaf(10, 3, seed=1)
    options = {"concat": concatenate, "negative_slope": 0.3, "edge_dim": edges or None}
    peer = {GAT: pyg.GATConv, GATv2: pyg.GATv2Conv}[kind](5, 4, heads, **options).double()
    weights, ratio = {"bias": peer.bias}, 1.0
    if kind is GAT:
        weights |= {"W.weight": peer.lin.weight, "a_receiver": peer.att_dst[0], "a_sender": peer.att_src[0]}
        # The peer reads edges along an `a` of their own; W_edge with that a of the senders' is the same score.
        ratio = (peer.att_edge / peer.att_src).detach().view(-1, 1) if edges else 1.0
    else:
        weights |= {part: torch.cat([getattr(lin, part[2:]) for lin in (peer.lin_r, peer.lin_l)])
                    for part in ("W.weight", "W.bias")} | {"a": peer.att[0]}  # fmt: skip
    leaves, more = [x, *(p for name, p in peer.named_parameters() if name != "att_edge")], []
    if edges:
        edge_index, e = without_loops(graph, e)
        graph = Graph.from_edge_index(edge_index, num_nodes=7)
        weights["edge.weight"], more = peer.lin_edge.weight * ratio, [graph.sort_edges(e)]
        expected, leaves = peer(x, edge_index, e), [*leaves, e]
        if kind is GAT:  # of which the constant ratio hides a part
            leaves = [leaf for leaf in leaves if leaf is not peer.att_src]
    else:
        expected = peer(x, graph.edge_index())
    layer = kind(5, 4, heads, concatenate, edges=edges).double()
    layer.slope = 0.3
    assert_parity(layer, weights, (graph, x, *more), expected, leaves)


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
