"""What runs eagerly and what is traced: by torch.compile, exports, `torch.func` and forward-mode derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_batchedtensor, is_functorch_wrapped_tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from edgewise.errors import GraphError

P = ParamSpec("P")
T = TypeVar("T")

PLAIN = (Tensor, torch.nn.Parameter)
AS_IT_IS = nullcontext()


def is_transformed() -> bool:
    """Whether `torch.func`'s transforms (grad, jvp, vmap, ...) or forward-mode derivatives are being taken."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_traced() -> bool:
    """Whether torch.compile or torch.func reads the code instead of running it: they see PyTorch's operations only."""
    return torch.compiler.is_compiling() or is_transformed()


def is_real(x: Tensor) -> bool:
    """Whether a tensor has numbers that may be looked at now: nothing traces it, and it is no fake one."""
    return type(x) in PLAIN and not is_traced()


def untransformed(inputs: object) -> AbstractContextManager[object]:
    """Compute on plain tensors what outlives the transformation in which it is first read.

    Symbols     inputs = the tensors that are read, in any nest; where they are traced, so is what follows from them
    Cost        0.2 µs; without gradients 1 µs; inside `torch.func`'s transforms, an export or a fake mode, 20 µs
    """
    if torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack():
        return _without_modes(inputs)
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        return AS_IT_IS
    return torch.inference_mode(False)  # first read in evaluation, it serves a backward pass later


def lastingly(build: Callable[[object], T], owner: object) -> T:
    """What follows from the tensors of an object, computed `untransformed`."""
    context = untransformed(vars(owner))
    if context is AS_IT_IS:  # whose methods would be two more calls
        return build(owner)
    with context:
        return build(owner)


def constant(function: Callable[P, T]) -> Callable[P, T]:
    """`functools.lru_cache` of tensors that follow from plain arguments: real ones, even where an export asks first."""

    @lru_cache
    @wraps(function)
    def computed(*arguments: P.args, **named: P.kwargs) -> T:
        with untransformed(()):
            return function(*arguments, **named)

    return cast(Callable[P, T], computed)


@contextmanager
def _without_modes(inputs: object) -> Iterator[None]:
    with ExitStack() as entered:
        entered.enter_context(torch.inference_mode(False))
        if torch._C._are_functorch_transforms_active():
            entered.enter_context(temporarily_clear_interpreter_stack())
        if _is_within_mode() and not _holds_traced(inputs):
            entered.enter_context(_disable_current_modes())
        yield


def _is_within_mode() -> bool:
    """Whether a mode turns all tensors into traced ones: an export's, or that of fake tensors."""
    keys = torch._C._TorchDispatchModeKey
    return bool(torch._C._len_torch_dispatch_stack()) and any(
        torch._C._get_dispatch_mode(key) is not None for key in (keys.FAKE, keys.PROXY, keys.FUNCTIONAL)
    )


def _holds_traced(value: object) -> bool:
    if isinstance(value, Tensor):
        return type(value) not in PLAIN
    several = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return any(map(_holds_traced, several))


def plain(value: T) -> T:
    """Integers, or a tuple of them, as they are outside of `torch.func`'s transforms, which a graph outlives."""
    if torch.compiler.is_dynamo_compiling() or not torch._C._are_functorch_transforms_active():
        return value
    if isinstance(value, tuple):
        return tuple(map(plain, value))  # type: ignore[return-value]
    while isinstance(value, Tensor) and is_functorch_wrapped_tensor(value):
        if is_batchedtensor(value):
            raise GraphError("vmap cannot batch a graph, which is one for the whole batch; Graph.batch joins several")
        value = get_unwrapped(value)  # type: ignore[assignment]
    return value


def lasting(value: T) -> T:
    """Tensors that outlive what they are made in: `plain` ones, and copies of those that inference mode has made."""
    if isinstance(value, tuple):
        return tuple(map(lasting, value))  # type: ignore[return-value]
    if not isinstance(value, Tensor):
        return value
    value = plain(value)
    if type(value) in PLAIN and not torch.compiler.is_dynamo_compiling() and value.is_inference():
        with untransformed(value):
            return value.clone()  # type: ignore[return-value]
    return value
