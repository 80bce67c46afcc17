"""Explanations from attention: its weights, what flows along them layer by layer, and their share in the gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import ExplanationError, counted
from edgewise.explanations.explained import Explained
from edgewise.graphs import EncoderDecoderGraph, Graph
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
        raise ExplanationError(
            f"there is no layer {layer}: the model has {counted(len(calls), 'layer')} of attention here"
        )
    graph, p = calls[layer].graph, calls[layer].weights
    targets = explained.num_nodes - explained.edges.num_senders  # which send nothing to themselves
    if head is not None and not -p.shape[-1] <= head < p.shape[-1]:
        raise ExplanationError(f"there is no head {head}: layer {layer} has {counted(p.shape[-1], 'head')}")
    p = _own(explained, p)
    p_ij = p.mean(-1) if head is None else p[:, head]
    first = graph.num_receivers - explained.edges.num_receivers
    row = _start(explained, explained.num_nodes + first, first)[-graph.num_receivers :]
    return on_edges(explained, graph, p_ij), torch.cat([_received(graph, row, p_ij)[first:], row.new_zeros(targets)])


def rollout(explained: Explained) -> Scores:
    """Attention rollout: how much of the output's residual stream comes from each node.

    Equation    r_0 = r_L Ã_L ... Ã_1,  Ã = ½ A + ½ I, with A the mean over the heads
    Symbols     r_L = 1 at the explained node, or spread over all; an edge's score = what passes along it
    Edge cases  of an encoder-decoder, sources and targets are the nodes and the edges those between; a call's Ã is I
                for nodes that it does not update, or without senders, so that the scores of nodes add up to 1
    Reference   Abnar & Zuidema, "Quantifying attention flow in transformers", 2020, eq. 1
    """
    steps, count, first = layers(explained)
    row = _start(explained, count, first)
    total = torch.zeros(explained.edges.num_edges, device=explained.device)
    for step in reversed(steps):
        passed = 0.5 * row.index_select(0, step.receivers) * step.p
        total = total + on_edges(explained, step.graph, passed)
        row = (row * step.stays).index_add(0, step.senders, passed)
    return total, row[first:]


def flow(explained: Explained) -> Scores:
    """Attention flow: the largest flow from the output to each node's input, through capacities Ã.

    Equation    max flow from (L, i) to (0, j) on the layered graph with capacities Ã = ½ A + ½ I
    Symbols     an edge's score = its part in these flows, the mean over j; which of several largest flows is scipy's;
                parallel edges, and a loop and what stays, share by their capacities
    Errors      ExplanationError for more than 1,024 nodes
    Cost        one maximum flow on L (E + N) arcs for each node
    Reference   Abnar & Zuidema, 2020, §2.2
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import maximum_flow

    steps, count, first = layers(explained)
    depth = len(steps)
    if count > MOST_NODES:
        raise ExplanationError(f"attention flow is for at most {MOST_NODES} nodes, not {count}: use rollout")
    start = _start(explained, count, first).numpy(force=True)
    source, stay = depth * count + count, np.arange(count)
    tails, heads, sizes = [np.full(count, source)], [depth * count + stay], [start]
    for number, step in enumerate(steps, start=1):  # from (number, i) to (number - 1, j)
        tails += [number * count + step.receivers.numpy(force=True), number * count + stay]
        heads += [(number - 1) * count + step.senders.numpy(force=True), (number - 1) * count + stay]
        sizes += [0.5 * step.p.numpy(force=True), step.stays.numpy(force=True)]
    capacity = np.rint(UNITS * np.concatenate(sizes)).astype(np.int32)
    size, (tail, head) = source + 1, (np.concatenate(ends).astype(np.int64) for ends in (tails, heads))
    network = coo_array((capacity, (tail, head)), shape=(size, size)).tocsr()
    pairs, which = np.unique(tail * size + head, return_inverse=True)
    nodes, passed = torch.zeros(count, device=explained.device), np.zeros(len(pairs))
    for j in range(count):
        solved = maximum_flow(network, source, j)
        nodes[j] = solved.flow_value / UNITS
        along = solved.flow.tocoo()
        ahead = along.data > 0
        np.add.at(passed, np.searchsorted(pairs, along.row[ahead].astype(np.int64) * size + along.col[ahead]),
                  along.data[ahead] / UNITS)  # fmt: skip
    share = capacity / np.maximum(np.bincount(which, capacity), 1)[which]  # of parallel arcs, a loop's and what stays
    arcs = torch.from_numpy(share * passed[which] / count).float().to(explained.device)
    edges, place = torch.zeros(explained.edges.num_edges, device=explained.device), count
    for step in steps:
        edges = edges + on_edges(explained, step.graph, arcs[place : place + len(step.p)])
        place += len(step.p) + count
    return edges, nodes[first:]


def relevance(explained: Explained) -> Scores:
    """Relevance through attention: its weights, as far as the output grows with them, passed on layer by layer.

    Equation    R ← R + Ā R,  Ā = mean over the heads of (∇A ⊙ A)⁺
    Symbols     ∇A ⊙ A = the gradient to a factor of each weight; the scores are the explained node's row of R - I
    Edge cases  of an encoder-decoder as `rollout`
    Cost        one forward and one backward pass
    Differs     there, of an encoder-decoder, cross-attention is also weighed with the targets' own relevance, eq. 10
    Reference   Chefer, Gur & Wolf, "Generic attention-model explainability", 2021, eqs. 5 and 6
    """
    factors: list[tuple[Graph, Tensor]] = []

    def factor(call: Call) -> Tensor | None:
        if not isinstance(call, Attend):
            return None
        m = torch.ones(call.graph.num_edges, call.heads, device=explained.device, requires_grad=True)
        factors.append((explained.among(call.graph), m))
        return factors[-1][1]

    value = explained.target(explained.under(Gates(factor)))
    if not factors:
        raise _without(explained, "relevance")
    gradients = torch.autograd.grad(value, [m for _, m in factors], allow_unused=True)
    pairs = zip(factors, gradients, strict=True)
    calls = [Recorded(graph, m.detach() * 0 if g is None else g.clamp(min=0)) for (graph, m), g in pairs]
    steps, count, first = layers(explained, calls)
    row = start = _start(explained, count, first)
    total = torch.zeros(explained.edges.num_edges, device=explained.device)
    for step in reversed(steps):
        passed = row.index_select(0, step.receivers) * step.p
        total = total + on_edges(explained, step.graph, passed)
        row = row.index_add(0, step.senders, passed)
    return total, (row - start)[first:]


@torch.no_grad()
def recorded(explained: Explained) -> list[Recorded]:
    """The model's calls of attention."""
    with record() as calls:
        explained.under(Gates(lambda call: None))  # on edges, which have places
    return [Recorded(explained.among(call.graph), call.weights) for call in calls]


@dataclass(frozen=True)
class Step:
    """A call of attention among numbered nodes: of an encoder-decoder the sources, then the targets.

    Symbols     p = the mean over the heads; receivers, senders = those of `graph` by number; stays = what of each node
                stays where it is, 1/2 or, where the call does not update it or it has no senders, 1
    Shapes      p, receivers, senders [E]; stays [N]
    """

    graph: Graph
    p: Tensor
    receivers: Tensor
    senders: Tensor
    stays: Tensor


def layers(explained: Explained, calls: list[Recorded] | None = None) -> tuple[list[Step], int, int]:
    """The calls of attention among the explained nodes, how many nodes there are, and how many of them come first that
    have no input."""
    whole, calls = explained.inputs[0], recorded(explained) if calls is None else calls
    if isinstance(whole, EncoderDecoderGraph):
        sources, targets = whole.encoder.num_receivers, whole.decoder.num_receivers
        starts = ((whole.encoder, 0, 0), (whole.decoder, sources, sources), (whole.cross, sources, 0))
        made = [(call, to, of) for call in calls for graph, to, of in starts if call.graph is graph]
        size, first = sources + targets, 0
    else:
        among = [call for call in calls if explained.places(call.graph) is not None]
        size = among[-1].graph.num_receivers if among else 0
        made = [(call, 0, 0) for call in among if call.graph.num_receivers == size and call.graph.is_square]
        first = size - explained.edges.num_receivers
    if not made:
        raise _without(explained, "attention among its nodes")
    steps = []
    for call, to, of in made:
        stays = torch.ones(size, device=explained.device)
        stays[to : to + call.graph.num_receivers] = torch.where(call.graph.in_degrees() > 0, 0.5, 1.0)
        p = _own(explained, call.weights).mean(-1).float()
        steps.append(Step(call.graph, p, call.graph.receivers + to, call.graph.senders + of, stays))
    return steps, size, first


def on_edges(explained: Explained, graph: Graph, values: Tensor) -> Tensor:
    """Values of a call's edges on the explained ones; those that are not among them are left out."""
    places = explained.places(graph)
    if places is None:
        return torch.zeros(explained.edges.num_edges, device=explained.device)
    return values.new_zeros(explained.edges.num_edges + 1).index_add(0, places, values)[:-1]


def _start(explained: Explained, count: int, first: int) -> Tensor:
    row = torch.zeros(count, device=explained.device)
    if first:
        row[0] = 1.0  # the class node, which is read
    elif explained.node is not None:
        row[explained.node] = 1.0
    else:
        targets = explained.edges.num_receivers if explained.alone else count
        row[-targets:] = 1 / max(targets, 1)
    return row


def _received(graph: Graph, row: Tensor, p_ij: Tensor) -> Tensor:
    paid = row.index_select(0, graph.receivers) * p_ij
    return paid.new_zeros(graph.num_senders).index_add(0, graph.senders, paid)


def _own(explained: Explained, p: Tensor) -> Tensor:
    """Of weights [*, E, H] those of the member of a leading batch that is explained."""
    members = p[None].flatten(0, -3)
    if len(members) == 1:
        return members[0]
    if explained.member is None:
        what = f"the target does not say which of {len(members)} members of the batch is explained"
        raise ExplanationError(f"{what}: give an index of the outputs, such as (1, 0, 2), or one member alone")
    return members[explained.member]


def _without(explained: Explained, what: str) -> ExplanationError:
    name = type(explained.model).__name__
    return ExplanationError(
        f"{name} has no {what}: it calls attend nowhere on them; use integrated-gradients or leave-one-out"
    )
