"""Dropout by counter: whether a number is kept is a hash of a seed and its place, so no mask is drawn or saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.kernels.operator.operator import DTYPES, Operator
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
    if not 0 <= p <= 1:
        raise ShapeError(f"dropout is a probability in [0, 1], not {p}")
    if not training or p == 0:
        return x
    if library is None or x.device.type != "cpu" or x.dtype not in DTYPES or torch.compiler.is_compiling() or p == 1:
        return functional.dropout(x, p)
    return drop(x, p, torch.randint(2**62, (1,)))


def seed_for(graph: Graph, p: float) -> Tensor:
    """What a call's dropout is hashed from, drawn by PyTorch's generator, so that torch.manual_seed holds."""
    if p > 0:
        return torch.randint(2**62, (1,), device=graph.device)  # on a GPU a captured step draws anew
    return graph.memo("no seed", lambda: torch.zeros(1, dtype=torch.int64, device=graph.device))


def _drop(x: Tensor, p: float, seed: Tensor) -> Tensor:
    if x.is_cuda:
        from edgewise.kernels.backends.cuda.programs import dropout as on_gpu

        with torch.cuda.device_of(x):
            return on_gpu.drop(x, p, seed)
    x = x.contiguous()
    y = torch.empty_like(x)
    library.drop(DTYPES[x.dtype], threads(), int(seed), p, x.numel(), x.data_ptr(), y.data_ptr())  # type: ignore[union-attr]
    return y


def _save(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    _, ctx.p, seed = inputs
    ctx.save_for_backward(seed)


def _gradient(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
    return drop(dy, ctx.p, *ctx.saved_tensors), None, None


drop = Operator(
    "drop",
    "(Tensor x, float p, Tensor seed) -> Tensor",
    _drop,
    lambda x, p, seed: torch.empty_like(x, memory_format=torch.contiguous_format),
    _save,
    _gradient,
)
