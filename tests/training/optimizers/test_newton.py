"""Newton's method against its equation, with the Hessian of PyTorch, and on problems that it solves at once."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

from edgewise.errors import ConfigError
from edgewise.layers import RandomizedLinear
from edgewise.training.optimizers.descent import SecondOrder, optimizer_for
from edgewise.training.optimizers.newton import MOST, Newton, hessian


def regression() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    return model, torch.randn(9, 3, dtype=torch.float64), torch.randint(2, (9,))


def test_a_step_is_the_equation_with_the_hessian_of_pytorch():
    model, x, y = regression()
    decay, damping, rate = 0.3, 0.7, 0.5
    names = dict(model.named_parameters())
    sizes = [p.numel() for p in names.values()]

    def loss_of(flat: torch.Tensor) -> torch.Tensor:
        parts = {name: part.view_as(names[name]) for name, part in zip(names, flat.split(sizes), strict=True)}
        return functional.cross_entropy(torch.func.functional_call(model, parts, (x,)), y)

    w = torch.cat([p.detach().flatten() for p in names.values()])
    square = torch.autograd.functional.hessian(loss_of, w)
    own = torch.eye(len(w), dtype=torch.float64)
    gradient = torch.autograd.functional.jacobian(loss_of, w) + decay * w
    expected = w - rate * torch.linalg.solve(square + (decay + damping) * own, gradient)

    assert torch.allclose(hessian(functional.cross_entropy(model(x), y), list(model.parameters())), square, atol=1e-10)
    newton = optimizer_for(model, SecondOrder(rate, decay, damping=damping))
    assert isinstance(newton, Newton)
    for part, rows in ((x[:4], y[:4]), (x[4:], y[4:])):  # two micro-batches are one loss
        newton.backward(functional.cross_entropy(model(part), rows) * len(rows) / 9)
    newton.step()
    found = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(found, expected, atol=1e-9)


def test_directions_without_curvature_are_left_alone():
    """Softmax does not see a sum over the classes: without weight decay its Hessian is singular."""
    w = nn.Parameter(torch.tensor([0.5, -0.5, 2.0], dtype=torch.float64))
    newton, before = Newton([w]), w.sum().item()
    for _ in range(8):
        newton.zero_grad()
        newton.backward(functional.cross_entropy(w.expand(4, 3), torch.tensor([0, 1, 2, 2])))
        newton.step()
    assert w.sum().item() == pytest.approx(before)
    assert torch.allclose(w.softmax(0), torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64), atol=1e-9)


def test_it_converges_quadratically_where_the_loss_is_convex():
    _, x, y = regression()
    model = nn.Linear(3, 2).double()
    newton, lengths = optimizer_for(model, SecondOrder(weight_decay=0.1)), []
    for _ in range(6):
        newton.zero_grad()
        newton.backward(functional.cross_entropy(model(x), y))
        gradient = torch.cat([(p.grad + 0.1 * p).flatten() for p in model.parameters()])
        lengths.append(gradient.norm().item())
        newton.step()
    assert lengths[-1] < 1e-12
    assert all(later < 3 * earlier**2 for earlier, later in pairwise(lengths) if later > 1e-12)


def _step(model):
    newton = Newton(model.parameters())
    newton.backward(model(torch.ones(3, 4)).square().sum())
    newton.step()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Newton([nn.Parameter(torch.zeros(MOST + 1))]), "at most 5,000 weights"),
        (lambda: Newton([nn.Parameter(torch.zeros(1))], lr=0.0), "must be positive"),
        (lambda: Newton([nn.Parameter(torch.zeros(1))], damping=-1.0), "at least 0"),
        (lambda: Newton([nn.Parameter(torch.zeros(1))]).step(), r"call backward\(loss\)"),
        (lambda: _step(RandomizedLinear(4, 1)), "has no second derivatives"),
    ],
)
def test_what_it_cannot_do_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
