"""What the machine can do, and how near to it a case comes: bytes and operations per second."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

# What any method must move and compute. w = 4HC bytes of a node's row; E edges, N nodes, H heads, C channels. Rows that
# several edges share are counted for each of them: caches can serve more than a copy does.
FORMULAS = {
    "csr": "E(2w + 8) + 2Nw bytes forward, E(6w + 24) + 10Nw a step; 4EHC and 14EHC operations",
    "gat": "E(w + 4H + 8) + 2Nw bytes forward, E(3w + 24H + 24) + 6Nw a step; 2EHC and 6EHC operations",
    "gatv2": "E(w + 8) + 2Nw bytes forward, E(4w + 24) + 8Nw a step; 6EHC and 20EHC operations",
    "spmm": "E(w + 12) + Nw bytes forward, twice that a step; 2EHC and 4EHC operations",
    "window": "4Nw bytes forward, 12Nw a step (nothing is gathered); 4EHC and 14EHC operations on the E pairs",
}


def traffic(formula: str, kind: str, edges: int, nodes: int, heads: int, channels: int) -> tuple[int, int]:
    """Compulsory bytes and operations of a forward pass or a step, by the formulas of `FORMULAS`.

    Example
        >>> traffic("spmm", "forward", edges=10, nodes=2, heads=1, channels=4)
        (312, 80)
    """
    e, n, h, w, hc = edges, nodes, heads, 4 * heads * channels, heads * channels
    table = {
        ("csr", "forward"): (e * (2 * w + 8) + 2 * n * w, 4 * e * hc),
        ("csr", "step"): (e * (6 * w + 24) + 10 * n * w, 14 * e * hc),
        ("gat", "forward"): (e * (w + 4 * h + 8) + 2 * n * w, 2 * e * hc),
        ("gat", "step"): (e * (3 * w + 24 * h + 24) + 6 * n * w, 6 * e * hc),
        ("gatv2", "forward"): (e * (w + 8) + 2 * n * w, 6 * e * hc),
        ("gatv2", "step"): (e * (4 * w + 24) + 8 * n * w, 20 * e * hc),
        ("spmm", "forward"): (e * (w + 12) + n * w, 2 * e * hc),
        ("spmm", "step"): (2 * (e * (w + 12) + n * w), 4 * e * hc),
        ("window", "forward"): (4 * n * w, 4 * e * hc),
        ("window", "step"): (12 * n * w, 14 * e * hc),
    }
    return table["window" if formula == "pairs" else formula, kind]


def of(inputs: Any, formula: str, kind: str) -> tuple[int, int]:
    """Compulsory bytes and operations of a case's inputs, for numbers of 4 bytes."""
    from benchmarks.inputs import Product

    graph, shape = inputs.graph, inputs.gradient.shape
    heads, channels = (1, shape[-1]) if isinstance(inputs, Product) else (shape[-2], shape[-1])
    copies = math.prod(shape[: inputs.node_axis])  # a leading batch shares the graph
    return traffic(formula, kind, copies * graph.num_edges, copies * graph.num_receivers, heads, channels)


def multiplied(device: str, seconds: Callable[[list[Callable[[], object]]], float]) -> float:
    """Operations per second of a large product of matrices of float32 on a device, as `seconds` times it."""
    x, y = torch.randn(2, 2048, 2048, device=device)
    return 2 * 2048**3 / min(seconds([lambda: x @ y]) for _ in range(3))


def copied(device: str, seconds: Callable[[list[Callable[[], object]]], float], quick: bool = False) -> float:
    """Bytes read and written per second by a large copy on a device, as `seconds` times it."""
    source = torch.ones(2**20 if quick else 2**26 if device == "cpu" else 2**30, device=device)
    target = torch.empty_like(source)
    return 8 * source.numel() / min(seconds([lambda: target.copy_(source)]) for _ in range(9))
