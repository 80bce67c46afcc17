"""Weights, gradients and the optimiser's memory that the ranks share out: each holds some rows of every tensor (FSDP2).

A checkpoint's files are those of one process: every rank writes its rows where they belong, and reads what are its own.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.utils.checkpoint import checkpoint

from edgewise.errors import CheckpointError
from edgewise.graphs.store.layout import NAMES, as_array
from edgewise.layers import MultiHeadAttention
from edgewise.layers.plain.recomputation import restored

# PyTorch's modules of shards take a second to import: functions that need one import it.
if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

Tensors = Mapping[str, Tensor]
# What is called of a decoder block's cross-attention: the first, for all blocks, before the blocks are.
CALLED = "keys_and_values", "cross"


def shard(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with its weights shared out, block by block: a block's are gathered while it computes.

    Edge cases  weights that are one number are on every rank, and their gradients are summed by `average_numbers`
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    # FSDP2 warns of outputs that are views, whose gradients an operation in place would lose: no loss has one.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    numbers = {weight for weight in model.parameters() if weight.ndim == 0}
    own = (getattr(block, "cross", None) for block in blocks_of(model))
    crosses = [cross for cross in own if isinstance(cross, MultiHeadAttention)]
    for block in (*crosses, *blocks_of(model), model):
        if any(weight.ndim for weight in block.parameters()):
            fully_shard(block, mesh=mesh, ignored_params=numbers)
    for cross in crosses:
        for name in CALLED:
            register_fsdp_forward_method(cross, name)
    return model


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The layers that a model stacks."""
    return [block for part in model.children() if isinstance(part, nn.ModuleList) for block in part]


@contextmanager
def recomputed(model: nn.Module) -> Iterator[None]:
    """Within, each block of a model stores its inputs alone while it trains; backward computes the rest once more."""
    with ExitStack() as undone:
        for block in dict.fromkeys(blocks_of(model)):  # one that is stacked twice has one forward
            undone.callback(_restore, block, vars(block).get("forward"))
            again = partial(_contexts, block)
            block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=again)
        yield


def _restore(block: nn.Module, own: Any) -> None:
    """Give a block the forward of its class again, or the one that it had itself."""
    if own is None:
        del block.forward
    else:
        block.forward = own


def _contexts(block: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Those of a block's forward pass and of its recomputation, which begins with the same buffers."""
    return restored(), _Before(block) if torch.is_grad_enabled() else nullcontext()


class _Before:
    """A context, which may be entered many times, in which a block has copies of the buffers that it had at first."""

    def __init__(self, block: nn.Module) -> None:
        self.owners = [part._buffers for part in block.modules()]
        self.first = [{n: t.clone() for n, t in own.items() if t is not None} for own in self.owners]

    def __enter__(self) -> None:
        self.within = restored()
        self.within.__enter__()
        self.present = [dict(own) for own in self.owners]
        for own, first in zip(self.owners, self.first, strict=True):
            own.update({name: value.clone() for name, value in first.items()})

    def __exit__(self, *_: object) -> None:
        for own, present in zip(self.owners, self.present, strict=True):
            own.update(present)
        self.within.__exit__(None, None, None)


def average_numbers(weights: Iterable[nn.Parameter]) -> None:
    """Average the gradients of weights that are one number over the ranks, as FSDP2 does those of all others."""
    for weight in weights:
        if weight.grad is not None and not is_shared(weight):
            dist.all_reduce(weight.grad)
            weight.grad /= dist.get_world_size()


def is_shared(value: Tensor | None) -> TypeGuard[DTensor]:
    """Whether each rank holds some rows of it."""
    return hasattr(value, "to_local")


@contextmanager
def unsummed(model: FSDPModule) -> Iterator[None]:
    """Within, backward only adds up this rank's gradients."""
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Within, the weights of blocks stay once they are gathered: for many small calls, as of a search."""
    from torch.distributed.fsdp import FSDPModule

    parts = [part for part in model.modules() if isinstance(part, FSDPModule) and part is not model]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for part in parts:
            part.set_reshard_after_forward(True, recurse=False)
            part.reshard()


def local(value: Tensor) -> Tensor:
    """This rank's rows of a tensor that is shared out; any other as it is."""
    return value.to_local() if is_shared(value) else value


def total_norm(gradients: Iterable[Tensor]) -> Tensor:
    """The norm of all gradients of all ranks, on all ranks."""
    whole: list[Tensor] = []
    rows: list[Tensor] = []
    for gradient in gradients:
        (rows if is_shared(gradient) else whole).append(local(gradient))
    squares = get_total_norm(rows).square()
    dist.all_reduce(squares)
    return (squares + get_total_norm(whole).square() if whole else squares).sqrt()


def scale_down(gradients: Iterable[Tensor], factor: float) -> None:
    """Multiply gradients, wherever their rows are."""
    for gradient in gradients:
        local(gradient).mul_(factor)


def like(value: Tensor, other: Tensor) -> Tensor:
    """A whole tensor shared out as another one is."""
    if not is_shared(other) or is_shared(value):
        return value
    first, count = _own_rows(other)
    return _of_rows(value.narrow(0, min(first, len(value)), count).to(other.device).clone(), other)


def _own_rows(value: DTensor) -> tuple[int, int]:
    """The first row of a tensor that this rank holds, and how many."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    extent = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    return (extent[1][0], extent[0][0]) if extent[0][0] else (0, 0)


def _of_rows(rows: Tensor, other: DTensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    how: dict[str, Any] = {"run_check": False, "shape": other.shape, "stride": other.stride()}
    return DTensor.from_local(rows, other.device_mesh, other.placements, **how)


def read_rows(path: Path, other_of: Callable[[str], Tensor | None]) -> dict[str, Tensor]:
    """The tensors of a file by name, of each those rows that this rank holds of another one of its shape."""
    read: dict[str, Tensor] = {}
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (no mapping)
            other, rows = other_of(name), file.get_slice(name)
            if is_shared(other) and list(other.shape) == rows.get_shape():
                first, count = _own_rows(other)
                read[name] = _of_rows(rows[first : first + count].to(other.device), other)
            else:
                read[name] = file.get_tensor(name)
    return read


def allot(path: Path, tensors: Tensors) -> None:
    """Make a safetensors file with room for tensors: what it begins with, and zeros."""
    header, size = _header(tensors)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + size)


def write_rows(path: Path, tensors: Tensors, first: bool) -> None:
    """Write this rank's rows where they belong in a file that was `allot`ted; the first rank also what is whole."""
    header, _ = _header(tensors)
    known = json.loads(header[8:])
    with path.open("r+b") as file:
        for name, value in tensors.items():
            if not is_shared(value) and not first:
                continue
            start = _own_rows(value)[0] * prod(value.shape[1:]) * value.element_size() if is_shared(value) else 0
            file.seek(len(header) + known[name]["data_offsets"][0] + start)
            file.write(as_array(local(value).detach().cpu().contiguous().flatten()).tobytes())
        file.flush()
        os.fsync(file.fileno())


def _header(tensors: Tensors) -> tuple[bytes, int]:
    """What a safetensors file of these begins with, and the bytes of its data: wide types first, then by name."""
    known, start = {}, 0
    for name, value in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        if value.dtype not in NAMES:
            raise CheckpointError(f"cannot write {name!r} of {value.dtype}: safetensors has no such type")
        stop = start + value.numel() * value.element_size()
        known[name] = {"dtype": NAMES[value.dtype], "shape": list(value.shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(known).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, start
