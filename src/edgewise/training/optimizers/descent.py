"""The optimisers, on `torch.optim`: how each weight follows its gradients.

Fused kernels wherever PyTorch has them: on a CPU they take a fifth of the time of the default, and give the same bits
every time. With g_t the gradient, η the learning rate, and all operations by component:

    sgd        w_t = w_{t-1} - η g_t                                                            (3.15), (3.18)
    momentum   w_t = w_{t-1} - η g_t + ν (w_{t-1} - w_{t-2})                                    (3.19)
    adagrad    s_t = s_{t-1} + g_t²,                     w_t = w_{t-1} - η g_t / (√s_t + ε)
    rmsprop    v_t = ρ v_{t-1} + (1 - ρ) g_t²,           w_t = w_{t-1} - η g_t / (√v_t + ε)
    adam       m_t = β₁ m_{t-1} + (1 - β₁) g_t,          m̂_t = m_t / (1 - β₁^t)                 (3.20)
               v_t = β₂ v_{t-1} + (1 - β₂) g_t²,         v̂_t = v_t / (1 - β₂^t)                 (3.21)
               w_t = w_{t-1} - η m̂_t / (√v̂_t + ε)                                               (3.22)
    adamw      adam, after w_{t-1} ← (1 - η λ) w_{t-1}

Weight decay λ adds λ w_{t-1} to the gradient, except in adamw, which decays the weights themselves.

Differs     (3.22) adds ε inside the square root, PyTorch and the original paper outside; for gradients well above ε the
            two agree to a relative 1e-8. (3.19) has a constant η: where a schedule changes it, PyTorch rescales the
            last move.

Reference   equation numbers of Baggag and Saad, "Deep learning, transformers and graph neural networks: a linear
            algebra perspective"; Duchi, Hazan and Singer (2011), AdaGrad; Tieleman and Hinton (2012), RMSprop; Kingma
            and Ba (2015), Adam; Loshchilov and Hutter (2019), AdamW.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from edgewise.errors import CheckpointError, ConfigError
from edgewise.training.optimizers.averaging import WeightAverage
from edgewise.training.optimizers.eager import eager
from edgewise.training.optimizers.langevin import SGLD, CyclicalSGLD
from edgewise.training.optimizers.variational import ConstantSGD, DiagonalConstantSGD

if TYPE_CHECKING:
    from edgewise.training.settings import OptimizerSettings

Groups = list[dict[str, Any]]


def sgd(groups: Groups, chosen: OptimizerSettings) -> Optimizer:
    """Stochastic gradient descent, (3.15) and, on mini-batches, (3.18)."""
    return eager(SGD)(groups, chosen.learning_rate, fused=True)


def momentum(groups: Groups, chosen: OptimizerSettings) -> Optimizer:
    """Gradient descent that keeps a part ν of its last move, (3.19)."""
    return eager(SGD)(groups, chosen.learning_rate, momentum=chosen.momentum, fused=True)


def adagrad(groups: Groups, chosen: OptimizerSettings) -> Optimizer:
    """Rates divided by the norm of each weight's past gradients."""
    fused = groups[0]["params"][0].device.type == "cpu"  # PyTorch has no other fused one
    return eager(Adagrad)(groups, chosen.learning_rate, eps=chosen.epsilon, fused=fused)


def rmsprop(groups: Groups, chosen: OptimizerSettings) -> Optimizer:
    """Rates divided by a running norm of each weight's gradients."""
    return eager(RMSprop)(groups, chosen.learning_rate, alpha=chosen.smoothing, eps=chosen.epsilon)


def adam(groups: Groups, chosen: OptimizerSettings) -> Optimizer:
    """Running means of gradients and of their squares, (3.20) to (3.22)."""
    return eager(Adam)(groups, chosen.learning_rate, betas=chosen.betas, eps=chosen.epsilon, fused=True)


def adamw(groups: Groups, chosen: OptimizerSettings) -> Optimizer:
    """Adam whose weight decay does not pass through the running means."""
    return eager(AdamW)(groups, chosen.learning_rate, betas=chosen.betas, eps=chosen.epsilon, fused=True)


def sgld(groups: Groups, chosen: OptimizerSettings) -> Optimizer:
    """Langevin dynamics, whose weights become samples of the posterior: see `edgewise.training.optimizers.langevin`."""
    return SGLD(groups, chosen.learning_rate, chosen.examples, temperature=chosen.temperature)


def cyclical_sgld(groups: Groups, chosen: OptimizerSettings) -> Optimizer:
    """Langevin dynamics in cycles, each of which explores and then samples."""
    return CyclicalSGLD(groups, chosen.learning_rate, chosen.examples, cycle=chosen.cycle, explore=chosen.explore)


def constant_sgd(groups: Groups, chosen: OptimizerSettings) -> Optimizer:
    """SGD at the constant rate that samples the posterior best: see `edgewise.training.optimizers.variational`."""
    return ConstantSGD(groups, chosen.learning_rate, chosen.examples, chosen.burn_in)


def diagonal_constant_sgd(groups: Groups, chosen: OptimizerSettings) -> Optimizer:
    """The same with the best constant rate for each weight."""
    return DiagonalConstantSGD(groups, chosen.learning_rate, chosen.examples, chosen.burn_in)


OPTIMIZERS: dict[str, Callable[[Groups, OptimizerSettings], Optimizer]] = {
    "sgd": sgd,
    "momentum": momentum,
    "adagrad": adagrad,
    "rmsprop": rmsprop,
    "adam": adam,
    "adamw": adamw,
    "sgld": sgld,
    "cyclical-sgld": cyclical_sgld,
    "constant-sgd": constant_sgd,
    "diagonal-constant-sgd": diagonal_constant_sgd,
}


def optimizer_for(model: nn.Module, chosen: OptimizerSettings) -> Optimizer:
    """The chosen optimiser of a model's weights: those that decay in one group, the others in a second."""
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decays = name.startswith(chosen.decay_prefix) and (parameter.ndim >= 2 or not chosen.decay_matrices_only)
        (decayed if decays else kept).append(parameter)
    if chosen.decay_prefix and not decayed:
        names = ", ".join(name for name, _ in model.named_parameters())
        raise ConfigError(f"optimizer.decay_prefix {chosen.decay_prefix!r} starts no name of a weight: {names}")
    groups: Groups = [{"params": decayed, "weight_decay": chosen.weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return OPTIMIZERS[chosen.name]([group for group in groups if group["params"]], chosen)


def average_for(optimizer: Optimizer, chosen: OptimizerSettings) -> WeightAverage | None:
    """The running mean of the weights, where one is asked for."""
    return WeightAverage(optimizer, chosen.average_from, chosen.average_every) if chosen.average_from else None


def optimizer_tensors(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """What an optimiser remembers of every weight, under "<weight's name>/<what>": "encoder.bias/exp_avg"."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}/{what}": value
        for parameter, memory in optimizer.state.items()
        for what, value in memory.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser its memory back, as `optimizer_tensors` named it."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups = optimizer.state_dict()["param_groups"]
    order = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    shapes = {name: parameter.shape for parameter, name in names.items()}
    memory: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, what = key.rpartition("/")
        if name not in shapes or tensor.shape not in (shapes[name], torch.Size([])):
            raise CheckpointError(f"the optimiser's {key!r} {list(tensor.shape)} fits no weight of this model")
        memory.setdefault(order.index(name), {})[what] = tensor
    optimizer.load_state_dict({"state": memory, "param_groups": groups})
