"""Random graphs, tensors and calls for the tests of kernels, and how far two results are apart."""

from collections.abc import Callable

import torch
from torch import Tensor

from edgewise import (
    Additive,
    Dot,
    EdgeBias,
    GatedAdditive,
    Gaussian,
    Graph,
    SenderBias,
    Uniform,
    aggregate,
    attend,
    collect,
)
from edgewise.kernels import Score

Leaves = dict[str, Tensor]
Call = Callable[[Leaves, str], Tensor]

SCORES = ("dot", "dot scaled by head", "additive", "gated", "uniform", "gaussian")
REDUCTIONS = ("sum", "mean", "max", "min")
WEIGHTS = ("", "edge", "heads", "heads, batch")
BIASES = ("", "edge", "edge, shared by heads", "edge, batched", "sender")
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 48, 64, 65, 100, 128, 129, 130)


def pick(options):
    """One of the options, by PyTorch's generator."""
    return options[int(torch.randint(len(options), ()))]


def number(low: int, high: int) -> int:
    """A whole number, both ends included."""
    return int(torch.randint(low, high + 1, ()))


def covering(*options):
    """Combinations in which each value of each option occurs, with another of the shorter ones each time around."""
    longest = max(map(len, options))
    return [tuple(each[(n + n // len(each)) % len(each)] for each in options) for n in range(longest)]


def random_graph(receivers: int, senders: int, edges: int) -> Graph:
    """Edges drawn independently, so that some are parallel; as many hub edges into receiver 0 as others."""
    to = torch.randint(receivers, (edges,))
    to[: edges // 2] = 0
    return Graph.from_edge_index(torch.stack([torch.randint(senders, (edges,)), to]), senders, receivers)


def disjoint_graphs(count: int) -> Graph:
    """Small graphs side by side: with other senders than receivers, hubs, parallel edges, self-loops or nothing."""
    receivers, senders, edges = (torch.randint(0, most, (count,)) for most in (6, 6, 16))
    senders = torch.where(torch.rand(count) < 0.5, receivers, senders)
    edges *= (torch.rand(count) < 0.9) & (receivers > 0) & (senders > 0)
    member = torch.repeat_interleave(torch.arange(count), edges)
    hub = 1 + 3 * (torch.rand(count) < 0.3)[member]  # a power that draws the ends towards the first node

    def ends(sizes: Tensor) -> Tensor:
        first = (sizes.cumsum(0) - sizes)[member]
        return first + (torch.rand(len(member)) ** hub * sizes[member]).long()

    index = torch.stack([ends(senders), ends(receivers)])
    return Graph.from_edge_index(index, int(senders.sum()), int(receivers.sum()))


def attention(
    graph: Graph, kind: str, bias: str, heads: int, groups: int, channels: int, values: int, batch=(), dropout=0.0
):
    """Tensors of those sizes, and attention on them as a call of (tensors, backend)."""
    width = 1 if kind == "additive" else channels
    size = channels**-0.5 if kind in ("gated", "gaussian") else 1.0
    leaves = {"v": torch.randn(*batch, graph.num_senders, groups, values, dtype=torch.float64)}
    if kind != "uniform":
        leaves["q"] = size * torch.randn(*batch, graph.num_receivers, heads, width, dtype=torch.float64)
        leaves["k"] = size * torch.randn(*batch, graph.num_senders, groups, width, dtype=torch.float64)
    else:
        heads = groups
    if kind == "gated":
        leaves["a"] = torch.randn(heads, channels, dtype=torch.float64)
    if bias:
        lead = batch if bias in ("edge, batched", "sender") else ()
        rows = graph.num_senders if bias == "sender" else graph.num_edges
        leaves["bias"] = torch.randn(*lead, rows, 1 if "shared" in bias else heads, dtype=torch.float64)
    scale = torch.rand(heads) + 0.5

    def call(leaves: Leaves, backend: str) -> Tensor:
        score: Score = {
            "dot": Dot(),
            "dot scaled by head": Dot(scale.to(leaves["v"])),
            "additive": Additive(),
            "uniform": Uniform(),
            "gaussian": Gaussian(1.5),
        }.get(kind) or GatedAdditive(leaves["a"])
        if bias:
            score = score + (SenderBias if bias == "sender" else EdgeBias)(leaves["bias"])
        here = graph.to(leaves["v"].device)
        return attend(here, leaves.get("q"), leaves.get("k"), leaves["v"], score, dropout=dropout, backend=backend)

    return leaves, call


def product(graph: Graph, reduce: str, weight: str, heads: int, channels: int, batch=(), equal: bool = False):
    """Tensors of those sizes, and their product with the graph as a call of (tensors, backend).

    Many messages are equally large where `equal` is set.
    """
    x = torch.randn(*batch, graph.num_senders, *([heads] if "heads" in weight else []), channels, dtype=torch.float64)
    leaves = {"x": x.round() if equal else x}
    if weight:
        lead = batch if "batch" in weight else ()
        last = {"edge": (), "heads": (heads,), "heads, batch": (heads,), "shared by heads": (1,)}[weight]
        leaves["weight"] = torch.randn(*lead, graph.num_edges, *last, dtype=torch.float64)

    def call(leaves: Leaves, backend: str) -> Tensor:
        return aggregate(graph, leaves["x"], leaves.get("weight"), reduce, backend=backend)

    return leaves, call


def messages(graph: Graph, reduce: str, channels: int, batch=()):
    """Messages on the edges, and their reduction as a call of (tensors, backend)."""
    leaves = {"m_ij": torch.randn(*batch, graph.num_edges, channels, dtype=torch.float64)}
    return leaves, lambda leaves, backend: collect(graph, leaves["m_ij"], reduce, backend=backend)


def results(call: Call, leaves: Leaves, backend: str, dtype: torch.dtype = torch.float64) -> Leaves:
    """The output, and the gradients of a fixed random projection of it."""
    leaves = {name: leaf.detach().to(dtype, copy=True).requires_grad_() for name, leaf in leaves.items()}
    y = call(leaves, backend)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(y)
    found = torch.autograd.grad(y, list(leaves.values()), dy, allow_unused=True, materialize_grads=True)
    return {"output": y.detach()} | {f"gradient of {name}": g for name, g in zip(leaves, found, strict=True)}


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest number above 1; infinite for other shapes and for NaN."""
    if found.shape != expected.shape:
        return float("inf")
    if found.numel() == 0:
        return 0.0
    error = float((found.double() - expected).abs().max() / expected.abs().max().clamp(min=1))
    return float("inf") if error != error else error


def same(found: Leaves, expected: Leaves, tolerance: float, where: object = "") -> None:
    """Fail with the tensor's name where two results are further apart."""
    for name, value in expected.items():
        error = distance(found[name], value)
        assert error <= tolerance, f"{where}: the {name} is off by {error:.1e}, at most {tolerance:.0e} expected"
