"""The cases of `python -m benchmarks`: what is computed, at which sizes, and who takes part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks import inputs
from benchmarks.inputs import Inputs, Sampling
from edgewise.graphs import Graph, causal, complete
from edgewise.graphs.patterns import line
from edgewise.kernels import Additive, Dot, GatedAdditive, Score


@dataclass(frozen=True)
class Part:
    """One set of inputs: `make(size)` builds it, with size 1 for the full case."""

    make: Callable[[float], Inputs]
    traffic: str | None = None  # the name of its formula in `roofline`


@dataclass(frozen=True)
class Case:
    """Inputs by name of the part, and the peers that take part beside Edgewise's own backends."""

    about: str
    parts: dict[str, Part]
    peers: tuple[str, ...]
    threads: tuple[int, ...] = (1, 2)
    quick: float = 0.01  # of the nodes, or of the molecules, that the full case has
    whole: bool = False  # a whole training step: in a quick run the planner's choice stands for all backends


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
    return lambda size: inputs.attention(line.window(scaled(n, size), scaled(128, size, 8)), 4, 32, Dot())


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


def five(layer: str) -> Callable[[float], Inputs]:
    """A batch of `nbody`."""
    return lambda size: inputs.five_bodies(layer, scaled(100, size, 4))


def sampling(size: float) -> Inputs:
    """1,024 seeds, ten neighbours of each, ten of each of those."""
    nodes = scaled(1_000_000, size)
    graph = inputs.power_law(nodes, 10 * nodes)
    seeds = torch.randperm(nodes, generator=torch.Generator().manual_seed(5))[: scaled(1024, size, 16)]
    return Sampling(graph, seeds, (10, 10))


def tensor_field(channels: int, types: int) -> Callable[[float], Inputs]:
    """A convolution of e3nn's usual size."""
    return lambda size: inputs.tensor_field(scaled(1_000, size), scaled(20_000, size), channels, types)


PYG = ("pyg", "pyg-reuse", "compiled", "compiled-reuse")
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
    "tfn": Case(
        "a tensor field convolution, 1k nodes, 20k edges, 16 and 32 channels of types 0-1 and 0-2",
        {f"{c}x{types}": Part(tensor_field(c, types)) for types in (1, 2) for c in (16, 32)},
        ("e3nn", "e3nn-compiled"),
        threads=(1,),
        whole=True,
    ),
    "egnn": Case(
        "a training step of EGNN, width 64: 2 layers on 10k nodes and 200k edges, 4 on 100 times 5 particles",
        {"10k": Part(lambda size: inputs.scattered("egnn", scaled(10_000, size))), "nbody": Part(five("egnn"))},
        PYG,
        threads=(1,),
        whole=True,
    ),
    "schnet": Case(
        "a training step of SchNet, width 64, 50 Gaussians: the same sizes",
        {"10k": Part(lambda size: inputs.scattered("schnet", scaled(10_000, size))), "nbody": Part(five("schnet"))},
        PYG,
        threads=(1,),
        whole=True,
    ),
    "sampling": Case("1M nodes, 10M edges: 1,024 seeds, ten neighbours, two hops", {"": Part(sampling)}, ("numba",)),
}
