"""Optimisers: the first steps of each against its equations, written out in float64."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from edgewise.errors import CheckpointError, ConfigError
from edgewise.training.optimizers.descent import OPTIMIZERS, optimizer_for, optimizer_tensors, restore_optimizer
from edgewise.training.settings import OptimizerSettings

STEPS = 6
SAMPLERS = {"sgld", "cyclical-sgld", "constant-sgd", "diagonal-constant-sgd"}  # tested in files of their own
DESCENTS = [name for name in OPTIMIZERS if name not in SAMPLERS]
CHOSEN = OptimizerSettings(learning_rate=0.1, momentum=0.8, betas=(0.85, 0.97), smoothing=0.9, epsilon=1e-8)


def gradient(w: torch.Tensor) -> torch.Tensor:
    """Of f(w) = Σ (a w⁴ / 4 - w), another curvature for every weight."""
    return torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64) * w**3 - 1


def moved(chosen: OptimizerSettings, steps: int = STEPS) -> torch.Tensor:
    """Where the library's optimiser takes the weights."""
    model = nn.Module()
    model.w = nn.Parameter(torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64))
    optimizer = optimizer_for(model, chosen)
    for _ in range(steps):
        model.w.grad = gradient(model.w.detach())
        optimizer.step()
    return model.w.detach()


def expected(chosen: OptimizerSettings, inside_root: bool = False) -> torch.Tensor:
    """Where the equations take them; `inside_root` adds ε where the document has it."""
    eta, nu, rho, eps = chosen.learning_rate, chosen.momentum, chosen.smoothing, chosen.epsilon
    decay, (beta_1, beta_2) = chosen.weight_decay, chosen.betas
    w = torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64)
    before, m, v, s = w.clone(), torch.zeros(3).double(), torch.zeros(3).double(), torch.zeros(3).double()

    def root(square: torch.Tensor) -> torch.Tensor:
        return (square + eps).sqrt() if inside_root else square.sqrt() + eps

    for t in range(1, STEPS + 1):
        g = gradient(w) + (0 if chosen.name == "adamw" else decay * w)
        if chosen.name == "sgd":
            w = w - eta * g  # (3.15)
        elif chosen.name == "momentum":
            w, before = w - eta * g + nu * (w - before), w  # (3.19)
        elif chosen.name == "adagrad":
            s = s + g**2
            w = w - eta * g / root(s)
        elif chosen.name == "rmsprop":
            v = rho * v + (1 - rho) * g**2
            w = w - eta * g / root(v)
        else:
            if chosen.name == "adamw":
                w = w - eta * decay * w
            m = beta_1 * m + (1 - beta_1) * g  # (3.20)
            v = beta_2 * v + (1 - beta_2) * g**2  # (3.21)
            w = w - eta * (m / (1 - beta_1**t)) / root(v / (1 - beta_2**t))  # (3.22)
    return w


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("name", DESCENTS)
def test_the_first_steps_follow_the_equations(name, decay):
    chosen = replace(CHOSEN, name=name, weight_decay=decay)
    torch.testing.assert_close(moved(chosen), expected(chosen), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", DESCENTS)
def test_where_epsilon_stands_makes_no_difference_to_large_gradients(name):
    chosen = replace(CHOSEN, name=name)
    torch.testing.assert_close(moved(chosen), expected(chosen, inside_root=True), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", DESCENTS)
def test_each_optimiser_goes_its_own_way(name):
    others = [expected(replace(CHOSEN, name=other, weight_decay=0.05)) for other in DESCENTS if other != name]
    mine = moved(replace(CHOSEN, name=name, weight_decay=0.05))
    assert all((mine - other).abs().max() > 1e-3 for other in others)


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 2))


def decayed(chosen: OptimizerSettings) -> set[str]:
    """The weights that shrink when no gradient moves them."""
    model = two_layers()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
            parameter.grad = torch.zeros_like(parameter)
    optimizer_for(model, chosen).step()
    return {name for name, parameter in model.named_parameters() if (parameter != 1).all()}


def test_weight_decay_reaches_the_weights_it_was_meant_for():
    chosen = OptimizerSettings(name="adamw", weight_decay=0.1)
    assert len(decayed(chosen)) == 6
    assert decayed(replace(chosen, decay_matrices_only=True)) == {"0.weight", "2.weight"}
    assert decayed(replace(chosen, decay_prefix="0.")) == {"0.weight", "0.bias"}
    assert decayed(replace(chosen, decay_prefix="0.", decay_matrices_only=True)) == {"0.weight"}


def test_a_prefix_of_no_weight_is_refused_with_the_names_there_are():
    with pytest.raises(ConfigError, match=r"'layers\.' starts no name.*0\.weight, 0\.bias, 1\.weight"):
        optimizer_for(two_layers(), OptimizerSettings(decay_prefix="layers."))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restored_optimiser_goes_on_to_the_same_bits(name):
    chosen = replace(CHOSEN, name=name, weight_decay=0.01, decay_matrices_only=True)
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


def test_a_memory_of_another_model_is_refused():
    model = two_layers()
    optimizer = optimizer_for(model, OptimizerSettings())
    with pytest.raises(CheckpointError, match=r"'0\.weight/exp_avg' \[3, 2\] fits no weight"):
        restore_optimizer(optimizer, model, {"0.weight/exp_avg": torch.zeros(3, 2)})
    with pytest.raises(CheckpointError, match="'missing/exp_avg'"):
        restore_optimizer(optimizer, model, {"missing/exp_avg": torch.zeros(2)})
