"""Gradients of ranks on processors: one exchange a step adds up all that they share.

DistributedDataParallel sends buckets while backward runs. On a GPU that hides the network; where the same cores compute
and send it hides nothing, and its hooks cost more than a small model's step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from edgewise.training.optimizers.layout import laid_as
from edgewise.training.ranks.memory import KINDS, SharedSum, shared_sum

# Bytes of all ranks' messages up to which each rank sends its own to all others, 0.13 ms between two processes through
# gloo; `all_reduce`, whose messages are shorter and follow one another, takes 0.28 ms (two cores of an AMD EPYC).
SHORT = 1 << 18
# The last tensors that were sent. The group's threads let go of each a moment after its call has returned, and a
# thread that does so while Python ends aborts the process: `leave` waits for them.
SENT: deque[Tensor] = deque(maxlen=8)


def sent(value: Tensor) -> Tensor:
    """The same numbers as a tensor that nothing else refers to but `SENT` and, for a while, the group's threads."""
    SENT.append(value.detach())
    return SENT[-1]


class Gradients:
    """The gradients of a model's weights, which `add_up` replaces by their sums over all ranks.

    Symbols     weights = those that are trained; buffers = what batch norms and the like remember, the first rank's on
                all ranks
    Edge cases  a weight without a gradient on some rank has that of the others; without any, none
    Cost        ranks of one machine: see `SharedSum`, no more memory; else memory of one more gradient, and on the way
                the bytes of all-reduce, in one message for each dtype
    """

    def __init__(self, model: nn.Module) -> None:
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.buffers = list(model.buffers())
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.flat: dict[torch.dtype, Tensor] = {}  # what is sent, in the same memory at every step
        for tensor in [*model.parameters(), *self.buffers]:
            dist.broadcast(tensor.detach(), src=0)
        known = all(weight.dtype in KINDS for weight in self.weights)
        # With them go the loss and which weights have a gradient: two tensors of at most as many numbers.
        self.shared = shared_sum([*self.weights, *self.buffers, torch.zeros(len(self.weights) + 32)]) if known else None

    @torch.no_grad()
    def add_up(self, loss: Tensor) -> Tensor:
        """Add up the gradients of all ranks, and their losses: the sum of these."""
        if self.shared is not None and all(buffer.is_contiguous() for buffer in self.buffers):
            return self._add_up_in_place(self.shared, loss)
        has = torch.tensor([float(weight.grad is not None) for weight in self.weights])
        own = [weight.new_zeros(weight.shape) if weight.grad is None else weight.grad for weight in self.weights]
        seen = self.buffers if self.rank == 0 else [torch.zeros_like(buffer) for buffer in self.buffers]
        total, known, *sums = self._summed([loss, has, *own, *seen])
        count = len(self.weights)
        for weight, gradient, ranks in zip(self.weights, sums[:count], known.tolist(), strict=True):
            weight.grad = laid_as(gradient, weight) if ranks else None
        for buffer, first in zip(self.buffers, sums[count:], strict=True):
            buffer.copy_(first)
        return total

    def close(self) -> None:
        """Let go of the memory that the ranks share, which would stay until the process has ended."""
        self.shared = None

    def _add_up_in_place(self, shared: SharedSum, loss: Tensor) -> Tensor:
        gradients = [weight.grad for weight in self.weights]
        own = [
            torch.zeros_like(weight, memory_format=torch.contiguous_format)
            if gradient is None
            else gradient.contiguous()
            for weight, gradient in zip(self.weights, gradients, strict=True)
        ]
        total, has = loss.clone(), torch.tensor([float(gradient is not None) for gradient in gradients])
        shared.add_up([total, has, *own], self.buffers)
        for weight, gradient, ranks in zip(self.weights, own, has.tolist(), strict=True):
            if ranks:
                weight.grad = laid_as(gradient, weight)
        return total

    def _summed(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums of tensors over all ranks, which lie in `flat` until the next step."""
        alike: dict[torch.dtype, list[int]] = {}
        for number, tensor in enumerate(tensors):
            alike.setdefault(tensor.dtype, []).append(number)
        sums = list(tensors)
        for dtype, numbers in alike.items():
            rows = [tensors[number].reshape(-1) for number in numbers]
            if dtype not in self.flat:
                self.flat[dtype] = torch.cat(rows)
            flat = torch.cat(rows, out=self.flat[dtype])
            self._add(flat)
            for number, piece in zip(numbers, flat.split([len(row) for row in rows]), strict=True):
                sums[number] = piece.view(tensors[number].shape)
        return sums

    def _add(self, flat: Tensor) -> None:
        """Replace numbers by their sums over all ranks, in the same order on each."""
        if flat.numel() * flat.element_size() * self.size > SHORT:
            dist.all_reduce(sent(flat))
            return
        to_each, of_each = flat.expand(self.size, -1).contiguous(), flat.new_empty(self.size, len(flat))
        dist.all_to_all_single(sent(of_each), sent(to_each))
        torch.sum(of_each, 0, dtype=flat.dtype, out=flat)
