"""Additive attention against its equation, edge by edge: forward and gradient."""

import torch

from edgewise import Graph
from edgewise.layers import BahdanauAttention
from layers.parity import assert_parity, leaf

GRAPH = Graph.from_edge_index([[0, 1, 2, 4, 4], [0, 0, 1, 1, 2]], num_nodes=5, num_receivers=4)  # 3 attends to nobody


def test_it_is_bahdanaus_equation():
    layer, x, h = BahdanauAttention(3, 4, hidden=6).double(), leaf(4, 3), leaf(5, 4, seed=1)
    rows = []
    for i in range(4):
        senders = GRAPH.senders[GRAPH.receivers == i]
        scores = [layer.score.weight[0] @ torch.tanh(layer.query.weight @ x[i] + layer.key(h[j])) for j in senders]
        rows.append(torch.stack(scores).softmax(0) @ h[senders] if scores else torch.zeros(4, dtype=torch.float64))
    leaves = [x, h, *layer.parameters()]
    assert_parity(layer, dict(layer.named_parameters()), (GRAPH, x, h), torch.stack(rows), leaves)
