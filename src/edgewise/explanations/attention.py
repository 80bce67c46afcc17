"""Explanations from attention: its weights, what flows along them layer by layer, and their share in the gradient."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from edgewise.errors import ExplanationError
from edgewise.explanations.explained import Explained
from edgewise.graphs import Graph
from edgewise.kernels import Recorded, record
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.gates import Gates

Scores = tuple[Tensor | None, Tensor | None]  # of the edges [E] and of the nodes [J]
UNITS = 1_000_000  # of a capacity of 1, in the whole numbers that scipy's maximum flow reads
MOST_NODES = 1024  # of an attention flow, which solves one problem for each of them


def weights(explained: Explained, layer: int = -1, head: int | None = None) -> Scores:
    """The attention of one layer, of one head or their mean: p_ij on each edge.

    A node's score is what the explained node pays to it; where there is none, what all nodes pay to it on average.
    """
    calls = [call for call in recorded(explained) if explained.places(call.graph) is not None]
    if not calls:
        raise _without(explained, "weights on these edges")
    if not -len(calls) <= layer < len(calls):
        raise ExplanationError(f"there is no layer {layer}: the model has {len(calls)} layers of attention here")
    graph, p = calls[layer].graph, calls[layer].weights
    if head is not None and not -p.shape[-1] <= head < p.shape[-1]:
        raise ExplanationError(f"there is no head {head}: layer {layer} has {p.shape[-1]} heads")
    p = p.reshape(-1, *p.shape[-2:])[0]
    p_ij = p.mean(-1) if head is None else p[:, head]
    first = graph.num_receivers - explained.edges.num_receivers
    row = _start(explained, graph.num_receivers, first)
    return on_edges(explained, graph, p_ij), _received(graph, row, p_ij)[first:]


def rollout(explained: Explained) -> Scores:
    """Attention rollout: how much of the output's residual stream comes from each node.

    Equation    r_0 = r_L Ã_L ... Ã_1,  Ã = ½ A + ½ I, with A the mean over the heads
    Symbols     r_L = 1 at the explained node, or spread over all; an edge's score = what passes along it
    Reference   Abnar & Zuidema, "Quantifying attention flow in transformers", 2020, eq. 1
    """
    calls, first = layers(explained)
    row = _start(explained, calls[0].graph.num_receivers, first)
    total = torch.zeros(explained.edges.num_edges)
    for call in reversed(calls):
        passed = 0.5 * row.index_select(0, call.graph.receivers) * _mean(call)
        total = total + on_edges(explained, call.graph, passed)
        row = (0.5 * row).index_add(0, call.graph.senders, passed)
    return total, row[first:]


def flow(explained: Explained) -> Scores:
    """Attention flow: the largest flow from the output to each node's input, through capacities Ã.

    Equation    max flow from (L, i) to (0, j) on the layered graph with capacities Ã = ½ A + ½ I
    Symbols     an edge's score = its part in these flows, the mean over j; which of several largest flows is scipy's
    Errors      ExplanationError for more than 1,024 nodes
    Cost        one maximum flow on L (E + N) arcs for each node
    Reference   Abnar & Zuidema, 2020, §2.2
    """
    calls, first = layers(explained)
    count, depth = calls[0].graph.num_receivers, len(calls)
    if count > MOST_NODES:
        raise ExplanationError(f"attention flow is for at most {MOST_NODES} nodes, not {count}: use rollout")
    start = _start(explained, count, first).numpy()
    source, stay = depth * count + count, np.arange(count)
    tails, heads, sizes = [np.full(count, source)], [depth * count + stay], [start]
    for number, call in enumerate(calls, start=1):  # from (number, i) to (number - 1, j)
        tails += [number * count + call.graph.receivers.numpy(), number * count + stay]
        heads += [(number - 1) * count + call.graph.senders.numpy(), (number - 1) * count + stay]
        sizes += [0.5 * _mean(call).numpy(), np.full(count, 0.5)]
    capacity = np.rint(UNITS * np.concatenate(sizes)).astype(np.int32)
    arcs = coo_array((capacity, (np.concatenate(tails), np.concatenate(heads))), shape=(source + 1, source + 1))
    network, passed = arcs.tocsr(), np.zeros((count, count))
    nodes = torch.zeros(count)
    for j in range(count):
        solved = maximum_flow(network, source, j)
        nodes[j] = solved.flow_value / UNITS
        along = solved.flow.tocoo()
        between = (along.data > 0) & (along.row // count == along.col // count + 1) & (along.row < source)
        np.add.at(passed, (along.row[between] % count, along.col[between] % count), along.data[between] / UNITS)
    graph = explained.edges
    edges = torch.from_numpy(passed / count).float()[graph.receivers + first, graph.senders + first]
    return edges, nodes[first:]


def relevance(explained: Explained) -> Scores:
    """Relevance through attention: its weights, as far as the output grows with them, passed on layer by layer.

    Equation    R ← R + Ā R,  Ā = mean over the heads of (∇A ⊙ A)⁺
    Symbols     ∇A ⊙ A = the gradient to a factor of each weight; the scores are the explained node's row of R - I
    Cost        one forward and one backward pass
    Reference   Chefer, Gur & Wolf, "Generic attention-model explainability", 2021, eqs. 5 and 6
    """
    factors: list[tuple[Graph, Tensor]] = []

    def factor(call: Call) -> Tensor | None:
        if not isinstance(call, Attend):
            return None
        factors.append((call.graph, torch.ones(call.graph.num_edges, call.heads, requires_grad=True)))
        return factors[-1][1]

    value = explained.target(explained.under(Gates(factor)))
    if not factors:
        raise _without(explained, "relevance")
    gradients = torch.autograd.grad(value, [m for _, m in factors], allow_unused=True)
    pairs = zip(factors, gradients, strict=True)
    calls = [Recorded(graph, m.detach() * 0 if g is None else g.clamp(min=0)) for (graph, m), g in pairs]
    calls, first = layers(explained, calls)
    row = start = _start(explained, calls[0].graph.num_receivers, first)
    total = torch.zeros(explained.edges.num_edges)
    for call in reversed(calls):
        passed = row.index_select(0, call.graph.receivers) * _mean(call)
        total = total + on_edges(explained, call.graph, passed)
        row = row.index_add(0, call.graph.senders, passed)
    return total, (row - start)[first:]


@torch.no_grad()
def recorded(explained: Explained) -> list[Recorded]:
    """The model's calls of attention."""
    with record() as calls:
        explained.outputs()
    return calls


def layers(explained: Explained, calls: list[Recorded] | None = None) -> tuple[list[Recorded], int]:
    """The calls of attention among the explained nodes, and how many nodes come first that have no input."""
    among = [call for call in calls or recorded(explained) if explained.places(call.graph) is not None]
    if not among:
        raise _without(explained, "attention among its nodes")
    size = among[-1].graph.num_receivers
    among = [call for call in among if call.graph.num_receivers == size]
    if explained.alone or not among[0].graph.is_square:
        what = "follows one set of nodes from layer to layer, and this model attends from one set to another"
        raise ExplanationError(f"what passes through attention {what}: use attention or integrated-gradients")
    return among, size - explained.edges.num_receivers


def on_edges(explained: Explained, graph: Graph, values: Tensor) -> Tensor:
    """Values of a call's edges on the explained ones; those that are not among them are left out."""
    places = explained.places(graph)
    assert places is not None
    return values.new_zeros(explained.edges.num_edges + 1).index_add(0, places, values)[:-1]


def _start(explained: Explained, count: int, first: int) -> Tensor:
    row = torch.zeros(count)
    if first:
        row[0] = 1.0  # the class node, which is read
    elif explained.node is not None:
        row[explained.node] = 1.0
    else:
        row += 1 / max(count, 1)
    return row


def _received(graph: Graph, row: Tensor, p_ij: Tensor) -> Tensor:
    paid = row.index_select(0, graph.receivers) * p_ij
    return paid.new_zeros(graph.num_senders).index_add(0, graph.senders, paid)


def _mean(call: Recorded) -> Tensor:
    return call.weights.reshape(-1, *call.weights.shape[-2:])[0].mean(-1).float()


def _without(explained: Explained, what: str) -> ExplanationError:
    name = type(explained.model).__name__
    return ExplanationError(f"{name} has no {what}: it calls attend nowhere; use integrated-gradients or leave-one-out")
