"""PyTorch's optimizers on the CPU, switched to PyTorch's own fused steps, which update all parameters in one call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

KINDS = (Adam, AdamW, SGD)


def refusal(optimizer: Any) -> str | None:
    """Why an optimizer's steps stay as they are."""
    if type(optimizer) not in KINDS:
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


def _is_fused(group: dict[str, Any]) -> bool:
    return bool(group.get("fused"))


def fuse(optimizer: Optimizer) -> None:
    """Let an optimizer take fused steps from now on, also after `load_state_dict`.

    Edge cases  steps that were counted in float64 are counted in float32, as fused steps need them; a group of SGD
                whose gradients are sparse takes its steps as before, and so do groups that are added later
    """
    if all(map(_is_fused, optimizer.param_groups)):
        return
    _choose(optimizer)
    optimizer.register_load_state_dict_post_hook(_choose)
    if type(optimizer) is SGD:
        optimizer.register_step_pre_hook(_leave_sparse)


def _choose(optimizer: Optimizer) -> None:
    if refusal(optimizer) is not None:
        return
    for group in optimizer.param_groups:
        group["fused"] = True
        for p in group["params"]:
            step = optimizer.state.get(p, {}).get("step")
            if isinstance(step, Tensor):
                optimizer.state[p]["step"] = step.to(torch.float32)


def _leave_sparse(optimizer: Optimizer, *_: Any) -> None:
    """Gradients that are sparse are not for fused steps."""
    for group in optimizer.param_groups:
        if _is_fused(group) and any(p.grad is not None and p.grad.is_sparse for p in group["params"]):
            group["fused"] = None
