"""PyTorch's optimisers without the wrappers through which each imports torch.compile."""

import inspect
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

AnOptimizer = TypeVar("AnOptimizer", bound=Optimizer)


def eager(kind: type[AnOptimizer]) -> type[AnOptimizer]:
    """The same optimiser, which does not import the compiler (4 s of processor time) to be left alone by it.

    Differs     `step` under torch.compile becomes part of what is compiled; the training loop compiles the model alone
    """
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    methods["zero_grad"] = _forgetting(methods["zero_grad"])
    if issubclass(kind, Adam):
        methods["step"] = _short(methods["step"])
    if issubclass(kind, SGD):
        methods["step"] = _begun(methods["step"])
    named = {name: getattr(kind, name) for name in ("__doc__", "__module__", "__qualname__")}
    return cast("type[AnOptimizer]", type(kind.__name__, (kind,), methods | named))


def _forgetting(zero_grad: Callable[..., None]) -> Callable[..., None]:
    """The same `zero_grad`, in short where it forgets the gradients."""

    def short(self: Any, set_to_none: bool = True) -> None:
        if not set_to_none:
            return zero_grad(self, set_to_none)
        for group in self.param_groups:
            for weight in group["params"]:
                weight.grad = None
        return None

    return short


def _begun(step: Callable[..., Any]) -> Callable[..., Any]:
    """The same step, where weights get their first gradients at different ones, which PyTorch's fused kernel does not
    take: a momentum of 0 becomes the gradient, as none does."""

    def begun(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        for group in self.param_groups:
            if group["momentum"] and not group["dampening"]:
                for w in group["params"]:
                    if w.grad is not None and self.state[w].get("momentum_buffer") is None:
                        self.state[w]["momentum_buffer"] = torch.zeros_like(w)
        return step(self, closure)

    return begun


class Known(NamedTuple):
    """Of a group of weights that a fused kernel takes as they are: both running means, and their steps."""

    weights: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]


def _short(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step of a fused Adam on a CPU: the kernel that PyTorch's own calls, without looking anew for what stays."""

    def short(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        groups = self.param_groups
        state, known = self.__dict__.get("_known", (None, []))
        if state is not self.state or not _are_those(groups, known):
            known = [one for group in groups if (one := _known(self.state, group)) is not None]
            self._known = self.state, known
        gradients = [[weight.grad for weight in one.weights] for one in known]
        scaled = getattr(self, "grad_scale", None) is not None or getattr(self, "found_inf", None) is not None
        unusual = closure is not None or scaled or any(map(_is_unusual, groups)) or not all(map(_plain, gradients))
        if unusual or len(known) < len(groups):
            self._known = None, []
            return step(self, closure)
        with torch.no_grad():
            for group, one, dw in zip(groups, known, gradients, strict=True):
                if not dw:
                    continue
                update = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
                torch._foreach_add_(one.steps, 1)
                (beta_1, beta_2), rate, decay = group["betas"], group["lr"], group["weight_decay"]
                update(
                    one.weights, dw, one.means, one.squares, [], one.steps, lr=rate, beta1=beta_1, beta2=beta_2,
                    weight_decay=decay, eps=group["eps"], amsgrad=False, maximize=False,
                )  # fmt: skip
        return None

    return short


def _are_those(groups: list[dict[str, Any]], known: list[Known]) -> bool:
    """Whether the groups' weights are those that are known."""
    pairs = zip(groups, known, strict=False)
    return len(groups) == len(known) and all(
        len(group["params"]) == len(one.weights) and all(map(is_, group["params"], one.weights)) for group, one in pairs
    )


def _is_unusual(group: dict[str, Any]) -> bool:
    """Whether a group has options that the short way does not know."""
    options = group["amsgrad"] or group["maximize"] or group["capturable"] or group["differentiable"]
    return options or not group["fused"] or not isinstance(group["lr"], float)


def _known(state: Mapping[Tensor, dict[str, Tensor]], group: dict[str, Any]) -> Known | None:
    """What is remembered of a group's weights; None before the first step, and where the kernel cannot take them so."""
    weights = group["params"]
    for w in weights:
        alike = type(w) is torch.nn.Parameter and w.device.type == "cpu" and w.dtype is weights[0].dtype
        if not alike or w.is_complex() or "exp_avg" not in state.get(w, {}):
            return None
    own = [state[w] for w in weights]
    return Known(list(weights), *([one[name] for one in own] for name in ("exp_avg", "exp_avg_sq", "step")))


def _plain(gradients: list[Tensor | None]) -> bool:
    return all(dw is not None and dw.layout is torch.strided for dw in gradients)


def loss_of(closure: Callable[[], Any] | None) -> Any:
    """What `Optimizer.step` returns: the loss that a closure computes anew, with its gradients; None without one."""
    with torch.enable_grad():
        return None if closure is None else closure()
