import pytest
import torch

from edgewise import ConfigError
from edgewise.layers import MLP, RandomizedLinear, RandomizedMLP

SIZES = [12, 20, 16, 3]


def pair(keep):
    """A randomised MLP and the exact one with the same weights."""
    layer, exact = RandomizedMLP(SIZES, keep).double(), MLP(SIZES).double()
    exact.load_state_dict(layer.state_dict())
    return layer, exact


def slopes(model, x, y):
    loss = (model(x) - y).square().sum() / len(x)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def test_the_gradient_is_unbiased():
    """10,000 draws: the mean gradient lies within 3 standard errors, in a random direction and over all weights."""
    layer, exact = pair(keep=0.25)
    x, y = torch.randn(1, 12).double(), torch.randn(1, 3).double()
    expected = slopes(exact, x, y)
    # A pass over 100 copies draws 100 times; 100 passes are independent.
    draws = torch.stack([slopes(layer, x.expand(100, -1), y.expand(100, -1)) for _ in range(100)])
    error = draws.mean(0) - expected
    standard_error = draws.std(0) / 10
    for direction in torch.randn(5, len(error)).double():
        assert abs(error @ direction) <= 3 * (draws @ direction).std() / 10
    random = standard_error > 1e-12
    assert random.sum() > 100  # of the others, which belong to silent units, nothing is random
    assert (error[~random]).abs().max() < 1e-12
    z = (error / standard_error)[random]
    assert z.abs().max() < 4  # a weight's error is that of its input, so there are some 40 independent ones


def test_the_variance_is_that_of_the_docstring():
    layer = RandomizedLinear(12, 1, bias=False, keep=0.25).double()
    x = torch.randn(1, 12).double()
    draws = [torch.autograd.grad(layer(x).sum(), layer.weight)[0][0] for _ in range(2000)]
    found = torch.stack(draws).var(0)
    assert torch.allclose(found, x[0].square() * (12 / 3 - 1), rtol=0.25)


def test_outputs_and_the_gradients_of_inputs_and_biases_are_exact():
    layer, exact = pair(keep=0.2)
    x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 5, 3).double()
    found, expected = layer(x), exact(x)
    assert torch.equal(found, expected)
    names = [name for name, _ in exact.named_parameters() if name.endswith("bias")]
    for one, other in zip(
        torch.autograd.grad((found * weight).sum(), [x, *(layer.get_parameter(n) for n in names)]),
        torch.autograd.grad((expected * weight).sum(), [x, *(exact.get_parameter(n) for n in names)]),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-12)


def test_a_budget_of_everything_is_the_exact_gradient():
    layer, exact = pair(keep=1.0)
    x, y = torch.randn(7, 12).double(), torch.randn(7, 3).double()
    assert torch.allclose(slopes(layer, x, y), slopes(exact, x, y), atol=1e-12)


def remembered(model, x):
    """Bytes of distinct memory that the backward pass waits with, weights and inputs aside."""
    known = {p.untyped_storage().data_ptr() for p in model.parameters()} | {x.untyped_storage().data_ptr()}
    found = {}

    def pack(t):
        found[t.untyped_storage().data_ptr()] = t
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        model(x).sum()
    return sum(t.untyped_storage().nbytes() for place, t in found.items() if place not in known)


@pytest.mark.parametrize(("keep", "share"), [(0.1, 0.36), (0.5, 0.76)])
def test_the_memory_budget_is_kept(keep, share):
    """What is remembered is the budget's part of the activations, and a byte of four for each sign."""
    sizes, x = [256, 256, 256, 256, 10], torch.randn(512, 256)
    exact = remembered(MLP(sizes), x)
    assert exact == 3 * 512 * 256 * 4
    inputs = 512 * 256 * 4 * keep  # the first layer's, which the exact network reads from the batch itself
    assert remembered(RandomizedMLP(sizes, keep), x) - inputs <= share * exact


def test_second_derivatives_are_refused():
    """They would lack how the saved inputs depend on what they are computed from."""
    layer = RandomizedLinear(4, 1, keep=0.5)
    with pytest.raises(ConfigError, match="has no second derivatives"):
        torch.autograd.grad(layer(torch.ones(3, 4)).square().sum(), layer.weight, create_graph=True)


def test_gradients_under_autocast_are_nearly_those_without():
    layer, x = RandomizedLinear(12, 3, keep=0.5), torch.randn(5, 12, requires_grad=True)
    inputs = [x, *layer.parameters()]
    torch.manual_seed(0)
    expected = torch.autograd.grad(layer(x).square().sum(), inputs)
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    for found, exact in zip(torch.autograd.grad(y.square().sum(), inputs), expected, strict=True):
        assert found.dtype == torch.float32
        assert (found - exact).norm() < 0.03 * exact.norm()
