"""The transformer: an encoder on a complete graph, a decoder on a causal one, a vision transformer on patches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.errors import ConfigError
from edgewise.graphs import Graph, complete
from edgewise.graphs.derived import cached
from edgewise.graphs.patterns.line import fixed_parts, strided_parts
from edgewise.kernels import dropout
from edgewise.layers import (
    NORMS,
    READOUTS,
    ALiBiAttention,
    AngularHash,
    Cache,
    Centroids,
    FactorisedAttention,
    FeedForward,
    GatedFeedForward,
    Learned,
    Linear,
    LinearAttention,
    LSHAttention,
    MultiHeadAttention,
    PerformerAttention,
    PositiveFeatures,
    PostNormBlock,
    PreNormBlock,
    ReLUFeatures,
    Rotary,
    RoutingAttention,
    ShawAttention,
    SinkhornAttention,
    Sinusoidal,
    SparseFeatures,
    T5Attention,
    TransformerXLAttention,
    chosen,
)
from edgewise.models.signature import Features, Signature, Tokens, accepted, check_readout
from edgewise.models.text.generation import generate


@dataclass(frozen=True)
class TransformerSettings:
    """What a transformer can be.

    Args:
        width: Channels of every node, d_model.
        depth: Number of blocks, L.
        heads: Attention heads, which share the width.
        key_value_heads: Heads of keys and values, shared by groups of query heads; None: as many as heads.
        hidden: Width inside the feed-forward network; None: 4 * width.
        activation: "swiglu" for a gated feed-forward network, else a name of ACTIVATIONS.
        norm: A name of NORMS: "layer", "fine-layer", "rms", "batch" or "none".
        order: "pre" normalises what each stage reads, "post" what it leaves.
        positions: "none"; "sinusoidal" or "learned", added to the embedding; "rotary", "shaw", "transformer-xl", "t5"
            or "alibi", inside the attention.
        attention: "softmax"; "strided-heads" or "fixed-heads", where half of the heads attend nearby, half to every
            stride-th node; attention by features in linear time: "linear", "performer" or "performer-relu"; or on
            graphs made from content: "lsh", "routing" or "sinkhorn".
        stride: The stride of "strided-heads", the size of a block of "fixed-heads" and "sinkhorn", of a chunk of "lsh",
            of a cluster of "routing"; best near the root of the length.
        buckets: Buckets of "lsh", clusters of "routing".
        rounds: Rounds of hashing of "lsh".
        dropout: Probability for embeddings, attention weights and what each stage adds.
        bias: Whether the blocks' linear maps have one.
        readout: "none", or where the task wants one output per graph a name of READOUTS or "class": a learned node that
            every node attends to, in front of the others, whose output is the graph's.
        tied: Whether the output layer is the token embedding, transposed.
    """

    width: int = 128
    depth: int = 4
    heads: int = 4
    key_value_heads: int | None = None
    hidden: int | None = None
    activation: str = "gelu"
    norm: str = "layer"
    order: str = "pre"
    positions: str = "learned"
    attention: str = "softmax"
    stride: int = 8
    buckets: int = 8
    rounds: int = 2
    dropout: float = 0.0
    bias: bool = True
    readout: str = "none"
    tied: bool = False


ORDERS = {"pre": PreNormBlock, "post": PostNormBlock}


class Transformer(nn.Module):
    """A stack of transformer blocks between an embedding and an output layer; the graph says who attends to whom.

    Equation    X_L = T_L ∘ ... ∘ T_1 (X_0)    (4.3);  pre-norm: X_L ← LN(X_L)    (4.6);  output = X_L W
    Symbols     X_0 = embed(x) + positions; blocks[l] = T_{l+1}; head = W, without bias for tokens
    Shapes      tokens x [*, N] int64 or features x [*, N, inputs] -> [*, N, outputs], with a readout [*, G, outputs]
    Errors      ConfigError for settings that do not fit the task or one another
    Edge cases  a graph with its own positions (a batch, rows of a longer graph) is read at those positions; the node
                of readout="class" joins complete graphs only
    Cost        time O(depth (N width² + E width)); memory O(depth N width) plus what the attention backend keeps
    Differs     weights start as GPT-2's: normal of 0.02, and of 0.02 / √(2 depth) where a stage adds its result
    Reference   Vaswani et al., 2017; Radford et al., 2019; Baggag & Saad, §4.2

    Example
        >>> from edgewise.graphs import causal
        >>> settings = TransformerSettings(width=8, depth=1, heads=2)
        >>> model = Transformer(settings, Tokens(65, 65, length=4))
        >>> model(causal(4), torch.zeros(2, 4, dtype=torch.int64)).shape
        torch.Size([2, 4, 65])
    """

    def __init__(self, settings: TransformerSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features, Tokens)
        _check(settings, signature)
        width, tokens = settings.width, isinstance(signature, Tokens)
        self.embed = (nn.Embedding if tokens else Linear)(signature.inputs, width)
        self.positions = chosen("positions", settings.positions, POSITIONS)(settings, signature)
        rotary = Rotary(width // settings.heads) if settings.positions == "rotary" else None
        self.blocks = nn.ModuleList(_block(settings, rotary) for _ in range(settings.depth))
        self.norm = chosen("norm", settings.norm if settings.order == "pre" else "none", NORMS)(width)
        named = settings.readout not in ("none", "class")
        self.readout = chosen("readout", settings.readout, READOUTS)(width) if named else None
        self.class_node = nn.Parameter(torch.zeros(width)) if settings.readout == "class" else None
        self.head = None if settings.tied else nn.Linear(width, signature.outputs, bias=not tokens)
        self._initialise()

    def forward(self, graph: Graph, x: Tensor | SparseFeatures, caches: Sequence[Cache | None] | None = None) -> Tensor:
        h: Tensor = self.embed(x)
        if self.class_node is not None:
            graph, h = self._with_class_node(graph, h)
        if self.positions is not None:
            h = self.positions(graph, h)
        h = dropout(h, self.settings.dropout, self.training)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            h = block(graph, h, cache)
        h = self.norm(h)
        if self.readout is not None:
            h = self.readout(graph, h)
        elif self.class_node is not None:
            h = h[..., :1, :]
        return functional.linear(h, self.embed.weight) if self.head is None else self.head(h)

    def _with_class_node(self, graph: Graph, h: Tensor) -> tuple[Graph, Tensor]:
        if not graph.is_complete or graph.num_senders != graph.num_receivers:
            raise ConfigError(f"readout='class' adds a node that joins all: it needs a complete graph, not {graph}")
        assert self.class_node is not None
        node = self.class_node.expand(*h.shape[:-2], 1, -1)
        return _one_more(graph), torch.cat([node, h], -2)

    def caches(self, graph: Graph) -> list[Cache]:
        """What each block remembers while it decodes on that kind of graph, still empty."""
        return [cast(MultiHeadAttention, block.attention).cache(graph) for block in self.blocks]

    generate = generate  # model.generate(tokens, steps, pattern, ...)

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for stage in self.modules():  # 2 * depth of them add up on the residual stream: keep its variance
            if isinstance(stage, MultiHeadAttention | FeedForward | GatedFeedForward):
                last = stage.output if isinstance(stage, MultiHeadAttention) else stage.down
                nn.init.normal_(last.weight, std=0.02 / (2 * self.settings.depth) ** 0.5)


def _block(settings: TransformerSettings, rotary: Rotary | None) -> nn.Module:
    attention = chosen("attention", settings.attention, ATTENTIONS)(settings, rotary)
    block = chosen("order", settings.order, ORDERS)
    return block(settings.width, attention, feed_forward_for(settings), settings.norm, settings.dropout)


def feed_forward_for(settings: TransformerSettings) -> nn.Module:
    """The feed-forward network that the settings name."""
    hidden = settings.hidden or 4 * settings.width
    if settings.activation == "swiglu":
        return GatedFeedForward(settings.width, hidden, settings.bias)
    return FeedForward(settings.width, hidden, settings.activation, settings.bias)


def _softmax(settings: TransformerSettings, rotary: Rotary | None) -> MultiHeadAttention:
    width, heads, shared = settings.width, settings.heads, settings.key_value_heads
    bias, dropout = settings.bias, settings.dropout
    if settings.positions in RELATIVE:
        return RELATIVE[settings.positions](width, heads, key_value_heads=shared, bias=bias, dropout=dropout)
    return MultiHeadAttention(width, heads, key_value_heads=shared, rotary=rotary, bias=bias, dropout=dropout)


def _linear(settings: TransformerSettings, rotary: Rotary | None) -> MultiHeadAttention:
    _refuse_biases(settings)
    shared, bias = settings.key_value_heads, settings.bias
    return LinearAttention(settings.width, settings.heads, key_value_heads=shared, rotary=rotary, bias=bias)


def _performer(kind: type[PositiveFeatures]) -> Callable[[TransformerSettings, Rotary | None], MultiHeadAttention]:
    def attention(settings: TransformerSettings, rotary: Rotary | None) -> MultiHeadAttention:
        _refuse_biases(settings)
        width, heads, shared, bias = settings.width, settings.heads, settings.key_value_heads, settings.bias
        random = kind(width // heads)
        return PerformerAttention(width, heads, random, key_value_heads=shared, rotary=rotary, bias=bias)

    return attention


def _factorised(
    parts: Callable[..., tuple[Graph, ...]],
) -> Callable[[TransformerSettings, Rotary | None], MultiHeadAttention]:
    def attention(settings: TransformerSettings, rotary: Rotary | None) -> MultiHeadAttention:
        _refuse_biases(settings)
        _refuse_shared_keys(settings)
        within, bias, dropout = partial(parts, stride=settings.stride), settings.bias, settings.dropout
        return FactorisedAttention(settings.width, settings.heads, within, rotary=rotary, bias=bias, dropout=dropout)

    return attention


def _of_content(settings: TransformerSettings, rotary: Rotary | None) -> MultiHeadAttention:
    _refuse_biases(settings)
    _refuse_shared_keys(settings)
    width, heads, size, bias = settings.width, settings.heads, settings.stride, settings.bias
    if settings.attention == "lsh":
        hashing = AngularHash(width // heads, settings.buckets, settings.rounds)
        return LSHAttention(width, heads, hashing, chunk=size, rotary=rotary, bias=bias)
    if settings.attention == "routing":
        centroids = Centroids(heads, width // heads, settings.buckets)
        return RoutingAttention(width, heads, centroids, size=size, rotary=rotary, bias=bias)
    return SinkhornAttention(width, heads, block=size, rotary=rotary, bias=bias)


def _refuse_shared_keys(settings: TransformerSettings) -> None:
    if settings.key_value_heads is not None:
        raise ConfigError(f"attention={settings.attention!r} takes no shared keys: leave key_value_heads out")


def _refuse_biases(settings: TransformerSettings) -> None:
    if settings.positions in RELATIVE:
        raise ConfigError(
            f"positions={settings.positions!r} is a bias, which only attention='softmax' takes: with "
            f"attention={settings.attention!r} choose none, sinusoidal, learned or rotary"
        )


ATTENTIONS: dict[str, Callable[[TransformerSettings, Rotary | None], MultiHeadAttention]] = {
    "softmax": _softmax,
    "strided-heads": _factorised(strided_parts),
    "fixed-heads": _factorised(fixed_parts),
    "lsh": _of_content,
    "routing": _of_content,
    "sinkhorn": _of_content,
    "linear": _linear,
    "performer": _performer(PositiveFeatures),
    "performer-relu": _performer(ReLUFeatures),
}


def _learned(settings: TransformerSettings, signature: Signature) -> nn.Module:
    if signature.length is None:
        raise ConfigError("positions='learned' needs a task whose graphs have a largest length; this one has none")
    return Learned(signature.length + (settings.readout == "class"), settings.width)


RELATIVE: dict[str, type[MultiHeadAttention]] = {
    "shaw": ShawAttention,
    "transformer-xl": TransformerXLAttention,
    "t5": T5Attention,
    "alibi": ALiBiAttention,
}

# What is added to the embedding; rotary and relative positions act inside the attention instead.
POSITIONS: dict[str, Callable[[TransformerSettings, Signature], nn.Module | None]] = {
    "none": lambda settings, signature: None,
    "sinusoidal": lambda settings, signature: Sinusoidal(settings.width),
    "learned": _learned,
    "rotary": lambda settings, signature: None,
} | dict.fromkeys(RELATIVE, lambda settings, signature: None)


@cached
def _one_more(graph: Graph) -> Graph:
    return complete(graph.num_receivers + 1)


def _check(settings: TransformerSettings, signature: Signature) -> None:
    if settings.width < 1 or settings.depth < 0:
        raise ConfigError(f"width={settings.width} must be at least 1 and depth={settings.depth} at least 0")
    if settings.tied and not (isinstance(signature, Tokens) and signature.inputs == signature.outputs):
        raise ConfigError("tied=True needs a task that reads and writes the same tokens")
    check_readout(settings.readout, signature)
