"""A ring of ranks: each passes what it holds to the next one, until all have read everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from edgewise.graphs.partition.halo import Group, Halo


@dataclass(frozen=True)
class Ring:
    """The ranks of a group in a circle.

    Symbols     sizes = how many rows each rank holds, at least one
    Cost        a rank needs memory for two blocks of rows at a time, however many ranks there are
    """

    group: Group
    sizes: tuple[int, ...]

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    def passed(self, block: Tensor, axis: int, behind: int, tag: int = 0) -> Callable[[], Tensor]:
        """Send a block to the next rank, while it computes; what is returned waits for the one before's.

        Symbols     behind = how many ranks further back the rank is whose rows arrive; tag tells apart what passes at
                    the same time
        """
        size, rank = len(self.sizes), self.rank
        shape = list(block.shape)
        shape[axis] = self.sizes[(rank - behind) % size]
        block, arriving = block.contiguous(), block.new_empty(shape)
        Halo.sent += block.numel() * block.element_size()
        after, before = (_number(self.group, (rank + step) % size) for step in (1, -1))
        sending = dist.P2POp(dist.isend, block.view(-1).view(torch.uint8), after, self.group, tag)
        taking = dist.P2POp(dist.irecv, arriving.view(-1).view(torch.uint8), before, self.group, tag)
        return partial(_wait, dist.batch_isend_irecv([sending, taking]), block, arriving)


def _wait(works: Sequence[dist.Work], leaving: Tensor, arriving: Tensor) -> Tensor:
    """What arrives, once all has; what leaves must be there until then."""
    for work in works:
        work.wait()
    return arriving


def _number(group: Group, rank: int) -> int:
    """A rank's number among all processes."""
    return rank if group is None else dist.get_global_rank(group, rank)
