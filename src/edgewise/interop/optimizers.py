"""PyTorch's optimizers on the CPU, switched to PyTorch's own fused steps, which update all parameters in one call.

Adam and AdamW go to that call at once: what else PyTorch's `step` does takes longer than it where a model is small.
"""

from __future__ import annotations

from functools import cache
from operator import is_
from typing import Any

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim import optimizer as hooks

KINDS = (Adam, AdamW, SGD)
PLAIN = ("amsgrad", "capturable", "differentiable")  # options of groups that are stepped as before
BUFFERS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer")


def refusal(optimizer: Any) -> str | None:
    """Why an optimizer's steps stay as they are."""
    if _kind(optimizer) not in KINDS:
        return f"{type(optimizer).__name__} has no fused step on the CPU that is known here"
    for group in optimizer.param_groups:
        if _is_fused(group):
            continue
        chosen = [f"{name}={group[name]}" for name in ("foreach", "fused") if group.get(name) is not None]
        chosen += [f"{name}=True" for name in ("capturable", "differentiable") if group.get(name)]
        if chosen:
            return f"it was made with {chosen[0]}"
        if isinstance(group["lr"], Tensor):
            return "its learning rate is a tensor"
        for p in group["params"]:
            if p.device.type != "cpu" or not p.is_floating_point():
                return f"it has a parameter of {p.dtype} on {p.device}"
    return None


def _kind(optimizer: Any) -> Any:
    return getattr(type(optimizer), "twin_of", type(optimizer))


def _is_fused(group: dict[str, Any]) -> bool:
    return bool(group.get("fused"))


def fuse(optimizer: Optimizer) -> None:
    """Let an optimizer take fused steps from now on, also after `load_state_dict`.

    Edge cases  steps that were counted in float64 are counted in float32, as fused steps need them. Groups that are
                added later take their steps as before, and so does, from then on, one that a fused step cannot take: of
                sparse gradients, of momentum that some parameters lack because their gradients came later, and of
                tensors that have gaps in memory or lie there otherwise than their gradients
    """
    optimizer.__class__ = stepping(_kind(optimizer))
    if not all(map(_is_fused, optimizer.param_groups)):
        _choose(optimizer)
        optimizer.register_load_state_dict_post_hook(_choose)


def _choose(optimizer: Optimizer) -> None:
    if refusal(optimizer) is not None:
        return
    for group in optimizer.param_groups:
        group["fused"] = True
        for p in group["params"]:
            step = optimizer.state.get(p, {}).get("step")
            if isinstance(step, Tensor):
                optimizer.state[p]["step"] = step.to(torch.float32)


def _fits(optimizer: Optimizer, group: dict[str, Any]) -> bool:
    """Whether a fused step can take a group's gradients."""
    trained = [p for p in group["params"] if p.grad is not None]
    states = [optimizer.state.get(p, {}) for p in trained]
    begun = {state.get("momentum_buffer") is not None for state in states}
    if any(p.grad.is_sparse for p in trained) or (group.get("momentum") and len(begun) > 1):
        return False
    buffers = [[state[name] for name in BUFFERS if state.get(name) is not None] for state in states]
    return all(_lie_alike(p, p.grad, *own) for p, own in zip(trained, buffers, strict=True))


def _lie_alike(first: Tensor, *others: Tensor) -> bool:
    """Whether tensors have their numbers in the same order in memory, without gaps."""
    if first.is_contiguous():
        return all(other.is_contiguous() for other in others)
    strides = first.stride()
    dense = torch.empty_like(first, device="meta").stride() == strides
    return dense and all(other.stride() == strides for other in others)


@cache
def stepping(kind: Any) -> Any:
    """The class of optimizers that take fused steps where these fit: a subclass, of the same name."""
    if not getattr(kind.step, "hooked", False):  # as an optimizer does that is made, and not read from a file
        kind.step = Optimizer.profile_hook_step(kind.step)
        kind.step.hooked = True

    def init_group(self: Any, group: dict[str, Any], *lists: Any) -> Any:
        found = kind._init_group(self, group, *lists)  # `step` reads group["fused"] after it
        if _is_fused(group) and not _fits(self, group):
            group["fused"] = None
        return found

    def step(self: Any, closure: Any = None) -> Any:
        groups = None if closure is not None or _is_watched(self) else _moments(self)
        if groups is None:
            return kind.step(self, closure)
        with torch.no_grad():
            for number, (group, moments) in enumerate(zip(self.param_groups, groups, strict=True)):
                if moments[0]:
                    _together(self, number, moments).add_(1)
                    _take(group, moments)
        return None

    def zero_grad(self: Any, set_to_none: bool = True) -> None:
        if not set_to_none or profiler._is_profiler_enabled:
            kind.zero_grad(self, set_to_none)
            return
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def reduced(self: Any, protocol: Any) -> Any:
        return _made, (kind,), self.__getstate__()

    step.hooked = True  # type: ignore[attr-defined]  # `kind.step` calls hooks: PyTorch need not wrap this too
    members = {"_init_group": init_group, "__reduce_ex__": reduced, "__module__": __name__, "twin_of": kind}
    if kind is not SGD:
        members |= {"step": step, "zero_grad": zero_grad}
    return type(kind.__name__, (kind,), members)


def _made(kind: Any) -> Any:
    made = stepping(kind)
    return made.__new__(made)


def _is_watched(optimizer: Any) -> bool:
    """Whether a step calls hooks, is profiled or compiled, or scales gradients."""
    own = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    shared = hooks._global_optimizer_pre_hooks or hooks._global_optimizer_post_hooks
    scaled = optimizer.__dict__.get("grad_scale") is not None or optimizer.__dict__.get("found_inf") is not None
    return bool(own or shared or scaled or profiler._is_profiler_enabled or torch.compiler.is_compiling())


Moments = list[list[Tensor]]  # parameters of a group that have gradients, these, both moments and counts of steps


def _moments(optimizer: Any) -> list[Moments] | None:
    """Those of each group; None where some are not there yet, and where a step is no single call."""
    groups: list[Moments] = []
    for group in optimizer.param_groups:
        numbers = (group["lr"], *group["betas"])
        if not _is_fused(group) or any(group[name] for name in PLAIN) or any(isinstance(n, Tensor) for n in numbers):
            return None
        params, grads, means, squares, counts = moments = [list[Tensor]() for _ in range(5)]
        state, dtype = optimizer.state, None
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            own, dtype = state.get(p), dtype or p.dtype
            if (
                not own
                or p.dtype is not dtype
                or grad.dtype is not dtype
                or not p.is_cpu
                or grad.layout != torch.strided
                or not _lie_alike(p, grad, mean := own["exp_avg"], square := own["exp_avg_sq"])
            ):
                return None
            params.append(p)
            grads.append(grad)
            means.append(mean)
            squares.append(square)
            counts.append(own["step"])
        groups.append(moments)
    return groups


def _together(optimizer: Any, number: int, moments: Moments) -> Tensor:
    """The counts of a group's steps as one tensor, of which those in the optimizer's state are parts."""
    params, counts = moments[0], moments[4]
    known = optimizer.__dict__.setdefault("_counts", {})
    whole, parts = known.get(number, (None, []))
    if len(parts) != len(counts) or not all(map(is_, parts, counts)):
        whole = torch.stack(counts)
        moments[4] = parts = [whole[place] for place in range(len(counts))]
        for p, part in zip(params, parts, strict=True):
            optimizer.state[p]["step"] = part
        known[number] = whole, parts
    return whole


def _take(group: dict[str, Any], moments: Moments) -> None:
    params, grads, means, squares, counts = moments
    (beta1, beta2), fused = group["betas"], torch._fused_adam_
    if group["decoupled_weight_decay"]:
        fused = torch._fused_adamw_
    fused(
        params, grads, means, squares, [], counts, lr=group["lr"], beta1=beta1, beta2=beta2,
        weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=group["maximize"],
    )  # fmt: skip
