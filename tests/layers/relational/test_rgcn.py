"""Relational convolution against PyTorch Geometric's, against its equation, and in its several forms."""

from typing import Any

import pytest
import torch

from edgewise import Graph
from edgewise.errors import ShapeError
from edgewise.layers import RGCN, SparseFeatures
from layers.parity import each
from layers.relational.typed import EDGES, NODES, RELATIONS, drawn

pyg = pytest.importorskip("torch_geometric.nn")


def pair(bases: int) -> tuple[RGCN, Any]:
    """A layer and its peer with the same weights."""
    layer, peer = RGCN(3, 4, RELATIONS, bases).double(), pyg.RGCNConv(3, 4, RELATIONS, bases or None).double()
    with torch.no_grad():
        peer.weight.copy_(layer.maps.weight.unflatten(0, (bases or RELATIONS, 4)).transpose(1, 2))
        peer.root.copy_(layer.own.weight.T)
        peer.bias.copy_(layer.own.bias)
        if layer.mix is not None:
            peer.comp.copy_(layer.mix)
    return layer, peer


@pytest.mark.parametrize(("one_hot", "bases"), each([False, True], [0, 1, 3]))
def test_outputs_and_gradients_are_those_of_pytorch_geometric(bases: int, one_hot: bool) -> None:
    layer, peer = pair(bases)
    index, kinds, x = drawn()
    graph = Graph.from_edge_index(index, NODES)
    e = graph.sort_edges(kinds)
    e = torch.nn.functional.one_hot(e, RELATIONS).double() if one_hot else e
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, right = layer(graph, mine, e), peer(theirs, index, kinds)
    torch.testing.assert_close(y, right, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(y)
    (y * weight).sum().backward()
    (right * weight).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-10, atol=1e-12)
    W = layer.maps.weight.grad.unflatten(0, (bases or RELATIONS, 4)).transpose(1, 2)
    torch.testing.assert_close(W, peer.weight.grad, rtol=1e-10, atol=1e-12)
    if layer.mix is not None:
        torch.testing.assert_close(layer.mix.grad, peer.comp.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bases", [0, 2])
def test_weights_of_relations_are_the_equation(bases: int) -> None:
    layer, _ = pair(bases)
    index, _, x = drawn(1)
    graph = Graph.from_edge_index(index, NODES)
    e = torch.rand(EDGES, RELATIONS, dtype=torch.float64)
    e[:, 2] = 0
    V = layer.maps.weight.unflatten(0, (-1, 4))
    W = V if layer.mix is None else torch.einsum("rb,boi->roi", layer.mix, V)
    right = layer.own(x).detach().clone()
    for i in range(NODES):
        edges = (graph.receivers == i).nonzero().flatten()
        for r in (0, 1, 3, 4):
            total = e[edges, r].sum()
            for edge in edges.tolist():
                right[i] += e[edge, r] / total * (W[r] @ x[graph.senders[edge]])
    torch.testing.assert_close(layer(graph, x, e), right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-9, 30.0, 1e4, 1e6])
def test_weights_in_half_precision_may_add_up_beyond_its_range(scale: float) -> None:
    graph = Graph.from_edge_index(torch.randint(9, (2, 400)), 9)
    layer, x, e = RGCN(3, 4, relations=2).half(), torch.randn(9, 3).half(), scale * torch.rand(400, 2)
    found = layer(graph, x, e)
    torch.testing.assert_close(found.float(), layer.float()(graph, x.float(), e), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("bases", [0, 2])
def test_two_kinds_of_nodes_sparse_features_and_nothing(bases: int) -> None:
    layer, _ = pair(bases)
    index, kinds, x = drawn(2)
    graph = Graph.from_edge_index(index, NODES)
    e = graph.sort_edges(kinds)
    right = layer(graph, x, e)
    torch.testing.assert_close(layer(graph, (x, x), e), right)
    torch.testing.assert_close(layer(graph, x.expand(2, -1, -1), e), right.expand(2, -1, -1))
    rows = torch.eye(NODES, dtype=torch.float64)
    wide = RGCN(NODES, 4, RELATIONS, bases).double()
    sparse = SparseFeatures(Graph.from_csr(torch.arange(NODES + 1), torch.arange(NODES), NODES), rows.diag())
    torch.testing.assert_close(wide(graph, sparse, e), wide(graph, rows, e))
    none = Graph.from_edge_index([[], []], NODES)
    torch.testing.assert_close(layer(none, x, e[:0]), layer.own(x))
    torch.testing.assert_close(layer(none, x, torch.zeros(0, RELATIONS).double()), layer.own(x))
    assert layer(Graph.from_edge_index([[], []], 0), x[:0], e[:0]).shape == (0, 4)


def test_what_does_not_fit_is_said() -> None:
    layer, _ = pair(0)
    index, kinds, x = drawn()
    graph = Graph.from_edge_index(index, NODES)
    with pytest.raises(ShapeError, match=r"this layer has 5 relations: hand over that of each edge"):
        layer(graph, x)
    with pytest.raises(ShapeError, match=r"relations of edges are 0 to 4, not 0 to 5"):
        layer(graph, x, kinds + (kinds == 4))
    with pytest.raises(ShapeError, match=r"weights of relations are \[70, 3\], but must be \[\*, 70, 5\]"):
        layer(graph, x, torch.zeros(EDGES, 3))
    with pytest.raises(ShapeError, match=r"relations of edges are \[69\] of int64"):
        layer(graph, x, kinds[1:])
    with pytest.raises(ShapeError, match=r"\[70\] of int32; expected \[70\] of int64"):
        layer(graph, x, kinds.int())
