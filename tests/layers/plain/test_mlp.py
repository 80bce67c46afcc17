import math

import pytest
import torch

from edgewise import ConfigError
from edgewise.layers import ACTIVATIONS, MLP, probabilities
from layers.parity import leaf


@pytest.mark.parametrize(
    ("name", "sigma"),
    [
        ("relu", lambda t: max(0.0, t)),
        ("sigmoid", lambda t: 1 / (1 + math.exp(-t))),
        ("tanh", lambda t: (math.exp(t) - math.exp(-t)) / (math.exp(t) + math.exp(-t))),
        ("gelu", lambda t: t * (1 + math.erf(t / math.sqrt(2))) / 2),
        ("gelu-tanh", lambda t: t * (1 + math.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t**3))) / 2),
        ("silu", lambda t: t / (1 + math.exp(-t))),
        ("elu", lambda t: t if t > 0 else math.exp(t) - 1),
    ],
)
def test_activation_is_its_formula(name, sigma):
    t = torch.linspace(-3, 3, 13, dtype=torch.float64)
    expected = torch.tensor([sigma(value) for value in t.tolist()], dtype=torch.float64)
    assert torch.allclose(ACTIVATIONS[name](t), expected, atol=1e-12)


def test_forward_propagation_is_algorithm_1():
    mlp = MLP([3, 5, 4, 2], "tanh").double()
    x = leaf(6, 3)
    z = x
    for number, linear in enumerate(mlp.linears):
        z = z @ linear.weight.T + linear.bias  # (3.6)
        z = torch.tanh(z) if number < 2 else z
    assert torch.allclose(mlp(x), z, atol=1e-12)


@pytest.mark.parametrize(("sizes", "activation"), [([3], "relu"), ([3, 2], "rectified")])
def test_impossible_networks_are_refused(sizes, activation):
    with pytest.raises(ConfigError, match=r"needs an input and an output|choose one of relu, sigmoid"):
        MLP(sizes, activation)


def test_probabilities_are_the_softmax_with_temperature():
    z = leaf(4, 5).detach()
    for temperature in (0.5, 1.0, 3.0):
        e = (z / temperature).exp()
        assert torch.allclose(probabilities(z, temperature), e / e.sum(-1, keepdim=True), atol=1e-12)  # (3.9)
    assert torch.allclose(probabilities(z, 1e-4), torch.nn.functional.one_hot(z.argmax(-1), 5).double())
    assert torch.allclose(probabilities(z, 1e9), torch.full_like(z, 0.2))


def test_temperature_must_be_positive():
    with pytest.raises(ConfigError, match="must be positive"):
        probabilities(torch.zeros(2), 0.0)
