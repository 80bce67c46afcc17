"""PyTorch's optimisers without the wrappers through which each imports torch.compile."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch.optim import Optimizer

AnOptimizer = TypeVar("AnOptimizer", bound=Optimizer)


def uncompiled(kind: type[AnOptimizer]) -> type[AnOptimizer]:
    """The same optimiser, which does not import the compiler (4 s of processor time) to be left alone by it."""
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict", "step")
    methods: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    methods["step"] = torch.no_grad()(methods["step"])
    named = {name: getattr(kind, name) for name in ("__doc__", "__module__", "__qualname__")}
    return cast("type[AnOptimizer]", type(kind.__name__, (kind,), methods | named))


def loss_of(closure: Callable[[], Any] | None) -> Any:
    """What `Optimizer.step` returns: the loss that a closure computes anew, with its gradients; None without one."""
    with torch.enable_grad():
        return None if closure is None else closure()
