"""Weights, gradients and the optimiser's memory that the ranks share out: each holds some rows of every tensor (FSDP2).

A checkpoint's files are those of one process: the first rank writes what all gather, and each reads its own rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor, nn

from edgewise.layers import MultiHeadAttention

# PyTorch's modules of shards take a second to import: functions that need one import it.
if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

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


def average_numbers(weights: Iterable[nn.Parameter]) -> None:
    """Average the gradients of weights that are one number over the ranks, as FSDP2 does those of all others."""
    for weight in weights:
        if weight.grad is not None and not is_shared(weight):
            dist.all_reduce(weight.grad)
            weight.grad /= dist.get_world_size()


def is_shared(value: Tensor | None) -> TypeGuard[DTensor]:
    """Whether each rank holds some rows of it."""
    return hasattr(value, "full_tensor")


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


def whole(value: Tensor) -> Tensor:
    """All rows of a tensor that is shared out; every rank calls it."""
    return value.full_tensor() if is_shared(value) else value


def like(value: Tensor, other: Tensor | None) -> Tensor:
    """A whole tensor shared out as another one is, if that is one of its shape."""
    if not is_shared(other) or is_shared(value) or value.shape != other.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    rows = distribute_tensor(value.to(other.device), other.device_mesh, other.placements, src_data_rank=None)
    return rows.clone()  # else all rows stay in memory


def read_rows(path: Path, other_of: Callable[[str], Tensor | None]) -> dict[str, Tensor]:
    """The tensors of a file by name, of each those rows that this rank holds of another one of its shape."""
    with safe_open(path, "pt") as file:
        return {name: like(file.get_tensor(name), other_of(name)) for name in file.keys()}  # noqa: SIM118 (no mapping)
