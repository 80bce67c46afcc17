import pytest
import torch

from edgewise import GraphError, complete, record
from edgewise.layers import GAT, GATv2, SparseFeatures
from layers.parity import assert_parity, leaf, messy_graph

KINDS = [GAT, GATv2]


@pytest.fixture
def pyg():
    return pytest.importorskip("torch_geometric.nn")


@pytest.mark.parametrize("concatenate", [True, False])
@pytest.mark.parametrize("heads", [1, 3])
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
    layer = GAT(5, 4, heads, concatenate, slope=0.3).double()
    assert_parity(layer, weights, (graph, x), expected, [x, *peer.parameters()])


@pytest.mark.parametrize("concatenate", [True, False])
@pytest.mark.parametrize("heads", [1, 3])
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
    layer = GATv2(5, 4, heads, concatenate, slope=0.3).double()
    assert_parity(layer, weights, (graph, x), expected, [x, *peer.parameters()])


def test_gat_is_equations_5_11_to_5_13():
    graph, x = messy_graph().coalesce(), leaf(7, 5)
    layer = GAT(5, 4).double()
    wx, a = x @ layer.W.weight.T, torch.cat([layer.a_receiver[0], layer.a_sender[0]])
    pairs = torch.cat([wx[:, None].expand(7, 7, 4), wx[None].expand(7, 7, 4)], -1)  # [W x_i ‖ W x_j]
    e = torch.nn.functional.leaky_relu(pairs @ a, 0.2)
    listens = graph.dense_mask() | torch.eye(7, dtype=torch.bool)
    alpha = e.masked_fill(~listens, -torch.inf).softmax(-1)
    assert torch.allclose(layer(graph, x), alpha @ wx + layer.bias, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_an_isolated_node_attends_to_itself(kind):
    with record() as seen:
        kind(5, 4, heads=2).double()(messy_graph(), leaf(7, 5))
    last = seen[0].weights[seen[0].graph.receivers == 6]
    assert torch.allclose(last, torch.ones(1, 2, dtype=torch.float64))


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


@pytest.mark.parametrize("kind", KINDS)
def test_attention_weights_are_dropped_while_training_only(kind):
    layer, x = kind(5, 4, dropout=0.6), torch.randn(7, 5)
    assert not torch.equal(layer(messy_graph(), x), layer(messy_graph(), x))
    layer.eval()
    assert torch.equal(layer(messy_graph(), x), layer(messy_graph(), x))


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_features_give_what_dense_ones_give(kind):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    dense = torch.rand(7, 5).where(torch.rand(7, 5) < 0.4, 0)
    sparse = SparseFeatures.from_scipy(scipy_sparse.csr_matrix(dense.numpy()))
    layer = kind(5, 4, heads=2)
    assert torch.allclose(layer(messy_graph(), sparse), layer(messy_graph(), dense), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_receivers_must_be_the_senders(kind):
    with pytest.raises(GraphError):
        kind(3, 2)(complete(2, 3), torch.zeros(3, 3))
