"""Memory that the ranks of one machine share, through which they add up what each has: no network is in between."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from edgewise import native

LINE = 64  # bytes to which every tensor begins in a message
# Most bytes that a rank passes on at once. The ranks meet once for each such part of a message, which on cores that
# other programs use takes milliseconds: 3.2 MB take 0.9 ms at once, and 15 in parts of 1 MB (two cores, load 8).
MOST = 1 << 24
KINDS = {torch.float32: 0, torch.float64: 1}
OF_THE_FIRST = 2
# Microseconds for which a rank waits for another awake: most waits of ranks that have a core each are shorter, and to
# wake a process takes 50 µs on two cores of an AMD EPYC; those that share a core let each other run.
AWAKE, CROWDED = 2000, 100


class SharedSum:
    """Sums of tensors over all ranks, in place, the same bits on each: rank 0's plus rank 1's, and so on.

    Equation    x ← Σ_r x_r of each of `sums`; x ← x_0, those of the first rank, of each of `copies`
    Cost        a rank writes its numbers once and reads those of two, or the same shares of all and their sums; memory
                for all of P ranks 2 (P + 1) `window` bytes, of which a small message touches a small part
    Symbols     file = the memory, which all have open; processes = descriptors of all ranks' processes, which it
                closes; window = bytes that a rank passes on at once, a multiple of 64
    Errors      RuntimeError "Connection closed", as gloo has it, where the process of another rank has ended
    """

    def __init__(self, file: int, rank: int, processes: list[int], window: int) -> None:
        own_cores = len(os.sched_getaffinity(0)) >= len(processes)
        self.native = native.library.SharedSum(file, rank, processes, window, AWAKE if own_cores else CROWDED)

    def add_up(self, sums: Iterable[Tensor], copies: Iterable[Tensor] = ()) -> None:
        """Every rank gives as many contiguous tensors of the same shapes; `sums` are float32 or float64."""
        given = [(tensor.data_ptr(), tensor.nbytes, KINDS[tensor.dtype]) for tensor in sums]
        given += [(tensor.data_ptr(), tensor.nbytes, OF_THE_FIRST) for tensor in copies]
        self.native.add_up(given)


def shared_sum(tensors: Iterable[Tensor] = ()) -> SharedSum | None:
    """What adds up such tensors through shared memory; None where not all ranks are of one `torchrun` on Linux.

    The file has no name: nothing of it is left, however the processes end.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    together = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE") == str(size)
    if not (together and hasattr(native.library, "SharedSum") and hasattr(os, "memfd_create")):
        return None
    needed = sum(tensor.nbytes + LINE for tensor in tensors)
    window = min(MOST, max(1 << 16, (needed + LINE - 1) // LINE * LINE))
    file = _created(size, window) if rank == 0 else -1
    known = [torch.zeros(2, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(known, torch.tensor([os.getpid(), file]))
    made: SharedSum | None = None
    opened: list[int] = []
    try:
        if rank > 0:
            first, place = known[0].tolist()
            file = os.open(f"/proc/{first}/fd/{place}", os.O_RDWR)
        for process, _ in known:
            opened.append(os.pidfd_open(int(process)))
        made = SharedSum(file, rank, opened, window)
    except (OSError, RuntimeError):  # a machine that does not allow it, or has no memory for it
        pass
    everywhere = torch.tensor(int(made is not None))
    dist.all_reduce(everywhere, dist.ReduceOp.MIN)
    if file >= 0:
        os.close(file)
    for process in opened if made is None else ():
        os.close(process)
    return made if everywhere else None


def _created(size: int, window: int) -> int:
    """A file in memory that is large enough; -1 where there is none."""
    try:
        file = os.memfd_create("edgewise")
        os.ftruncate(file, native.library.SharedSum.bytes_of(size, window))
    except OSError:
        return -1
    return file
