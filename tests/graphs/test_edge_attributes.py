"""Features that are given with the edges travel with the graph, each with its own edge; the wrong order is refused."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from edgewise import Graph, aggregate, attend, collect
from edgewise.errors import GraphError, ShapeError
from edgewise.kernels import Dot
from edgewise.kernels.scores import EdgeBias
from edgewise.layers import GCN, GINE, MLP, RGCN, EdgeStream, GatedGCN, GATv2, SAGEMean
from edgewise.models import GNN, Features, GNNSettings

NODES = 6
ENDS = torch.tensor([[5, 1, 0, 3, 3, 2, 1, 0], [0, 4, 4, 3, 1, 5, 4, 5]])  # from 1 to 4 twice; 3 to itself


def code(ends: Tensor) -> Tensor:
    """A feature that says which edge it is of."""
    return (10 * ends[0] + ends[1])[:, None].float()


def made() -> Graph:
    return Graph.from_edge_index(ENDS, NODES, edge_attr=code(ENDS))


DERIVED = {
    "itself": lambda graph: graph,
    "keep_edges": lambda graph: graph.keep_edges(torch.arange(8) % 3 > 0),
    "remove_self_loops": lambda graph: graph.remove_self_loops(),
    "rows": lambda graph: graph.rows(0, 5),
    "coalesce": lambda graph: graph.coalesce("mean"),
    "a copy": deepcopy,
}


@pytest.mark.parametrize("name", DERIVED)
def test_each_edge_keeps_its_own(name: str) -> None:
    graph = DERIVED[name](made())
    assert torch.equal(graph.edge_attr, code(graph.edge_index()))


def test_new_nodes_new_directions_and_batches() -> None:
    graph = made()
    back, perm = graph.transpose()
    assert torch.equal(back.edge_attr, graph.edge_attr[perm])
    assert torch.equal(back.transpose()[0].edge_attr, graph.edge_attr)
    nodes = torch.tensor([5, 0, 4, 1])
    part = graph.subgraph(nodes)
    assert torch.equal(part.edge_attr, code(nodes[part.edge_index()])) and part.num_edges == 5
    batch = Graph.batch([part, graph])
    assert torch.equal(batch.edge_attr, torch.cat([part.edge_attr, graph.edge_attr]))
    assert Graph.batch([graph, Graph.from_edge_index(ENDS, NODES)]).edge_attr is None


@pytest.mark.parametrize(("reduce", "joined"), [("sum", 8.0), ("mean", 4.0), ("max", 7.0), ("min", 1.0)])
def test_parallel_edges_are_joined_as_it_is_said(reduce: str, joined: float) -> None:
    graph = Graph.from_edge_index([[1, 0, 0], [1, 1, 1]], 2, edge_attr=torch.tensor([3.0, 7.0, 1.0]))
    assert graph.coalesce(reduce).edge_attr.tolist() == [joined, 3.0]
    assert graph.coalesce().edge_attr is None
    with pytest.raises(GraphError, match="reduce must be one of sum, mean, max, min, or None, not 'median'"):
        graph.coalesce("median")


def test_both_directions_and_new_loops() -> None:
    graph = Graph.from_edge_index([[2, 0, 1], [0, 1, 1]], 3, edge_attr=torch.tensor([[5.0], [7.0], [9.0]]))
    both = graph.symmetrise("mean")
    assert both.edge_index().tolist() == [[1, 2, 0, 1, 0], [0, 0, 1, 1, 2]]
    assert both.edge_attr.flatten().tolist() == [7, 5, 7, 9, 5] and graph.symmetrise().edge_attr is None
    looped = graph.add_self_loops(fill=-1.0)
    assert looped.edge_index().tolist() == [[0, 2, 0, 1, 2], [0, 0, 1, 1, 2]]
    assert looped.edge_attr.flatten().tolist() == [-1, 5, 7, 9, -1] and graph.add_self_loops().edge_attr is None


def test_gradients_reach_the_features_that_were_given() -> None:
    e = code(ENDS).requires_grad_()
    graph = Graph.from_edge_index(ENDS, NODES, edge_attr=e).transpose()[0].coalesce("sum")
    graph.edge_attr[graph.receivers == 5].sum().backward()  # receivers of the transpose are senders
    assert e.grad.flatten().tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


def test_the_order_of_the_caller_is_refused_and_the_graphs_is_read() -> None:
    graph, e, x = made(), code(ENDS), torch.randn(NODES, 4)
    mine = Graph.from_edge_index(ENDS, NODES, edge_attr=e)
    calls = {
        "GatedGCN": lambda graph, e: GatedGCN(4, 3, edges=1)(graph, x, e),
        "GINE": lambda graph, e: GINE(MLP([4, 3]), edges=1)(graph, x, e),
        "aggregate": lambda graph, e: aggregate(graph, x, e.view(-1)),
        "collect": lambda graph, e: collect(graph, e),
        "attend": lambda graph, e: attend(graph, *x[:, None].expand(3, -1, -1, -1), Dot() + EdgeBias(e)),
    }
    for call in calls.values():
        with pytest.raises(ShapeError, match=r"give graph\.edge_attr"):
            call(mine, e)
        call(mine, mine.edge_attr)
        call(graph, mine.edge_attr)
    ordered = mine.edge_index()
    sorted_ = Graph.from_edge_index(ordered, NODES, edge_attr=(own := code(ordered)))
    collect(sorted_, own)  # in the graph's order already


@pytest.mark.parametrize("make", [GINE, GatedGCN, EdgeStream, GATv2], ids=lambda make: make.__name__)
def test_layers_that_are_given_none_read_the_graphs(make: Any) -> None:
    layer, x = make(MLP([4, 3]), edges=1) if make is GINE else make(4, 3, edges=1), torch.randn(NODES, 4)
    for graph in (made(), made().transpose()[0], made().coalesce("mean"), made().add_self_loops(1.0)):
        for own, given in zip(layer(graph, x), layer(graph, x, graph.edge_attr), strict=True):
            assert torch.equal(own, given)
    with pytest.raises(ShapeError, match="reads some edge features"):
        layer(Graph.from_edge_index(ENDS, NODES), x)


def test_models_that_are_given_none_read_the_graphs() -> None:
    e, x = torch.randint(2, (8,)), torch.randn(NODES, 4)
    graph = Graph.from_edge_index(ENDS, NODES, edge_attr=e)
    model = GNN(GNNSettings(layer="gine", width=4, dropout=0.0), Features(4, 2, edges=2))
    assert torch.equal(model(graph, x), model(graph, x, graph.edge_attr))


def test_data_of_pytorch_geometric_bring_theirs_along() -> None:
    weight, kinds = torch.rand(8), torch.randint(2, (8,))
    library = pytest.importorskip("torch_geometric.data")
    data = library.Data(edge_index=ENDS, num_nodes=NODES, edge_attr=code(ENDS), edge_weight=weight, edge_type=kinds)
    for graph in (Graph.from_pyg(data), Graph.from_pyg(library.Batch.from_data_list([data]))):
        assert torch.equal(graph.edge_attr, code(graph.edge_index()))
    graph, x = Graph.from_pyg(data), torch.randn(NODES, 4)
    for layer, e in ((GCN(4, 3), weight), (SAGEMean(4, 3), weight), (RGCN(4, 3, 2), kinds)):
        layer(graph, x, graph.sort_edges(e))
        with pytest.raises(ShapeError, match=r"give graph\.sort_edges"):
            layer(graph, x, e)


@pytest.mark.parametrize("e", [torch.ones(7, 1), torch.tensor(1.0), [1.0] * 8])
def test_features_without_a_row_for_each_edge_are_refused(e: object) -> None:
    with pytest.raises(ShapeError, match=r"\[8, ...\]"):
        Graph.from_edge_index(ENDS, NODES, edge_attr=e)
