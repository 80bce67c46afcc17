"""Attention on the edges of large graphs, and a graph transformer that reads a whole one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.gpu.problems import Contender, Prepared, Problem, Race, Refusal, Row, ours
from benchmarks.gpu.timing import MEGABYTE, Device, stopped
from edgewise.graphs import Graph
from edgewise.models import Features, GraphTransformer, GraphTransformerSettings

# A row has w bytes: heads x channels numbers. What any method must move, with every edge's rows counted, as if no cache
# held them: a cache can make the share of the bandwidth larger than it is, even above 1.
BYTES = (
    "E (2w + 4) + 2 N w forward (k_j, v_j and the index of every edge; q read, y written); "
    "E (6w + 12 + 8H) + 10 N w a step (k_j, v_j again by receiver; q_i, dy_i, log-sum-exp and y·dy by sender)"
)


def power_law(nodes: int, edges: int, device: str) -> Graph:
    """Both ends of every edge drawn with weights rank^(−1/1.5), ranks permuted for each end, on the device."""
    generator = torch.Generator(device).manual_seed(0)
    ranks = torch.arange(1, nodes + 1, dtype=torch.float64, device=device)
    total = ranks.pow(-1 / 1.5).cumsum(0)
    ends = []
    for _ in range(2):
        drawn = torch.rand(edges, dtype=torch.float64, generator=generator, device=device) * total[-1]
        rank = torch.searchsorted(total, drawn).clamp(max=nodes - 1)
        ends.append(torch.randperm(nodes, generator=generator, device=device)[rank])
    return Graph.from_edge_index(torch.stack(ends), nodes)


def moved(nodes: int, edges: int, heads: int, channels: int, size: int) -> dict[str, int]:
    """The bytes of BYTES, by kind of pass.

    Example
        >>> moved(nodes=2, edges=10, heads=1, channels=4, size=4)
        {'forward': 424, 'step': 1480}
    """
    w = heads * channels * size
    return {
        "forward": edges * (2 * w + 4) + 2 * nodes * w,
        "step": edges * (6 * w + 12 + 8 * heads) + 10 * nodes * w,
    }


def pyg(transform: Callable[[Any], Any]) -> Callable[[Problem, Device], Prepared]:
    """The propagation of PyTorch Geometric's TransformerConv, without its linear maps."""

    def prepare(problem: Problem, device: Device) -> Prepared:
        try:
            from benchmarks.contenders.sparse.pyg import dot_product

            run = transform(dot_product())
        except ImportError as error:
            raise Refusal("torch_geometric is not installed") from error
        edge_index = problem.graph.edge_index()  # sorted by receiver
        return Prepared(lambda q, k, v: run(edge_index, q, k, v))

    return prepare


def compiled(device: Device) -> Callable[[Any], Any]:
    """`torch.compile` with fixed shapes; on a CPU it only traces, as compiling takes longer than a dry run may."""
    return partial(torch.compile, fullgraph=True, dynamic=False, backend="eager" if device.toy else "inductor")


def anemoi(problem: Problem, device: Device) -> Prepared:
    """anemoi-models' Triton kernels. They add a vector of the edge to keys and values: zeros, which they still read."""
    try:
        attention = importlib.import_module("anemoi.models.triton.gt").graph_transformer_attention_conv
    except (ImportError, AttributeError, ValueError) as error:
        raise Refusal(f"anemoi-models is not carried: {error}") from error
    graph = problem.graph
    transpose, order = graph.transpose()
    csc, reverse = (graph.senders, graph.offsets), (transpose.offsets, order, graph.receivers)
    e = torch.zeros(graph.num_edges, problem.heads, problem.channels, dtype=problem.dtype, device=device.kind)
    return Prepared(lambda q, k, v: attention(q, k, v, e, csc, reverse))


def turbo_gnn(problem: Problem, device: Device) -> Prepared:
    """Turbo-GNN's wheels are compiled for certain versions of PyTorch, which has to be one of them."""
    try:
        importlib.import_module("turbo_gnn")
    except ImportError as error:
        raise Refusal(f"turbo-gnn is not carried: {error}") from error
    raise Refusal("turbo-gnn is here, but how its attention is called was not known when this was written")


def contenders(device: Device) -> list[Contender]:
    """The fast ones first, so that they are measured even where time runs out."""
    return [
        *map(ours, ("triton", None, "bitmap", "segment")),
        Contender("anemoi", anemoi),
        Contender("turbo-gnn", turbo_gnn),
        Contender("pyg", pyg(lambda module: module)),
        Contender("pyg compiled", pyg(compiled(device))),
    ]


SIZES = {"100k": (100_000, 2_000_000, 4, 32), "1M": (1_000_000, 16_000_000, 8, 16)}
DRY = {"100k": (40, 160, 2, 8), "1M": (50, 200, 2, 8)}


def csr(name: str, dtype: torch.dtype, device: Device) -> list[Row]:
    """Attention on a power-law graph."""
    nodes, edges, heads, channels = (DRY if device.toy else SIZES)[name]
    graph = power_law(nodes, edges, device.kind)
    counted = moved(nodes, edges, heads, channels, dtype.itemsize)
    race = Race(
        Problem(
            f"csr {name}: {nodes} nodes, {edges} edges, {heads} × {channels}",
            graph,
            heads,
            channels,
            dtype,
            bytes=counted,
        ),
        device,
    )
    for contender in contenders(device):
        race.enter(contender)
    return race.time(seconds=8.0)


def whole_graph(device: Device) -> list[Row]:
    """A training step of three layers of width 128 in bfloat16 on 2.4M nodes and 120M edges: its peak memory."""
    nodes, edges, width, depth = (200, 1000, 16, 3) if device.toy else (2_400_000, 120_000_000, 128, 3)
    row: Row = {"problem": f"graph transformer, {depth} layers of {width}, {nodes} nodes, {edges} edges"}
    row |= {"contender": "edgewise", "dtype": "bfloat16", "milliseconds": {}}
    try:
        generator = torch.Generator(device.kind).manual_seed(0)
        ends = torch.randint(nodes, (2, edges), generator=generator, device=device.kind)
        graph = Graph.from_edge_index(ends, nodes).add_self_loops()  # as the model would, but without keeping both
        del ends
        device.clear()
        settings = GraphTransformerSettings(width=width, depth=depth, heads=8, block="pre-norm")
        model = GraphTransformer(settings, Features(width, 16)).to(device.kind, torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        x = torch.randn(nodes, width, generator=generator, device=device.kind).bfloat16()
        target = torch.randint(16, (nodes,), generator=generator, device=device.kind)

        def step() -> Tensor:
            loss = functional.cross_entropy(model(graph, x).float(), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        if not device.dry:
            torch.cuda.reset_peak_memory_stats()
        row["first step, s"] = device.waited(step)
        row["peak MB with all that is resident, first step"] = _most(device)
        if not device.dry:
            torch.cuda.reset_peak_memory_stats()
        row["milliseconds"]["step"] = 1e3 * min(device.waited(step) for _ in range(3))
        row["peak MB"] = _most(device)
        losses = [float(step()) for _ in range(3)]
        if not all(loss == loss for loss in losses):
            row |= {"refused": f"wrong: the losses are {losses}", "failed": True}
    except Exception as error:
        row |= stopped(error)
    device.clear()
    return [row]


def _most(device: Device) -> float | None:
    """The most megabytes that were held at a time, everything included."""
    return None if device.dry else torch.cuda.max_memory_allocated() / MEGABYTE
