"""Features that a model reads at every step: their few non-zeros, as of words in texts, and sums are found once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached, per_tensor
from edgewise.graphs.forms import offsets_of
from edgewise.graphs.tracing import PLAIN, is_traced
from edgewise.interop.twin import origin
from edgewise.kernels import aggregate, dropout
from edgewise.kernels.messages import has_hooks
from edgewise.layers.plain.linear import SparseFeatures

LINEAR = {("torch", "Linear"), ("torch_geometric", "Linear")}
AGAIN = 4  # calls with a tensor until it counts as one that comes at every step
MOST = 1 / 32  # of the entries are not zero, where their own sum is faster than the product with all


def mapped(linear: Any, x: Tensor, biased: bool = True) -> Tensor:
    """linear(x) of a layer of PyTorch or of PyTorch Geometric, without its bias on request.

    Edge cases  sparse features that come again are multiplied by their non-zeros. Trained ones, those that came fewer
                than `AGAIN` times, and all on a GPU, where nothing was measured, go through the layer itself; so do
                all through a layer that has hooks, or that is of another class
    Cost        E·C' in place of N·C·C', for E non-zeros; once for a tensor that comes again, a pass over it. What
                `dropped` makes of it comes for the first time, and needs no pass
    """
    entries = _entries(x, linear.weight) if is_linear(linear) else None
    if entries is None:
        return linear(x) if biased else functional.linear(x, linear.weight)
    y = aggregate(entries.graph, linear.weight.T, entries.weight)
    return y + linear.bias if biased and linear.bias is not None else y


def product(weight: Tensor, x: Tensor) -> Tensor:
    """W x_i, as `mapped` computes it for a layer without bias."""
    entries = _entries(x, weight)
    return functional.linear(x, weight) if entries is None else aggregate(entries.graph, weight.T, entries.weight)


def _entries(x: Tensor, weight: Tensor) -> SparseFeatures | None:
    """The non-zeros by which a product of these is computed, if it is."""
    entries = known(x)
    fits = entries is not None and entries.dtype == weight.dtype and not torch.is_autocast_enabled(x.device.type)
    return entries if fits else None


def is_linear(layer: Any) -> bool:
    """Whether calling a layer does nothing but x Wᵀ + b."""
    if origin(type(layer)) not in LINEAR or has_hooks(layer):
        return False
    return not isinstance(layer.weight, nn.parameter.UninitializedParameter)


def multiplies(layer: Any) -> bool:
    """Whether calling a layer does nothing but x Wᵀ."""
    return is_linear(layer) and layer.bias is None


def known(x: Tensor) -> SparseFeatures | None:
    """The non-zeros of features that came before, if they are few."""
    if x.dim() != 2 or x.requires_grad or x.device.type != "cpu" or not x.is_floating_point():
        return None
    calls = _calls(x)
    calls[0] = min(AGAIN, calls[0] + 1)
    return _few(x) if calls[0] == AGAIN else None


def kept(graph: Graph, edge_index: Tensor, x: Tensor, reduce: str, weight: Tensor | None = None) -> Tensor | None:
    """⊕_j w_ij x_j of features that came with the same edges before.

    Edge cases  None for those that are trained, that came fewer than `AGAIN` times, or where all that is kept of x
                would be larger than x
    Cost        once the sum of all edges; its result lies with x, and goes with it or with the edges
    """
    tensors = [x, edge_index] if weight is None else [x, edge_index, weight]
    if is_traced() or any(type(t) not in PLAIN or t.requires_grad or t.is_inference() for t in tensors):
        return None
    if x.dim() != 2 or torch.is_autocast_enabled(x.device.type):
        return None
    entry = _kept(*tensors, reduce, graph.num_receivers)
    entry.calls += 1
    if entry.sums is None and entry.calls >= AGAIN:
        others = [sums for one in _held(x) if (sums := one()) is not None]
        if graph.num_receivers + sum(map(len, others)) <= len(x):
            with torch.inference_mode(False):
                entry.sums = aggregate(graph, x, weight, reduce)
            _held(x)[:] = map(ref, [*others, entry.sums])
    return entry.sums


@dataclass
class _Entry:
    calls: int = 0
    sums: Tensor | None = None


@per_tensor
def _kept(x: Tensor, edge_index: Tensor, *others: Any) -> _Entry:
    return _Entry()


@per_tensor
def _held(x: Tensor) -> list[ReferenceType[Tensor]]:
    """What is kept of x."""
    return []


def dropped(x: Tensor, p: float) -> Tensor | None:
    """Dropout of features whose few non-zeros are known, drawn for these alone; None for any others.

    Edge cases  what it returns is known likewise
    """
    entries = known(x)
    if entries is None:
        return None
    weight = dropout(entries.weight, p)
    y = x.new_zeros(x.shape)
    y.view(-1)[_places(entries.graph)] = weight
    _few.put(SparseFeatures(entries.graph, weight), y)
    _calls.put([AGAIN], y)
    return y


@cached
def _places(graph: Graph) -> Tensor:
    """Where the numbers of a matrix's edges lie in it."""
    return graph.receivers * graph.num_senders + graph.senders


@per_tensor
def _calls(x: Tensor) -> list[int]:
    return [0]


@per_tensor
def _few(x: Tensor) -> SparseFeatures | None:
    there = x != 0
    counts = there.sum(1)
    if int(counts.sum()) > MOST * x.numel():
        return None
    words = there.nonzero()[:, 1]
    return SparseFeatures(Graph.from_csr(offsets_of(counts), words, num_senders=x.shape[1]), x[there])
