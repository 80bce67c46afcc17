"""How many threads a training step is worth.

Their number sets the order of sums, so it follows from the work of a step and never from a clock: a run repeats.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# A region of two threads begins and ends in 5 to 15 µs on two cores of an AMD EPYC, and in milliseconds where other
# programs use them: a thread must have this much of the mean operation to do.
WORTH = 25e-6  # seconds
FLOPS, BYTES = 8e10, 1e10  # a second, of one such core in float32: matrix products, and all other operations


def worthwhile(compute: Callable[[], object], most: int) -> int:
    """The number of threads, from 1 to `most`, of which each has WORTH of a computation's mean operation to do.

    Edge cases  one pass is carried out to count its operations: it follows from shapes alone, whatever else runs
    Example
        >>> small, large = torch.zeros(8, 8), torch.zeros(1000, 1000)
        >>> worthwhile(lambda: small @ small, most=4), worthwhile(lambda: large @ large, most=4)
        (1, 4)
    """
    if most == 1:
        return 1
    with _Work() as work, torch.no_grad(), torch.random.fork_rng(devices=[]):
        compute()
    return max(1, min(most, int(work.seconds / max(1, work.operations) / WORTH)))


class _Work(TorchDispatchMode):
    """Counts what is carried out inside: operations, and the seconds that they would take on one thread."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations, self.seconds = 0, 0.0


def _count(work: _Work, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    y = func(*args, **(kwargs or {}))
    if not func.is_view:
        moved = sum(x.numel() * x.element_size() for x in tree_leaves((args, kwargs, y)) if isinstance(x, Tensor))
        work.operations += 1
        work.seconds += moved / BYTES + _flops(func.__name__.split(".")[0], args, y) / FLOPS
    return y


# Outside of the class: what is defined inside, PyTorch wraps so that the first operation imports the compiler (1.1 s).
_Work.__torch_dispatch__ = _count  # type: ignore[assignment, method-assign]


def _flops(name: str, args: Any, y: Any) -> int:
    """Multiplications and additions of a product; 0 of any other operation, whose bytes count."""
    if name in ("mm", "bmm"):
        return 2 * y.numel() * args[0].shape[-1]
    if name in ("addmm", "baddbmm"):
        return 2 * y.numel() * args[1].shape[-1]
    if name == "convolution":
        return 2 * y.numel() * prod(args[1].shape[1:])
    if name.startswith("_scaled_dot_product"):
        return 4 * args[0].numel() * args[1].shape[-2]
    return 0
