"""The cases of `python -m benchmarks`: what is computed, at which sizes, and who takes part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks import inputs
from benchmarks.inputs import Inputs, Sampling
from edgewise.graphs import Graph, causal, complete, patterns
from edgewise.kernels import Additive, Dot, GatedAdditive, Score


@dataclass(frozen=True)
class Part:
    """One set of inputs: `make(size)` builds it, with size 1 for the full case."""

    make: Callable[[float], Inputs]
    traffic: str | None = None  # the name of its formula in `roofline`
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Case:
    """Inputs by name of the part, and the peers that take part beside Edgewise's own backends."""

    about: str
    parts: dict[str, Part]
    peers: tuple[str, ...]
    quick: float = 0.01  # of the nodes, or of the molecules, that the full case has
    whole: bool = False  # a whole training step: the planner's choice stands for all backends


def scaled(count: int, size: float, least: int = 64) -> int:
    """A count at a size."""
    return max(least, round(count * size))


def csr(nodes: int, edges: int, heads: int, channels: int, score: Score | None = None) -> Callable[[float], Inputs]:
    """Attention on a power-law graph."""
    return lambda size: inputs.attention(
        inputs.power_law(scaled(nodes, size), scaled(edges, size)), heads, channels, score or Dot()
    )


def gatv2(size: float) -> Inputs:
    """GATv2's score on the power-law graph of `gat-4x16`."""
    a = torch.randn(4, 16, generator=torch.Generator().manual_seed(2)) / 4
    return csr(100_000, 2_000_000, 4, 16, GatedAdditive(a))(size)


def spmm(channels: int, nodes: int = 100_000, edges: int = 2_000_000) -> Callable[[float], Inputs]:
    """A weighted sum over a power-law graph."""
    return lambda size: inputs.product(inputs.power_law(scaled(nodes, size), scaled(edges, size)), channels)


def window(n: int) -> Callable[[float], Inputs]:
    """A window of 128 to both sides; a smaller size has a smaller window too."""
    return lambda size: inputs.attention(patterns.window(scaled(n, size), scaled(128, size, 8)), 4, 32, Dot())


def rule(graph: Callable[[int], Graph], n: int, heads: int, channels: int, batch: tuple[int, ...] = ()) -> Part:
    """Attention on a pattern with one size."""
    return Part(lambda size: inputs.attention(graph(scaled(n, size)), heads, channels, Dot(), batch), "pairs")


def molecules_complete(size: float) -> Inputs:
    """Every molecule a complete graph."""
    graphs = [complete(n) for n in inputs.molecule_sizes(scaled(256, size, 8))]
    return inputs.attention(Graph.batch(graphs), 4, 32, Dot())


def molecules_sparse(size: float) -> Inputs:
    """Every molecule the graph of its bonds."""
    return inputs.attention(inputs.molecules(scaled(256, size, 8)), 4, 32, Dot())


def sampling(size: float) -> Inputs:
    """1,024 seeds, ten neighbours of each, ten of each of those."""
    nodes = scaled(1_000_000, size)
    graph = inputs.power_law(nodes, 10 * nodes)
    seeds = torch.randperm(nodes, generator=torch.Generator().manual_seed(5))[: scaled(1024, size, 16)]
    return Sampling(graph, seeds, (10, 10))


PYG = ("pyg", "compiled")
SPARSE = (*PYG, "gather-compiled")
SPMM = (*SPARSE, "sparse-csr")
CSR_4X16 = Part(csr(100_000, 2_000_000, 4, 16), "csr")
CSR_8X16 = Part(csr(100_000, 2_000_000, 8, 16), "csr")
CSR_4X32 = Part(csr(20_000, 1_280_000, 4, 32), "csr")

CASES: dict[str, Case] = {
    "csr-4x16": Case("attention, power law, 100k nodes, 2M edges, 4 × 16", {"": CSR_4X16}, SPARSE),
    "csr-8x16": Case("attention, power law, 100k nodes, 2M edges, 8 × 16", {"": CSR_8X16}, SPARSE),
    "csr-4x32": Case("attention, power law, 20k nodes, 1.28M edges, 4 × 32", {"": CSR_4X32}, SPARSE),
    "gat-4x16": Case(
        "GAT's attention, power law, 100k nodes, 2M edges, 4 × 16",
        {"": Part(csr(100_000, 2_000_000, 4, 16, Additive()), "gat")},
        SPARSE,
    ),
    "gatv2-4x16": Case(
        "GATv2's attention, power law, 100k nodes, 2M edges, 4 × 16", {"": Part(gatv2, "gatv2")}, SPARSE
    ),
    "spmm-64": Case("weighted sum, power law, 100k nodes, 2M edges, 64 channels", {"": Part(spmm(64), "spmm")}, SPMM),
    "spmm-256": Case("weighted sum, the same graph, 256 channels", {"": Part(spmm(256), "spmm")}, SPMM),
    "window-4096": Case(
        "attention in a window of ±128, 4096 nodes, 4 × 32",
        {"": Part(window(4096), "window")},
        ("sdpa-blocks", "sdpa-masked", "flex"),
        quick=0.125,
    ),
    "complete-1024": Case(
        "attention of everyone to everyone, 1024 nodes, 8 × 16",
        {"": rule(complete, 1024, 8, 16)},
        ("sdpa",),
        quick=0.125,
    ),
    "causal-1024": Case(
        "attention to the past, 1024 nodes, 8 × 16",
        {"": rule(causal, 1024, 8, 16)},
        ("sdpa", "flex"),
        quick=0.125,
    ),
    "small-causal": Case(
        "attention to the past, 12 texts of 64 tokens, 4 × 32",
        {"": rule(causal, 64, 4, 32, (12,))},
        ("sdpa",),
        quick=0.5,
    ),
    "molecules-complete": Case(
        "256 molecules of 10 to 40 atoms, each complete, 4 × 32",
        {"": Part(molecules_complete, "pairs")},
        ("sdpa-grouped", "sdpa-masked"),
    ),
    "molecules-sparse": Case("the same molecules as graphs of bonds, 4 × 32", {"": Part(molecules_sparse)}, SPARSE),
    "cora-gcn": Case(
        "an epoch of GCN on Cora, evaluation included",
        {"": Part(lambda size: inputs.Epoch("gcn"))},
        ("plain", *PYG),
        whole=True,
    ),
    "cora-gat": Case(
        "an epoch of GAT on Cora, evaluation included",
        {"": Part(lambda size: inputs.Epoch("gat"))},
        ("plain", *PYG),
        whole=True,
    ),
    "small-gpt": Case(
        "a training step of a GPT, 4 layers, 4 heads, width 128, 12 texts of 64 characters",
        {"": Part(lambda size: inputs.SmallGPT())},
        ("plain-gpt",),
        whole=True,
    ),
    "sampling": Case("1M nodes, 10M edges: 1,024 seeds, ten neighbours, two hops", {"": Part(sampling)}, ("numba",)),
}

FLOAT, HALF = torch.float32, torch.bfloat16
SIZES = {"100k": (100_000, 2_000_000, 4, 32), "1M": (1_000_000, 16_000_000, 8, 16)}


def texts(graph: Callable[[int], Graph], n: int) -> Part:
    """32,768 tokens in texts of n, 16 heads of 64."""
    batch = max(1, 32_768 // n)
    return Part(lambda size: rule(graph, n, 16, 64, (batch if size == 1 else 2,)).make(size), "pairs", HALF)


def many_molecules(size: float) -> Inputs:
    """512 molecules of 10 to 40 atoms, each complete."""
    graphs = [complete(n) for n in inputs.molecule_sizes(scaled(512, size, 8))]
    return inputs.attention(Graph.batch(graphs), 8, 32, Dot())


CASES_OF_A_GPU: dict[str, Case] = {
    f"gpu-csr-{name}": Case(
        f"attention, power law, {nodes:,} nodes, {edges:,} edges, {heads} × {channels}",
        {
            "bf16": Part(csr(nodes, edges, heads, channels), "csr", HALF),
            "fp32": Part(csr(nodes, edges, heads, channels), "csr"),
        },
        ("pyg", "compiled"),
        quick=0.002,
    )
    for name, (nodes, edges, heads, channels) in SIZES.items()
}
CASES_OF_A_GPU |= {
    f"gpu-sum-{name}": Case(
        f"weighted sum, power law, {nodes:,} nodes, {edges:,} edges, 128 channels",
        {"bf16": Part(spmm(128, nodes, edges), "spmm", HALF), "fp32": Part(spmm(128, nodes, edges), "spmm")},
        ("pyg", "compiled", "sparse-csr"),
        quick=0.002,
    )
    for name, (nodes, edges, *_) in SIZES.items()
}
CASES_OF_A_GPU |= {
    "gpu-complete": Case(
        "attention of everyone to everyone, 16 × 64, bfloat16",
        {str(n): texts(complete, n) for n in (1024, 4096, 16384)},
        ("sdpa",),
    ),
    "gpu-causal": Case(
        "attention to the past, 16 × 64, bfloat16",
        {str(n): texts(causal, n) for n in (1024, 4096, 16384)},
        ("sdpa", "flex"),
    ),
    "gpu-window": Case(
        "attention in a window of ±128, 16,384 tokens, 16 × 64, bfloat16",
        {"": texts(partial(patterns.window, radius=128), 16384)},
        ("flex", "sdpa-masked"),
    ),
    "gpu-molecules": Case(
        "512 molecules of 10 to 40 atoms, each complete, 8 × 32, bfloat16",
        {"": Part(many_molecules, "pairs", HALF)},
        ("sdpa-grouped",),
    ),
}
