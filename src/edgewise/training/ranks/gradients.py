"""Gradients of ranks on processors: one exchange a step adds up all that they share.

DistributedDataParallel sends buckets while backward runs. On a GPU that hides the network; where the same cores compute
and send it hides nothing, and its hooks cost more than a small model's step.
"""

from collections import deque

import torch
import torch.distributed as dist
from torch import Tensor, nn

from edgewise.training.layout import laid_as

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
