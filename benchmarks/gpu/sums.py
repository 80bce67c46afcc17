"""Sums, means and maxima of neighbours on a large graph, beside cuSPARSE and PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.problems import CRASHED, LIMITS, Refusal, Row
from benchmarks.gpu.sparse import DRY, SIZES, compiled, power_law
from benchmarks.gpu.timing import BrokenError, Device, Turns, stopped
from edgewise.graphs import Graph
from edgewise.kernels import aggregate

Sum = Callable[[Tensor], Tensor]
CHUNK = 2**20  # edges that the oracle takes at a time


def cusparse(graph: Graph, weight: Tensor, reduce: str, device: Device) -> Sum:
    """torch.sparse_csr_tensor @ x, the matrix and its transpose made once, with numbers of 32 bits."""
    from benchmarks.contenders.sparse.sparse_csr import product

    if reduce == "max":
        raise Refusal("cuSPARSE has no maximum")
    if reduce == "mean":
        weight = weight / graph.in_degrees().clamp(min=1).to(weight.dtype)[graph.receivers]
    dtype, weight = weight.dtype, weight.float()  # with numbers of bfloat16 this case did not end in 85 s on an H100
    run = product(graph, weight)
    return lambda x: run(x.float()).to(dtype)


def pyg(graph: Graph, weight: Tensor, reduce: str, device: Device, compile: bool = False) -> Sum:
    """Gather and scatter, as PyTorch Geometric's layers add up."""
    from torch_geometric.utils import scatter

    senders, receivers, n = graph.senders, graph.receivers, graph.num_receivers

    def run(x: Tensor) -> Tensor:
        return scatter(x[senders] * weight[:, None], receivers, 0, n, reduce)

    return compiled(device)(run) if compile else run


def edgewise(backend: str | None, graph: Graph, weight: Tensor, reduce: str, device: Device) -> Sum:
    """By a backend's name, or the planner's choice."""
    return lambda x: aggregate(graph, x, weight, reduce, backend=backend)


CONTENDERS: dict[str, Callable[[Graph, Tensor, str, Device], Sum]] = {
    "edgewise triton": partial(edgewise, "triton"),
    "edgewise": partial(edgewise, None),
    "cusparse": cusparse,
    "pyg": pyg,
    "pyg compiled": partial(pyg, compile=True),
}


def oracle(graph: Graph, weight: Tensor, reduce: str, x: Tensor) -> Tensor:
    """⊕_j w_ij x_j in float64, some edges at a time."""
    start = float("-inf") if reduce == "max" else 0.0
    y = torch.full((graph.num_receivers, x.shape[1]), start, dtype=torch.float64, device=x.device)
    for at in range(0, graph.num_edges, CHUNK):
        part = slice(at, at + CHUNK)
        m, index = x[graph.senders[part]].double() * weight[part, None].double(), graph.receivers[part]
        if reduce == "max":
            y.scatter_reduce_(0, index[:, None].expand_as(m), m, "amax")
        else:
            y.index_add_(0, index, m)
    degrees = graph.in_degrees()[:, None]
    return torch.where(degrees > 0, y, 0.0) / (degrees.clamp(min=1) if reduce == "mean" else 1)


def step(run: Sum, x: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    """Forward and backward."""
    y = run(x)
    return y, *torch.autograd.grad(y, x, dy)


def forward(run: Sum, x: Tensor) -> Tensor:
    """Without gradients."""
    with torch.no_grad():
        return run(x)


def sums(name: str, dtype: torch.dtype, reduce: str, device: Device) -> list[Row]:
    """⊕_j w_ij x_j of rows of 128 channels with a number on each edge, and the gradient of x."""
    nodes, edges, heads, channels = (DRY if device.toy else SIZES)[name]
    graph, width = power_law(nodes, edges, device.kind), heads * channels
    generator = torch.Generator(device.kind).manual_seed(0)
    x, dy = (torch.randn(nodes, width, generator=generator, device=device.kind).to(dtype) for _ in range(2))
    weight = torch.rand(edges, generator=generator, device=device.kind).to(dtype)
    x.requires_grad_()
    exact = {"y": oracle(graph, weight, reduce, x.detach())}
    if reduce != "max":  # whose rounded products may be equal where exact ones are not, and share the gradient
        transpose, order = graph.transpose()
        parts = graph.in_degrees().clamp(min=1)[graph.receivers] if reduce == "mean" else torch.ones_like(weight)
        exact["x"] = oracle(transpose, (weight.double() / parts)[order], "sum", dy)
    what: Row = {"problem": f"{reduce} of {name}: {nodes} nodes, {edges} edges, {width} channels, weights on edges"}
    what |= {"dtype": str(dtype).removeprefix("torch."), "checked": " and the gradient of ".join(exact)}
    rows: dict[str, Row] = {}
    works: dict[str, list[Callable[[], Any]]] = {}
    for contender, make in CONTENDERS.items():
        row = rows[contender] = what | {"contender": contender, "milliseconds": {}}
        if contender in device.without:
            row |= {"refused": CRASHED, "failed": True}
            continue
        try:
            run = make(graph, weight, reduce, device)
            steps = partial(step, run, x, dy)
            row["first step, s"] = device.waited(steps)
            found = dict(zip(("y", "x"), steps(), strict=True))
            row["errors"] = {n: float((found[n].detach().double() - t).norm() / t.norm()) for n, t in exact.items()}
            if not all(error <= LIMITS[dtype] for error in row["errors"].values()):
                row |= {"refused": f"wrong beyond {LIMITS[dtype]}: {row['errors']}", "failed": True}
                continue
            del found
            row["peak MB"] = device.peak(steps)
            works |= {f"{contender}/forward": [partial(forward, run, x)], f"{contender}/step": [steps]}
        except Refusal as refusal:
            row["refused"] = str(refusal)
        except Exception as failure:
            if device.broken():
                raise BrokenError(contender) from failure
            row |= stopped(failure)
        device.clear()
    for key, seconds in Turns(device, works).run(seconds=5.0).items():
        contender, kind = key.split("/")
        rows[contender]["milliseconds"][kind] = 1e3 * seconds
    return list(rows.values())
