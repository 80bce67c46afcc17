"""Factorised attention against its equation, and where it must equal full attention."""

import math
from functools import partial

import pytest
import torch

from edgewise import ConfigError, Graph, causal, complete, window
from edgewise.graphs.patterns import fixed_parts, strided_parts
from edgewise.layers import FactorisedAttention
from layers.parity import assert_parity, each, leaf

PARTS = {
    "strided": partial(strided_parts, stride=3),
    "fixed": partial(fixed_parts, stride=3),
    "fixed, two summaries": partial(fixed_parts, stride=3, summaries=2),
}


def rule(name: str, group: int, i: int, j: int) -> bool:
    """The factors as the paper writes them (§4.2), for a stride of 3."""
    if j > i:
        return False
    if name == "strided":
        return i - j < 3 if group == 0 else (i - j) % 3 == 0
    return i // 3 == j // 3 if group == 0 else j % 3 >= (1 if "two" in name else 2)


@pytest.mark.parametrize(("name", "graph"), each(PARTS, [complete(8), causal(8), window(8, 4)]))
def test_the_layer_is_its_equation(name, graph):
    layer, x, listens = FactorisedAttention(8, 4, PARTS[name]).double(), leaf(8, 8), graph.dense_mask()
    q, k, v = (part.view(8, 4, 2) for part in layer.projection(x).chunk(3, -1))
    heard = []
    for h in range(4):
        near = torch.tensor([[rule(name, h // 2, i, j) for j in range(8)] for i in range(8)])
        weight = torch.where(listens & near, (q[:, h] @ k[:, h].T / math.sqrt(2)).exp(), 0)
        heard.append(weight @ v[:, h] / weight.sum(1, keepdim=True).clamp(min=1e-300))
    expected = layer.output(torch.cat(heard, -1))
    parameters = dict(layer.named_parameters())
    assert_parity(layer, parameters, (graph, x), expected, [x, *parameters.values()], 1e-10)


def test_a_batch_of_complete_graphs_restricts_nothing_and_lists_no_pairs():
    layer, x = FactorisedAttention(8, 2, PARTS["strided"]).double(), leaf(9, 8)
    graph = Graph.batch([complete(4), complete(5)])
    together = layer(graph, x)
    assert torch.allclose(together, torch.cat([layer(complete(4), x[:4]), layer(complete(5), x[4:])]), atol=1e-12)
    assert "senders" not in graph.__dict__


@pytest.mark.parametrize(
    ("parts", "heads"), [(PARTS["fixed"], 1), (lambda n: (), 2), (lambda n: (Graph.from_edge_index([[0], [0]], 1),), 2)]
)
def test_patterns_that_do_not_fit_the_heads_are_refused(parts, heads):
    with pytest.raises(ConfigError, match="patterns by rule"):
        FactorisedAttention(8, heads, parts)
