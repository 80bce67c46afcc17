"""Adaptive channel mixing against its equations, written out densely in float64."""

import torch

from edgewise import Graph
from edgewise.layers import ACM
from layers.parity import leaf, messy_graph


def written(graph: Graph, x: torch.Tensor, layer: ACM) -> torch.Tensor:
    """(4)-(5) of the paper, with dense matrices."""
    a = dense(graph)
    loops = (a.diagonal() == 0).to(x.dtype)
    a = a + torch.diag(loops)
    p = a / a.sum(1, keepdim=True)
    W_L, W_H, W_I = layer.channels.weight.chunk(3)
    H = [(p @ x @ W_L.T).relu(), ((torch.eye(len(x)).double() - p) @ x @ W_H.T).relu(), (x @ W_I.T).relu()]
    told = torch.cat([(h @ w).sigmoid().unsqueeze(-1) for h, w in zip(H, layer.scores, strict=True)], -1)
    alpha = (told @ layer.mix / 3).softmax(-1)
    return 3 * sum(alpha[:, k : k + 1] * H[k] for k in range(3))


def dense(graph: Graph) -> torch.Tensor:
    """How often each edge occurs."""
    counts = torch.zeros(graph.num_receivers, graph.num_senders, dtype=torch.float64)
    ones = torch.ones(graph.num_edges, dtype=torch.float64)
    return counts.index_put((graph.receivers, graph.senders), ones, accumulate=True)


def test_acm_is_the_equations_with_their_gradient():
    graph, x, layer = messy_graph(), leaf(7, 5), ACM(5, 3).double()
    found, expected = layer(graph, x), written(graph, x, layer)
    assert torch.allclose(found, expected, atol=1e-12)
    weights = [x, *layer.parameters()]
    cotangent = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, weights, cotangent), torch.autograd.grad(expected, weights, cotangent), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-10)


def test_a_node_that_differs_from_its_neighbours_can_be_told_from_one_that_does_not():
    """Where each node's neighbours are all of the other class, the high-pass channel has what the mean cannot have."""
    graph = Graph.from_edge_index([[0, 1, 2, 3], [1, 0, 3, 2]], num_nodes=4)
    x = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]], dtype=torch.float64)
    layer = ACM(1, 1).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.fill_(1.0)
    y = layer(graph, x).flatten()
    assert y[0] > 1 and y[1] == 0  # mean 0 on both; difference 1 and -1
