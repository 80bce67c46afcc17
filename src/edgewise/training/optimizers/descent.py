"""The optimisers, on `torch.optim`: how each weight follows its gradients.

Fused kernels wherever PyTorch has them and weights fill their memory: on a CPU they take a fifth of the time of the
default, and give the same bits every time. With g_t the gradient, η the learning rate, and all operations by component:

    sgd        w_t = w_{t-1} - η g_t                                                            (3.15), (3.18)
    momentum   w_t = w_{t-1} - η g_t + ν (w_{t-1} - w_{t-2})                                    (3.19)
    adagrad    s_t = s_{t-1} + g_t²,                     w_t = w_{t-1} - η g_t / (√s_t + ε)
    rmsprop    v_t = ρ v_{t-1} + (1 - ρ) g_t²,           w_t = w_{t-1} - η g_t / (√v_t + ε)
    adam       m_t = β₁ m_{t-1} + (1 - β₁) g_t,          m̂_t = m_t / (1 - β₁^t)                 (3.20)
               v_t = β₂ v_{t-1} + (1 - β₂) g_t²,         v̂_t = v_t / (1 - β₂^t)                 (3.21)
               w_t = w_{t-1} - η m̂_t / (√v̂_t + ε)                                               (3.22)
    adamw      adam, after w_{t-1} ← (1 - η λ) w_{t-1}
    muon       momentum along orthogonal matrices in a model's stacked layers, adamw for its other weights

Weight decay λ adds λ w_{t-1} to the gradient, except in adamw, which decays the weights themselves.

Differs     (3.22) adds ε inside the square root, PyTorch and the original paper outside; for gradients well above ε the
            two agree to a relative 1e-8. The same holds for rmsprop, which lectures write η g_t / √(v_t + ε).
            (3.19) has a constant η: where a schedule changes it, PyTorch rescales the last move. Its velocity is
            u_t = ν u_{t-1} + g_t; an exponential mean, u_t = ν u_{t-1} + (1 - ν) g_t, as lectures on momentum and
            (3.20) have it, is the same at the rate η / (1 - ν).

Reference   equation numbers of Baggag and Saad, "Deep learning, transformers and graph neural networks: a linear
            algebra perspective"; Duchi, Hazan and Singer (2011), AdaGrad; Tieleman and Hinton (2012), RMSprop; Kingma
            and Ba (2015), Adam; Loshchilov and Hutter (2019), AdamW.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer

from edgewise.configuration import Bounds, Count, NonNegative, Positive, Settings, Share
from edgewise.errors import CheckpointError, ConfigError
from edgewise.training.optimizers.langevin import SGLD, CyclicalSGLD
from edgewise.training.optimizers.newton import Newton
from edgewise.training.optimizers.uncompiled import loss_of, uncompiled
from edgewise.training.optimizers.variational import ConstantSGD, DiagonalConstantSGD
from edgewise.training.ranks import blocks_of, is_dense, laid_as

Groups = list[dict[str, Any]]


def _fused(groups: Groups) -> bool:
    """Whether a fused kernel may take these weights: it knows no complex ones, and between the numbers of one with gaps
    lie those of other tensors, which it would change."""
    return all(is_dense(w) and not w.is_complex() for group in groups for w in group["params"])


@dataclass(frozen=True)
class Descent(Settings):
    """Stochastic gradient descent, (3.15) and, on mini-batches, (3.18); every other optimiser takes its options too.

    Args:
        learning_rate: Step size η, before the schedule.
        weight_decay: Decay λ: times the weights it joins the gradient; in adamw it shrinks the weights themselves.
        decay_matrices_only: Leave vectors (biases, norms) without weight decay.
        decay_prefix: Decay only weights whose name starts so, for instance "layers.0." for the first layer alone.
    """

    section = "optimizer"
    learning_rate: Positive = 1e-3
    weight_decay: NonNegative = 0.0
    decay_matrices_only: bool = False
    decay_prefix: str = ""

    def optimizer(self, groups: Groups) -> Optimizer:
        """PyTorch's optimiser of these groups of weights."""
        return uncompiled(optim.SGD)(groups, self.learning_rate, fused=_fused(groups))


@dataclass(frozen=True)
class Momentum(Descent):
    """Gradient descent that keeps a part ν of its last move, (3.19).

    Args:
        momentum: Part ν of the last move that is kept.
    """

    momentum: Share = 0.9

    def optimizer(self, groups: Groups) -> Optimizer:
        sgd = uncompiled(optim.SGD)(groups, self.learning_rate, momentum=self.momentum, fused=_fused(groups))
        sgd.register_step_pre_hook(_begin_momentum)
        return sgd


def _begin_momentum(sgd: Optimizer, *_: Any) -> None:
    """The fused kernel takes no weight whose first gradient comes later: a momentum of 0 becomes the gradient, too."""
    for w in (w for group in sgd.param_groups for w in group["params"] if w.grad is not None):
        if sgd.state[w].get("momentum_buffer") is None:
            sgd.state[w]["momentum_buffer"] = torch.zeros_like(w)


@dataclass(frozen=True)
class AdaGrad(Descent):
    """Rates divided by the norm of each weight's past gradients.

    Args:
        epsilon: What keeps a division by a small norm finite, ε.
    """

    epsilon: Positive = 1e-8

    def optimizer(self, groups: Groups) -> Optimizer:
        fused = _fused(groups) and groups[0]["params"][0].device.type == "cpu"  # PyTorch has no other fused one
        return uncompiled(optim.Adagrad)(groups, self.learning_rate, eps=self.epsilon, fused=fused)


@dataclass(frozen=True)
class RMSProp(AdaGrad):
    """Rates divided by a running norm of each weight's gradients.

    Args:
        smoothing: Decay rate ρ of the running mean of squared gradients.
    """

    smoothing: Share = 0.99

    def optimizer(self, groups: Groups) -> Optimizer:
        return uncompiled(optim.RMSprop)(groups, self.learning_rate, alpha=self.smoothing, eps=self.epsilon)


@dataclass(frozen=True)
class Adam(AdaGrad):
    """Running means of gradients and of their squares, (3.20) to (3.22).

    Args:
        betas: Decay rates β₁ of the running mean of gradients, and β₂ of that of their squares.
    """

    betas: tuple[Share, Share] = (0.9, 0.999)

    def optimizer(self, groups: Groups) -> Optimizer:
        kind, fused = uncompiled(optim.Adam), _fused(groups)
        return kind(groups, self.learning_rate, betas=self.betas, eps=self.epsilon, fused=fused)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam whose weight decay does not pass through the running means."""

    def optimizer(self, groups: Groups) -> Optimizer:
        kind, fused = uncompiled(optim.AdamW), _fused(groups)
        return kind(groups, self.learning_rate, betas=self.betas, eps=self.epsilon, fused=fused)


@uncompiled
class Muon(Optimizer):
    """PyTorch's Muon for matrices, its AdamW for all other weights, as one optimiser with one memory.

    Equation    B_t = μ B_{t-1} + (1 - μ) G_t;  O_t = orthogonal((1 - μ) G_t + μ B_t);
                W_t = (1 - η λ) W_{t-1} - 0.2 √max(rows, columns) η O_t
    Symbols     lr = η; weight_decay = λ; momentum = μ; betas, epsilon = those of AdamW; a group whose "orthogonal" is
                True moves so, any other as AdamW
    Errors      ConfigError for a weight that is no matrix in an orthogonal group
    Edge cases  a gradient of zeros, with no momentum, moves nothing but by weight decay
    Cost        beside a step of momentum 15 products of matrices, O(rows · columns · the lesser of both)
    Differs     moves are as large as Adam's, so that its rate and decay fit (Liu et al.), where Jordan scales by
                √max(1, rows/columns)
    Reference   Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024; Liu et al., "Muon is
                scalable for LLM training", 2025, (4)

    Example
        >>> w = torch.nn.Parameter(torch.eye(2))
        >>> muon = Muon([{"params": [w], "orthogonal": True}], lr=1.0)
        >>> (torch.tensor([[100.0, 0.0], [0.0, 1.0]]) * w).sum().backward()
        >>> _ = muon.step()
        >>> (1 - w.diagonal()).round(decimals=1)  # both move alike, though one gradient is 100 times the other
        tensor([0.2000, 0.2000], grad_fn=<RoundBackward1>)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0, "orthogonal": False})
        self.parts: dict[bool, Optimizer] = {}
        matrices, others = ([g for g in self.param_groups if g["orthogonal"] is kind] for kind in (True, False))
        if wrong := [w for group in matrices for w in group["params"] if w.ndim != 2]:
            raise ConfigError(f"only a matrix can be made orthogonal, not a weight of {list(wrong[0].shape)}")
        if matrices:
            muon = uncompiled(optim.Muon)
            self.parts[True] = muon(matrices, lr, momentum=momentum, adjust_lr_fn="match_rms_adamw")
        if others:
            self.parts[False] = uncompiled(optim.AdamW)(others, lr, betas=betas, eps=epsilon)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One move of all weights that have a gradient."""
        result = loss_of(closure)
        for orthogonal, part in self.parts.items():
            part.state = self.state
            part.param_groups = [group for group in self.param_groups if group["orthogonal"] is orthogonal]
            part.step()
        return result


@dataclass(frozen=True)
class OrthogonalMomentum(AdamW):
    """Momentum along orthogonal matrices in the layers that a model stacks, AdamW for its other weights.

    Args:
        momentum: Part μ of the sum of past gradients that is kept.
    """

    momentum: Share = 0.95

    def optimizer(self, groups: Groups) -> Optimizer:
        return Muon(groups, self.learning_rate, self.momentum, self.betas, self.epsilon)


@dataclass(frozen=True)
class Sampler(Descent):
    """Descent whose weights become samples of the posterior.

    Args:
        examples: Number N of training examples: the loss is a mean over them.
    """

    examples: Count = 1


@dataclass(frozen=True)
class Langevin(Sampler):
    """Langevin dynamics: see `edgewise.training.optimizers.langevin`.

    Args:
        temperature: Scale of the noise; 0 is plain SGD.
    """

    temperature: NonNegative = 1.0

    def optimizer(self, groups: Groups) -> Optimizer:
        return SGLD(groups, self.learning_rate, self.examples, temperature=self.temperature)


@dataclass(frozen=True)
class CyclicalLangevin(Sampler):
    """Langevin dynamics in cycles, each of which explores and then samples.

    Args:
        cycle: Steps of one cycle.
        explore: Part of a cycle without noise.
    """

    cycle: Count = 1000
    explore: Share = 0.5

    def optimizer(self, groups: Groups) -> Optimizer:
        return CyclicalSGLD(groups, self.learning_rate, self.examples, cycle=self.cycle, explore=self.explore)


@dataclass(frozen=True)
class ConstantRate(Sampler):
    """SGD at the constant rate that samples the posterior best: see `edgewise.training.optimizers.variational`.

    Args:
        burn_in: Steps at the learning rate, in which the noise of the gradients is measured.
    """

    burn_in: Annotated[int, Bounds(at_least=2)] = 1000

    def optimizer(self, groups: Groups) -> Optimizer:
        return ConstantSGD(groups, self.learning_rate, self.examples, self.burn_in)


@dataclass(frozen=True)
class DiagonalConstantRate(ConstantRate):
    """The same with the best constant rate for each weight."""

    def optimizer(self, groups: Groups) -> Optimizer:
        return DiagonalConstantSGD(groups, self.learning_rate, self.examples, self.burn_in)


@dataclass(frozen=True)
class SecondOrder(Descent):
    """Newton's method, for a few thousand weights: see `edgewise.training.optimizers.newton`.

    Args:
        learning_rate: Step size η; 1 for the method itself.
        damping: What is added to every curvature.
    """

    learning_rate: Positive = 1.0
    damping: NonNegative = 0.0

    def optimizer(self, groups: Groups) -> Optimizer:
        return Newton(groups, self.learning_rate, damping=self.damping)


OPTIMIZERS: dict[str, type[Descent]] = {
    "sgd": Descent,
    "momentum": Momentum,
    "adagrad": AdaGrad,
    "rmsprop": RMSProp,
    "adam": Adam,
    "adamw": AdamW,
    "muon": OrthogonalMomentum,
    "sgld": Langevin,
    "cyclical-sgld": CyclicalLangevin,
    "constant-sgd": ConstantRate,
    "diagonal-constant-sgd": DiagonalConstantRate,
    "newton": SecondOrder,
}


def optimizer_for(model: nn.Module, descent: Descent, seed: int = 0) -> Optimizer:
    """The optimiser of a model's weights, in groups: those that decay and the others, for Muon each in two.

    Symbols     seed = of the noise that Langevin dynamics add
    """
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decays = name.startswith(descent.decay_prefix) and (parameter.ndim >= 2 or not descent.decay_matrices_only)
        (decayed if decays else others).append(parameter)
    if descent.decay_prefix and not decayed:
        names = ", ".join(name for name, _ in model.named_parameters())
        raise ConfigError(f"optimizer.decay_prefix {descent.decay_prefix!r} starts no name of a weight: {names}")
    if not decayed and not others:
        raise ConfigError(f"{type(model).__name__} has no weight that trains: each is frozen, or there are none")
    groups: Groups = [
        {"params": decayed, "weight_decay": descent.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    if isinstance(descent, OrthogonalMomentum):
        inside = {w for block in blocks_of(model) for w in block.parameters() if w.ndim == 2}
        groups = [
            group | {"params": [w for w in group["params"] if (w in inside) == kind], "orthogonal": kind}
            for group in groups
            for kind in (True, False)
        ]
    optimizer = descent.optimizer([group for group in groups if group["params"]])
    if isinstance(optimizer, SGLD):
        optimizer.seed = seed
    return optimizer


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
    weights = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    order = [names[parameter] for parameter in weights]
    shapes = {name: parameter.shape for parameter, name in names.items()}
    memory: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, what = key.rpartition("/")
        if name not in shapes or tensor.shape not in (shapes[name], torch.Size([])):
            raise CheckpointError(f"the optimiser's {key!r} {list(tensor.shape)} fits no weight of this model")
        number = order.index(name)
        laid = laid_as(tensor, weights[number]) if tensor.shape == shapes[name] else tensor
        memory.setdefault(number, {})[what] = laid
    optimizer.load_state_dict({"state": memory, "param_groups": groups})
