"""Dropout by counter: whether a number survives is a hash of a seed and its place, so no mask is drawn or saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.checks import dense_tensor
from edgewise.graphs.derived import cached
from edgewise.graphs.tracing import is_traced
from edgewise.kernels.operator.layout import dtype_of, empty_like, expect
from edgewise.kernels.operator.operator import DTYPES, Arguments, Gradients, Operator, is_batched
from edgewise.native import library, threads


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Zero each number with probability p, and let the others grow to keep the mean.

    Equation    y = x z / (1 - p),  z ~ Bernoulli(1 - p) for each number of x, drawn by PyTorch's generator
    Shapes      x [*] -> [*]
    Errors      ShapeError for a p outside [0, 1]
    Edge cases  p = 0, or outside training -> x itself; a number that is dropped is 0 even if it was inf or NaN
    Cost        on the CPU a seed and one pass, forward and backward; PyTorch's own draws its numbers one after another,
                which takes longer than many a layer. Elsewhere, and compiled, it is PyTorch's own
    Reference   Srivastava et al., 2014; Salmon et al., 2011 (random numbers by counter)

    Example
        >>> x = torch.ones(10_000)
        >>> 0.45 < float((dropout(x, 0.5) == 0).double().mean()) < 0.55
        True
        >>> dropout(x, 0.5, training=False) is x
        True
    """
    if not dense_tensor(x, "x", "of features").is_floating_point():
        raise ShapeError(f"dropout scales floating-point numbers, not {str(x.dtype).removeprefix('torch.')}")
    if not isinstance(p, int | float) or not 0 <= p <= 1:
        raise ShapeError(f"dropout is a probability in [0, 1], not {p}")
    if not training or p == 0:
        return x
    if library is None or x.device.type != "cpu" or x.dtype not in DTYPES or is_traced() or p == 1:
        return functional.dropout(x, p)
    return drop(x, p, torch.randint(2**62, (1,)))


@cached
def _no_seed(graph: Graph) -> Tensor:
    return torch.zeros(1, dtype=torch.int64, device=graph.device)


def seed_for(graph: Graph, p: float) -> Tensor:
    """What a call's dropout is hashed from, drawn by PyTorch's generator, so that torch.manual_seed holds."""
    # Drawn on the graph's device: on a GPU each replay of a captured step draws other numbers.
    return torch.randint(2**62, (1,), device=graph.device) if p > 0 else _no_seed(graph)


def check_dropout(p: float, seed: Tensor) -> None:
    """Raise ShapeError for what the kernels cannot hash."""
    expect(0 <= p < 1, f"dropout is a probability in [0, 1), not {p}")
    right = seed is not None and seed.numel() == 1 and not seed.is_floating_point()
    expect(right, "seed must be a tensor of one whole number")


@dataclass(slots=True)
class Drop(Arguments):
    """x [*] of any shape; p in (0, 1); seed [1]."""

    x: Tensor
    p: float
    seed: Tensor

    differentiable: ClassVar[tuple[str, ...]] = ("x",)

    def empty(self) -> Tensor:
        return empty_like(self.x)

    def check(self) -> None:
        if not self.x.is_cuda:
            dtype_of("x", self.x)
        check_dropout(self.p, self.seed)

    def unread(self) -> tuple[str, ...]:
        return ("x", "results")


def drop(x: Tensor, p: float, seed: Tensor) -> Tensor:
    """Zero each number of x with probability p < 1, by the hash of its place; divide the others by 1 - p."""
    return _drop(Drop(x, p, seed))


def _compute(own: Drop) -> Tensor:
    if own.x.is_cuda:
        return dropped(own.x, own.p, own.seed)
    x, y = own.x.contiguous(), own.empty()
    library.drop(DTYPES[x.dtype], threads(x.numel()), int(own.seed), own.p, x.numel(), x.data_ptr(), y.data_ptr())
    return y


def _gradients(own: Drop, _: Any, dy: Tensor, __: Sequence[bool]) -> Gradients:
    if is_batched(dy):  # several gradients share what survives
        return [dy * drop(torch.ones(dy.shape, dtype=dy.dtype, device=dy.device), own.p, own.seed)]
    return [drop(dy, own.p, own.seed)]


_drop = Operator("drop", Drop, _compute, _gradients, on_cpu=True)


WORD = 2**32 - 1


def dropped(x: Tensor, p: float, seed: Tensor) -> Tensor:
    """The same as `drop` by PyTorch's operations."""
    place = torch.arange(x.numel(), device=x.device).view(x.shape)
    return torch.where(_hash(place, seed) >= int(p * 2**32), x / (1 - p), 0)


def drop_pairs(graph: Graph, p_ij: Tensor, p: float, seed: Tensor) -> Tensor:
    """Weights [B, E, H] after dropout, as kernels hash it from a receiver's number and a sender's."""
    batch, _, heads = p_ij.shape
    row = torch.arange(batch * heads).view(batch, 1, heads) * graph.num_receivers + graph.receivers.unsqueeze(-1)
    survives = _second(_first(graph.senders, seed).unsqueeze(-1) ^ _hash(row, seed)) >= int(p * 2**32)
    return p_ij * survives / (1 - p)


def _hash(place: Tensor, seed: Tensor) -> Tensor:
    """32 bits of a place of 64, with the seed's."""
    return _second(_first(place & WORD, seed) ^ (seed >> 32) ^ ((place >> 32) * 0x9E3779B9 & WORD))


def _first(x: Tensor, seed: Tensor) -> Tensor:
    x = x ^ (seed & WORD)
    x = (x ^ (x >> 16)) * 0x7FEB352D & WORD
    x = (x ^ (x >> 15)) * 0x846CA68B & WORD
    return x ^ (x >> 16)


def _second(x: Tensor) -> Tensor:
    x = (x ^ (x >> 16)) * 0x21F0AAAD & WORD
    x = (x ^ (x >> 15)) * 0xD35A2D97 & WORD
    return x ^ (x >> 15)
