"""How many weights a model has, before they take memory."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from edgewise.errors import ConfigError, EdgewiseError
from edgewise.memory import check_fits

M = TypeVar("M", bound=nn.Module)
SMALL = 1 << 28  # bytes of a model that is built at once; a larger one is counted first, on the meta device
MAX_TENSORS = 1 << 14  # of one model: a block of a transformer has 16, and takes 3 ms to make
CONSTRUCTORS = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye, torch.arange}


def build(make: Callable[[], M], what: str) -> M:
    """What `make` builds, a model, unless its weights do not fit into this machine's memory.

    Symbols     what = the model, for the message
    Errors      ConfigError with the number of weights, if they take more than a share of the memory; or for more than
                `MAX_TENSORS` tensors
    Edge cases  weights are drawn as without this
    Cost        memory beyond `SMALL` bytes only where the model fits

    Example
        >>> build(lambda: nn.Linear(10**7, 10**7), "the layer")
        Traceback (most recent call last):
            ...
        edgewise.errors.ConfigError: the layer has 100,000,010,000,000 weights...
    """
    state = torch.get_rng_state()
    try:
        with _Small(), _counted(what):
            return make()
    except _Large:
        outline(make, what)
    torch.set_rng_state(state)
    return make()


def outline(make: Callable[[], M], what: str) -> M:
    """The model that `make` builds, with the shapes of its weights and without their values.

    Symbols     what = the model, for the message
    Errors      as `build`
    Edge cases  it draws no random number
    Cost        time O(tensors), no memory for values

    Example
        >>> outline(lambda: nn.Linear(1000, 10**6), "the layer").weight.shape
        torch.Size([1000000, 1000])
    """
    try:
        with torch.device("meta"), _WithoutValues(), torch.random.fork_rng(devices=[]), _counted(what):
            model = make()
    except (RuntimeError, OverflowError) as error:
        if isinstance(error, EdgewiseError):
            raise
        raise ConfigError(f"{what} has weights of an impossible size: {' '.join(str(error).split())[:200]}") from error
    held = [*model.parameters(), *model.buffers()]
    weights = sum(value.numel() for value in held)
    size = sum(value.nbytes for value in held)
    check_fits(size, "{} has {:,} weights: holding them", what, weights, error=ConfigError)
    return model


class _Large(Exception):
    """A model takes more than `SMALL` bytes."""


class _Small(TorchFunctionMode):
    """Stops before the tensors that are made within take more than `SMALL` bytes together."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in CONSTRUCTORS:
            try:
                self.size += func(*args, **{**kwargs, "device": "meta"}).nbytes
            except (RuntimeError, OverflowError) as error:
                raise _Large from error
            if self.size > SMALL:
                raise _Large
        return func(*args, **kwargs)


class _WithoutValues(TorchFunctionMode):
    """Draws no initial values: on the meta device there are none, and PyTorch would load its compiler to draw them."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tensor = args[0] if args else (kwargs or {}).get("tensor")
        draws = getattr(func, "__module__", None) == "torch.nn.init" or getattr(func, "__name__", "") == "normal_"
        if draws and isinstance(tensor, Tensor) and tensor.is_meta:
            return tensor
        return func(*args, **(kwargs or {}))


def _counted(what: str) -> ExitStack:
    """Within it, the tensors of weights are counted."""
    tensors, weights, stack = 0, 0, ExitStack()

    def count(module: nn.Module, name: str, value: Tensor | None) -> None:
        nonlocal tensors, weights
        tensors, weights = tensors + 1, weights + (0 if value is None else value.numel())
        if tensors > MAX_TENSORS:
            raise ConfigError(f"{what} has more than {MAX_TENSORS:,} tensors, and {weights:,} weights in those alone")

    stack.callback(register_module_parameter_registration_hook(count).remove)
    return stack
