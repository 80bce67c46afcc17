"""What several ranks share while they train: gradients, statistics of batch norms, the rows of weights (FSDP2).

A checkpoint is that of one process: the first rank writes what all gather, and each reads its own rows.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor, nn

from edgewise.errors import ShapeError
from edgewise.layers import MultiHeadAttention


def is_dense(weight: Tensor) -> bool:
    """Whether a tensor's numbers fill their memory without gaps, each in a place of its own, in any order of the axes.

    >>> w = torch.zeros(3, 4)
    >>> is_dense(w), is_dense(w.T), is_dense(w[:, ::2]), is_dense(w[:, :1].expand(3, 4))
    (True, True, False, False)
    """
    place = 1
    for stride, size in sorted((s, n) for s, n in zip(weight.stride(), weight.shape, strict=True) if n != 1):
        if stride != place:
            return False
        place *= size
    return True


def laid_as(tensor: Tensor, weight: Tensor) -> Tensor:
    """The same numbers in the order in which a weight of this shape has its own.

    >>> laid_as(torch.zeros(3, 4), torch.zeros(4, 3).T).stride()
    (1, 3)
    """
    if tensor.stride() == weight.stride():
        return tensor
    return torch.empty_like(weight, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


# The last tensors that were sent. The group's threads let go of each a moment after its call has returned, and a
# thread that does so while Python ends aborts the process: `leave` waits for them.
SENT: deque[Tensor] = deque(maxlen=8)


def sent(value: Tensor) -> Tensor:
    """The same numbers as a tensor that nothing else refers to but `SENT` and, for a while, the group's threads."""
    SENT.append(value.detach())
    return SENT[-1]


class Gradients:
    """The gradients of a model's weights, which `add_up` replaces by their sums over all ranks.

    Edge cases  a weight without a gradient on some rank has that of the others; without any, none. What batch norms and
                the like remember is the first rank's on all ranks
    Cost        memory of one more gradient, and the bytes of all-reduce in one message for each dtype
    """

    def __init__(self, model: nn.Module) -> None:
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.buffers = list(model.buffers())
        for tensor in [*model.parameters(), *self.buffers]:
            dist.broadcast(tensor.detach(), src=0)

    @torch.no_grad()
    def add_up(self, loss: Tensor) -> Tensor:
        """Add up the gradients of all ranks, and their losses: the sum of these."""
        has = torch.tensor([float(weight.grad is not None) for weight in self.weights])
        own = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in self.weights]
        first = dist.get_rank() == 0
        seen = [buffer * first for buffer in self.buffers]  # of which the sum is the first rank's
        total, known, *sums = _summed([loss, has, *own, *seen])
        count = len(self.weights)
        for weight, gradient, ranks in zip(self.weights, sums[:count], known.tolist(), strict=True):
            weight.grad = laid_as(gradient, weight) if ranks else None
        for buffer, value in zip(self.buffers, sums[count:], strict=True):
            buffer.copy_(value)
        return total


def _summed(tensors: list[Tensor]) -> list[Tensor]:
    """The sums of tensors over all ranks, the same bits on each."""
    sums = list(tensors)
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        numbers = [number for number, tensor in enumerate(tensors) if tensor.dtype is dtype]
        flat = torch.cat([tensors[number].reshape(-1) for number in numbers])
        dist.all_reduce(sent(flat))
        for number, piece in zip(numbers, flat.split([tensors[number].numel() for number in numbers]), strict=True):
            sums[number] = piece.view(tensors[number].shape)
    return sums


def share_norms(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Let every batch norm of a model take its mean and variance over the nodes of all ranks while it trains."""
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm1d):
            norm.forward = partial(_shared, norm, norm.forward, group)  # type: ignore[method-assign]


def _shared(norm: nn.BatchNorm1d, alone: Callable[[Tensor], Tensor], group: dist.ProcessGroup, x: Tensor) -> Tensor:
    """y = (x - μ) / √(σ² + ε) ⊙ γ + β,  μ, σ² of each channel over all nodes of all ranks; x [*, N, C]."""
    if not norm.training:
        return alone(x)
    rows = x.flatten(0, -2)
    count = float(_total(torch.tensor(float(len(rows)), dtype=torch.float64, device=x.device), group))
    if count == 1:
        raise ShapeError("batch normalisation cannot train on a single node: it has no variance")
    mean = _total(rows.sum(0), group) / max(count, 1)
    centred = rows - mean
    variance = _total(centred.square().sum(0), group) / max(count, 1)
    _remember(norm, mean.detach(), variance.detach() * (count / max(count - 1, 1)))
    y = centred * (variance + norm.eps).rsqrt()
    return (y if norm.weight is None else y * norm.weight + norm.bias).view(x.shape)


@torch.no_grad()
def _remember(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics, as `nn.BatchNorm1d` does."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked += 1
    share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean, share)
    norm.running_var.lerp_(variance, share)


def _total(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    total: Tensor = _Total.apply(x, group)  # type: ignore[no-untyped-call]
    return total


class _Total(torch.autograd.Function):
    """The sum over all ranks, on all ranks, and so is its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _total(gradient, ctx.group), None


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
