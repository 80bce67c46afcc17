import pytest
import torch
from torch import nn

from edgewise import Graph, ShapeError
from edgewise.layers import GIN, GINE, MLP, PNA, SAGEMean, SparseFeatures
from layers.parity import assert_parity, leaf, messy_graph


@pytest.mark.parametrize("edges", [0, 3])
def test_it_is_pygs_with_edge_features_or_without(edges):
    pyg = pytest.importorskip("torch_geometric.nn")
    graph, x, e = messy_graph(), leaf(7, 5), leaf(10, 3, seed=1)
    network = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4))
    kind, options = (pyg.GINEConv, {"edge_dim": 3}) if edges else (pyg.GINConv, {})
    peer = kind(network, eps=0.3, train_eps=True, **options).double()
    weights = {"epsilon": peer.eps[0]}
    for number, linear in enumerate((network[0], network[2])):
        weights |= dict(linear.named_parameters(prefix=f"mlp.linears.{number}"))
    weights |= dict(peer.lin.named_parameters(prefix="edge")) if edges else {}
    layer, more = (GINE(MLP([5, 6, 4]), edges=3), [e]) if edges else (GIN(MLP([5, 6, 4])), [])
    expected = peer(x, graph.edge_index(), *more)
    assert_parity(layer.double(), weights, (graph, x, *more), expected, [x, *more, *peer.parameters()])


def test_hooks_of_the_network_are_called_for_sparse_features_too():
    dense = torch.randn(7, 5)
    every = Graph.from_csr(torch.arange(0, 36, 5), torch.arange(35) % 5, num_senders=5)
    x, layer = SparseFeatures(every, dense.flatten()), GIN(MLP([5, 6, 4]))
    expected = layer(messy_graph(), x)
    layer.mlp.register_forward_hook(lambda module, arguments, y: -y)
    torch.testing.assert_close(layer(messy_graph(), x), -expected)


def test_sums_tell_multisets_apart_that_means_confuse():
    """One neighbour, or two equal ones: the mean is the same, the sum is not."""
    one = Graph.from_edge_index([[1], [0]], num_nodes=3)
    two = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
    x = torch.ones(3, 2)
    mean, total = SAGEMean(2, 4), GIN(MLP([2, 4]))
    assert torch.allclose(mean(one, x)[0], mean(two, x)[0])
    assert not torch.allclose(total(one, x)[0], total(two, x)[0])


def test_gine_tells_bonds_apart_that_gin_confuses():
    pair, x = Graph.from_edge_index([[1, 0], [0, 1]], num_nodes=2), torch.ones(2, 2)
    layer = GINE(MLP([2, 4]), edges=1)
    with torch.no_grad():
        layer.edge.weight.fill_(1.0)
    y = layer(pair, x, torch.tensor([[0.0], [3.0]]))  # two nodes that differ in their bond alone
    assert not torch.allclose(y[0], y[1])
    assert torch.allclose(*GIN(MLP([2, 4]))(pair, x))
    with pytest.raises(ShapeError):
        layer(pair, x)
    with pytest.raises(ShapeError):
        GINE(MLP([2, 4]))(pair, x, torch.zeros(2, 1))


@pytest.mark.parametrize("edges", [0, 3])
def test_pna_is_pygs(edges: int) -> None:
    """Of whose weights ours are products: there a linear map follows a linear map."""
    pyg = pytest.importorskip("torch_geometric.nn")
    graph, x, e = messy_graph(), leaf(7, 5), leaf(10, 3, seed=1)
    how = ["mean", "max", "min", "std"], ["identity", "amplification", "attenuation"]
    peer = pyg.PNAConv(5, 4, *how, deg=torch.tensor([2, 3, 4, 1]), edge_dim=edges or None).double()
    expected = peer(x, graph.edge_index(), e if edges else None)
    (pre, after, last), deg_log = (
        (peer.pre_nns[0][0], peer.post_nns[0][0], peer.lin),
        float(peer.aggr_module.avg_deg_log),
    )
    A, B, *C = pre.weight.split(5, 1)
    U, V = (last.weight @ after.weight).split([5, 60], 1)
    c, u = pre.bias, last.weight @ after.bias + last.bias
    if edges:
        C, c = [C[0] @ peer.edge_encoder.weight], c + C[0] @ peer.edge_encoder.bias
    weights = {
        "nodes.weight": torch.cat([A, B, U]), "nodes.bias": torch.cat([c, torch.zeros_like(c), u]),
        "update.weight": V, **({"edge.weight": C[0]} if edges else {}),
    }  # fmt: skip
    layer = PNA(5, 4, edges=edges, log_degree=deg_log).double()
    given = (graph, x, e) if edges else (graph, x)
    assert_parity(layer, weights, given, expected, [x, *peer.parameters(), *([e] if edges else [])], 1e-7)
