"""What all attention on graphs made from content has in common: hashes, clusters and sorted blocks."""

import copy
from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from edgewise import Graph, GraphError, ShapeError, causal, complete, strided, window
from edgewise.graphs.patterns import strided_parts
from edgewise.layers import (
    AngularHash,
    BlockSort,
    Centroids,
    FactorisedAttention,
    KeyValueCache,
    LinearAttention,
    LSHAttention,
    PerformerAttention,
    PositiveFeatures,
    Rotary,
    RoutingAttention,
    SinkhornAttention,
)
from layers.parity import LargestTensor, each, leaf

LAYERS = {
    "lsh": lambda size=3, **options: LSHAttention(8, 2, AngularHash(4, 4, 2), size=size, **options),
    "routing": lambda size=4, **options: RoutingAttention(8, 2, Centroids(2, 4, 3), size=size, **options),
    "sinkhorn": lambda size=3, **options: SinkhornAttention(8, 2, BlockSort(2, 4), size=size, **options),
}


@pytest.mark.parametrize("name", LAYERS)
def test_nobody_sees_the_future(name):
    layer, x = LAYERS[name]().double().eval(), leaf(30, 8).detach()
    for start in (19, 20, 21):  # in each place of a block
        other = torch.cat([x[:start], torch.randn(30 - start, 8, dtype=torch.float64)])
        assert torch.allclose(layer(causal(30), x)[:start], layer(causal(30), other)[:start], atol=1e-12)
        assert not torch.allclose(layer(complete(30), x)[:start], layer(complete(30), other)[:start], atol=1e-3)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("lsh", partial(window, radius=3, sides="past")),
        ("routing", partial(strided, stride=3)),
        ("sinkhorn", causal),
    ],
)
def test_cached_attention_is_attention(name, pattern):
    layer, x, cache = LAYERS[name](2, rotary=Rotary(4)).double().eval(), leaf(2, 12, 8).detach(), KeyValueCache()
    rows = [pattern(n).rows(n - 1, n) for n in range(1, 13)]
    found = torch.cat([layer(row, x[:, n : n + 1], cache=cache) for n, row in enumerate(rows)], 1)
    assert torch.allclose(found, layer(pattern(12), x), atol=1e-12)


@pytest.mark.parametrize(("pattern", "name"), each([causal, complete], ["lsh", "routing"]))
def test_each_member_of_a_batch_is_as_alone_and_a_batch_without_texts_has_no_outputs(name, pattern):
    layer, x = LAYERS[name]().double().eval(), leaf(30, 8)
    alone = torch.cat([layer(pattern(13), x[:13]), layer(pattern(17), x[13:])])
    assert torch.allclose(layer(Graph.batch([pattern(13), pattern(17)]), x), alone, atol=1e-12)
    none = torch.empty(0, 12, 8, dtype=torch.float64, requires_grad=True)
    layer.train()(pattern(12), none).sum().backward()
    assert none.grad.shape == (0, 12, 8)


@pytest.mark.parametrize(("name", "reentrant"), each(["lsh", "routing"], [False, True]))
def test_a_call_that_a_checkpoint_runs_again_has_its_rotations_and_centres(name, reentrant):
    layer, x, gradients = LAYERS[name]().double().train(), leaf(12, 8), []
    other = copy.deepcopy(layer)
    for run in (layer, partial(checkpoint, other, use_reentrant=reentrant)):
        torch.manual_seed(0)
        for _ in range(2):
            y = run(complete(12), x)
            (y + run(causal(12), y)).square().sum().backward()
        gradients.append(x.grad)
        x.grad = None
    assert torch.equal(*gradients)
    after = [[b for n, b in each.named_buffers() if "rotations" not in n] for each in (layer, other)]
    assert all(map(torch.equal, *after))


@pytest.mark.parametrize(
    ("layer", "most"),
    [
        (lambda: LSHAttention(8, 2, AngularHash(4, 16, 2), size=32), 2 * 2 * 16),  # buckets of every head and round
        (lambda: RoutingAttention(8, 2, Centroids(2, 4, 16), size=256), 2 * 16 + 1),  # nearness to every cluster
        (lambda: SinkhornAttention(8, 2, size=64), 8 * 3),
        (lambda: FactorisedAttention(8, 2, partial(strided_parts, stride=64)), 130),
        (lambda: LinearAttention(8, 2), 128),
        (lambda: PerformerAttention(8, 2, PositiveFeatures(4, 64)), 2 * 64),
    ],
    ids=["lsh", "routing", "sinkhorn", "factorised", "linear", "performer"],
)
def test_no_matrix_of_pairs_is_ever_written(layer, most):
    n = 4096
    with LargestTensor() as mode:
        layer()(causal(n), torch.randn(n, 8)).sum().backward()
    assert mode.entries <= n * most


def test_graphs_that_cannot_be_sorted_or_hashed_are_refused():
    with pytest.raises(ShapeError, match="takes no senders"):
        LAYERS["lsh"]()(complete(3, 4), torch.ones(3, 8), torch.ones(4, 8))
    with pytest.raises(GraphError, match="blocks are sorted in a whole graph, or in rows of a causal one"):
        LAYERS["sinkhorn"]()(strided(14, 3).rows(13, 14), torch.ones(1, 8))
