import pytest
import torch
from torch import nn

from edgewise import Graph, complete
from edgewise.layers import READOUTS, AttentionReadout, FirstReadout
from layers.parity import assert_parity, leaf


@pytest.fixture
def graph():
    path = Graph.from_edge_index([[0, 1], [1, 2]], num_nodes=3)
    return Graph.batch([path, complete(1), complete(2)])


@pytest.mark.parametrize(("name", "pool"), [("mean", "mean"), ("sum", "add"), ("max", "max")])
def test_readouts_are_pygs_global_pools(graph, name, pool):
    pyg = pytest.importorskip("torch_geometric.nn")
    x, member = leaf(6, 4), torch.tensor([0, 0, 0, 1, 2, 2])
    expected = getattr(pyg, f"global_{pool}_pool")(x, member)
    assert_parity(READOUTS[name](4), {}, (graph, x), expected, [x])


def test_attention_readout_is_pygs_attentional_aggregation(graph):
    pyg = pytest.importorskip("torch_geometric.nn")
    x, member = leaf(6, 4), torch.tensor([0, 0, 0, 1, 2, 2])
    gate = nn.Linear(4, 1, bias=False).double()
    expected = pyg.aggr.AttentionalAggregation(gate)(x, member)
    weights = {"gate.weight": gate.weight}
    assert_parity(AttentionReadout(4).double(), weights, (graph, x), expected, [x, gate.weight])


@pytest.mark.parametrize("wrong", [torch.inf, torch.nan])
def test_the_first_node_does_not_read_the_others(graph, wrong):
    x, readout = torch.randn(6, 4), FirstReadout(4)
    expected, first = readout(graph, x), [0, 3, 4]
    x[[1, 2, 5]] = wrong
    x.requires_grad_()
    y = readout(graph, x)
    assert torch.equal(y, expected)
    y.sum().backward()
    assert x.grad[first].all() and not x.grad[[1, 2, 5]].any()


@pytest.mark.parametrize("name", READOUTS)
def test_a_graph_without_nodes_gives_zero(name):
    y = READOUTS[name](4)(Graph.batch([complete(2), complete(0)]), torch.randn(2, 4))
    assert y[1].tolist() == [0.0] * 4
