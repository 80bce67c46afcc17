"""Attention among nodes that hash alike, against its equation, and where it must equal full attention."""

import math
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from edgewise import ConfigError, Graph, ShapeError, causal, complete, strided, window
from edgewise.layers import AngularHash, KeyValueCache, LSHAttention, Rotary
from layers.parity import assert_parity, leaf

GRAPHS = {
    "complete": complete(12),
    "causal": causal(12),
    "window": window(12, 4),
    "strided": strided(12, 3),
    "edges": Graph.from_edge_index(
        torch.randint(12, (2, 60), generator=torch.Generator().manual_seed(0)), 12
    ).coalesce(),
}


def layer_of(buckets=4, rounds=2, chunk=3, **options) -> LSHAttention:
    return LSHAttention(8, 2, AngularHash(4, buckets, rounds), size=chunk, **options).double().eval()


def equation(layer: LSHAttention, graph: Graph, x: torch.Tensor) -> torch.Tensor:
    """The layer for x [N, 8], node by node and round by round, as the paper writes it."""
    q, v = (part.view(-1, 2, 4) for part in layer.projection(x).chunk(2, -1))
    k, listens = q / q.norm(dim=-1, keepdim=True), graph.dense_mask()
    rotated = torch.einsum("nhc,rcb->hrnb", q.detach(), layer.grouping.rotations)
    labels = torch.cat([rotated, -rotated], -1).argmax(-1) if rotated.shape[-1] else rotated.sum(-1).long()
    heads = []
    for h in range(2):
        rows = []
        for i in range(len(x)):
            of_rounds = []
            for label in labels[h].tolist():
                rank = [label[:a].count(label[a]) for a in range(len(x))]
                of_rounds += [
                    j
                    for j in range(len(x))
                    if listens[i, j] and j != i and label[j] == label[i]
                    and rank[i] // layer.size - rank[j] // layer.size in (0, 1)
                ]  # fmt: skip
            of_rounds = of_rounds or [i] * bool(listens[i, i])
            if (
                of_rounds
            ):  # the sum over rounds of exp(z_r) times the softmax of a round is one softmax over all of them
                rows.append((k[of_rounds, h] @ q[i, h] / math.sqrt(4)).softmax(0) @ v[of_rounds, h])
            else:
                rows.append(0 * v[i, h])
        heads.append(torch.stack(rows))
    return layer.output(torch.cat(heads, -1))


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_layer_is_its_equation(name, rounds):
    layer, x = layer_of(rounds=rounds), leaf(12, 8)
    parameters = dict(layer.named_parameters())
    expected = equation(layer, GRAPHS[name], x)
    assert_parity(layer, parameters, (GRAPHS[name], x), expected, [x, *parameters.values()], 1e-10)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("pattern", [complete, causal, partial(window, radius=20)])
def test_one_bucket_is_full_attention_of_shared_queries_and_keys(pattern, rounds):
    """The dense softmax over everybody else, written as one matrix."""
    layer, x = layer_of(buckets=1, rounds=rounds, chunk=12), leaf(12, 8)
    q, v = (part.view(12, 2, 4).transpose(0, 1) for part in layer.projection(x).chunk(2, -1))
    scores = q @ torch.nn.functional.normalize(q, dim=-1).mT / 2
    listens = pattern(12).dense_mask() & ~torch.eye(12, dtype=torch.bool)
    listens |= torch.diag(~listens.any(1))  # who hears nobody else hears itself
    weights = scores.masked_fill(~listens, -math.inf).softmax(-1)
    expected = layer.output((weights @ v).transpose(0, 1).flatten(1))
    parameters = dict(layer.named_parameters())
    assert_parity(layer, parameters, (pattern(12), x), expected, [x, *parameters.values()], 1e-10)


def test_rounds_are_weighted_by_their_log_sum_exp():
    """Appendix A of the paper: o_i = Σ_r exp(z_i^r − z_i) o_i^r."""
    layer, x = layer_of(rounds=3, chunk=20), leaf(30, 8)
    q, v = (part.view(30, 2, 4) for part in layer.projection(x).chunk(2, -1))
    expected = torch.zeros(30, 2, 4, dtype=torch.float64)
    for h in range(2):
        labels = layer.grouping(q[:, h])  # [R, N]
        scores = q[:, h] @ torch.nn.functional.normalize(q[:, h], dim=-1).T / 2
        alike = (labels[:, :, None] == labels[:, None]) & ~torch.eye(30, dtype=torch.bool)
        assert alike.any(-1).any(0).all()
        masked = scores.masked_fill(~alike, -math.inf)  # [R, N, N]
        z = masked.logsumexp(-1)
        for r in range(3):
            some = alike[r].any(-1)
            weight = (z[r] - z.logsumexp(0)).exp()[some, None]
            expected[some, h] += weight * (masked[r][some].softmax(-1) @ v[:, h])
    assert torch.allclose(layer.average(complete(30), *layer._self_ends(complete(30), x)), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("graph", [causal(60), GRAPHS["edges"]], ids=["ranges", "edges"])
def test_weights_of_rounds_keep_their_digits_however_long_queries_are(graph, dtype):
    """Sums of a round between exp(−700) and exp(700), against float64."""
    n = graph.num_receivers
    layer, tolerance = layer_of(rounds=3), 500 * torch.finfo(dtype).eps  # scores of 700 are off by that
    length = torch.linspace(1, 700, n).view(n, 1, 1)
    q = (2 * length * torch.nn.functional.normalize(torch.randn(n, 2, 4), dim=-1)).to(dtype)
    ends = q, torch.nn.functional.normalize(q, dim=-1), torch.randn(n, 2, 4).to(dtype)
    hashes = layer.grouping
    hashes.forward = lambda x: AngularHash.forward(hashes, x.to(dtype))  # float64 hashes alike
    narrow, wide = (tuple(x.to(to, copy=True).requires_grad_() for x in ends) for to in (dtype, torch.float64))
    found, expected = (layer.average(graph, *given) for given in (narrow, wide))
    assert (found - expected).abs().max() < tolerance
    for y in (found, expected):
        y.double().square().sum().backward()
    for a, b in zip(narrow, wide, strict=True):
        assert (a.grad - b.grad).abs().max() < tolerance * b.grad.abs().max()


def test_large_scores_do_not_overflow():
    layer, x = layer_of(rounds=2).float(), leaf(40, 8).float().detach()
    layer.projection.weight.data *= 1e4
    assert layer(causal(40), x).isfinite().all()


def test_collisions_rise_with_cosine_similarity():
    """The rate at which two vectors share a label, over 2,000 draws of the rotations."""
    hashing = AngularHash(16, buckets=8, rounds=2000)
    first, across = torch.linalg.qr(torch.randn(16, 2))[0].T
    cosines = torch.tensor([-0.9, -0.5, 0.0, 0.5, 0.9, 0.99, 1.0])
    others = cosines[:, None] * first + (1 - cosines**2).sqrt()[:, None] * across
    labels = hashing(torch.cat([first[None], others]))
    rates = (labels[:, 1:] == labels[:, :1]).double().mean(0)
    assert (rates.diff() > 0).all()
    assert rates[-1] == 1
    assert rates[2] == pytest.approx(1 / 8, abs=0.03)  # at a right angle: by chance
    assert rates[0] < 0.01


def test_cross_polytope_of_two_buckets_has_the_known_probability():
    """With one direction the hash is its sign: P = 1 − θ/π (Goemans & Williamson, 1995)."""
    hashing = AngularHash(3, buckets=2, rounds=20_000)
    labels = hashing(torch.tensor([[1.0, 0.0, 0.0], [math.cos(1.0), math.sin(1.0), 0.0]]))
    assert (labels[:, 0] == labels[:, 1]).double().mean() == pytest.approx(1 - 1 / math.pi, abs=0.015)


def test_nobody_hears_the_future():
    layer, x = layer_of(), leaf(30, 8).detach()
    other = torch.cat([x[:20], torch.randn(10, 8, dtype=torch.float64)])
    assert torch.allclose(layer(causal(30), x)[:20], layer(causal(30), other)[:20], atol=1e-12)
    assert not torch.allclose(layer(complete(30), x)[:20], layer(complete(30), other)[:20], atol=1e-3)


@pytest.mark.parametrize("pattern", [causal, partial(window, radius=3, sides="past"), partial(strided, stride=3)])
def test_cached_attention_is_attention(pattern):
    layer, x, cache = layer_of(rotary=Rotary(4)), leaf(2, 12, 8).detach(), KeyValueCache()
    rows = [pattern(n).rows(n - 1, n) for n in range(1, 13)]
    found = torch.cat([layer(row, x[:, n : n + 1], cache=cache) for n, row in enumerate(rows)], 1)
    assert torch.allclose(found, layer(pattern(12), x), atol=1e-12)


def test_each_member_of_a_batch_hears_what_it_hears_alone():
    layer, x = layer_of(), leaf(30, 8)
    for pattern in (causal, complete):
        together = layer(Graph.batch([pattern(13), pattern(17)]), x)
        alone = torch.cat([layer(pattern(13), x[:13]), layer(pattern(17), x[13:])])
        assert torch.allclose(together, alone, atol=1e-12)


def test_rotations_are_drawn_anew_while_training_and_follow_from_the_state():
    layer, x = layer_of(buckets=8).train(), leaf(40, 8).detach()
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    first, second = layer(causal(40), x), layer(causal(40), x)
    assert not torch.equal(first, second)
    layer.load_state_dict(state)
    assert torch.equal(layer(causal(40), x), first)
    layer.eval()
    assert torch.equal(layer(causal(40), x), layer(causal(40), x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_call_that_a_checkpoint_runs_once_more_hashes_alike(reentrant):
    layer, x = layer_of(buckets=8).train(), leaf(40, 8)
    other, gradients = deepcopy(layer), []
    run_again = partial(checkpoint, other, use_reentrant=reentrant)
    for run in (layer, run_again):
        torch.manual_seed(0)
        y = run(causal(40), x)
        (y + run(causal(40), y)).square().sum().backward()
        gradients.append(x.grad)
        x.grad = None
    assert torch.equal(*gradients)
    assert torch.equal(layer.grouping.drawn, other.grouping.drawn)


class LargestTensor(TorchDispatchMode):
    """Remembers the number of entries of the largest tensor that any operation makes."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.entries = max(self.entries, result.numel())
        return result


def test_no_matrix_of_pairs_is_ever_written():
    n = 4096
    layer = LSHAttention(8, 2, AngularHash(4, 16, 2), size=32)
    with LargestTensor() as mode:
        layer(causal(n), torch.randn(n, 8)).sum().backward()
    assert mode.entries <= 2 * 2 * n * 16  # the buckets of every head and round


def test_what_cannot_be_is_refused():
    for options in ({"buckets": 3}, {"buckets": 0}, {"rounds": 0}):
        with pytest.raises(ConfigError, match=r"must be 1 or even|must be a whole number, at least 1"):
            AngularHash(4, **options)
    with pytest.raises(ConfigError, match="size must be a whole number, at least 1, not 0"):
        LSHAttention(8, 2, size=0)
    with pytest.raises(ShapeError, match="takes no senders"):
        layer_of()(complete(3, 4), leaf(3, 8), leaf(4, 8))


def test_unless_given_the_hash_has_the_channels_of_a_head():
    assert LSHAttention(8, 2, size=2).grouping.rotations.shape == AngularHash(4).rotations.shape


@pytest.mark.parametrize("pattern", [causal, complete])
def test_a_batch_without_texts_has_no_outputs(pattern):
    layer = layer_of().train()
    x = torch.empty(0, 12, 8, dtype=torch.float64, requires_grad=True)
    y = layer(pattern(12), x)
    y.sum().backward()
    assert y.shape == x.grad.shape == (0, 12, 8)
