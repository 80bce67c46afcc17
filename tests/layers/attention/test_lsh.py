"""Attention among nodes that hash alike, against its equation, and where it must equal full attention."""

import math

import pytest
import torch

from edgewise import Graph, causal, complete, strided, window
from edgewise.layers import AngularHash, LSHAttention
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
            if of_rounds:  # the sum over rounds of exp(z_r) times a round's softmax is one softmax over all of them
                rows.append((k[of_rounds, h] @ q[i, h] / math.sqrt(4)).softmax(0) @ v[of_rounds, h])
            else:
                rows.append(0 * v[i, h])
        heads.append(torch.stack(rows))
    return layer.output(torch.cat(heads, -1))


@pytest.mark.parametrize(("name", "rounds", "buckets"), each([*GRAPHS, *GRAPHS], [1, 3, 2], [4, 4, 4, 1]))
def test_the_layer_is_its_equation(name, rounds, buckets):
    layer, x = layer_of(buckets, rounds, chunk=3 if buckets > 1 else 12), leaf(12, 8)
    parameters = dict(layer.named_parameters())
    expected = equation(layer, GRAPHS[name], x)
    assert_parity(layer, parameters, (GRAPHS[name], x), expected, [x, *parameters.values()], 1e-10)


@pytest.mark.parametrize(("graph", "dtype"), [(causal(60), torch.float16), (GRAPHS["edges"], torch.float32)])
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


def test_rotations_are_drawn_anew_while_training_and_follow_from_the_state():
    layer, x = layer_of(buckets=8).train(), leaf(40, 8).detach()
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    first, second = layer(causal(40), x), layer(causal(40), x)
    assert not torch.equal(first, second)
    layer.load_state_dict(state)
    assert torch.equal(layer(causal(40), x), first)
    layer.eval()
    assert torch.equal(layer(causal(40), x), layer(causal(40), x))
