"""Attention to one's own block and to a mixture of other blocks, which a network learns to sort."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count, Positive
from edgewise.errors import GraphError
from edgewise.graphs import Graph, causal, laid_out
from edgewise.graphs import forms as lowering
from edgewise.graphs.derived import cached
from edgewise.graphs.make.content import causal_members
from edgewise.graphs.rule import Causal
from edgewise.kernels import attend
from edgewise.layers.attention.attention import GroupedAttention
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.running import uncompiled


def sinkhorn(scores: Tensor, allowed: Tensor, iterations: int, past: bool = False) -> Tensor:
    """Scale the rows and columns of exp(scores) in turn until both add up to 1: a permutation made soft.

    Equation    S⁰ = exp(R);  S ← S_ab / Σ_a' S_a'b,  S ← S_ab / Σ_b' S_ab', repeatedly;
                with `past` the first sum is over a' ≤ a alone, so that no row depends on a later one
    Symbols     scores = R; allowed = where S may be other than 0
    Shapes      scores, allowed [..., A, A] -> S [..., A, A]
    Edge cases  a row in which nothing is allowed is 0; the rows are scaled last and add up to 1. In the past alone,
                many iterations leave a row no choice but the column before its own: few keep it soft
    Cost        O(iterations A²)
    Reference   Sinkhorn, 1964; Tay et al., "Sparse Sinkhorn attention", 2020, §3.1 and §3.3

    >>> s = sinkhorn(torch.tensor([[5.0, 0.0], [6.0, 0.0]]), torch.ones(2, 2, dtype=torch.bool), iterations=20)
    >>> s.sum(0).allclose(torch.ones(2), atol=1e-4), s.sum(1).allclose(torch.ones(2))
    (True, True)
    """
    nothing = torch.finfo(scores.dtype).min / 4
    log = scores.masked_fill(~allowed, nothing)
    for _ in range(iterations):
        columns = log.logcumsumexp(-2) if past else log.logsumexp(-2, keepdim=True)
        log = (log - columns).masked_fill(~allowed, nothing)
        log = (log - log.logsumexp(-1, keepdim=True)).masked_fill(~allowed, nothing)
    return log.exp() * allowed


class BlockSort(Layer):
    """Which block each block attends to, as a soft permutation: S_ab is the share of block b in what block a gets.

    Equation    S = sinkhorn((R + ε) / τ),  R_ab = x̄_aᵀ W x̄_b,  ε ~ Gumbel while training, else 0
    Symbols     W [H, C, C]; temperature = τ; x̄ = the mean of a block; past: of all up to the first node of block a
    Shapes      blocks [*, A, b, H, C], sizes and allowed of `Blocking` -> S [*, H, A, A]
    Cost        O(H (N C + A C² + A² (C + iterations)))
    Differs     in the paper a perceptron maps a block's sum to a row of R, which holds a model to one number of blocks
    Reference   Tay, Bahri, Yang, Metzler & Juan, "Sparse Sinkhorn attention", 2020, §3.1
    """

    def __init__(self, heads: Count, channels: Count, temperature: Positive = 0.75, iterations: Count = 8) -> None:
        super().__init__()
        self.temperature, self.iterations = temperature, iterations
        self.W = nn.Parameter(torch.randn(heads, channels, channels) / channels)

    def forward(self, blocks: Tensor, sizes: Tensor, allowed: Tensor, past: bool) -> Tensor:
        total = blocks.sum(-3)  # [*, A, H, C]
        of_sender = total / sizes.clamp(min=1)[..., None, None]
        of_receiver = of_sender
        if past:
            before = torch.arange(blocks.shape[-4], device=blocks.device) * blocks.shape[-3]
            reached = total.cumsum(-3) - total + blocks[..., 0, :, :]
            of_receiver = reached / (before + 1)[:, None, None]
        scores = torch.einsum("...ahc,hcd,...bhd->...hab", of_receiver, self.W, of_sender)
        if self.training:
            scores = scores - torch.empty_like(scores).exponential_().log()
        return sinkhorn(scores / self.temperature, allowed.unsqueeze(-3), self.iterations, past)


@dataclass(frozen=True)
class Blocking:
    """A graph's nodes in blocks and their edges: all that follows from the graph alone.

    Symbols     nodes [G, A, b] = the nodes of each block, J where there is none; sizes [G, A]; allowed [G, A, A] = the
                graph holds every pair of blocks a and b; past [G] = the member is causal, and mixes no block into
                itself; kinds = the values of past; graph = receivers [I] attend to their mixed block, of the G A b
                senders in front, and to their senders in their own block, of the J behind
    """

    nodes: Tensor
    sizes: Tensor
    allowed: Tensor
    past: Tensor
    kinds: tuple[bool, ...]
    graph: Graph


@cached
def blocking_of(graph: Graph, block: int) -> Blocking:
    """A graph's nodes in blocks of one size."""
    whole = _square(graph)
    nodes = laid_out(whole.sizes, block).unflatten(1, (-1, block))
    sizes = (nodes < whole.num_senders).sum(-1)
    first = torch.cat([whole.sizes.new_zeros(1), whole.sizes.cumsum(0)])
    member = torch.repeat_interleave(whole.sizes)
    number = member * sizes.shape[1] + (torch.arange(whole.num_senders, device=graph.device) - first[member]) // block
    allowed, past = _full(whole, number, nodes[..., 0], sizes), causal_members(whole)
    allowed = torch.where(past[:, None, None], allowed.tril(-1), allowed)
    length = (allowed * sizes[:, None]).amax(-1) if sizes.numel() else sizes
    own = torch.arange(graph.num_receivers, device=graph.device) + graph.offset
    mixed = _with_mixed(graph, number, number[own], length.flatten(), block)
    return Blocking(nodes, sizes, allowed, past, tuple(sorted(set(past.tolist()))), mixed)


def _square(graph: Graph) -> Graph:
    """The graph among all of the senders, of which the receivers may be some."""
    if graph.is_square:
        return graph
    if not isinstance(graph.rule, Causal) or graph.offset + graph.num_receivers > graph.num_senders:
        # Of other graphs it depends on nodes to come whether they hold all pairs of the last block and another.
        raise GraphError(f"blocks are sorted in a whole graph, or in rows of a causal one, not in {graph}")
    return causal(graph.num_senders).to(graph.device)


def _full(graph: Graph, number: Tensor, first: Tensor, sizes: Tensor) -> Tensor:
    """bool [G, A, A]: every node of block a attends to every node of block b."""
    (members, count), ranges = sizes.shape, graph.ranges()
    if ranges is not None and ranges[0].shape[1] == 1:  # no pair need be listed
        starts, stops = (bound[:, 0] for bound in ranges)
        latest = starts.new_zeros(members * count).scatter_reduce_(0, number, starts, "amax").view(members, count, 1)
        soonest = torch.full_like(latest.flatten(), graph.num_senders).scatter_reduce_(0, number, stops, "amin")
        full = (latest <= first[:, None]) & (soonest.view_as(latest) >= (first + sizes)[:, None])
    else:
        graph = graph.coalesce()  # parallel edges are one pair
        pairs = number[graph.receivers] * count + number[graph.senders] % max(1, count)
        edges = lowering.counts(pairs, members * count * count).view(members, count, count)
        full = edges == sizes[:, :, None] * sizes[:, None]
    return full & (sizes > 0)[:, :, None] & (sizes > 0)[:, None]


def _with_mixed(graph: Graph, number: Tensor, own: Tensor, length: Tensor, block: int) -> Graph:
    """Receivers in the blocks `own` attend to the first `length` of their block's places, then to those inside it."""
    front, ranges = len(length) * block, graph.ranges()
    starts, stops = (own * block)[:, None], (own * block + length[own])[:, None]
    if ranges is not None:
        in_order = torch.searchsorted(number, torch.stack([own, own + 1]))[..., None]  # numbers ascend
        inside = (bound.clamp(*in_order) + front for bound in ranges)
        starts, stops = (torch.cat(pair, 1) for pair in zip((starts, stops), inside, strict=True))
        return Graph.from_ranges(starts, stops, front + graph.num_senders)
    same = own[graph.receivers] == number[graph.senders]
    all_receivers = torch.arange(graph.num_receivers, device=graph.device)
    receivers = torch.cat([torch.repeat_interleave(all_receivers, length[own]), graph.receivers[same]])
    senders = torch.cat([lowering.senders_of(starts, stops), graph.senders[same] + front])
    return Graph.from_edge_index(torch.stack([senders, receivers]), front + graph.num_senders, graph.num_receivers)


class SinkhornAttention(GroupedAttention[BlockSort]):
    """Each node attends to its own block, and to a block mixed from the others by a soft permutation.

    Equation    K̃_a = Σ_b S_ab K_b,  Ṽ_a = Σ_b S_ab V_b,  S = the soft permutation of the blocks (see `BlockSort`)
                y_i = attention of q_i over [K̃_a ‖ K_j], [Ṽ_a ‖ V_j],  j ∈ N(i) ∩ block a,  for i in block a
    Symbols     grouping = S (default: BlockSort(H, C)), size = b; otherwise as MultiHeadAttention
    Shapes      x [*, N, width] -> [*, N, width]
    Errors      GraphError for rows of a graph that is not causal
    Edge cases  block b is mixed into block a only where the graph holds all pairs of the two; in a causal member into
                later blocks only. What a last block lacks counts as zeros. One block: attention itself
    Cost        for A = N / b blocks O(N b C + A² b C) time and O(N C + A²) memory for each head, on a graph by ranges;
                with b = √N, O(N √N C). On other graphs edge by edge
    Differs     S depends on the means of values (so that rotary positions do not blur them) by a bilinear form
    Reference   Tay, Bahri, Yang, Metzler & Juan, "Sparse Sinkhorn attention", 2020

    Example
        >>> from edgewise.layers import MultiHeadAttention
        >>> x, exact = torch.randn(5, 8), MultiHeadAttention(8, 2)
        >>> layer = SinkhornAttention(8, 2, size=5)
        >>> _ = layer.load_state_dict(exact.state_dict(), strict=False)
        >>> torch.allclose(layer(causal(5), x), exact(causal(5), x), atol=1e-6)  # one block
        True
    """

    def default_grouping(self) -> BlockSort:
        return BlockSort(self.split[0], self.channels)

    @uncompiled
    def average(self, graph: Graph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        blocking = blocking_of(graph, self.size)
        k_b, v_b = (functional.pad(x, (0, 0, 0, 0, 0, 1))[..., blocking.nodes, :, :] for x in (k, v))
        # Each [*, G, H, A, A], of which a member takes that of its own kind.
        by_kind = [self.grouping(v_b, blocking.sizes, blocking.allowed, past) for past in blocking.kinds]
        S = by_kind[0] if len(by_kind) == 1 else torch.where(blocking.past[:, None, None, None], by_kind[1], by_kind[0])
        mixed = (torch.einsum("...hab,...bthc->...athc", S, x).flatten(-5, -3) for x in (k_b, v_b))
        k, v = (torch.cat(pair, -3) for pair in zip(mixed, (k, v), strict=True))
        return attend(blocking.graph, q, k, v, self.score(graph, q, k))

    @staticmethod
    def example() -> Example:
        return SinkhornAttention(4, 2, size=2), causal(5), (torch.randn(5, 4),)
