"""Additive attention and kernel regression against their equations: forward and gradient."""

import pytest
import torch

from edgewise import Graph, complete
from edgewise.layers import BahdanauAttention, KernelRegression
from layers.parity import assert_parity, leaf, messy_graph

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


@pytest.mark.parametrize("graph", [complete(7), messy_graph().coalesce()], ids=["complete", "edges"])
def test_it_is_equation_4_1(graph):
    x, v, layer = leaf(7, 2), leaf(7, 3, seed=1), KernelRegression(0.7).double()
    sigma, rows = layer.log_sigma.exp(), []
    for i in range(7):
        hears = graph.dense_mask()[i].nonzero().flatten().tolist()
        a = [torch.exp(-((x[i] - x[j]) ** 2).sum() / (2 * sigma**2)) for j in hears]
        rows.append(torch.stack(a) @ v[hears] / sum(a) if hears else torch.zeros(3, dtype=torch.float64))
    parameters = dict(layer.named_parameters())
    assert_parity(layer, parameters, (graph, x, v), torch.stack(rows), [x, v, *parameters.values()])
