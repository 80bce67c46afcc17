"""Attention inside clusters against its equation, its moving centres, and where it must equal full attention."""

import copy

import pytest
import torch
from torch.nn import functional

from edgewise import Graph, causal, complete, strided, window
from edgewise.layers import Centroids, RoutingAttention
from layers.parity import assert_parity, each, leaf

GRAPHS = {
    "complete": complete(12),
    "causal": causal(12),
    "window": window(12, 4),
    "strided": strided(12, 3),
    "edges": Graph.from_edge_index(
        torch.randint(12, (2, 60), generator=torch.Generator().manual_seed(0)), 12
    ).coalesce(),
}


def layer_of(count=3, size=4, **options) -> RoutingAttention:
    return RoutingAttention(8, 2, Centroids(2, 4, count), size=size, **options).double().eval()


def equation(layer: RoutingAttention, graph: Graph, x: torch.Tensor) -> torch.Tensor:
    """The layer for x [12, 8], cluster by cluster and node by node."""
    q, k, v = (part.view(-1, 2, 4) for part in layer.projection(x).chunk(3, -1))
    listens = graph.dense_mask()
    later = bool(listens.triu(1).any())
    heads = []
    for h in range(2):
        means = layer.grouping.means[h]
        near_q, near_k = (
            functional.layer_norm(z[:, h], (4,)) @ (means / means.norm(dim=-1, keepdim=True)).T for z in (q, k)
        )
        rows = []
        for i in range(12):
            sets = []
            if later:
                for c in range(len(means)):
                    of_q, of_k = (near[:, c].topk(layer.size).indices.tolist() for near in (near_q, near_k))
                    if i in of_q:
                        sets.append([j for j in of_k if listens[i, j]])
            else:
                labels = near_k.argmax(1).tolist()
                label = int(near_q[i].argmax())
                rank = [labels[:j].count(label) for j in range(12)]
                near = [
                    j for j in range(12) if labels[j] == label and rank[i] // layer.size - rank[j] // layer.size < 2
                ]
                sets.append([j for j in near if listens[i, j]])
            heard = [(k[js, h] @ q[i, h] / 2).softmax(0) @ v[js, h] if js else 0 * v[i, h] for js in sets]
            rows.append(sum(heard) / len(heard) if heard else 0 * v[i, h])
        heads.append(torch.stack(rows))
    return layer.output(torch.cat(heads, -1))


@pytest.mark.parametrize(("name", "count", "size"), each([*GRAPHS, *GRAPHS], [3, 3, 3, 1], [2, 4, 12, 12]))
def test_the_layer_is_its_equation(name, count, size):
    layer, x = layer_of(count, size), leaf(12, 8)
    parameters = dict(layer.named_parameters())
    expected = equation(layer, GRAPHS[name], x)
    assert_parity(layer, parameters, (GRAPHS[name], x), expected, [x, *parameters.values()], 1e-10)


def test_centres_move_as_their_equation_says():
    """μ ← λ μ + (1 − λ)/2 (Σ_{c(q) = c} q + Σ_{c(k) = c} k), vector by vector."""
    centroids = Centroids(2, 4, count=3, decay=0.9).double()
    q, k, before = torch.randn(6, 10, 4).double(), torch.randn(6, 10, 4).double(), centroids.means.clone()
    expected = 0.9 * before
    for vectors in (q, k):
        for s in range(6):
            for x in vectors[s]:
                x = (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()
                nearest = int((before[s % 2] @ x / before[s % 2].norm(dim=-1)).argmax())
                expected[s % 2, nearest] += 0.1 / 2 * x
    centroids.follow(q, k)
    assert torch.allclose(centroids.means, expected, atol=1e-12)


def test_centres_find_the_clusters():
    """Vectors around four directions: each centre ends at one of them, whatever it began with."""
    torch.manual_seed(3)
    directions = functional.layer_norm(torch.randn(4, 16), (16,))
    centroids = Centroids(1, 16, count=4, decay=0.9)
    near = directions + 2 * torch.randn(4, 16)  # starts by the data, but far from the middle of it
    centroids.means.copy_(near[None])
    for _ in range(100):
        centroids.follow(directions[torch.randint(4, (1, 64))] + 0.3 * torch.randn(1, 64, 16))
    cosines = functional.normalize(centroids.means[0], dim=-1) @ functional.normalize(directions, dim=-1).T
    assert (cosines.max(1).values > 0.98).all()
    assert cosines.argmax(1).unique().numel() == 4


def test_centres_follow_while_training_alone():
    layer, x, before = layer_of(), torch.randn(3, 12, 8).double(), None
    before = layer.grouping.means.clone()
    layer(causal(12), x)
    assert torch.equal(layer.grouping.means, before)
    layer.train()(causal(12), x)
    assert not torch.equal(layer.grouping.means, before)
    assert not layer.grouping.means.requires_grad


def test_nobody_hears_the_future_or_another_text_while_training():
    """The centres move at once to where the last call's vectors were, and not the call's own."""
    x = leaf(30, 8).detach()
    other = torch.cat([x[:20], torch.randn(10, 8, dtype=torch.float64)])
    for graph in (causal(30), Graph.batch([causal(20), causal(10)]), Graph.batch([complete(20), complete(10)])):
        layer = RoutingAttention(8, 2, Centroids(2, 4, count=3, decay=0.0), size=4).double()
        first, second = (copy.deepcopy(layer)(graph, features)[:20] for features in (x, other))
        assert torch.allclose(first, second, atol=1e-12)


def test_a_complete_graph_does_not_know_the_order_of_its_nodes():
    layer, x, perm = layer_of(), leaf(30, 8), torch.randperm(30)
    assert torch.allclose(layer(complete(30), x[perm]), layer(complete(30), x)[perm], atol=1e-12)


@pytest.mark.parametrize("members", [[complete(4, 9), complete(5, 8)], [complete(6, 8), complete(8, 6)]])
def test_each_pair_of_a_batch_hears_what_it_hears_alone(members):
    layer, x = layer_of(), leaf(sum(g.num_receivers for g in members), 8)
    senders, (i, j) = leaf(sum(g.num_senders for g in members), 8), (members[0].num_receivers, members[0].num_senders)
    alone = torch.cat([layer(members[0], x[:i], senders[:j]), layer(members[1], x[i:], senders[j:])])
    assert torch.allclose(layer(Graph.batch(members), x, senders), alone, atol=1e-12)


@pytest.mark.parametrize("other", [complete(7), GRAPHS["edges"]])
def test_causal_members_of_a_batch_are_causal_beside_others(other):
    layer, x, causal_ones = layer_of(), leaf(other.num_senders + 12, 8), [causal(5), causal(7)]
    y = layer(Graph.batch([causal_ones[0], other, causal_ones[1]]), x)
    parts = x.split([5, other.num_senders, 7])
    alone = [layer(g, part) for g, part in zip([causal_ones[0], other, causal_ones[1]], parts, strict=True)]
    assert torch.allclose(y, torch.cat(alone), atol=1e-12)
