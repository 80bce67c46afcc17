"""Scores: how much receiver i attends to sender j, as data that a kernel can read and refuse.

A score is a small frozen record. Its method `pairwise` is its equation on broadcastable ends; backends that know the
score do better than calling it. Biases are added with `+`: ``Dot() + RelativeBias(table)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.checks import same_device, shown
from edgewise.graphs.derived import cached
from edgewise.graphs.tracing import is_real
from edgewise.kernels.messages.network import EdgeInput


@dataclass(frozen=True, eq=False)
class EdgeBias:
    """One learned or given number per edge and head: s_ij + b_e.

    Shapes      values [*, E, H] or [*, E, 1], in the graph's own edge order (`graph.sort_edges`)
    Cost        O(E·H)
    """

    values: Tensor

    def check(self, graph: Graph, heads: int) -> None:
        """Raise ShapeError unless the values fit."""
        _check_rows(self, "E", graph.num_edges, heads, graph)
        graph.check_sorted("the values of EdgeBias", self.values)

    def on_edges(self, graph: Graph) -> Tensor:
        """The bias of every edge, [*, E, H]."""
        return self.values


@dataclass(frozen=True, eq=False)
class RelativeBias:
    """A function of the distance i − j held as a table: s_ij + t[h, clamp(i − j, −R, R) + R].

    Shapes      table [H, 2R + 1]; column R is distance 0, later columns are senders further in the past
    Edge cases  distances beyond R share the table's ends; positions include the graph's receiver offset
    Cost        O(E·H) on edges, O(I·J·H) dense
    Reference   Shaw et al. 2018; Raffel et al. 2020 (buckets); Press et al. 2022 (slopes): each is such a table
    """

    table: Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.table, Tensor) or self.table.ndim != 2 or self.table.shape[1] % 2 == 0:
            raise ShapeError(f"RelativeBias needs a table [H, 2R + 1] with an odd width, not {shown(self.table)}")

    def check(self, graph: Graph, heads: int) -> None:
        """Raise ShapeError unless there is one row for every head."""
        if self.table.shape[0] not in (1, heads):
            raise ShapeError(f"RelativeBias has a table for {self.table.shape[0]} heads, but there are {heads}")
        same_device("the table of RelativeBias", self.table, graph.device)

    def at(self, distance: Tensor) -> Tensor:
        """The bias at integer distances i − j of any shape: [..., H]."""
        index = _column(distance, self.table.shape[1] // 2)
        return self.table.t().index_select(0, index.reshape(-1)).view(*distance.shape, self.table.shape[0])

    def on_edges(self, graph: Graph) -> Tensor:
        """The bias of every edge, [E, H]."""
        return self.table.t().index_select(0, _columns(graph, self.table.shape[1] // 2))

    def on_pairs(self, graph: Graph) -> Tensor:
        """The bias of every pair, [H, I, J]."""
        i = torch.arange(graph.num_receivers, device=self.table.device) + graph.offset
        return self.at(i[:, None] - torch.arange(graph.num_senders, device=self.table.device)).movedim(-1, 0)


def _column(distance: Tensor, reach: int) -> Tensor:
    return distance.clamp(-reach, reach) + reach


@cached
def _columns(graph: Graph, reach: int) -> Tensor:
    """The column of each edge's distance."""
    return _column(graph.receivers + graph.offset - graph.senders, reach)


@dataclass(frozen=True, eq=False)
class SenderBias:
    """One number per sender and head, whatever the receiver: s_ij + b_j.

    Shapes      values [*, J, H] or [*, J, 1]
    Cost        O(J·H), gathered to O(E·H) on edges
    """

    values: Tensor

    def check(self, graph: Graph, heads: int) -> None:
        """Raise ShapeError unless the values fit."""
        _check_rows(self, "J", graph.num_senders, heads, graph)

    def on_edges(self, graph: Graph) -> Tensor:
        """The bias of every edge, [*, E, H]."""
        return self.values.index_select(-2, graph.senders)

    def on_pairs(self, graph: Graph) -> Tensor:
        """The bias of every pair, the same for all receivers, [*, H, 1, J]."""
        return self.values.transpose(-1, -2).unsqueeze(-2)


Bias = EdgeBias | RelativeBias | SenderBias


@dataclass(frozen=True, eq=False)
class EdgeVectors:
    """Features of edges that are added to the keys and values of their senders, each by its own map, or one only.

    Equation    s_ij = s(q_i, k_j + e_ij),  y_i = Σ_j p_ij (v_j + e'_ij)
    Symbols     keys = e_ij, values = e'_ij; either may be a linear map W x_ij + b of features, as an `EdgeInput`
    Shapes      keys [*, E, H, C], values [*, E, H, D], in the graph's own edge order (`graph.sort_edges`); of a map
                W [H·C, R], b [H·C] or None, x [*, E, R]
    Cost        O(E·H·C) to read; of a map `native` reads O(E·R) and never writes W x_ij down, in O(E·H·R) operations,
                for `GatedAdditive` O(E·H·C·R). Other backends write it, and `segment` the sums with keys and values
    Reference   Shaw et al. 2018, eqs. 3–4; Shi et al. 2021 (graph transformer)

    Example
        >>> from edgewise import attend
        >>> pair = Graph.from_edge_index([[0, 1], [1, 1]], num_nodes=2)
        >>> by_length = EdgeInput((torch.tensor([[2.0]]), None), torch.tensor([[1.0], [4.0]]))
        >>> v = torch.tensor([10.0, 20.0]).view(2, 1, 1)
        >>> attend(pair, None, None, v, Uniform() + EdgeVectors(values=by_length)).flatten()  # (12 + 28) / 2
        tensor([ 0., 20.])
    """

    keys: Tensor | EdgeInput | None = None
    values: Tensor | EdgeInput | None = None

    def check(self, graph: Graph, heads: int, key_channels: int | None, value_channels: int) -> None:
        """Raise ShapeError unless both fit."""
        if self.keys is not None and key_channels is None:
            raise ShapeError("EdgeVectors holds keys, but the score reads none: give values only")
        for name, x, channels in (("keys", self.keys, key_channels), ("values", self.values, value_channels)):
            if isinstance(x, EdgeInput):
                x.check(f"the features of {name} of EdgeVectors", graph, heads * (channels or 0))
            elif x is not None:
                if not isinstance(x, Tensor) or x.ndim < 3 or x.shape[-3:] != (graph.num_edges, heads, channels):
                    shape = f"[*, E, H, C] with E = {graph.num_edges}, H = {heads} and C = {channels}"
                    raise ShapeError(f"EdgeVectors holds {name} {shown(x)}, but they must be {shape}")
                same_device(f"{name} of EdgeVectors", x, graph.device)

    def written(self, heads: int) -> tuple[Tensor | None, Tensor | None]:
        """Keys and values as tensors [*, E, H, C], maps applied."""
        keys, values = (
            x.term().unflatten(-1, (heads, -1)) if isinstance(x, EdgeInput) else x for x in (self.keys, self.values)
        )
        return keys, values

    def signature(self) -> tuple[object, ...]:
        """What a choice of backend may depend on."""
        return tuple(
            (x.values.shape, x.map[0].shape) if isinstance(x, EdgeInput) else None if x is None else x.shape
            for x in (self.keys, self.values)
        )


def _check_rows(bias: EdgeBias | SenderBias, letter: str, rows: int, heads: int, graph: Graph) -> None:
    shape = bias.values.shape if isinstance(bias.values, Tensor) else ()
    if len(shape) < 2 or shape[-2] != rows or shape[-1] not in (1, heads):
        right = f"[*, {letter}, H] with {letter} = {rows} and H = {heads}"
        raise ShapeError(f"{type(bias).__name__} holds {shown(bias.values)}, but must be {right}")
    same_device(type(bias).__name__, bias.values, graph.device)


def _is_number(value: object) -> bool:
    return isinstance(value, Tensor | Real | torch.SymFloat | torch.SymInt)


@dataclass(frozen=True, eq=False)
class Score:
    """What all scores share: a tuple of biases, and vectors of edges, both added with `+`."""

    biases: tuple[Bias, ...] = field(default=(), kw_only=True)
    vectors: EdgeVectors | None = field(default=None, kw_only=True)
    needs_ends: ClassVar[bool] = True
    weights: ClassVar[tuple[str, ...]] = ()  # the fields that hold a vector for each head, [H, C]
    numbers: ClassVar[tuple[str, ...]] = ()  # the fields that hold a number, or a tensor [H] of one for each head

    @property
    def end_width(self) -> int | None:
        """How many channels q and k have; None: any number."""
        return None

    @classmethod
    def example(cls, heads: int, channels: int) -> Self:
        """A score for queries and keys [*, H, C], as `edgewise plan --score` assumes it."""
        return cls()

    def __add__(self, more: Bias | EdgeVectors) -> Self:
        if isinstance(more, Bias):
            return replace(self, biases=(*self.biases, more))
        if not isinstance(more, EdgeVectors):
            raise ShapeError(f"{shown(more)} cannot be added to a score: write {type(self).__name__}() + EdgeBias(b)")
        if self.vectors is not None:
            raise ShapeError(f"{type(self).__name__} has vectors of edges already: add them up first")
        return replace(self, vectors=more)

    def pairwise(self, q_i: Tensor, k_j: Tensor) -> Tensor:
        """s_ij for ends [..., H, C] that broadcast against each other: [..., H]."""
        raise NotImplementedError(f"{type(self).__name__} has no equation of its own: use one of the scores")

    def edge_bias(self, graph: Graph) -> Tensor | None:
        """The sum of all biases on the edges, [*, E, H], or None without any."""
        terms = [bias.on_edges(graph) for bias in self.biases]
        return sum(terms[1:], terms[0]) if terms else None


@dataclass(frozen=True, eq=False)
class Dot(Score):
    """Scaled dot product: s_ij = scale · qᵢ·kⱼ, optionally soft-capped to cap · tanh(s_ij / cap).

    Symbols     scale = 1/√C unless given (a number, or a tensor that broadcasts over heads [H]); cap > 0
    Shapes      q [*, I, H, C], k [*, J, H, C]
    Edge cases  biases are added after the cap
    Reference   Vaswani et al. 2017, eq. 1; soft cap: Gemma 2 (2024)
    """

    numbers: ClassVar[tuple[str, ...]] = ("scale",)
    scale: float | Tensor | None = None
    cap: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not _is_number(self.scale):
            raise ShapeError(f"Dot: scale must be a number or a tensor [H], not {self.scale!r}")
        if self.cap is not None and not (_is_number(self.cap) and self.cap > 0):
            raise ShapeError(f"Dot: cap must be positive, not {self.cap!r}")

    def factor(self, channels: int) -> float | Tensor:
        """The scale in use for C channels."""
        return max(1, channels) ** -0.5 if self.scale is None else self.scale

    def scaled(self, q: Tensor) -> tuple[Tensor, float]:
        """Queries [*, N, H, C] and the scale that remains: one for each head is multiplied into the queries."""
        factor = self.factor(q.shape[-1])
        return (q * factor.reshape(-1, 1).to(q.dtype), 1.0) if isinstance(factor, Tensor) else (q, float(factor))

    def pairwise(self, q_i: Tensor, k_j: Tensor) -> Tensor:
        """s_ij = scale · qᵢ·kⱼ, capped."""
        s_ij = (q_i * k_j).sum(-1) * self.factor(q_i.shape[-1])
        return s_ij if self.cap is None else self.cap * torch.tanh(s_ij / self.cap)


def _along(x: Tensor, a: Tensor) -> Tensor:
    """aᵀ x of every head: x [*, H, C], a [H, C] -> [*, H, 1]."""
    return (x * a).sum(-1, keepdim=True)


@dataclass(frozen=True, eq=False)
class Additive(Score):
    """Additive attention: s_ij = LeakyReLU(aᵀ[qᵢ ‖ kⱼ]), or LeakyReLU(qᵢ + kⱼ) without a.

    Symbols     a_receiver, a_sender = the halves of a, so that aᵀ[q ‖ k] = a_receiverᵀ q + a_senderᵀ k
    Shapes      a_receiver, a_sender [H, C], q [*, I, H, C], k [*, J, H, C]; without a: q [*, I, H, 1], k [*, J, H, 1]
    Errors      ShapeError for one half of a without the other
    Edge cases  with a, where q is k: a number of a head that is not finite reaches the scores of all heads of its node
    Cost        that of one number for each node and head, after one matrix product where queries and keys are the same
    Reference   Veličković et al. 2018 (GAT), eq. 3
    """

    weights: ClassVar[tuple[str, ...]] = ("a_receiver", "a_sender")
    slope: float = 0.2
    a_receiver: Tensor | None = None
    a_sender: Tensor | None = None

    def __post_init__(self) -> None:
        if (self.a_receiver is None) != (self.a_sender is None):
            raise ShapeError("Additive: a_receiver and a_sender are the halves of a: give both, or neither")

    @property
    def end_width(self) -> int | None:
        return 1 if self.a_sender is None else None

    def pairwise(self, q_i: Tensor, k_j: Tensor) -> Tensor:
        """s_ij = LeakyReLU(aᵀ[qᵢ ‖ kⱼ])."""
        q_i, k_j, _ = self.as_sums(q_i, k_j)
        return functional.leaky_relu(q_i + k_j, self.slope).squeeze(-1)

    def as_sums(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Additive]:
        """The same attention without a: a_receiverᵀ q and a_senderᵀ k [*, N, H, 1], and a score that adds them."""
        if self.a_receiver is None or self.a_sender is None:
            return q, k, self
        a_receiver, a_sender, vectors = self.a_receiver.to(q.dtype), self.a_sender.to(k.dtype), self.vectors
        if vectors is not None and isinstance(vectors.keys, EdgeInput):
            vectors = replace(vectors, keys=vectors.keys.along(a_sender))
        elif vectors is not None and isinstance(vectors.keys, Tensor):
            vectors = replace(vectors, keys=_along(vectors.keys, a_sender))
        if q is k:  # one product with a matrix of blocks reads them once
            heads, channels = a_sender.shape
            blocks = torch.diag_embed(torch.stack([a_receiver, a_sender]).permute(2, 0, 1))  # [C, 2, H, H]
            both = q.flatten(-2) @ blocks.permute(2, 0, 1, 3).reshape(heads * channels, 2 * heads)
            q, k = both.unflatten(-1, (2, heads, 1)).unbind(-3)
        else:
            q, k = _along(q, a_receiver), _along(k, a_sender)
        return q, k, replace(self, a_receiver=None, a_sender=None, vectors=vectors)


@dataclass(frozen=True, eq=False)
class GatedAdditive(Score):
    """Additive attention with the nonlinearity inside: s_ij = aᵀ LeakyReLU(qᵢ + kⱼ).

    Shapes      a [H, C], q [*, I, H, C], k [*, J, H, C]
    Reference   Brody et al. 2022 (GATv2), eq. 7
    """

    weights: ClassVar[tuple[str, ...]] = ("a",)
    a: Tensor
    slope: float = 0.2

    @classmethod
    def example(cls, heads: int, channels: int) -> Self:
        return cls(torch.zeros(heads, channels))

    def pairwise(self, q_i: Tensor, k_j: Tensor) -> Tensor:
        """s_ij = aᵀ LeakyReLU(qᵢ + kⱼ)."""
        return (functional.leaky_relu(q_i + k_j, self.slope) * self.a).sum(-1)


WIDEST = 256  # most ‖q‖ ‖k‖ / σ² of a Gaussian as a dot product: rounding moves a weight by 2e-5 in float32; counted


@dataclass(frozen=True, eq=False)
class Gaussian(Score):
    """Gaussian kernel: s_ij = −‖qᵢ − kⱼ‖² / 2σ².

    Symbols     sigma = σ, a positive number or tensor that broadcasts over heads [H]
    Shapes      q [*, I, H, C], k [*, J, H, C]
    Edge cases  the points' mean is subtracted first, so that points far from the origin lose no digits; where they lie
                further than some 16σ from their mean, the CPU takes differences edge by edge, and a GPU loses digits,
                as the CPU does under torch.compile and torch.func, where the points are not known
    Cost        that of `Dot`: ‖qᵢ‖² cancels in the softmax, so it runs as a dot product with a bias per sender
    Reference   Nadaraya 1964, Watson 1964
    """

    numbers: ClassVar[tuple[str, ...]] = ("sigma",)
    sigma: float | Tensor = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.sigma, Tensor) and not (_is_number(self.sigma) and self.sigma > 0):
            raise ShapeError(f"Gaussian: sigma must be positive, not {self.sigma!r}")

    def pairwise(self, q_i: Tensor, k_j: Tensor) -> Tensor:
        """s_ij = −‖qᵢ − kⱼ‖² / 2σ²."""
        return -(q_i - k_j).square().sum(-1) / (2 * self.sigma**2)

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Dot] | None:
        """The same attention as a dot product of centred points: scale 1/σ² and the sender bias −‖kⱼ‖² / 2σ².

        None where a score would lose too many digits: its error is that of ‖qᵢ‖ ‖kⱼ‖ / σ², not that of the distance.
        """
        precision, wide = 1 / self.sigma**2, torch.promote_types(k.dtype, torch.float32)  # float16 holds no 256²
        if k.numel():
            centre = k.detach().to(wide).nan_to_num(0, 0, 0).mean(-3, keepdim=True).to(k.dtype)
            q, k = q - centre, k - centre
        squared = k.to(wide).square().sum(-1)
        if k.device.type == "cpu" and is_real(k) and k.numel() and q.numel():
            reach = (precision * q.detach().to(wide).square().sum(-1)).amax() * (precision * squared.detach()).amax()
            if not reach <= WIDEST**2:
                return None
        bias = SenderBias(-0.5 * precision * squared)
        return q, k, Dot(scale=precision, biases=(bias, *self.biases), vectors=self.vectors)


@dataclass(frozen=True, eq=False)
class Uniform(Score):
    """All senders count the same: s_ij = 0, so that y_i is the mean over N(i).

    Shapes      q and k are None
    """

    needs_ends: ClassVar[bool] = False


@dataclass(frozen=True, eq=False)
class Kernel(Score):
    """A kernel with a feature map instead of an exponential: w_ij = φ(qᵢ)·φ(kⱼ), p_ij = w_ij / Σ_j w_ij.

    Symbols     feature_map = φ: [..., C] -> [..., F], non-negative for a true average
    Shapes      q [*, I, H, C], k [*, J, H, C]
    Edge cases  a row whose weights sum to 0 gives 0
    Cost        O((I + J)·H·F·C) on complete and causal graphs (`factored`), O(E·H·F) elsewhere
    Reference   Katharopoulos et al. 2020, eq. 4
    """

    feature_map: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        if not callable(self.feature_map):
            raise ShapeError(f"Kernel: feature_map must be a function such as torch.exp, not {shown(self.feature_map)}")

    @classmethod
    def example(cls, heads: int, channels: int) -> Self:
        return cls(functional.softplus)

    def pairwise(self, q_i: Tensor, k_j: Tensor) -> Tensor:
        """w_ij = φ(qᵢ)·φ(kⱼ), the weight itself and not its logarithm."""
        return (self.feature_map(q_i) * self.feature_map(k_j)).sum(-1)
