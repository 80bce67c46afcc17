"""Optimisers: the first steps of each against its equations, written out in float64."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from edgewise.configuration import options_of
from edgewise.errors import CheckpointError, ConfigError
from edgewise.training.optimizers.descent import (
    OPTIMIZERS,
    AdamW,
    Descent,
    optimizer_for,
    optimizer_tensors,
    restore_optimizer,
)

STEPS = 6
ELSEWHERE = {"sgld", "cyclical-sgld", "constant-sgd", "diagonal-constant-sgd", "muon"}  # tested in files of their own
FIRST_ORDER = [name for name in OPTIMIZERS if name != "newton"]  # so is that
DESCENTS = [name for name in FIRST_ORDER if name not in ELSEWHERE]
RATE, NU, BETAS, RHO, EPSILON = 0.1, 0.8, (0.85, 0.97), 0.9, 1e-8
CHOSEN = {"learning_rate": RATE, "momentum": NU, "betas": BETAS, "smoothing": RHO, "epsilon": EPSILON}


def named(name: str, **options: Any) -> Descent:
    """An optimiser's settings with those of the numbers above that it takes."""
    kind = OPTIMIZERS[name]
    return kind(**{option: value for option, value in CHOSEN.items() if option in options_of(kind)}, **options)


def gradient(w: torch.Tensor) -> torch.Tensor:
    """Of f(w) = Σ (a w⁴ / 4 - w), another curvature for every weight."""
    return torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64) * w**3 - 1


def moved(chosen: Descent, steps: int = STEPS) -> torch.Tensor:
    """Where the library's optimiser takes the weights."""
    model = nn.Module()
    model.w = nn.Parameter(torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64))
    optimizer = optimizer_for(model, chosen)
    for _ in range(steps):
        model.w.grad = gradient(model.w.detach())
        optimizer.step()
    return model.w.detach()


def expected(name: str, decay: float) -> torch.Tensor:
    """Where the equations take them."""
    eta, nu, rho, eps, (beta_1, beta_2) = RATE, NU, RHO, EPSILON, BETAS
    w = torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64)
    before, m, v, s = w.clone(), torch.zeros(3).double(), torch.zeros(3).double(), torch.zeros(3).double()
    for t in range(1, STEPS + 1):
        g = gradient(w) + (0 if name == "adamw" else decay * w)
        if name == "sgd":
            w = w - eta * g  # (3.15)
        elif name == "momentum":
            w, before = w - eta * g + nu * (w - before), w  # (3.19)
        elif name == "adagrad":
            s = s + g**2
            w = w - eta * g / (s.sqrt() + eps)
        elif name == "rmsprop":
            v = rho * v + (1 - rho) * g**2
            w = w - eta * g / (v.sqrt() + eps)
        else:
            if name == "adamw":
                w = w - eta * decay * w
            m = beta_1 * m + (1 - beta_1) * g  # (3.20)
            v = beta_2 * v + (1 - beta_2) * g**2  # (3.21)
            w = w - eta * (m / (1 - beta_1**t)) / ((v / (1 - beta_2**t)).sqrt() + eps)  # (3.22)
    return w


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("name", DESCENTS)
def test_the_first_steps_follow_the_equations(name, decay):
    moved_to = moved(named(name, weight_decay=decay))
    torch.testing.assert_close(moved_to, expected(name, decay), rtol=1e-13, atol=1e-13)


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 2))


def decayed(chosen: Descent) -> set[str]:
    """The weights that shrink when no gradient moves them."""
    model = two_layers()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
            parameter.grad = torch.zeros_like(parameter)
    optimizer_for(model, chosen).step()
    return {name for name, parameter in model.named_parameters() if (parameter != 1).all()}


def test_weight_decay_reaches_the_weights_it_was_meant_for():
    chosen = AdamW(weight_decay=0.1)
    assert len(decayed(chosen)) == 6
    assert decayed(replace(chosen, decay_matrices_only=True)) == {"0.weight", "2.weight"}
    assert decayed(replace(chosen, decay_prefix="0.")) == {"0.weight", "0.bias"}
    assert decayed(replace(chosen, decay_prefix="0.", decay_matrices_only=True)) == {"0.weight"}


def test_a_prefix_of_no_weight_is_refused_with_the_names_there_are():
    with pytest.raises(ConfigError, match=r"'layers\.' starts no name.*0\.weight, 0\.bias, 1\.weight"):
        optimizer_for(two_layers(), AdamW(decay_prefix="layers."))


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_a_restored_optimiser_goes_on_to_the_same_bits(name):
    chosen = named(name, weight_decay=0.01, decay_matrices_only=True)
    x, models = torch.randn(5, 2), [two_layers(), two_layers()]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [optimizer_for(model, chosen) for model in models]

    def step(which: int) -> None:
        optimizers[which].zero_grad()
        models[which](x).square().sum().backward()
        optimizers[which].step()

    for _ in range(3):
        step(0)
    models[1].load_state_dict(models[0].state_dict())
    saved = {key: tensor.clone() for key, tensor in optimizer_tensors(optimizers[0], models[0]).items()}
    restore_optimizer(optimizers[1], models[1], saved)
    for _ in range(3):
        step(0)
        step(1)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)
    assert saved or name == "sgd"


@pytest.mark.parametrize(("name", "layout"), [*((name, "transposed") for name in DESCENTS), ("adam", "sliced")])
def test_weights_that_are_not_row_major_take_the_same_steps_also_when_restored(name, layout):
    begin, x = torch.randn(4, 3), torch.randn(5, 4)
    storage = torch.zeros(4, 6)
    begun = {"transposed": begin.T.contiguous().T, "sliced": storage[:, ::2].copy_(begin), "rows": begin}
    models, optimizers = {}, {}
    for what in (layout, "rows"):
        models[what] = nn.Module()
        models[what].w = nn.Parameter(begun[what])
        optimizers[what] = optimizer_for(models[what], named(name))
    for _ in range(3):
        for what, model in models.items():
            saved = optimizer_tensors(optimizers[what], model)
            optimizers[what] = optimizer_for(model, named(name))
            restore_optimizer(optimizers[what], model, {key: value.contiguous() for key, value in saved.items()})
            (x @ model.w).square().sum().backward()
            optimizers[what].step()
            optimizers[what].zero_grad()
    torch.testing.assert_close(models[layout].w, models["rows"].w)
    assert not storage[:, 1::2].any()  # what lies between a slice's numbers is not its own


def test_a_memory_of_another_model_is_refused():
    model = two_layers()
    optimizer = optimizer_for(model, AdamW())
    with pytest.raises(CheckpointError, match=r"'0\.weight/exp_avg' \[3, 2\] fits no weight"):
        restore_optimizer(optimizer, model, {"0.weight/exp_avg": torch.zeros(3, 2)})
    with pytest.raises(CheckpointError, match="'missing/exp_avg'"):
        restore_optimizer(optimizer, model, {"missing/exp_avg": torch.zeros(2)})


def test_momentum_begins_with_each_weight_at_its_first_gradient():
    def walk(fused: bool) -> list[torch.Tensor]:
        weights = nn.ParameterList(nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(3))
        chosen = OPTIMIZERS["momentum"](learning_rate=0.1)
        optimizer = optimizer_for(weights, chosen) if fused else torch.optim.SGD(weights, lr=0.1, momentum=0.9)
        for step in range(1, 6):
            for w, first in zip(weights, (1, 3, 9), strict=True):
                w.grad = w.detach() * step if step >= first else None
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
        return list(weights)

    for w, expected in zip(walk(True), walk(False), strict=True):
        torch.testing.assert_close(w, expected)
