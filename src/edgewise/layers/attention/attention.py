"""Multi-head attention over any graph: self-attention, cross-attention and cached decoding are the same equation."""

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count, Share
from edgewise.errors import ConfigError, ShapeError, a_kind
from edgewise.graphs import Graph, causal
from edgewise.kernels import Dot, attend
from edgewise.kernels.operator.layout import widened
from edgewise.kernels.scores import Score
from edgewise.layers.attention.positions import Rotary, sender_positions
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.linear import Linear, check_dense, check_features
from edgewise.layers.plain.sides import check_nodes


class KeyValueCache:
    """The keys and values of the positions already decoded, so that a new position computes only its own.

    Shapes      append(k [*, n, H, C], v [*, n, H, D]) -> all keys [*, length, H, C], all values [*, length, H, D]
    Cost        amortised O(n H C) per append: the room doubles when it is full

    Example
        >>> cache = KeyValueCache()
        >>> k, v = torch.ones(3, 1, 2), torch.ones(3, 1, 2)
        >>> [cache.append(k, v)[0].shape[0] for _ in range(2)]
        [3, 6]
    """

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        start, stop = self.length, self.length + k.shape[-3]
        self._keys, self._values = _with_room(self._keys, k, stop), _with_room(self._values, v, stop)
        self._keys.narrow(-3, start, stop - start).copy_(k)
        self._values.narrow(-3, start, stop - start).copy_(v)
        self.length = stop
        return self._keys.narrow(-3, 0, stop), self._values.narrow(-3, 0, stop)

    def select(self, members: Tensor) -> None:
        """Continue with these members of the leading batch, int64 [n]: a beam search drops texts and doubles others."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys.index_select(0, members), self._values.index_select(0, members)


def _with_room(held: Tensor | None, new: Tensor, length: int) -> Tensor:
    if held is None:
        return torch.empty_like(new)
    if held.shape[:-3] != new.shape[:-3] or held.shape[-2:] != new.shape[-2:]:
        raise ShapeError(f"the cache holds {list(held.shape)} [*, J, H, C]; {list(new.shape)} cannot follow it")
    if length <= held.shape[-3] and (torch.is_inference_mode_enabled() or not held.is_inference()):
        return held
    room = new.new_empty(*held.shape[:-3], max(length, 2 * held.shape[-3]), *held.shape[-2:])
    room.narrow(-3, 0, held.shape[-3]).copy_(held)
    return room


class RecurrentState:
    """What attention by features stores of the past: one sum, of constant size, which makes it a recurrent network.

    Equation    S_i = S_{i−1} + φ(k_i) [v_i ‖ 1]ᵀ    (18), (19),   y_i = φ(q_i) S_i, divided by its last channel    (20)
    Symbols     feature_map = φ: [..., C] -> [..., F]; sums [*, G, F, D + 1] = S, whose last column sums φ(k)
    Shapes      attend(q [*, n, H, C], k [*, n, G, C], v [*, n, G, D]) -> [*, n, H, D]
    Edge cases  weights that sum to 0 give 0; half precisions are summed in float32
    Cost        memory O(G F D) whatever the length; time O(n H F D)
    Reference   Katharopoulos et al., "Transformers are RNNs", 2020, §3.4

    Example
        >>> state, one = RecurrentState(torch.exp), torch.zeros(1, 1, 1)
        >>> [state.attend(one, one, torch.full((1, 1, 1), v)).item() for v in (1.0, 3.0)]  # the mean so far
        [1.0, 2.0]
    """

    def __init__(self, feature_map: Callable[[Tensor], Tensor]) -> None:
        self.feature_map = feature_map
        self.sums: Tensor | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Append new positions one after the other; each attends to all up to itself."""
        phi_q, phi_k = self.feature_map(q.unflatten(-2, (k.shape[-2], -1))), self.feature_map(k)
        phi_q, phi_k, v_one, outputs = widened(phi_q), widened(phi_k), _with_one(v), []
        with torch.autocast(v.device.type, enabled=False):
            for i in range(k.shape[-3]):
                sums = self._add(phi_k[..., i, :, :].unsqueeze(-1) * v_one[..., i, :, :].unsqueeze(-2))
                y = (phi_q[..., i, :, :, :] @ sums).flatten(-3, -2)  # [*, H, D + 1]
                outputs.append(y[..., :-1] / torch.where(y[..., -1:] == 0, 1, y[..., -1:]))
        return torch.stack(outputs, -3).to(v.dtype)

    def append(self, k: Tensor, v: Tensor) -> None:
        """Append positions whose outputs are known."""
        phi_k = widened(self.feature_map(k))
        with torch.autocast(v.device.type, enabled=False):
            self._add(torch.einsum("...jgf,...jgd->...gfd", phi_k, _with_one(v)))

    def _add(self, new: Tensor) -> Tensor:
        self.sums = new if self.sums is None else self.sums + new
        return self.sums


def _with_one(v: Tensor) -> Tensor:
    return functional.pad(widened(v), (0, 1), value=1.0)


Cache = KeyValueCache | RecurrentState
KeysAndValues = tuple[Tensor, Tensor]  # keys and values of senders, [*, J, H, C] each
Grouping = TypeVar("Grouping", bound=nn.Module)


class MultiHeadAttention(Layer):
    """Multi-head scaled dot-product attention, in which receiver i attends to the senders that the graph gives it.

    Equation    HA_h = softmax_{j ∈ N(i)}( q_i·k_j / √d_head ) v_j,  q, k, v = X W_Q,h, X W_K,h, X W_V,h    (4.10)
                ATT(X) = ‖_h (HA_h) W_O    (4.9)
    Symbols     width = d_model; heads = H; output = W_O; x = X; senders = the X of keys and values (default: x);
                projection = [W_Q ‖ W_K ‖ W_V]ᵀ, so that self-attention is one matrix product;
                key_value_heads = heads of keys and values, each shared by a group of query heads
    Shapes      x [*, I, d_model] (, senders [*, J, d_model]), or a pair of both -> [*, I, d_model]
    Edge cases  a receiver without senders gets W_O's bias; the graph alone decides on masks and on self-loops.
                With `cache`, x holds the new positions only and the graph is pattern(total).rows(total - new, total)
    Cost        time O((I + J) d_model² + E d_model); memory O((I + J) d_model + E H) or less, by backend
    Differs     (4.10) sums over all nodes, here over N(i): on `complete(n)` they agree. `dropout` acts on the attention
                weights while training; `rotary` turns queries and keys by their positions, and a head has its channels
    Reference   Vaswani et al., 2017; Baggag & Saad, §4.2.2; Joshi, 2025, (5)-(8); grouped queries: Ainslie et al., 2023

    Example
        >>> from edgewise.graphs import complete
        >>> layer = MultiHeadAttention(width=2, heads=1, bias=False)
        >>> layer.projection.weight.data = torch.cat([torch.zeros(4, 2), torch.eye(2)])  # all scores 0, v = x
        >>> layer.output.weight.data = torch.eye(2)
        >>> layer(complete(2), torch.tensor([[0.0, 2.0], [4.0, 0.0]])).tolist()  # each gets the mean
        [[2.0, 1.0], [2.0, 1.0]]
        >>> layer(causal(2), torch.tensor([[0.0, 2.0], [4.0, 0.0]])).tolist()  # the first attends to itself alone
        [[0.0, 2.0], [2.0, 1.0]]
    """

    def __init__(
        self,
        width: Count,
        heads: Count,
        *,
        key_value_heads: Count | None = None,
        rotary: Rotary | None = None,
        bias: bool = True,
        dropout: Share = 0.0,
    ) -> None:
        super().__init__()
        shared = heads if key_value_heads is None else key_value_heads
        if rotary is None and width % heads:
            raise ConfigError(f"{heads} heads do not divide a width of {width}")
        if heads % shared:
            raise ConfigError(f"{shared} key/value heads do not divide {heads} heads")
        self.channels = width // heads if rotary is None else rotary.channels
        self.split = (heads, shared, shared)
        self.projection = Linear(width, sum(self.split) * self.channels, bias)
        self.output = nn.Linear(heads * self.channels, width, bias)
        self.rotary = rotary
        self.dropout = dropout
        self.dot = Dot()  # with the scale and the cap of a model that has its own
        self._initialise()

    def forward(
        self,
        graph: Graph,
        x: Any,  # or a pair of receivers and senders
        senders: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        if not isinstance(cache, KeyValueCache | None):
            right = "a KeyValueCache, as layer.cache(graph) makes"
            raise ShapeError(f"{type(self).__name__} decodes with {right}, not with {a_kind(cache)}")
        if isinstance(x, tuple) and senders is None:
            x, senders = x
        q, k, v = self._self_ends(graph, x) if senders is None else self._cross_ends(graph, x, senders)
        if cache is not None:
            total = cache.length + k.shape[-3]
            if graph.num_senders != total:  # before the cache holds x, so that it can be given again
                wanted = f"pattern({total}).rows({cache.length}, {total})"
                raise ShapeError(f"the cache and x hold {total} positions, and {graph} has others: give {wanted}")
            k, v = cache.append(k, v)
        return self.output(self.average(graph, q, k, v).flatten(-2))

    def score(self, graph: Graph, q: Tensor, k: Tensor) -> Score:
        """How much i attends to j: the one line that most sibling classes replace."""
        return self.dot

    def average(self, graph: Graph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The weighted mean of the values [*, I, H, C]; overridden where values depend on more than the sender."""
        return self.mean(graph, q, k, v, self.score(graph, q, k))

    def mean(self, graph: Graph, q: Tensor | None, k: Tensor | None, v: Tensor, score: Score) -> Tensor:
        """`attend` with this layer's dropout, while training."""
        return attend(graph, q, k, v, score, dropout=self.dropout if self.training else 0.0)

    def cache(self, graph: Graph) -> Cache:
        """What decoding on that kind of graph stores of the past."""
        return KeyValueCache()

    def _self_ends(self, graph: Graph, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heads, shared, _ = self.split
        check_nodes(graph, x)
        qkv = self.projection(x).view(*x.shape[:-1], sum(self.split), self.channels)  # [*, N, H + 2 H', C]
        qkv = self.normed(qkv, 0)
        if self.rotary is None:
            q, k, v = qkv.split(self.split, -2)
        else:
            qk, v = qkv.split((heads + shared, shared), -2)
            q, k = self.rotary(graph, qk).split((heads, shared), -2)
        return q, k, v

    def keys_and_values(self, senders: Tensor, positions: Tensor | None = None) -> KeysAndValues:
        """The senders' keys and values [*, J, H', C] at positions [J] (default: 0, 1, ...): they serve many calls of
        `cross`.
        """
        heads, shared, _ = self.split
        k, v = self._project(senders, heads, sum(self.split)).split(shared, -2)
        if self.rotary is not None:
            p = torch.arange(k.shape[-3], device=k.device) if positions is None else positions
            k = self.rotary.at(p, k)
        return k, v

    def cross(self, graph: Graph, x: Tensor, memory: KeysAndValues) -> Tensor:
        """Cross-attention to senders by their `keys_and_values`."""
        return self.output(self.average(graph, self._queries(graph, x), *memory).flatten(-2))

    def _cross_ends(self, graph: Graph, x: Tensor, senders: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self._queries(graph, x), *self.keys_and_values(senders, self.positions_of(graph, senders))

    def positions_of(self, graph: Graph, senders: Tensor) -> Tensor | None:
        """Where `keys_and_values` turns the senders on a graph; None where it turns none, or they do not fit it."""
        known = self.rotary is not None and senders.shape[-2:-1] == (graph.num_senders,)
        return sender_positions(graph) if known else None

    def _queries(self, graph: Graph, x: Tensor) -> Tensor:
        q = self._project(x, 0, self.split[0])
        return q if self.rotary is None else self.rotary(graph, q)

    def _project(self, x: Tensor, first: int, stop: int) -> Tensor:
        """The heads first, ..., stop − 1 of `projection`, [*, N, stop − first, C]."""
        check_dense(x)
        check_features(x, self.projection.weight)
        rows, bias = slice(first * self.channels, stop * self.channels), self.projection.bias
        y = functional.linear(x, self.projection.weight[rows], None if bias is None else bias[rows])
        return self.normed(y.view(*x.shape[:-1], stop - first, self.channels), first)

    def normed(self, y: Tensor, first: int) -> Tensor:
        """The heads first, first + 1, ... of queries, keys and values, which a sibling class normalises."""
        return y

    def _initialise(self) -> None:
        nn.init.xavier_uniform_(self.projection.weight)  # as torch.nn.MultiheadAttention
        if self.projection.bias is not None:
            nn.init.zeros_(self.projection.bias)
            nn.init.zeros_(self.output.bias)

    @staticmethod
    def example() -> Example:
        return MultiHeadAttention(8, 4, key_value_heads=2, dropout=0.5), causal(5), (torch.randn(5, 8),)


class NormedAttention(MultiHeadAttention):
    """Multi-head attention whose queries and keys are normalised, each head by itself, before they are turned.

    Equation    softmax_{j ∈ N(i)}( RMS(q_i)·RMS(k_j) / √d_head ) v_j,  RMS(q) = q / √(mean(q²) + 1e-6) ⊙ γ
    Symbols     norm_q, norm_k = RMS of queries and of keys, with one γ for all heads; otherwise as MultiHeadAttention
    Shapes      x [*, I, d_model] (, senders [*, J, d_model]), or a pair of both -> [*, I, d_model]
    Reference   Henry et al., "Query-key normalization for transformers", 2020; Yang et al., "Qwen3", 2025

    Example
        >>> from edgewise.graphs import complete
        >>> layer = NormedAttention(2, 1, bias=False)
        >>> layer.projection.weight.data = torch.cat([9 * torch.eye(2), 9 * torch.eye(2), torch.eye(2)])
        >>> layer.output.weight.data = torch.eye(2)
        >>> layer(complete(2), torch.eye(2))[0].detach()  # softmax((√2)² / √2, 0): the 9 is no more
        tensor([0.8044, 0.1956])
    """

    def normed(self, y: Tensor, first: int) -> Tensor:
        heads, shared, _ = self.split
        q, k, v = y.tensor_split([max(heads - first, 0), max(heads + shared - first, 0)], -2)
        pairs = (q, self.norm_q), (k, self.norm_k)  # in the type of the heads, which autocast makes another one
        qk = [functional.rms_norm(x, x.shape[-1:], norm.weight.to(x.dtype), norm.eps) for x, norm in pairs]
        return torch.cat([*qk, v], -2)

    def _initialise(self) -> None:
        super()._initialise()
        self.norm_q, self.norm_k = (nn.RMSNorm(self.channels, eps=1e-6) for _ in range(2))

    @staticmethod
    def example() -> Example:
        return NormedAttention(8, 4, key_value_heads=2, dropout=0.5), causal(5), (torch.randn(5, 8),)


class PositionalAttention(MultiHeadAttention):
    """Attention that knows the positions of its nodes, and so is not permutation-equivariant, by design."""

    equivariant: ClassVar[bool] = False


class GroupedAttention(PositionalAttention, Generic[Grouping]):
    """Attention within groups of nodes that follow from their content, anew in every call.

    Symbols     grouping = the module that says which nodes belong together (default: `default_grouping()`);
                size = nodes of a group; otherwise as MultiHeadAttention
    """

    grouping: Grouping

    def __init__(
        self,
        width: int,
        heads: int,
        grouping: Grouping | None = None,
        *,
        size: Count = 32,
        rotary: Rotary | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(width, heads, rotary=rotary, bias=bias)
        self.grouping = self.default_grouping() if grouping is None else grouping
        self.size = size

    def default_grouping(self) -> Grouping:
        raise NotImplementedError
