"""Attention among nodes that hash alike: a graph made from content, anew in every call."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.configuration import Count
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Gathered, Graph, alike, causal
from edgewise.kernels import Dot, attend
from edgewise.layers.attention.attention import GroupedAttention
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.linear import Linear, unit
from edgewise.layers.plain.running import States, uncompiled
from edgewise.layers.plain.sides import check_nodes


class AngularHash(Layer):
    """Labels that vectors of similar direction are likely to share, by random rotations.

    Equation    h_r(x) = argmax([x R_r ; −x R_r]),  R_r [C, buckets / 2] ~ N(0, 1)
    Symbols     rotations [rounds, C, buckets / 2] = R
    Shapes      x [..., N, C] -> [..., rounds, N] int64, 0 to buckets − 1
    Edge cases  with one bucket all are alike. h(a x) = h(x) for a > 0
    Cost        O(N rounds C buckets)
    Reference   Andoni et al., "Practical and optimal LSH for angular distance", 2015

    Example
        >>> hashing = AngularHash(channels=3, buckets=4, rounds=2)
        >>> x = torch.randn(5, 3)
        >>> torch.equal(hashing(x), hashing(7 * x))
        True
    """

    rotations: Tensor
    drawn: Tensor

    def __init__(self, channels: Count, buckets: Count = 16, rounds: Count = 2) -> None:
        super().__init__()
        if buckets > 1 and buckets % 2:
            raise ConfigError(f"AngularHash: buckets must be 1 or even, not {buckets}")
        self.register_buffer("rotations", torch.empty(rounds, channels, buckets // 2))
        self.register_buffer("drawn", torch.randint(2**62, ()))  # seeds this draw, and goes on by one with each
        if not self.drawn.is_meta:
            self.redraw()

    def forward(self, x: Tensor) -> Tensor:
        if self.rotations.shape[-1] == 0:
            return torch.zeros(*x.shape[:-2], len(self.rotations), x.shape[-2], dtype=torch.int64, device=x.device)
        turned = x.unsqueeze(-3) @ self.rotations.to(x.dtype)  # [..., R, N, buckets / 2]
        return torch.cat([turned, -turned], -1).argmax(-1)

    @torch.no_grad()
    def redraw(self, number: int | None = None) -> int:
        """Draw new rotations, or once more those of an earlier draw, by the number that was returned; which ones are
        new follows from the state that is saved with the weights.
        """
        if number is None:
            self.drawn += 1
            number = int(self.drawn)
        generator = torch.Generator().manual_seed(number)
        self.rotations.copy_(torch.randn(self.rotations.shape, generator=generator, device="cpu"))
        return number


class LSHAttention(GroupedAttention[AngularHash]):
    """Each node attends to those senders whose hash is its own, in one of several rounds of hashing.

    Equation    o_i = Σ_r exp(z_i^r − z_i) Σ_{j ∈ P_r(i)} exp(s_ij − z_i^r) v_j
                s_ij = q_i·k_j / √C,  k_j = q_j / ‖q_j‖
                z_i^r = log Σ_{j ∈ P_r(i)} exp(s_ij),  z_i = log Σ_r exp(z_i^r)
                P_r(i) = {j ∈ N(i) : h_r(q_j) = h_r(q_i), in the same chunk or the one before, j ≠ i} (see `alike`),
                P(i) = {i} where that is empty in every round
    Symbols     grouping = h (default: AngularHash(C)); size = m, nodes of a chunk; projection = [W_Q ‖ W_V]ᵀ
    Shapes      x [*, N, width] -> [*, N, width]
    Edge cases  in training each call draws new rotations: a resumed run, or a checkpoint's second call, the same ones
    Cost        on a graph by ranges, time O(N rounds (C buckets + size C + log N)) and memory O(N rounds C) for each
                head: no pair is ever written; on other graphs edge by edge
    Differs     chunks are cut from the start of each bucket, not of the sorted sequence, so that a causal graph stays
                causal. A sender of several rounds counts in each, in the paper (A.1) once. Heads share the rotations
    Reference   Kitaev, Kaiser & Levskaya, "Reformer: the efficient transformer", 2020

    Example
        >>> layer = LSHAttention(2, 1, AngularHash(2, buckets=1), bias=False)  # one bucket: all are alike
        >>> layer.projection.weight.data = torch.cat([torch.zeros(2, 2), torch.eye(2)])  # all scores 0, v = x
        >>> layer.output.weight.data = torch.eye(2)
        >>> layer(causal(3), torch.tensor([[0.0, 2.0], [4.0, 0.0], [9.0, 9.0]])).tolist()  # the means of the others
        [[0.0, 2.0], [0.0, 2.0], [2.0, 1.0]]
    """

    def default_grouping(self) -> AngularHash:
        return AngularHash(self.channels)

    def _initialise(self) -> None:
        self._states = States[int]()  # the numbers of draws
        width = self.output.in_features
        self.projection = Linear(width, 2 * width, self.output.bias is not None)
        super()._initialise()

    def _self_ends(self, graph: Graph, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        check_nodes(graph, x)
        q, v = self.projection(x).unflatten(-1, (2 * self.split[0], self.channels)).chunk(2, -2)
        q = q if self.rotary is None else self.rotary(graph, q)
        return q, unit(q), v

    def _cross_ends(self, graph: Graph, x: Tensor, senders: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        raise ShapeError("hashing compares nodes with one another: LSHAttention takes no senders beside x")

    @uncompiled
    def average(self, graph: Graph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.training:
            number = self.grouping.redraw(self._states.first())
            self._states.keep(lambda: number)
        batch, (q, k, v) = q.shape[:-3], (x.transpose(-2, -3).flatten(0, -3) for x in (q, k, v))  # [S, N, C]
        labels = self.grouping(q.detach()), self.grouping(k.detach())
        among = alike(graph, *labels, self.size, loops=False)
        rounds = labels[0].shape[1]
        q, k, v = (x.unsqueeze(1).expand(-1, rounds, -1, -1).flatten(0, 2) for x in (q, k, v))
        q, k, v = q[among.receivers], k[among.senders], v[among.senders]
        y = _averages(among.graph, q, k, v) if rounds == 1 else _with_sink(among, q, k, v, labels[0].shape)
        y = torch.empty_like(y).index_copy(0, among.receivers, y).unflatten(0, labels[0].shape)  # [S, R, I, C]
        y = y.squeeze(1) if rounds == 1 else _over_rounds(y)
        return y.unflatten(0, (*batch, self.split[0])).transpose(-2, -3)

    @staticmethod
    def example() -> Example:
        return LSHAttention(4, 2, AngularHash(2, buckets=2), size=1), causal(5), (torch.randn(5, 4),)


def _averages(graph: Graph, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """`attend` with one head, [I', C], [J', C], [J', D] -> [I', D]."""
    return attend(graph, q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), Dot(scale)).squeeze(1)


def _with_sink(among: Gathered, q: Tensor, k: Tensor, v: Tensor, rounds: tuple[int, ...]) -> Tensor:
    """Σ_j e^s_ij [v_j ‖ 1 ‖ 0] + e^t_i [0 ‖ 0 ‖ 1] over Σ_j e^s_ij + e^t_i: attention with one sink beside the senders.

    The sink's score is t_i = ‖q_i‖ / √C, the largest that a key of length 1 can have: nothing overflows. Where a sum
    could vanish beside it, t_i is the largest mean of a round's scores, Σ_j p_ij s_ij: its z_i^r is log |P_r(i)| above
    that at most.
    """
    scale = q.shape[-1] ** -0.5
    t = q.detach().norm(dim=-1, keepdim=True)  # √C t_i; y is the same whatever it is
    if t.numel() and bool(t.amax() * scale > _reach(q.dtype)):
        t = _largest_mean(among, q.detach(), k.detach(), rounds)
    q = torch.cat([q, t.to(q.dtype)], -1)
    k = _with_last(functional.pad(k, (0, 1)))
    v = _with_last(functional.pad(functional.pad(v, (0, 1), value=1.0), (0, 1)))
    return _averages(among.with_sink(), q, k, v, scale)


def _reach(dtype: torch.dtype) -> float:
    """The largest t for which exp(−2t) has all digits."""
    limits = torch.finfo(dtype)
    return 0.5 * math.log(limits.eps / limits.tiny)


def _largest_mean(among: Gathered, q: Tensor, k: Tensor, rounds: tuple[int, ...]) -> Tensor:
    """max_r Σ_j p_ij q_i·k_j over the rounds in which i has senders, [I', 1]; 0 without any."""
    mean = (q * _averages(among.graph, q, k, k)).sum(-1).masked_fill(among.graph.in_degrees() == 0, -math.inf)
    of_nodes = torch.empty_like(mean).index_copy(0, among.receivers, mean).view(rounds)  # [S, R, I]
    largest = of_nodes.amax(1, keepdim=True).expand(rounds).flatten()[among.receivers]
    return largest.masked_fill(largest == -math.inf, 0).unsqueeze(-1)


def _with_last(x: Tensor) -> Tensor:
    """One more row, [0 ‖ ... ‖ 0 ‖ 1]."""
    return torch.cat([x, functional.pad(x.new_ones(1, 1), (x.shape[-1] - 1, 0))])


def _over_rounds(y: Tensor) -> Tensor:
    """The rounds [S, R, I, C + 2] relative to the weight of the sink, added up and divided by their total weight."""
    total = (y[..., :-1] / y[..., -1:]).sum(1)
    weight = total[..., -1:]
    return total[..., :-1] / torch.where(weight == 0, 1, weight)
