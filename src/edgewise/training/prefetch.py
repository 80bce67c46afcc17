"""Batches of the next steps, made by threads while this step trains."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class Prefetch(Generic[T]):
    """`prefetch(step)` is `make(step)`, for steps requested in turn; threads have made it by then.

    Symbols     make = what makes the batch of a step; last = the last step; workers = number of threads, at least 1
    Errors      what `make` raised, when its step is requested
    Edge cases  the first step is made at once, so that what `make` caches is there before several threads need it
    Cost        memory of 2 * workers - 1 batches beside the one that trains. A worker runs PyTorch and the C++ kernels
                on one thread; both let go of Python's lock

    `make` may be called by several threads at once, for different steps, and must give the same whoever calls it.

    Example
        >>> from contextlib import closing
        >>> with closing(Prefetch(lambda step: f"batch {step}", last=3, workers=2)) as prefetch:
        ...     [prefetch(step) for step in (1, 2, 3)]
        ['batch 1', 'batch 2', 'batch 3']
    """

    def __init__(self, make: Callable[[int], T], last: int, workers: int) -> None:
        self.make, self.last, self.ahead = make, last, 2 * workers - 1
        self.waiting: dict[int, Future[T]] = {}
        self.pool = ThreadPoolExecutor(workers, "batches")
        count, together = torch.get_num_threads(), Barrier(workers, timeout=60)
        for job in [self.pool.submit(_keep_to_one_thread, together) for _ in range(workers)]:
            job.result()
        torch.set_num_threads(count)  # MKL has one number for all threads, which the workers have just set

    def __call__(self, step: int) -> T:
        made = self.waiting.pop(step, None)
        if made is None:
            made = Future[T]()
            made.set_result(self.make(step))
        for later in range(step + 1, min(step + self.ahead, self.last) + 1):
            if later not in self.waiting:
                self.waiting[later] = self.pool.submit(self.make, later)
        return made.result()

    def close(self) -> None:
        """Wait for the batches that are being made, make no more, and end the threads."""
        self.pool.shutdown(cancel_futures=True)


def _keep_to_one_thread(together: Barrier) -> None:
    """In a worker: once every worker is here, each with its own number of threads for OpenMP."""
    together.wait()
    torch.get_num_threads()  # PyTorch gives a new thread the common number here, so later it would undo the next line
    torch.set_num_threads(1)
