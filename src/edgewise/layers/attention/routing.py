"""Attention inside clusters of queries and keys, whose centres follow them as they are learned."""

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from edgewise.configuration import Count, Portion
from edgewise.graphs import Gathered, Graph, alike, causal, clusters, is_causal
from edgewise.graphs.make.content import causal_members
from edgewise.kernels import aggregate, attend
from edgewise.layers.attention.attention import GroupedAttention
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.running import States, uncompiled


class Centroids(Layer):
    """Directions that vectors gather around, a set for each head; online spherical k-means.

    Equation    c(x) = argmax_c near_c(x),  near_c(x) = ⟨LN(x), μ_c⟩ / ‖μ_c‖
                μ_c ← λ μ_c + (1 − λ)/2 (Σ_{i: c(q_i) = c} LN(q_i) + Σ_{j: c(k_j) = c} LN(k_j))
    Symbols     means [H, K, C] = μ; decay = λ; LN = normalisation to mean 0 and variance 1, without weights
    Shapes      x [S, N, C] -> near [S, K, N], where S = B H sequences, head by head in every batch
    Edge cases  a centre that is nearest to no vector stays where it is
    Cost        O(S N K C)
    Differs     nearness is to a centre's direction, so that its length, which grows with its vectors, draws in no more
    Reference   Roy, Saffar, Vaswani & Grangier, 2021, §4.1

    Example
        >>> centroids = Centroids(heads=1, channels=2, count=2, decay=0.5)
        >>> centroids.means.copy_(torch.tensor([[[1.0, -1.0], [-1.0, 1.0]]])).shape
        torch.Size([1, 2, 2])
        >>> x = torch.tensor([[[3.0, 1.0], [1.0, 5.0], [2.0, 6.0]]])  # LN: (1, -1), (-1, 1), (-1, 1)
        >>> centroids(x).argmax(1).tolist()
        [[0, 1, 1]]
        >>> centroids.follow(x, x)
        >>> centroids.means[0, 1].round(decimals=2).tolist()  # 1/2 μ + 1/4 (2 + 2) LN(x)
        [-1.5, 1.5]
    """

    means: Tensor

    def __init__(self, heads: Count, channels: Count, count: Count = 8, decay: Portion = 0.999) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("means", functional.layer_norm(torch.randn(heads, count, channels), (channels,)))
        self._states = States[Tensor]()  # the means that a call read

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        x = functional.layer_norm(x, x.shape[-1:]).unflatten(0, (-1, len(self.means)))  # [B, H, N, C]
        return (functional.normalize(self.means, dim=-1).to(x.dtype) @ x.mT).flatten(0, 1)

    @torch.no_grad()
    def follow(self, *vectors: Tensor) -> None:
        """Move every centre towards the sum of those nearest to it; queries and keys count half each."""
        total = torch.zeros_like(self.means)
        for x in vectors:
            chosen = functional.one_hot(self(x).argmax(1), self.means.shape[1]).to(self.means.dtype)  # [S, N, K]
            sums = chosen.mT @ functional.layer_norm(x, x.shape[-1:]).to(self.means.dtype)
            total += sums.unflatten(0, (-1, len(self.means))).sum(0) / len(vectors)
        met = total.abs().sum(-1, keepdim=True) > 0
        self.means.copy_(torch.where(met, self.decay * self.means + (1 - self.decay) * total, self.means))

    def near(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """How near queries and keys are; while training the centres follow them, after it: a node would learn of later
        ones. A call that `torch.utils.checkpoint` runs once more has the centres that it had.
        """
        means = self._states.first() if self.training else None
        if means is not None:
            return functional_call(self, {"means": means}, (q,)), functional_call(self, {"means": means}, (k,))
        near = self(q), self(k)
        if self.training:
            self._states.keep(self.means.clone)
            self.follow(q, k)
        return near


class RoutingAttention(GroupedAttention[Centroids]):
    """Queries and keys are routed to clusters, and each node attends within its clusters alone.

    Equation    y_i = mean_{c : i ∈ top_c(q)} Σ_{j ∈ N(i) ∩ top_c(k)} softmax_j(q_i·k_j / √C) v_j
                top_c(x) = the `size` nodes of largest near_c(x_i); in a causal graph, or member, instead
                y_i = Σ_j softmax_j(q_i·k_j / √C) v_j over j ∈ N(i) : c(k_j) = c(q_i), the last size … 2 size (`alike`)
    Symbols     grouping = μ and λ (default: Centroids(H, C)), size = w; otherwise as MultiHeadAttention
    Shapes      x [*, I, width] (, senders [*, J, width]) -> [*, I, width]
    Edge cases  a node in no cluster, or without senders there, gets the output bias. While training, the centres follow
                the queries and keys of every call, after it, but not of one that a checkpoint runs once more
    Cost        on a graph by ranges, O(N K C) for the clusters and O(K size² C) or O(N size C) for attention, a head;
                with K = size = √n, O(n √n C) altogether; on other graphs edge by edge
    Differs     in causal models the paper takes the largest of the whole sequence, so that later nodes decide; scores
                are of q and k themselves, normalised for the clusters alone; all heads are routed, there half of them
    Reference   Roy et al., "Efficient content-based sparse attention with routing transformers", 2021

    Example
        >>> from edgewise.layers import MultiHeadAttention
        >>> x, exact = torch.randn(5, 8), MultiHeadAttention(8, 2)
        >>> layer = RoutingAttention(8, 2, Centroids(2, 4, count=1), size=5)  # one cluster, with room for all
        >>> _ = layer.load_state_dict(exact.state_dict(), strict=False)
        >>> torch.allclose(layer(causal(5), x), exact(causal(5), x), atol=1e-6)
        True
    """

    def default_grouping(self) -> Centroids:
        return Centroids(self.split[0], self.channels)

    @uncompiled
    def average(self, graph: Graph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        batch, heads = q.shape[:-3], q.shape[-2]
        q, k, v = (x.transpose(-2, -3).flatten(0, -3) for x in (q, k, v))  # [S, N, C]
        routed = self.routed(graph, q, k)
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        q_i, k_j, v_j = q[routed.receivers, None], k[routed.senders, None], v[routed.senders, None]  # [places, 1, C]
        y = attend(routed.graph, q_i, k_j, v_j).squeeze(1)
        # A node takes the mean over its clusters.
        edges = torch.stack([torch.arange(len(y), device=y.device), routed.receivers])
        y = aggregate(Graph.from_edge_index(edges, len(y), len(q)), y, reduce="mean")
        return y.view(*batch, heads, graph.num_receivers, y.shape[-1]).transpose(-2, -3)

    def routed(self, graph: Graph, q: Tensor, k: Tensor) -> Gathered:
        """The graph within the clusters, for queries [S, I, C] and keys [S, J, C]."""
        near_i, near_j = self.grouping.near(q.detach(), k.detach())
        labels = near_i.argmax(1, keepdim=True), near_j.argmax(1, keepdim=True)
        if is_causal(graph):
            return alike(graph, *labels, self.size)
        around, causal_ones = clusters(graph, near_i, near_j, self.size), causal_members(graph)
        if not bool(causal_ones.any()):
            return around
        chunks, of_causal = alike(graph, *labels, self.size), causal_ones.repeat_interleave(graph.sizes)
        parts = ((chunks, of_causal), (around, ~of_causal))
        first, second = (part.at(kept[part.receivers % graph.num_receivers]) for part, kept in parts)
        return first.beside(second)

    @staticmethod
    def example() -> Example:
        return RoutingAttention(4, 2, Centroids(2, 2, count=2), size=2), causal(5), (torch.randn(5, 4),)
