"""Sorted blocks against their equation, the soft permutation itself, and where it must equal full attention."""

from functools import partial

import pytest
import torch

from edgewise import Graph, causal, complete, strided, window
from edgewise.layers import BlockSort, SinkhornAttention, sinkhorn
from edgewise.layers.attention.sinkhorn import blocking_of
from layers.parity import assert_parity, each, leaf

GRAPHS = {
    "complete": complete(12),
    "causal": causal(12),
    "window": window(12, 8),
    "past window": window(12, 8, sides="past"),
    "strided": strided(12, 3),
    "edges": Graph.from_edge_index(torch.ones(12, 12).triu(-4).nonzero().T, 12),
}


def layer_of(block=3, temperature=0.75, **options) -> SinkhornAttention:
    return SinkhornAttention(8, 2, BlockSort(2, 4, temperature), size=block, **options).double().eval()


def soft_permutation(R: torch.Tensor, allowed: torch.Tensor, iterations: int, past: bool) -> torch.Tensor:
    """Sinkhorn's scaling with sums of exponentials, entry by entry."""
    S = R.exp() * allowed
    for _ in range(iterations):
        total = S.cumsum(0) if past else S.sum(0).expand_as(S)
        S = torch.where(total > 0, S / total.clamp(min=1e-300), 0)
        total = S.sum(1, keepdim=True)
        S = torch.where(total > 0, S / total.clamp(min=1e-300), 0)
    return S


def equation(layer: SinkhornAttention, graph: Graph, x: torch.Tensor) -> torch.Tensor:
    """The layer for x [N, 8], in which every block has the same size."""
    n, b = len(x), layer.size
    count = n // b
    q, k, v = (part.view(-1, 2, 4) for part in layer.projection(x).chunk(3, -1))
    listens = graph.dense_mask()
    past = not listens.triu(1).any()
    whole = listens.view(count, b, count, b).all(3).all(1)
    whole = whole & ~torch.eye(count, dtype=torch.bool) if past else whole
    heads = []
    for h in range(2):
        means = torch.stack([v[a * b : a * b + b, h].mean(0) for a in range(count)])
        queried = torch.stack([v[: a * b + 1, h].mean(0) for a in range(count)]) if past else means
        R = queried @ layer.grouping.W[h] @ means.T / layer.grouping.temperature
        S = soft_permutation(R, whole, layer.grouping.iterations, past)
        rows = []
        for i in range(n):
            a = i // b
            own = [j for j in range(a * b, a * b + b) if listens[i, j]]
            keys, values = [k[own, h]], [v[own, h]]
            if whole[a].any():
                keys, values = (
                    [sum(S[a, c] * z[c * b : c * b + b, h] for c in range(count)), *rest]
                    for z, rest in ((k, keys), (v, values))
                )
            keys, values = torch.cat(keys), torch.cat(values)
            rows.append((keys @ q[i, h] / 2).softmax(0) @ values if len(keys) else 0 * v[i, h])
        heads.append(torch.stack(rows))
    return layer.output(torch.cat(heads, -1))


@pytest.mark.parametrize(("name", "block"), each([*GRAPHS, *GRAPHS], [3, 1, 3, 12]))
def test_the_layer_is_its_equation(name, block):
    layer, x = layer_of(block), leaf(12, 8)
    parameters = dict(layer.named_parameters())
    expected = equation(layer, GRAPHS[name], x)
    expected = expected + 0 * layer.grouping.W.sum()  # where nothing is sorted, nothing depends on W
    leaves = [x, *(p for n, p in parameters.items() if n != "grouping.W")]
    assert_parity(layer, parameters, (GRAPHS[name], x), expected, leaves, 1e-10)
    if block == 3 and name != "strided":  # which holds no two blocks whole
        assert_parity(layer, parameters, (GRAPHS[name], x), expected, [layer.grouping.W], 1e-10)


def test_the_matrix_is_doubly_stochastic():
    scores = 3 * torch.randn(5, 7, 7, dtype=torch.float64)
    S = sinkhorn(scores, torch.ones(7, 7, dtype=torch.bool), iterations=200)
    ones = torch.ones(5, 7, dtype=torch.float64)
    assert torch.allclose(S.sum(-1), ones, atol=1e-12)
    assert torch.allclose(S.sum(-2), ones, atol=1e-6)
    assert (S > 0).all()


def test_a_causal_row_depends_on_no_later_row():
    allowed, scores = torch.ones(6, 6, dtype=torch.bool).tril(-1), torch.randn(6, 6)
    other = torch.cat([scores[:4], torch.randn(2, 6)])
    first, second = (sinkhorn(r, allowed, 8, past=True) for r in (scores, other))
    assert torch.equal(first[:4], second[:4])
    assert first[0].eq(0).all() and first[1:].sum(1).allclose(torch.ones(5))


def test_each_member_of_a_batch_hears_what_it_hears_alone():
    layer, x = layer_of(), leaf(30, 8)
    for patterns in (
        [causal] * 3,
        [complete] * 3,
        [complete, causal, complete],
        [causal, partial(window, radius=8), causal],
    ):
        graphs = [pattern(n) for pattern, n in zip(patterns, (2, 11, 17), strict=True)]
        alone = torch.cat([layer(graph, part) for graph, part in zip(graphs, x.split([2, 11, 17]), strict=True)])
        assert torch.allclose(layer(Graph.batch(graphs), x), alone, atol=1e-12)


def test_the_noise_is_gumbels(monkeypatch):
    """With W = 0 the matrix is that of the noise alone: -log E, where E is exponential."""
    drawn, every = torch.empty(5, 5, dtype=torch.float64).exponential_(), torch.ones(5, 5, dtype=torch.bool)
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda noise: noise.copy_(drawn))
    sort = BlockSort(1, 4, temperature=2.0, iterations=3).double().train()
    torch.nn.init.zeros_(sort.W)
    found = sort(torch.randn(5, 3, 1, 4, dtype=torch.float64), torch.full((5,), 3), every, False)
    torch.testing.assert_close(found[0], soft_permutation(-drawn.log() / 2, every, 3, False))


def test_an_edge_that_is_there_twice_stands_for_no_other():
    """Block 0 hears 2 and 3, but not all of its pairs: node 1 does not hear 3, though one edge is doubled."""
    own = [[0, 0], [1, 0], [0, 1], [1, 1], [2, 2], [3, 2], [2, 3], [3, 3]]
    graph = Graph.from_edge_index(torch.tensor([*own, [2, 0], [2, 0], [3, 0], [2, 1]]).T, 4)
    assert blocking_of(graph, 2).allowed.tolist() == [[[True, False], [False, True]]]
