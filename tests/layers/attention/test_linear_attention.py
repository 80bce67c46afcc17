"""Attention by features: its equation, its recurrent form, its linear cost, and what its random features estimate."""

import math
from copy import deepcopy
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from edgewise import Graph, causal, complete, window
from edgewise.layers import (
    HyperbolicFeatures,
    KeyValueCache,
    LinearAttention,
    PerformerAttention,
    PositiveFeatures,
    RecurrentState,
    ReLUFeatures,
    Rotary,
    TrigonometricFeatures,
)
from edgewise.layers.attention.linear_attention import projections
from layers.parity import assert_parity, each, leaf

GRAPHS = {
    "complete": complete(6),
    "causal": causal(6),
    "window": window(6, 1),
    "edges": Graph.from_edge_index([[0, 5, 2, 4, 1, 3, 0], [1, 0, 0, 4, 3, 5, 5]], num_nodes=6),  # nobody speaks to 2
}
FEATURES = {
    "positive": lambda x, w: torch.exp(w @ x - x @ x / 2) / math.sqrt(len(w)),
    "hyperbolic": lambda x, w: (
        torch.cat([torch.exp(w @ x), torch.exp(-w @ x)]) * torch.exp(-x @ x / 2) / math.sqrt(2 * len(w))
    ),
    "trigonometric": lambda x, w: torch.cat([(w @ x).sin(), (w @ x).cos()]) * torch.exp(x @ x / 2) / math.sqrt(len(w)),
    "relu": lambda x, w: ((w @ x).clamp(min=0) + 1e-3) / math.sqrt(len(w)),
}
KINDS = {
    "positive": PositiveFeatures,
    "hyperbolic": HyperbolicFeatures,
    "trigonometric": TrigonometricFeatures,
    "relu": ReLUFeatures,
}


def layer_of(kind: str, **options):
    if kind == "linear":
        return LinearAttention(8, 2, **options).double()
    return PerformerAttention(8, 2, KINDS[kind](4, 64), **options).double()


def phi(kind, layer, x):
    """φ of one vector, from its equation."""
    if kind == "linear":
        return torch.where(x > 0, x + 1, x.exp())
    return FEATURES[kind](x / 4**0.25, layer.random.omega)


@pytest.mark.parametrize(("kind", "graph"), each(["linear", *KINDS], GRAPHS))
def test_the_layer_is_its_equation(kind, graph):
    layer, x, listens = layer_of(kind), leaf(6, 8), GRAPHS[graph].dense_mask()
    q, k, v = (part.view(6, 2, 4) for part in layer.projection(x).chunk(3, -1))
    heard = []
    for i in range(6):
        for h in range(2):
            w = torch.stack([phi(kind, layer, q[i, h]) @ phi(kind, layer, k[j, h]) for j in range(6)]) * listens[i]
            heard.append(w @ v[:, h] / (w.sum() if listens[i].any() else 1))
    expected = layer.output(torch.cat(heard).view(6, 8))
    parameters = dict(layer.named_parameters())
    assert_parity(layer, parameters, (GRAPHS[graph], x), expected, [x, *parameters.values()], 1e-10)


@pytest.mark.parametrize(("kind", "steps", "rotary"), each(["linear", *KINDS], [[4, 1, 1, 3], [1] * 9, [9]], [0, 1]))
def test_the_recurrent_network_is_the_causal_attention(kind, steps, rotary):
    layer = layer_of(kind, key_value_heads=1, rotary=Rotary(4) if rotary else None).eval()
    x, start, found = leaf(3, 9, 8).detach(), 0, []
    cache = layer.cache(causal(9))
    assert isinstance(cache, RecurrentState)
    with torch.no_grad():
        for n in steps:
            found.append(layer(causal(start + n).rows(start, start + n), x[:, start : start + n], cache=cache))
            start += n
        assert torch.allclose(torch.cat(found, 1), layer(causal(9), x), atol=1e-9)


def test_decoding_remembers_as_much_after_a_thousand_tokens_as_after_one():
    layer, state, sizes = LinearAttention(8, 2), RecurrentState(torch.exp), set()
    x = torch.randn(1000, 2, 4)
    for i in range(0, 1000, 250):
        state.attend(x[i : i + 250], x[i : i + 250], x[i : i + 250])
        sizes.add(state.sums.untyped_storage().nbytes())
    assert sizes == {4 * 2 * 4 * 5}
    assert isinstance(layer.cache(window(9, 2, sides="past")), KeyValueCache)  # a state cannot forget


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_a_state_in_half_precision_remembers_all_tokens(half):
    state, one = RecurrentState(torch.ones_like), torch.ones(1, 1, 1, dtype=half)
    state.append(one.expand(70000, 1, 1), one.expand(70000, 1, 1) * 0)
    for _ in range(1000):
        y = state.attend(one, one, one)
    assert (y.dtype, y.item()) == (half, torch.tensor(1000 / 71000).to(half).item())
    with torch.autocast("cpu", half):
        state.append(one.expand(70000, 1, 1), one.expand(70000, 1, 1))
        assert state.attend(one, one, one).item() == torch.tensor(71001 / 141001).to(half).item()


# What the random features estimate


def estimates(kind: str, x, y, count: int, orthogonal: bool, draws: int):
    """φ(x)·φ(y) for many draws of ω: [draws]."""
    omega = projections(count, len(x), orthogonal, draws=draws)
    a, b = omega @ x, omega @ y
    if kind == "positive":
        return torch.exp(a + b - (x @ x + y @ y) / 2).mean(-1)
    if kind == "hyperbolic":
        return (a + b).cosh().mean(-1) * torch.exp(-(x @ x + y @ y) / 2)
    return (a - b).cos().mean(-1) * torch.exp((x @ x + y @ y) / 2)


@pytest.mark.parametrize("kind", ["positive", "hyperbolic", "trigonometric"])
def test_the_estimate_here_is_the_features(kind):
    """The closed form above, with the layer's own ω, is the product of the module's features."""
    features, x, y = KINDS[kind](8, 16).double(), leaf(8), leaf(8, seed=1)
    a, b, half = features.omega @ x, features.omega @ y, (x @ x + y @ y) / 2
    expected = {
        "positive": torch.exp(a + b - half).mean(),
        "hyperbolic": (a + b).cosh().mean() * torch.exp(-half),
        "trigonometric": (a - b).cos().mean() * torch.exp(half),
    }[kind]
    assert torch.allclose(features(x) @ features(y), expected, rtol=1e-6)


@pytest.mark.parametrize(("kind", "orthogonal"), each(["positive", "hyperbolic", "trigonometric"], [True, False]))
def test_attention_weights_are_unbiased(kind, orthogonal):
    """The mean of 10,000 draws lies within 4 standard errors of exp(q·k / √C), for every pair of 2 tokens."""
    q, k = (0.7 * leaf(2, 8, seed=seed).detach() / 8**0.25 for seed in (3, 4))
    for q_i in q:
        for k_j in k:
            found = estimates(kind, q_i, k_j, 16, orthogonal, 10_000)
            error = found.std() / 100
            assert abs(found.mean() - torch.exp(q_i @ k_j)) <= 4 * error
            assert error < 0.05 * found.mean().abs() + 0.05  # or the line above would prove nothing


def test_the_hyperbolic_form_varies_less_than_the_positive_one():
    """Even against twice as many directions, where x and y point the same way (Choromanski et al., Lemma 2)."""
    x = leaf(8).detach() / 3
    hyperbolic, positive = (
        estimates(kind, x, x, m, False, 20_000) for kind, m in (("hyperbolic", 8), ("positive", 16))
    )
    assert hyperbolic.var() < positive.var()


def test_relu_features_estimate_another_kernel():
    """The arc-cosine kernel ‖x‖ ‖y‖ (sin θ + (π − θ) cos θ) / 2π."""
    x, y = torch.tensor([0.6, 0.8, 0.0]), torch.tensor([0.0, 0.8, 0.6])
    features = ReLUFeatures(3, 200_000)
    theta = torch.acos(x @ y)
    expected = (theta.sin() + (math.pi - theta) * theta.cos()) / (2 * math.pi)
    assert (features(x) @ features(y)).item() == pytest.approx(expected.item(), abs=0.01)


def test_the_error_falls_with_the_root_of_the_number_of_features():
    x, y = (functional.normalize(leaf(16, seed=seed).detach(), dim=0) / 2 for seed in (1, 2))
    counts = [16, 64, 256, 1024]
    errors = [(estimates("positive", x, y, m, True, 600) / torch.exp(x @ y) - 1).square().mean().sqrt() for m in counts]
    logs = torch.tensor(counts, dtype=torch.float64).log()
    slope = torch.linalg.lstsq(torch.stack([logs, torch.ones(4)], -1), torch.stack(errors).log()[:, None]).solution[0]
    assert -0.55 <= slope.item() <= -0.45
    assert errors[0] < 0.3


@pytest.mark.parametrize("kind", ["positive", "trigonometric"])
def test_directions_at_right_angles_vary_less(kind):
    x, y = leaf(8).detach() / 3, leaf(8, seed=10).detach() / 3
    orthogonal, independent = (estimates(kind, x, y, 8, choice, 20_000).var() for choice in (True, False))
    assert orthogonal < independent


@pytest.mark.parametrize("orthogonal", [True, False])
def test_every_direction_is_gaussian(orthogonal):
    omega = projections(6, 4, orthogonal, draws=20_000)
    assert torch.allclose(omega.mean(0), torch.zeros(6, 4, dtype=torch.float64), atol=0.04)
    for row in omega.unbind(1):
        assert torch.allclose(row.T @ row / 20_000, torch.eye(4, dtype=torch.float64), atol=0.05)
        assert row.square().sum(-1).var().item() == pytest.approx(8, rel=0.1)  # χ² with 4 degrees of freedom
    angles = (omega[:, :4] @ omega[:, :4].mT).triu(1).abs().max()
    assert (angles < 1e-9) == orthogonal


def test_directions_are_drawn_anew_while_training_and_a_resumed_run_draws_the_same(monkeypatch):
    monkeypatch.setattr(PerformerAttention, "REDRAW", 3)
    layer, x = PerformerAttention(8, 2), torch.randn(4, 8)
    seen = []
    for _ in range(7):
        layer(causal(4), x)
        seen.append(layer.random.omega.clone())
    assert [torch.equal(a, b) for a, b in pairwise(seen)] == [True, False, True, True, False, True]
    other = PerformerAttention(8, 2)
    other.load_state_dict(layer.state_dict())
    for one in (layer, other):
        one(causal(4), x)
        one(causal(4), x)
    assert torch.equal(layer.random.omega, other.random.omega)
    assert not torch.equal(layer.random.omega, seen[-1])
    layer.eval()
    before = layer.random.omega.clone()
    for _ in range(4):
        layer(causal(4), x)
    assert torch.equal(layer.random.omega, before)


def test_learned_directions_begin_as_drawn_ones_and_only_gradients_move_them(monkeypatch):
    monkeypatch.setattr(PerformerAttention, "REDRAW", 1)
    torch.manual_seed(0)
    drawn = PositiveFeatures(4, 8)
    torch.manual_seed(0)
    layer, x = PerformerAttention(8, 2, PositiveFeatures(4, 8, learned=True)).double(), leaf(5, 8)
    before = layer.random.omega.detach().clone()
    assert torch.equal(before, drawn.omega.double())
    layer(causal(5), x).square().sum().backward()
    assert layer.random.omega.grad.abs().max() > 0 and torch.equal(layer.random.omega, before)


@pytest.mark.parametrize(("every", "reentrant"), [(1, True), (2, False), (3, True)])
def test_a_call_that_a_checkpoint_runs_once_more_has_its_features_and_is_not_counted(every, reentrant, monkeypatch):
    monkeypatch.setattr(PerformerAttention, "REDRAW", every)
    layer, x, gradients = PerformerAttention(8, 2, PositiveFeatures(4, 8)).double(), leaf(10, 8), []
    other = deepcopy(layer)
    for run in (layer, partial(checkpoint, other, use_reentrant=reentrant)):
        for _ in range(3):
            y = run(causal(10), x)
            (y + run(causal(10), y)).square().sum().backward()
        gradients.append(x.grad)
        x.grad = None
    assert torch.equal(*gradients)
    assert all(torch.equal(a, b) for a, b in zip(layer.buffers(), other.buffers(), strict=True))
