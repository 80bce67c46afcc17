"""Hopfield networks: their equations, what they store, and that one step of the continuous one is attention."""

import math

import pytest
import torch
from torch.nn import functional

from edgewise import ConfigError, Graph, ShapeError, causal, complete
from edgewise.layers import (
    ClassicalHopfield,
    ContinuousHopfield,
    DenseHopfield,
    HopfieldAttention,
    HopfieldLookup,
    HopfieldPooling,
    MultiHeadAttention,
    retrieve,
)
from layers.parity import assert_parity, leaf, messy_graph


def signs(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed)).double() * 2 - 1


def flipped(patterns: torch.Tensor, count: int) -> torch.Tensor:
    """Each pattern with `count` of its signs wrong."""
    wrong = torch.rand(patterns.shape).argsort(-1) < count
    return torch.where(wrong, -patterns, patterns)


# Networks of ±1


def test_the_classical_network_is_its_matrix():
    patterns, state, threshold = signs(3, 7), signs(5, 7, seed=1), torch.linspace(-1, 1, 7).double()
    network = ClassicalHopfield(patterns, threshold)
    w = patterns.T @ patterns
    w.fill_diagonal_(0)
    assert torch.equal(network.field(state, 0, 7).T, state @ w - threshold)
    expected = -torch.einsum("bi,ij,bj->b", state, w, state) / 2 + state @ threshold
    assert torch.allclose(network.energy(state), expected)


def test_the_dense_network_compares_the_energies_of_both_signs():
    patterns, state = signs(4, 6), signs(3, 6, seed=1)
    network = DenseHopfield(patterns)
    assert torch.allclose(network.energy(state), (patterns @ state.T).exp().sum(0).log())
    expected = state.clone()
    for b in range(3):
        for unit in range(6):
            with_plus, with_minus = expected[b].clone(), expected[b].clone()
            with_plus[unit], with_minus[unit] = 1, -1
            e_plus, e_minus = (-(patterns @ one).exp().sum() for one in (with_plus, with_minus))
            if e_plus != e_minus:
                expected[b, unit] = torch.sign(e_minus - e_plus)
    assert torch.equal(network.recall(state, sweeps=1), expected)


@pytest.mark.parametrize(("kind", "rises"), [(ClassicalHopfield, 1), (DenseHopfield, -1)])
def test_no_sweep_goes_uphill_and_the_end_is_a_fixed_point(kind, rises):
    network, state = kind(signs(20, 30)), signs(50, 30, seed=1)
    energies = [network.energy(state) * rises]
    for _ in range(30):
        state = network.recall(state, sweeps=1)
        energies.append(network.energy(state) * rises)
    assert (torch.stack(energies).diff(dim=0) <= 1e-9).all()
    assert energies[0].mean() > energies[-1].mean() + 1e-3
    assert torch.equal(network.recall(state), state)


def share_recalled(network, patterns: torch.Tensor, wrong: int) -> float:
    return (network.recall(flipped(patterns, wrong)) == patterns).all(-1).double().mean().item()


def test_the_dense_network_stores_what_the_classical_one_cannot():
    """About 0.14 N patterns are too many for the one, exponentially many are few for the other."""
    few, many = signs(4, 64), signs(1000, 64)
    assert share_recalled(ClassicalHopfield(few), few, 6) == 1.0
    assert share_recalled(ClassicalHopfield(many), many[:50], 6) == 0.0
    assert share_recalled(DenseHopfield(many), many[:50], 6) == 1.0


@pytest.mark.parametrize(("kind", "patterns"), [(ClassicalHopfield, torch.zeros(2, 3)), (DenseHopfield, torch.ones(3))])
def test_binary_patterns_are_signs(kind, patterns):
    with pytest.raises(ShapeError, match=r"\+1 and -1"):
        kind(patterns)


@pytest.mark.parametrize(("kind", "units"), [(ClassicalHopfield, 40), (DenseHopfield, 300)])
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16])
def test_patterns_and_states_may_be_of_any_type(kind, units, dtype):
    """The sums of 300 units are no numbers of bfloat16 or int8."""
    patterns = signs(4, units)
    damaged, exact = flipped(patterns, units // 5), kind(patterns)
    network = kind(patterns.to(dtype))
    found = network.recall(damaged.to(dtype))
    assert found.dtype == dtype and torch.equal(found, exact.recall(damaged).to(dtype))
    assert torch.equal(network.recall(damaged), exact.recall(damaged))  # of another type than the patterns
    assert torch.allclose(network.energy(damaged.to(dtype)).double(), exact.energy(damaged), rtol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(kind(patterns.to(dtype)).recall(damaged.to(dtype)), found)


# The continuous network


@pytest.mark.parametrize("beta", [0.3, 2.0, 20.0])
def test_every_step_goes_downhill_to_a_fixed_point(beta):
    network, state = ContinuousHopfield(leaf(9, 4).detach(), beta), 2 * leaf(40, 4, seed=1).detach()
    energies = [network.energy(state)]
    for _ in range(40):
        state = network.recall(state, steps=1)
        energies.append(network.energy(state))
    assert (torch.stack(energies).diff(dim=0) <= 1e-9).all()
    end = network.recall(state, steps=5000, tolerance=1e-12)
    assert torch.allclose(network.recall(end, steps=1), end, atol=1e-9)
    assert network.energy(end).le(energies[-1] + 1e-9).all()


def retrieval_error(channels: int, patterns: int) -> float:
    """How many patterns on a sphere of radius √(C − 1) one step with β = 1 does not bring back from noise of 0.3."""
    generator = torch.Generator().manual_seed(0)
    stored = functional.normalize(torch.randn(patterns, channels, generator=generator), dim=-1) * (channels - 1) ** 0.5
    asked = stored[:200]
    noisy = asked + 0.3 * torch.randn(asked.shape, generator=generator)
    found = ContinuousHopfield(stored, 1.0).recall(noisy, steps=1)
    return ((found - asked).norm(dim=-1) > 0.1 * asked.norm(dim=-1)).double().mean().item()


def test_the_number_of_patterns_that_fit_grows_exponentially_with_their_dimension():
    """Ramsauer et al., theorem 3: c^((C − 1) / 4) of them. Twice the channels have room for a hundred times more."""
    assert retrieval_error(8, 100) > 0.9
    assert retrieval_error(16, 100) < 0.05
    assert retrieval_error(16, 10_000) > 0.9
    assert retrieval_error(32, 10_000) < 0.05


# Layers


@pytest.mark.parametrize("graph", [complete(6), causal(6)], ids=["complete", "causal"])
def test_a_single_step_is_multi_head_attention(graph):
    layer, attention = HopfieldAttention(8, 2, steps=1).double(), MultiHeadAttention(8, 2).double()
    x, weights = leaf(2, 6, 8), dict(layer.named_parameters())
    attention.load_state_dict(layer.state_dict())
    assert torch.equal(layer(graph, x), attention(graph, x))
    expected = torch.func.functional_call(attention, weights, (graph, x))
    assert_parity(layer, weights, (graph, x), expected, [x, *weights.values()])


def test_several_steps_are_the_equation():
    graph, x = messy_graph().coalesce(), leaf(7, 8)
    layer, listens = HopfieldAttention(8, 2, steps=3, beta=1.3).double(), graph.dense_mask()
    hears = listens.any(1, keepdim=True)
    q, k, v = (part.view(7, 2, 4) for part in layer.projection(x).chunk(3, -1))
    heads = []
    for h in range(2):
        state = q[:, h]
        for values in (k[:, h], k[:, h], v[:, h]):
            s = (1.3 * state @ k[:, h].T).masked_fill(~listens, -torch.inf)
            state = torch.where(hears, torch.where(hears, s, 0).softmax(-1), 0) @ values
        heads.append(state)
    expected = layer.output(torch.cat(heads, -1))
    parameters = dict(layer.named_parameters())
    assert_parity(layer, parameters, (graph, x), expected, [x, *parameters.values()])


@pytest.mark.parametrize("steps", [1, 3])
def test_pooling_is_the_equation_for_each_graph(steps):
    pooling, x, sizes = HopfieldPooling(6, 2, steps=steps, beta=0.8).double(), leaf(7, 6), [3, 4]
    pooled = []
    for part in x.split(sizes):
        k, v = (half.view(-1, 2, 3) for half in pooling.projection(part).chunk(2, -1))
        heads = []
        for h in range(2):
            state = pooling.query[h]
            for values in (*[k[:, h]] * (steps - 1), v[:, h]):
                state = (0.8 * k[:, h] @ state).softmax(0) @ values
            heads.append(state)
        pooled.append(pooling.output(torch.cat(heads)))
    graph, parameters = Graph.batch([complete(n) for n in sizes]), dict(pooling.named_parameters())
    assert_parity(pooling, parameters, (graph, x), torch.stack(pooled), [x, *parameters.values()])


@pytest.mark.parametrize("steps", [1, 2])
def test_lookup_is_the_equation(steps):
    lookup, x = HopfieldLookup(6, 2, memories=5, steps=steps).double(), leaf(2, 4, 6)
    q = (x @ lookup.query.weight.T).view(2, 4, 2, 3)
    heads = []
    for h in range(2):
        state = q[:, :, h]
        for values in (*[lookup.keys[:, h]] * (steps - 1), lookup.values[:, h]):
            state = (state @ lookup.keys[:, h].T / math.sqrt(3)).softmax(-1) @ values
        heads.append(state)
    parameters = dict(lookup.named_parameters())
    assert_parity(lookup, parameters, (complete(4), x), torch.cat(heads, -1), [x, *parameters.values()])


def test_retrieval_stops_where_nothing_moves():
    stored = torch.eye(3).unsqueeze(1)
    state = 0.9 * stored
    calls = [retrieve(complete(3), state, stored, 30.0, steps, tolerance=1e-4) for steps in (0, 1, 50)]
    assert torch.equal(calls[0], state)
    assert torch.allclose(calls[1], stored, atol=1e-6)
    assert torch.equal(calls[2], retrieve(complete(3), state, stored, 30.0, 2))


@pytest.mark.parametrize("kind", [HopfieldAttention, HopfieldPooling, HopfieldLookup])
def test_heads_that_do_not_divide_are_refused(kind):
    with pytest.raises(ConfigError, match="do not divide"):
        kind(4, 3)


@pytest.mark.parametrize("state", [torch.ones(2, 4), torch.ones(3), [[1, 1, 1]]])
def test_states_of_other_units_are_refused(state):
    patterns = torch.tensor([[1.0, 1.0, 1.0], [-1.0, 1.0, -1.0]])
    for network in (ClassicalHopfield(patterns), DenseHopfield(patterns), ContinuousHopfield(patterns, 1.0)):
        for method in (network.recall, network.energy):
            with pytest.raises(ShapeError, match=r"states must be \[B, 3\], a number for each unit of a pattern, not"):
                method(state)
