"""Ranks that are forks of one process, which has imported PyTorch for all of them; `torchrun` would start each anew."""

import os
import socket
from collections.abc import Callable

from edgewise.training.distributed import leave


def imported_once() -> None:
    """Import what FSDP2 and recomputation would import on every rank: a second of processor time each."""
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.tensor  # noqa: F401


def ranks(size: int, action: Callable[[], object]) -> list[int]:
    """Start an action on every rank of a world; the numbers of the processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "LOCAL_RANK": str(rank)}
            os.environ |= place | {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
            try:
                action()
                leave()
                os._exit(0)
            finally:
                os._exit(1)
        started.append(child)
    return started


def ended(started: list[int]) -> None:
    """Wait for processes; all must have done what they were started for."""
    codes = [os.waitpid(child, 0)[1] for child in started]
    assert not any(codes), codes
