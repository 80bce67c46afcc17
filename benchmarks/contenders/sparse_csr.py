"""PyTorch's CSR product (MKL where it is built in), the matrix and its transpose made once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.inputs import Inputs, Product
from edgewise.graphs import Graph


def refuses(inputs: Inputs) -> str | None:
    """Takes products."""
    return None if isinstance(inputs, Product) else "takes weighted sums"


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """A X forward, Aᵀ G backward."""
    assert isinstance(inputs, Product)
    run = product(inputs.graph, inputs.weight)
    return lambda: run(inputs.x)


def product(graph: Graph, weight: Tensor) -> Callable[[Tensor], Tensor]:
    """A X of a graph with a number on each edge, as a function of X that has a gradient."""
    transpose, order = graph.transpose()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the layout is in beta, says PyTorch
        matrices = [
            torch.sparse_csr_tensor(g.offsets.int(), g.senders.int(), w, (g.num_receivers, g.num_senders))
            for g, w in ((graph, weight), (transpose, weight[order]))
        ]

    class Multiply(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return matrices[0] @ x

        @staticmethod
        def backward(ctx: Any, *grad: Tensor) -> Tensor:
            return matrices[1] @ grad[0]

    return lambda x: Multiply.apply(x)  # type: ignore[no-untyped-call]
