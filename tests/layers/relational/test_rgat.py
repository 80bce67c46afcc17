"""Relational graph attention against PyTorch Geometric's, against its equation, and in its several forms."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from edgewise import Graph
from edgewise.errors import ShapeError
from edgewise.layers import RGAT, SparseFeatures
from layers.relational.typed import NODES, RELATIONS, drawn

pyg = pytest.importorskip("torch_geometric.nn")


def pair(heads: int, bases: int) -> tuple[RGAT, Any]:
    """A layer and its peer with the same weights: there q and k are the same for all relations, and may mix heads."""
    layer = RGAT(3, 4, RELATIONS, heads, bases).double()
    peer = pyg.RGATConv(3, 4, RELATIONS, bases or None, heads=heads).double()
    with torch.no_grad():
        W = layer.maps.transpose(1, 2)
        if layer.mix is None:
            peer.weight.copy_(W)
        else:
            peer.basis.copy_(W), peer.att.copy_(layer.mix)
        for own, theirs in ((layer.a_receiver, peer.q), (layer.a_sender, peer.k)):
            own[1:] = own[:1]
            theirs.copy_(torch.block_diag(*own[0, :, :, None]))
        peer.bias.copy_(layer.bias.normal_())
    return layer, peer


@pytest.mark.parametrize(("heads", "bases"), [(1, 0), (1, 2), (3, 0), (3, 2)])
def test_outputs_and_gradients_are_those_of_pytorch_geometric(heads: int, bases: int) -> None:
    layer, peer = pair(heads, bases)
    index, kinds, x = drawn()
    graph = Graph.from_edge_index(index, NODES)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, right = layer(graph, mine, graph.sort_edges(kinds)), peer(theirs, index, kinds)
    torch.testing.assert_close(y, right, rtol=1e-9, atol=1e-9)
    weight = torch.randn_like(y)
    (y * weight).sum().backward()
    (right * weight).sum().backward()
    W, theirs_W = (layer.maps, peer.weight) if layer.mix is None else (layer.maps, peer.basis)
    pairs = [(mine.grad, theirs.grad), (W.grad.transpose(1, 2), theirs_W.grad), (layer.bias.grad, peer.bias.grad)]
    blocks = torch.arange(heads).repeat_interleave(4)
    for own, other in ((layer.a_receiver, peer.q), (layer.a_sender, peer.k)):
        pairs.append((own.grad.sum(0).flatten(), other.grad[torch.arange(4 * heads), blocks]))
    if layer.mix is not None:
        pairs.append((layer.mix.grad, peer.att.grad))
    for own, other in pairs:
        torch.testing.assert_close(own, other, rtol=1e-6, atol=1e-9)


def test_every_relation_has_vectors_of_its_own() -> None:
    layer = RGAT(3, 4, RELATIONS, 2).double()
    index, kinds, x = drawn(1)
    graph = Graph.from_edge_index(index, NODES)
    e = graph.sort_edges(kinds)
    right = torch.zeros(NODES, 2, 4, dtype=torch.float64)
    for i in range(NODES):
        edges = (graph.receivers == i).nonzero().flatten()
        W = layer.maps.unflatten(1, (2, 4))[e[edges]]  # [n, H, C, D]
        g_i, g_j = W @ x[i], torch.einsum("nhcd,nd->nhc", W, x[graph.senders[edges]])
        s = (layer.a_receiver[e[edges]] * g_i + layer.a_sender[e[edges]] * g_j).sum(-1)
        right[i] = (functional.leaky_relu(s, 0.2).softmax(0).unsqueeze(-1) * g_j).sum(0)
    torch.testing.assert_close(layer(graph, x, e), right.flatten(1) + layer.bias, rtol=1e-10, atol=1e-12)


def test_sparse_batched_and_of_two_sides() -> None:
    layer = RGAT(3, 4, RELATIONS, 2).double()
    index, kinds, x = drawn(2)
    graph = Graph.from_edge_index(index, NODES)
    e = graph.sort_edges(kinds)
    right = layer(graph, x, e)
    torch.testing.assert_close(layer(graph, (x, x), e), right)
    torch.testing.assert_close(layer(graph, torch.stack([x, x.flip(0)]), e)[0], right)
    rows = torch.eye(NODES, dtype=torch.float64)
    wide = RGAT(NODES, 4, RELATIONS, bases=2).double()
    sparse = SparseFeatures(Graph.from_csr(torch.arange(NODES + 1), torch.arange(NODES), NODES), rows.diag())
    torch.testing.assert_close(wide(graph, sparse, e), wide(graph, rows, e))
    inner = index[1] < 5
    hop = Graph.from_edge_index(index[:, inner], NODES, 5)
    own = hop.sort_edges(kinds[inner])
    torch.testing.assert_close(layer(hop, x, own), right[:5])
    torch.testing.assert_close(layer(hop, (x[:5], x), own), right[:5])
    with pytest.raises(ShapeError, match="are a pair"):
        layer(Graph.from_edge_index([[0], [3]], 2, 4), x[:2], e[:1])
