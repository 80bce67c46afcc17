"""What runs as one operation: perceptrons, pools and messages on the CPU, eagerly, with nobody who looks at parts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.tracing import PLAIN, is_traced
from edgewise.kernels.backends.cpu import heads, pooling
from edgewise.kernels.backends.cpu import perceptron as native
from edgewise.kernels.backends.cpu.edges import MOST
from edgewise.kernels.backends.cpu.features import WIDE
from edgewise.kernels.backends.cpu.messages import networks
from edgewise.kernels.backends.cpu.perceptron import Norm as Norm
from edgewise.kernels.choose import dispatch
from edgewise.kernels.gates import gates
from edgewise.kernels.messages import Map
from edgewise.native import library


def perceptron(
    x: Tensor,
    up: Map,
    down: Map,
    activation: Callable[[Tensor], Tensor],
    graph: Graph | None = None,
    epsilon: Tensor | None = None,
    norm: Norm | None = None,
) -> Tensor | None:
    """σ(n(s W_1ᵀ + b_1)) W_2ᵀ + b_2 as one operation; None where it has to be computed part by part.

    Equation    s = x; with a graph s_i = (1 + ε) x_i + Σ_{j ∈ N(i)} x_j
    Symbols     up, down = (W_1, b_1), (W_2, b_2), the biases or None; activation = σ, ReLU or GELU for one operation;
                norm = n, PyTorch's batch normalisation, or None
    Shapes      x [*, N, D], with a graph [N, D] -> [*, N, C]
    """
    tensors = [x, *up, *down, epsilon, *(() if norm is None else norm[:4])]
    if library is None or activation not in native.KINDS or is_traced() or x.ndim < 2 or not x.numel():
        return None
    if norm is not None and x.numel() == x.shape[-1]:  # a row alone has no variance, as PyTorch says
        return None
    dtype = x.dtype
    if dtype not in native.READ or torch.is_autocast_enabled("cpu"):
        return None
    for one in tensors:
        if one is not None and (type(one) not in PLAIN or one.dtype is not dtype or not one.is_cpu):
            return None
    if graph is None:
        y = native.perceptron(x.reshape(-1, x.shape[-1]), up, down, activation, None, None, norm)
        return y if x.ndim == 2 else y.view(*x.shape[:-1], y.shape[-1])
    if x.ndim != 2 or not _runs_alone(graph) or x.shape[0] != graph.num_senders:
        return None
    return native.perceptron(x, up, down, activation, graph, epsilon, norm)


def beside_own(
    graph: Graph, x: Tensor, e: Tensor, epsilon: Tensor, edge: Map | None = None, callers: bool = False
) -> Tensor | None:
    """A sum of messages beside a node's own features as one operation; None where it has to be computed part by part.

    Equation    s_i = (1 + ε) x_i + Σ_{j ∈ N(i)} ReLU(x_j + W e_ij + b)
    Symbols     edge = W, b, or None: the features as they are, e_ij instead of W e_ij + b; callers = whether e is
                in the order in which the caller gave the edges, else in the graph's
    Shapes      x [N, C], e [E, R], or [E, C] without a map -> [N, C]
    """
    W, b = edge or (None, None)
    tensors = [x, e, W, b, epsilon]
    if library is None or is_traced() or x.ndim != 2 or not x.numel() or torch.is_autocast_enabled("cpu"):
        return None
    if x.dtype not in WIDE or e.ndim != 2 or not e.numel():
        return None
    for one in tensors:
        if one is not None and (type(one) not in PLAIN or one.dtype is not x.dtype or one.device.type != "cpu"):
            return None
    if not _runs_alone(graph) or x.shape[0] != graph.num_senders or e.shape[0] != graph.num_edges:
        return None
    width, inputs = x.shape[1], e.shape[1]
    fits = width == inputs if W is None else W.shape == (width, inputs) and (b is None or b.shape == (width,))
    return networks.beside_own(graph, x, e, W, b, 1 + epsilon, callers) if fits else None


def pool(graph: Graph, x: Tensor, reduce: str) -> Tensor | None:
    """One row for each of several graphs, as one operation; None where `aggregate` has to compute it.

    Equation    y_g = ⊕_{i ∈ V_g} x_i, ⊕ one of sum, mean and max
    Shapes      x [N, C] -> [G, C]; or x [*, N, C] of one graph, many times -> [*, 1, C]
    """
    if library is None or is_traced() or type(x) not in PLAIN or x.dtype not in pooling.READ or x.ndim < 2:
        return None
    if type(graph) is not Graph:  # such as a partition, whose rank knows no sizes
        return None
    count, nodes = graph.sizes.shape[0], graph.num_receivers
    once = (x.ndim == 2) != (count == 1)  # several graphs, or one in a batch
    if x.device.type != "cpu" or not x.numel() or not _is_unseen(graph) or not once or x.shape[-2] != nodes:
        return None
    if x.ndim == 2:
        return pooling.pool(x, graph.sizes, reduce)
    lead = x.shape[:-2]
    sizes = torch.full((lead.numel(),), nodes)
    return pooling.pool(x.reshape(-1, x.shape[-1]), sizes, reduce).view(*lead, 1, x.shape[-1])


def combined(graph: Graph, x: Tensor, weight: Tensor) -> Tensor | None:
    """A sum over edges and over what each sender has several of, as one operation; None where `aggregate` computes it.

    Equation    y_i = Σ_{j ∈ N(i)} Σ_b w_ijb x_jb
    Shapes      x [J, B, C], weight [E, B] in the graph's edge order -> [I, C]
    """
    if library is None or is_traced() or torch.is_autocast_enabled("cpu") or x.ndim != 3 or not x.numel():
        return None
    if any(type(t) not in PLAIN or t.dtype is not x.dtype or t.device.type != "cpu" for t in (x, weight)):
        return None
    if x.dtype not in WIDE or not _is_unseen(graph) or graph.rule is not None or graph._ranges is not None:
        return None
    fits = x.shape[0] == graph.num_senders and weight.shape == (graph.num_edges, x.shape[1]) and weight.numel() > 0
    return heads.combined(graph, x, weight) if fits and max(*x.shape, graph.num_edges) <= MOST else None


def _runs_alone(graph: Graph) -> bool:
    """Whether a sum over a graph's edges runs on the native kernels without a call that anybody could look at."""
    if not _is_unseen(graph) or not graph.is_square or graph.rule is not None or graph._ranges is not None:
        return False
    return max(graph.num_receivers, graph.num_edges) <= MOST


def _is_unseen(graph: Graph) -> bool:
    """Whether nobody looks at calls on a graph or changes them."""
    if type(graph) is not Graph or graph.device.type != "cpu" or gates() is not None:
        return False
    graph.check_unwritten()
    return dispatch.forced_backend() is None and dispatch.unseen() and dispatch.recording_messages() is None
