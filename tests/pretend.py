"""A card where there is none: tensors of the CPU that say they are on `cuda` and may not meet those that do not.

    with Card():
        y = layer.to("cuda")(graph.to("cuda"), x.to("cuda"))

An operation on tensors of both devices, a pointer or an array taken of a tensor on the card, and a generator of the
wrong device are AssertionErrors, as they are errors (or waits) on a real one. What a backward pass does inside PyTorch
is not watched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves

from edgewise.kernels.backends.cuda import programs as gpu

CARD = torch.device("cuda", 0)
# These may cross from one device to the other; an LSTM reads on the CPU how many sequences each step has.
COPIES = {Tensor.copy_, Tensor.data.__set__, Tensor.grad.__set__, torch._has_compatible_shallow_copy_type, torch.lstm}
TAKEN = {Tensor.numpy, Tensor.data_ptr, Tensor.__array__}  # these need the memory of the CPU


class OnCard(Tensor):
    """A tensor on the card: in truth the CPU's memory."""

    device = CARD
    is_cuda = True


class Generator(torch.Generator):
    """The CPU's, which says where it is."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls)
        made.place = torch.device(device)
        return made

    def manual_seed(self, seed: int) -> Generator:
        super().manual_seed(seed)
        return self

    @property
    def device(self) -> torch.device:
        return self.place


class Watch(TorchFunctionMode):
    """Carries out every function on the CPU, and complains where a card could not."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        here = [type(x) is not OnCard for x in tree_leaves((args, kwargs)) if _counts(x)]
        name = resolve_name(func) or repr(func)
        if func in (Tensor.to, Tensor.cpu, Tensor.cuda):
            return _moved(func, args, kwargs)
        if torch._C._current_graph_task_id() == -1:  # not inside a backward pass
            assert func in COPIES or all(here) or not any(here), f"{name}: two devices"
            assert func not in TAKEN or all(here), f"{name} of a tensor on the card"
        if func == Tensor.grad.__get__ and (grad := func(*args)) is not None:
            return _tagged(grad, args[0].device)
        if kwargs.get("device") is None:
            return func(*args, **kwargs)
        device, generator = torch.device(kwargs["device"]), kwargs.get("generator")
        assert generator is None or generator.device.type == device.type, f"{name}: the generator's device"
        return _tagged(func(*args, **kwargs | {"device": "cpu"}), device)


def _counts(x: Any) -> bool:
    """A single number of the CPU goes anywhere; a sparse matrix does not say where its parts are."""
    return isinstance(x, Tensor) and x.layout is torch.strided and (x.ndim > 0 or type(x) is OnCard)


def _moved(func: Any, args: Any, kwargs: Any) -> Tensor:
    """`x.to(...)`, to the device named or that of another tensor, else where x is."""
    x, *rest = args
    device = torch.device("cpu") if func is Tensor.cpu else CARD if func is Tensor.cuda else x.device
    for given in (*rest, *kwargs.values()):
        if isinstance(given, Tensor):
            device = given.device
        elif isinstance(given, torch.device) or (isinstance(given, str) and given):
            device = torch.device(given)
    if func is not Tensor.to:
        rest, kwargs = ["cpu"], {}
    rest = [_on_cpu(given) for given in rest]
    with torch._C.DisableTorchFunctionSubclass():
        y = x.to(*rest, **{name: _on_cpu(given) for name, given in kwargs.items()})
        y = y.clone() if y is x and device != x.device else y
    return _tagged(y, device)


def _on_cpu(given: Any) -> Any:
    return torch.device("cpu") if isinstance(given, torch.device | str) else given


def _tagged(y: Tensor, device: torch.device) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        kind = OnCard if device.type == "cuda" else Tensor
        return y if type(y) is kind or (kind is Tensor and isinstance(y, nn.Parameter)) else y.as_subclass(kind)


def _watched(run: Any) -> Any:
    """The engine with a watch of its own: the one outside looks away while a function that it sees is carried out."""

    def watched(*args: Any, **kwargs: Any) -> Any:
        with Watch():
            return run(*args, **kwargs)

    return watched


@contextmanager
def Card() -> Iterator[None]:  # noqa: N802 (a place to be in)
    """Within, `cuda` is a device. Triton's kernels stay out: they would run on memory that is not there."""
    run_backward = torch.autograd._engine_run_backward
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    answers = {"device_count": 1, "get_rng_state": torch.zeros(16, dtype=torch.uint8), "set_rng_state": None}
    with ExitStack() as patched:
        patched.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrites)
        patched.enter_context(mock.patch.object(gpu, "INSTALLED", False))
        patched.enter_context(mock.patch.object(torch.backends.cudnn, "is_acceptable", return_value=False))
        patched.enter_context(mock.patch.object(torch, "Generator", Generator))
        patched.enter_context(mock.patch.object(torch.autograd, "_engine_run_backward", _watched(run_backward)))
        for name, answer in (answers | {"manual_seed": None}).items():
            patched.enter_context(mock.patch.object(torch.cuda, name, return_value=answer))
        patched.enter_context(Watch())
        yield
