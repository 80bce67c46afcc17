"""Relative positions: attention whose scores know how far apart i and j are. Each is a bias added to the dot product.

The distance i − j counts positions, the graph's receiver offset included, so that one step of cached decoding sees what
the whole graph sees. Any graph whose nodes stand in an order will do: causal, window, edges, a batch of texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, require
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, causal
from edgewise.graphs.derived import cached
from edgewise.kernels import Dot, EdgeBias, RelativeBias, SenderBias, aggregate, attend, dropout
from edgewise.kernels.scores import Bias, Score
from edgewise.layers.attention.attention import PositionalAttention
from edgewise.layers.attention.positions import Sinusoidal, batch_of, positions, sender_positions, sinusoids
from edgewise.layers.plain.layer import Example


@cached
def distances(graph: Graph) -> Tensor:
    """i − j of every edge, int64 [E], computed once per graph: positive where the sender lies in the past."""
    if _on_one_line(graph):
        return graph.receivers + graph.offset - graph.senders
    return positions(graph)[graph.receivers] - sender_positions(graph)[graph.senders]


def relative_bias(graph: Graph, table: Tensor) -> Bias:
    """b_{h, i − j} of a table [H, 2 reach + 1], within each member of a batch."""
    bias = RelativeBias(table)
    return bias if _on_one_line(graph) else EdgeBias(bias.at(distances(graph)))


def _on_one_line(graph: Graph) -> bool:
    """Whether i − j is the distance of receiver i and sender j: not so in a batch of graphs with two sides."""
    return batch_of(graph).is_square or graph.sizes.shape[0] == 1


def at_distance(graph: Graph, values: Tensor, column: Tensor) -> Tensor:
    """What each edge reads in its receiver's table: values [*, I, H, D] at column [E] -> [*, E, H]."""
    rows = values.transpose(-1, -2).flatten(-3, -2)  # [*, I·D, H]
    return rows.index_select(-2, graph.receivers * values.shape[-1] + column)


def sums_by_distance(graph: Graph, p: Tensor, column: Tensor, columns: int) -> Tensor:
    """The sum of each receiver's edges in each column: p [*, E, H] at column [E] -> [*, I, H, D]."""
    rows = p.new_zeros(*p.shape[:-2], graph.num_receivers * columns, p.shape[-1])
    summed = rows.index_add(-2, graph.receivers * columns + column, p)
    return summed.view(*p.shape[:-2], graph.num_receivers, columns, p.shape[-1]).transpose(-1, -2)


class ALiBiAttention(PositionalAttention):
    """Attention with linear biases: each head pays a fixed price for every step of distance, and learns nothing for it.

    Equation    s_ij = q_i·k_j / √C − m_h |i − j|,  m_h = 2^(−8 (h + 1) / H)
    Symbols     m = slopes(H); where H is no power of two, those of the power below, then every second of that above
    Shapes      x [*, I, width] (, senders [*, J, width]) -> [*, I, width]
    Cost        that of MultiHeadAttention, and O(H (I + J)) for the table of prices, computed once per graph
    Differs     the paper's graph is causal, where |i − j| = i − j
    Reference   Press, Smith & Lewis, "Train short, test long", 2022, §3

    Example
        >>> layer = ALiBiAttention(width=2, heads=1, bias=False)
        >>> layer.projection.weight.data = torch.cat([torch.zeros(4, 2), torch.eye(2)])  # q·k = 0, v = x
        >>> layer.output.weight.data = torch.eye(2)
        >>> layer(causal(2), torch.eye(2))[1]  # weights exp(−1/256) and 1, normalised
        tensor([0.4990, 0.5010], grad_fn=<SelectBackward0>)
    """

    def score(self, graph: Graph, q: Tensor, k: Tensor) -> Score:
        dtype = torch.promote_types(q.dtype, torch.float32)  # a far distance has many digits
        return Dot() + relative_bias(graph, _sloping(graph, q.shape[-2], dtype))

    @staticmethod
    def example() -> Example:
        return ALiBiAttention(6, 3, dropout=0.5), causal(5), (torch.randn(5, 6),)


@cached
def _sloping(graph: Graph, heads: int, dtype: torch.dtype) -> Tensor:
    """−m_h |d| at every distance d that the graph can have, [H, 2 reach + 1]."""
    reach = max(graph.offset + graph.num_receivers, graph.num_senders)
    d = torch.arange(-reach, reach + 1, device=graph.device)
    return -torch.tensor(slopes(heads), dtype=dtype, device=graph.device)[:, None] * d.abs()


def slopes(heads: int) -> list[float]:
    """ALiBi's price m_h of one step of distance, for each head.

    Example
        >>> slopes(4)
        [0.25, 0.0625, 0.015625, 0.00390625]
        >>> slopes(3)
        [0.0625, 0.00390625, 0.25]
    """

    def geometric(n: int) -> list[float]:
        return [2.0 ** (-8 * (h + 1) / n) for h in range(n)]

    power = 2 ** (heads.bit_length() - 1)
    return geometric(power) + geometric(2 * power)[::2][: heads - power]


@dataclass(frozen=True)
class Buckets:
    """T5's buckets of distances: one for each small distance, then wider and wider ones up to `reach`.

    Equation    with n buckets for one side, d = |i − j| and e = ⌊n / 2⌋:
                bucket = d for d < e, else min(n − 1, e + ⌊(n − e) log(d / e) / log(reach / e)⌋)
    Symbols     count = buckets altogether; both = half of them for senders in the future; without, n = count and the
                future shares the bucket of distance 0 (T5's decoder)
    Reference   Raffel et al., "T5", 2020, §2.1

    Example
        >>> Buckets(count=8, reach=16, both=False).of(torch.tensor([-3, 0, 3, 4, 8, 16, 99])).tolist()
        [0, 0, 3, 4, 6, 7, 7]
    """

    count: int = 32
    reach: int = 128
    both: bool = True

    def __post_init__(self) -> None:
        require(self, Count, count=self.count, reach=self.reach)
        side = self.count // 2 if self.both else self.count
        if side < 2 or self.reach <= side // 2:
            raise ConfigError(f"{self} has too few buckets, or a reach of no more than its {side // 2} exact distances")

    def of(self, distance: Tensor) -> Tensor:
        """The bucket of distances i − j, int64 of any shape."""
        side = self.count // 2 if self.both else self.count
        d, exact = (distance.abs() if self.both else distance.clamp(min=0)), side // 2
        # In float32, as its authors' code: distances on a bucket's edge then fall on the same side of it.
        far = torch.log(d.clamp(min=1).float() / exact) / math.log(self.reach / exact) * (side - exact)
        bucket = torch.where(d < exact, d, (exact + far.long()).clamp(max=side - 1))
        return bucket + side * (distance < 0) if self.both else bucket


class T5Attention(PositionalAttention):
    """Attention with a learned bias for each bucket of distances and each head.

    Equation    s_ij = q_i·k_j / √C + b_{h, bucket(i − j)}
    Symbols     b [H, buckets] = b
    Shapes      x [*, I, width] (, senders [*, J, width]) -> [*, I, width]
    Edge cases  distances beyond `buckets.reach` share the last bucket
    Cost        that of MultiHeadAttention, and O(H reach) for the table
    Differs     T5 leaves out 1/√C and starts from smaller queries: the same function of other weights; it shares one
                table among its layers, while each layer has its own here unless it is to `share(other)`
    Reference   Raffel et al., "T5", 2020, §2.1

    Example
        >>> layer = T5Attention(width=2, heads=1, buckets=Buckets(count=4, reach=4), bias=False)
        >>> layer.projection.weight.data = torch.cat([torch.zeros(4, 2), torch.eye(2)])  # q·k = 0, v = x
        >>> layer.output.weight.data, layer.b.data = torch.eye(2), torch.tensor([[0.0, -torch.inf, 0.0, 0.0]])
        >>> layer(causal(2), torch.eye(2)).tolist()  # the bucket of distance 1 is closed
        [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        width: int,
        heads: int,
        buckets: Buckets = Buckets(),
        *,
        key_value_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, key_value_heads=key_value_heads, bias=bias, dropout=dropout)
        self.buckets = buckets
        self.b: nn.Parameter | None = nn.Parameter(torch.empty(heads, buckets.count))
        nn.init.normal_(self.b, std=width**-0.5)
        self._owner: tuple[T5Attention, ...] = (self,)  # in a tuple, so that it is no submodule

    def share(self, other: T5Attention) -> None:
        """Read the table of another layer, which keeps it, instead of one's own; nothing where that one reads ours."""
        holder = other.holder()
        if holder is not self:
            self.b, self._owner = None, (holder,)

    def holder(self) -> T5Attention:
        """The layer whose table this one reads: itself, or the one that it shares with, and so on."""
        return self if self.b is not None else self._owner[0].holder()

    def score(self, graph: Graph, q: Tensor, k: Tensor) -> Score:
        reach = self.buckets.reach
        bucket = self.buckets.of(torch.arange(-reach, reach + 1, device=q.device))
        table = self.holder().b
        assert table is not None
        return Dot() + relative_bias(graph, table[:, bucket])

    @staticmethod
    def example() -> Example:
        return T5Attention(6, 3, Buckets(4, 4), dropout=0.5), causal(5), (torch.randn(5, 6),)


class ShawAttention(PositionalAttention):
    """Attention with a learned vector for each distance, in the keys and in the values.

    Equation    s_ij = q_i·(k_j + a^K_{j−i}) / √C    (4),   y_i = Σ_j p_ij (v_j + a^V_{j−i})    (3)
    Symbols     a_key, a_value [2 reach + 1, C] = a^K, a^V, shared by the heads; row j − i + reach, clipped; reach = k
    Shapes      x [*, I, width] (, senders [*, J, width]) -> [*, I, width]
    Cost        that of MultiHeadAttention on a backend that returns its weights, O(I H C reach) for q_i·a^K and the
                sum of a^V, O(E H) for the weights: k_j + a^K and v_j + a^V are never written out
    Reference   Shaw, Uszkoreit & Vaswani, "Self-attention with relative position representations", 2018

    Example
        >>> layer = ShawAttention(width=1, heads=1, reach=1, bias=False)
        >>> layer.projection.weight.data = torch.zeros(3, 1)  # q = k = v = 0: all senders count alike
        >>> layer.output.weight.data = torch.ones(1, 1)
        >>> layer.a_value.data = torch.tensor([[1.0], [10.0], [100.0]])  # before, here, after
        >>> layer(causal(3), torch.ones(3, 1)).flatten()  # 10;  (1 + 10) / 2;  (1 + 1 + 10) / 3
        tensor([10.0000,  5.5000,  4.0000], grad_fn=<ViewBackward0>)
    """

    def __init__(
        self,
        width: int,
        heads: int,
        reach: Count = 16,
        *,
        key_value_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, key_value_heads=key_value_heads, bias=bias, dropout=dropout)
        self.reach = reach
        self.a_key = nn.Parameter(torch.empty(2 * reach + 1, self.channels))
        self.a_value = nn.Parameter(torch.empty(2 * reach + 1, self.channels))
        nn.init.xavier_uniform_(self.a_key)
        nn.init.xavier_uniform_(self.a_value)

    def score(self, graph: Graph, q: Tensor, k: Tensor) -> Score:
        return Dot() + EdgeBias(at_distance(graph, q @ self.a_key.T * self.channels**-0.5, _rows(graph, self.reach)))

    def average(self, graph: Graph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y, p = attend(graph, q, k, v, self.score(graph, q, k), return_weights=True)
        if self.training and self.dropout:  # of one draw for both sums
            p = dropout(p, self.dropout, training=True)
            y = aggregate(graph, v.repeat_interleave(q.shape[-2] // v.shape[-2], -2), p.to(v.dtype))
        p_to = sums_by_distance(graph, p, _rows(graph, self.reach), len(self.a_value)).to(v.dtype)  # [*, I, H, D]
        return y + p_to @ self.a_value.to(v.dtype)

    @staticmethod
    def example() -> Example:
        return ShawAttention(6, 3, reach=2, dropout=0.5), causal(5), (torch.randn(5, 6),)


@cached
def _rows(graph: Graph, reach: int) -> Tensor:
    """The row of a^K and a^V that each edge reads, [E]."""
    return (-distances(graph)).clamp(-reach, reach) + reach


class TransformerXLAttention(PositionalAttention):
    """Attention in four terms: content and distance, each as seen from i's content and from everywhere alike.

    Equation    s_ij = (q_i·k_j + q_i·W_R r_{i−j} + u·k_j + v·W_R r_{i−j}) / √C,
                q = X W_Q, k = X W_E, r = sinusoids of the distance
    Symbols     u, v [H, C] = u, v; relative = W_R, apart from the W_E of `projection` (split keys)
    Shapes      x [*, I, width] (, senders [*, J, width]) -> [*, I, width]
    Edge cases  any distance has its sinusoid, trained on or not
    Cost        that of MultiHeadAttention, O(D width²) for D different distances, O(I D width) time and O(I D H) memory
                for what i makes of each: D = I + J on a complete graph, the radius on a window
    Differs     no hidden states of an earlier segment: let the graph have their senders. Sines and cosines alternate
    Reference   Dai et al., "Transformer-XL", 2019, §3.3

    Example
        >>> layer = TransformerXLAttention(width=2, heads=1, bias=False)
        >>> layer.projection.weight.data = torch.cat([torch.zeros(4, 2), torch.eye(2)])  # q = k = 0, v = x
        >>> layer.output.weight.data, layer.relative.weight.data = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 0.0]])
        >>> layer.v.data = torch.tensor([[2**0.5, 0.0]])  # s_ij = sin(i - j)
        >>> layer(causal(2), torch.eye(2))[1]  # exp(sin 1) and exp(sin 0), normalised
        tensor([0.6988, 0.3012], grad_fn=<SelectBackward0>)
    """

    def __init__(
        self, width: int, heads: int, *, key_value_heads: int | None = None, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__(width, heads, key_value_heads=key_value_heads, bias=bias, dropout=dropout)
        self.waves = Sinusoidal(width)
        self.relative = nn.Linear(width, width, bias=False)
        self.u = nn.Parameter(torch.empty(heads, self.channels))
        self.v = nn.Parameter(torch.empty(heads, self.channels))
        nn.init.normal_(self.u, std=0.02)
        nn.init.normal_(self.v, std=0.02)

    def score(self, graph: Graph, q: Tensor, k: Tensor) -> Score:
        r, column = _sinusoids_of_distances(graph, self.waves.channels, q.dtype)
        w_r = self.relative(r).unflatten(-1, self.u.shape)  # [D, H, C]
        by_distance = torch.einsum("...ihc,dhc->...ihd", q + self.v, w_r)  # the second and the fourth term
        u = self.u.unflatten(0, (k.shape[-2], -1))  # [G, H/G, C]: the query heads of each key head
        by_sender = (k.unsqueeze(-2) * u).sum(-1).flatten(-2)  # the third
        scale = self.channels**-0.5
        return Dot() + EdgeBias(scale * at_distance(graph, by_distance, column)) + SenderBias(scale * by_sender)

    @staticmethod
    def example() -> Example:
        return TransformerXLAttention(6, 3, dropout=0.5), causal(5), (torch.randn(5, 6),)


@cached
def _sinusoids_of_distances(graph: Graph, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The sinusoids [D, width] of all distances from the graph's least to its largest, and each edge's row."""
    d = distances(graph)
    if torch.compiler.is_dynamo_compiling():  # it serves all graphs of these sizes
        least, most = graph.offset - graph.num_senders, graph.offset + graph.num_receivers
    else:
        least, most = (int(d.min()), int(d.max())) if len(d) else (0, 0)
    return sinusoids(torch.arange(least, most + 1, device=d.device), width).to(dtype), d - least
