"""The transformer: an encoder on a complete graph, a decoder on a causal one, a vision transformer on patches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise import layers
from edgewise.configuration import Choice, Count, Natural, OneOf, Positive, Settings, Share, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, complete, window
from edgewise.graphs.derived import cached
from edgewise.graphs.patterns import fixed_parts, strided_parts
from edgewise.kernels import Dot, dropout
from edgewise.layers.attention.sparse import within
from edgewise.layers.plain.linear import Embedding
from edgewise.models.parts import BLOCKS, FEED_FORWARDS, draw_weights
from edgewise.models.signature import Features, Signature, Tokens, accepted, check_readout
from edgewise.models.text.generation import generate


@dataclass(frozen=True)
class TransformerSettings(Settings):
    """What a transformer can be.

    Args:
        width: Channels of every node, d_model.
        depth: Number of blocks, L.
        heads: Attention heads, which share the width.
        attention: Softmax attention; "strided-heads" or "fixed-heads", where half of the heads attend to those nearby
            and half to every stride-th; attention by features in linear time; or on graphs made from content.
        positions: "none"; "sinusoidal" or "learned", added to the embedding; the others act inside the attention.
        feed_forward: The feed-forward network, by its activation; "swiglu" and "geglu" are gated.
        block: Where a block normalises: what each stage reads ("pre-norm") or what it leaves ("post-norm");
            "one-residual" has a residual and a norm around the attention alone; "sandwich" normalises what each stage
            reads and what it adds.
        dropout: Probability for embeddings, what each stage adds, and the weights of attention "softmax",
            "strided-heads", "fixed-heads" and "hopfield". Attention by features computes none, and that on graphs made
            from content drops none.
        readout: "none", or where the task wants one output per graph a readout or "class": a learned node that all
            others attend to, in front of them, whose output is the graph's.
        tied: Whether the output layer is the token embedding, transposed.
        local: Tokens, itself included, that each attends to at most in all blocks but every `every`-th; 0: no limit.
        every: Which blocks know no such limit: 2 is every second one (Gemma 2), 6 every sixth (Gemma 3).
        cap: Bound of outputs y, which become cap · tanh(y / cap); None: they are unbounded.
    """

    width: Count = 128
    depth: Natural = 4
    heads: Count = 4
    attention: Annotated[Choice | str, OneOf(ATTENTIONS)] = "softmax"
    positions: Annotated[Choice | str, OneOf(POSITIONS)] = "learned"
    feed_forward: Annotated[Choice | str, OneOf(FEED_FORWARDS)] = "gelu"
    block: Annotated[Choice | str, OneOf(BLOCKS)] = "pre-norm"
    dropout: Share = 0.0
    readout: Annotated[str, OneOf(("none", *layers.READOUTS, "class"))] = "none"
    tied: bool = False
    local: Natural = 0
    every: Count = 2
    cap: Positive | None = None

    @property
    def is_local(self) -> Iterator[bool]:
        """Which blocks attend to the last tokens alone."""
        return (bool(self.local and number % self.every) for number in range(1, self.depth + 1))

    @property
    def of_attention(self) -> float:
        """The probability for attention weights."""
        own: float | None = Choice.of(self.attention).options.get("dropout")
        return self.dropout if own is None else own


class Transformer(nn.Module):
    """A stack of transformer blocks between an embedding and an output layer; the graph says who attends to whom.

    Equation    X_L = T_L ∘ ... ∘ T_1 (X_0)    (4.3);  pre-norm: X_L ← LN(X_L)    (4.6);  output = X_L W
    Symbols     X_0 = embed(x) + positions; blocks[l] = T_{l+1}; head = W, without bias for tokens
    Shapes      tokens x [*, N] int64 or features x [*, N, inputs] -> [*, N, outputs], with a readout [*, G, outputs];
                of some nodes alone, rows [R] -> [*, R, outputs]
    Edge cases  a graph with its own positions (a batch, rows of a longer graph) is read at those positions; the node
                of readout="class" joins complete graphs only
    Cost        time O(depth (N width² + E width)); memory O(depth N width) plus what the attention backend stores
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
        self.settings, self.signature = settings, accepted(self, signature, Features, Tokens, knows=("places",))
        _check(settings, signature)
        width, tokens = settings.width, isinstance(signature, Tokens)
        self.embed = (Embedding if tokens else layers.Linear)(signature.inputs, width)
        length = None if signature.length is None else signature.length + (settings.readout == "class")
        self.positions = chosen("positions", settings.positions, POSITIONS)(width, length)
        block = chosen("block", settings.block, BLOCKS)()
        site = Site(width, settings.heads, Choice.of(settings.positions), block.bias, settings.dropout)
        attention = chosen("attention", settings.attention, ATTENTIONS)
        feed_forward = partial(chosen("feed_forward", settings.feed_forward, FEED_FORWARDS), width, block.bias)
        self.blocks = nn.ModuleList(
            block.encoder(width, attention(at), feed_forward(), block.norm, settings.dropout)
            for at in (site.near if is_local else site for is_local in settings.is_local)
        )
        site.share(self.blocks)
        self.near = partial(_last, settings.local)
        self.norm = chosen("norm", block.last, layers.NORMS)(width)
        named = settings.readout not in ("none", "class")
        self.readout = chosen("readout", settings.readout, layers.READOUTS)(width) if named else None
        self.class_node = nn.Parameter(torch.zeros(width)) if settings.readout == "class" else None
        self.head = None if settings.tied else nn.Linear(width, signature.outputs, bias=not tokens)
        self._initialise()

    def forward(
        self,
        graph: Graph,
        x: Tensor | layers.SparseFeatures,
        rows: Tensor | None = None,
        caches: Sequence[layers.Cache | None] | None = None,
    ) -> Tensor:
        h: Tensor = self.embed(x)
        if self.class_node is not None:
            graph, h = self._with_class_node(graph, h)
        if self.positions is not None:
            h = self.positions(graph, h)
        h = dropout(h, self.settings.dropout, self.training)
        for block, at, cache in zip(self.blocks, self._graphs(graph), caches or [None] * len(self.blocks), strict=True):
            h = block(at, h, cache)
        h = self.norm(h)
        if self.readout is not None:
            h = self.readout(graph, h)
        elif self.class_node is not None:
            h = h[..., :1, :]
        elif rows is not None:
            h = h.index_select(-2, rows)
        y = functional.linear(h, self.embed.weight) if self.head is None else self.head(h)
        cap = self.settings.cap
        return y if cap is None else cap * torch.tanh(y / cap)

    def _graphs(self, graph: Graph) -> list[Graph]:
        near = within(graph, self.near)[0] if self.settings.local else graph
        return [near if is_local else graph for is_local in self.settings.is_local]

    def _with_class_node(self, graph: Graph, h: Tensor) -> tuple[Graph, Tensor]:
        if not graph.is_complete or graph.num_senders != graph.num_receivers:
            raise ConfigError(f"readout='class' adds a node that joins all: it needs a complete graph, not {graph}")
        assert self.class_node is not None
        node = self.class_node.expand(*h.shape[:-2], 1, -1)
        return _one_more(graph), torch.cat([node, h], -2)

    def caches(self, graph: Graph) -> list[layers.Cache]:
        """The cache of each block for decoding on that kind of graph, still empty."""
        return [cast(layers.MultiHeadAttention, block.attention).cache(graph) for block in self.blocks]

    generate = generate  # model.generate(tokens, steps, pattern, ...)

    def _initialise(self) -> None:
        draw_weights(self, partial(nn.init.normal_, std=0.02), nn.Embedding)
        for stage in self.modules():  # 2 * depth of them add up on the residual stream: keep its variance
            if isinstance(stage, layers.MultiHeadAttention | layers.FeedForward | layers.GatedFeedForward):
                last = stage.output if isinstance(stage, layers.MultiHeadAttention) else stage.down
                nn.init.normal_(last.weight, std=0.02 / (2 * self.settings.depth) ** 0.5)


Attention = Callable[..., layers.MultiHeadAttention]


@dataclass(frozen=True)
class Site:
    """What the attention of a block is built from, whichever its kind."""

    width: int
    heads: int
    positions: Choice
    bias: bool
    dropout: float
    past: bool = False  # whether it is a decoder's, which looks at what comes before alone

    @cached_property
    def rotary(self) -> layers.Rotary | None:
        """The rotation of queries and keys, where the positions need it."""
        options = {name: x for name, x in self.positions.options.items() if name != "local"}
        options["channels"] = self.channels
        kind = layers.YaRN if options.pop("yarn", False) else layers.Rotary
        return kind(**options) if self.positions.name == "rotary" else None

    @property
    def channels(self) -> int:
        """Those of a head."""
        own: int | None = self.positions.options.get("channels")
        if own is None and self.width % self.heads:
            raise ConfigError(f"{self.heads} heads do not divide a width of {self.width}")
        return own or self.width // self.heads

    @cached_property
    def near(self) -> Site:
        """The same in a block of the last tokens alone."""
        base = self.positions.options.get("local")
        options = {"base": base, "channels": self.channels}
        return self if base is None else replace(self, positions=Choice(self.positions.name, options))

    def share(self, blocks: Iterable[nn.Module]) -> None:
        """Let the blocks share what the positions say that they share."""
        if self.positions.options.get("shared"):
            attentions = [cast(layers.T5Attention, block.attention) for block in blocks]
            for other in attentions[1:]:
                other.share(attentions[0])


def _softmax(
    at: Site,
    /,
    *,
    key_value_heads: int | None = None,
    inputs_bias: bool | None = None,
    output_bias: bool | None = None,
    normed: bool = False,
    dropout: float | None = None,
    scale: Positive | None = None,
    cap: Positive | None = None,
) -> layers.MultiHeadAttention:
    """An attention whose query heads may share keys and values.

    Args:
        key_value_heads: Heads of keys and values, each shared by a group of query heads; None: as many as heads.
        inputs_bias: Whether queries, keys and values have a bias (Qwen 2); None: as the block's linear maps.
        output_bias: The same of the output.
        normed: Whether queries and keys are normalised, each head by itself (Qwen 3).
        dropout: Probability for attention weights; None: the model's.
        scale: What scores are multiplied by; None: 1 / √channels.
        cap: Bound of scores s, which become cap · tanh(s / cap) (Gemma 2); None: they are unbounded.
    """
    at = at if dropout is None else replace(at, dropout=dropout)
    inputs, output = (at.bias if bias is None else bias for bias in (inputs_bias, output_bias))
    if at.positions.name in RELATIVE and (normed or scale or cap):
        what = f"positions={at.positions.name!r} is a bias of scores"
        raise ConfigError(f"{what} that are not normalised, scaled or capped: choose others")
    made = _softmax_of(at, key_value_heads, inputs, normed)
    made.dot = Dot(scale, cap)
    if inputs != output:
        made.output.register_parameter("bias", nn.Parameter(torch.zeros(at.width)) if output else None)
    return made


def _softmax_of(at: Site, shared: int | None, bias: bool, normed: bool) -> layers.MultiHeadAttention:
    if at.positions.name not in RELATIVE:
        kind = layers.NormedAttention if normed else layers.MultiHeadAttention
        return kind(at.width, at.heads, key_value_heads=shared, rotary=at.rotary, bias=bias, dropout=at.dropout)
    relative = partial(RELATIVE[at.positions.name], at.width, at.heads)
    if at.positions.name == "t5":
        sizes = {name: size for name, size in at.positions.options.items() if name != "shared"}
        relative = partial(relative, layers.Buckets(**sizes, both=not at.past))
    return relative(key_value_heads=shared, bias=bias, dropout=at.dropout)


def _linear(at: Site, /, *, key_value_heads: int | None = None) -> layers.MultiHeadAttention:
    """An attention by features whose query heads may share keys and values.

    Args:
        key_value_heads: Heads of keys and values, each shared by a group of query heads; None: as many as heads.
    """
    return layers.LinearAttention(at.width, at.heads, key_value_heads=key_value_heads, rotary=at.rotary, bias=at.bias)


def _performer(kind: type[layers.PositiveFeatures]) -> Attention:
    def attention(
        at: Site, /, *, key_value_heads: int | None = None, learned: bool = False
    ) -> layers.MultiHeadAttention:
        """Attention by random features.

        Args:
            key_value_heads: Heads of keys and values, each shared by a group of query heads; None: as many as heads.
            learned: Whether the features' directions are weights, rather than drawn anew now and then.
        """
        shape, random = (at.width, at.heads), kind(at.channels, learned=learned)
        return layers.PerformerAttention(
            *shape, random, key_value_heads=key_value_heads, rotary=at.rotary, bias=at.bias
        )

    return attention


def _hopfield(at: Site, /, *, steps: Count = 3, beta: Positive | None = None) -> layers.MultiHeadAttention:
    """Attention whose queries first fall into the keys that they resemble.

    Args:
        steps: Steps of that fall, the last of which reads the values; 1 is softmax attention.
        beta: Scale of the scores, positive; None: 1 / √channels.
    """
    if at.positions.name == "rotary":
        raise ConfigError(
            "attention='hopfield' takes queries for keys, and rotations are of one or the other: choose "
            "positions none, sinusoidal or learned"
        )
    return layers.HopfieldAttention(at.width, at.heads, steps, beta, bias=at.bias, dropout=at.dropout)


def _strided_heads(at: Site, /, *, stride: Count = 8) -> layers.MultiHeadAttention:
    """Half of the heads attend to those nearby, half to every stride-th.

    Args:
        stride: The stride; best near the root of the length.
    """
    return _factorised(at, partial(strided_parts, stride=stride))


def _fixed_heads(at: Site, /, *, block: Count = 8) -> layers.MultiHeadAttention:
    """Half of the heads attend within blocks, half to the last of every block.

    Args:
        block: Positions of a block; best near the root of the length.
    """
    return _factorised(at, partial(fixed_parts, stride=block))


def _factorised(at: Site, parts: Callable[..., tuple[Graph, ...]]) -> layers.MultiHeadAttention:
    return layers.FactorisedAttention(at.width, at.heads, parts, rotary=at.rotary, bias=at.bias, dropout=at.dropout)


def _lsh(at: Site, /, *, chunk: Count = 8, buckets: Count = 8, rounds: Count = 2) -> layers.MultiHeadAttention:
    """Attention among those that hash alike, as in the Reformer.

    Args:
        chunk: Positions of a chunk of the sorted sequence; best near the root of the length.
        buckets: Buckets that a round of hashing fills.
        rounds: Rounds of hashing.
    """
    hashing = layers.AngularHash(at.channels, buckets, rounds)
    return layers.LSHAttention(at.width, at.heads, hashing, size=chunk, rotary=at.rotary, bias=at.bias)


def _routing(at: Site, /, *, size: Count = 8, clusters: Count = 8) -> layers.MultiHeadAttention:
    """Attention within clusters of content, as in the Routing Transformer.

    Args:
        size: Positions of a cluster; best near the root of the length.
        clusters: Number of clusters.
    """
    centroids = layers.Centroids(at.heads, at.channels, clusters)
    return layers.RoutingAttention(at.width, at.heads, centroids, size=size, rotary=at.rotary, bias=at.bias)


def _sinkhorn(at: Site, /, *, block: Count = 8) -> layers.MultiHeadAttention:
    """Attention to one's own block and to a learned mixture of the others.

    Args:
        block: Positions of a block; best near the root of the length.
    """
    return layers.SinkhornAttention(at.width, at.heads, size=block, rotary=at.rotary, bias=at.bias)


ATTENTIONS: dict[str, Attention] = {
    "softmax": _softmax,
    "strided-heads": _strided_heads,
    "fixed-heads": _fixed_heads,
    "hopfield": _hopfield,
    "lsh": _lsh,
    "routing": _routing,
    "sinkhorn": _sinkhorn,
    "linear": _linear,
    "performer": _performer(layers.PositiveFeatures),
    "performer-hyperbolic": _performer(layers.HyperbolicFeatures),
    "performer-relu": _performer(layers.ReLUFeatures),
}
BACKWARDS = ("strided-heads", "fixed-heads")  # a node attends to those before it, whatever the graph


RELATIVE: dict[str, type[layers.MultiHeadAttention]] = {
    "shaw": layers.ShawAttention,
    "transformer-xl": layers.TransformerXLAttention,
    "t5": layers.T5Attention,
    "alibi": layers.ALiBiAttention,
}


def _nothing(width: int, length: int | None, /) -> None:
    """Nothing is added to the embedding."""


def _sinusoidal(width: int, length: int | None, /) -> nn.Module:
    return layers.Sinusoidal(width)


def _learned(width: int, length: int | None, /, *, norm: bool = False) -> nn.Module:
    """A vector for each position.

    Args:
        norm: Whether its sum with the embedding is normalised, as in BART.
    """
    if length is None:
        raise ConfigError("positions='learned' needs a task whose graphs have a largest length; this one has none")
    return layers.Learned(length, width, norm)


def _rotary(
    width: int,
    length: int | None,
    /,
    *,
    base: Positive = 10000.0,
    stretch: Positive = 1.0,
    trained: Natural = 0,
    slow: Positive = 1.0,
    fast: Positive = 4.0,
    yarn: bool = False,
    channels: Count | None = None,
    local: Positive | None = None,
) -> None:
    """Nothing is added to the embedding: queries and keys are turned.

    Args:
        base: The base of the angles θ_c = base^(-2c/d).
        stretch: What angles are divided by: 2 fits twice as many positions among those that a model was trained on.
        trained: How many these were, so that fast angles are not divided (LLaMA 3); 0: all are.
        slow: Turns within these positions up to which an angle is divided by all of `stretch`.
        fast: Turns from which on it is not.
        yarn: Whether angles between the two are divided by channel, and queries and keys made longer.
        channels: Those of a head, even; None: width / heads.
        local: The base in `local` blocks, whose angles are not divided (Gemma 3); None: as in the others.
    """


def _t5(width: int, length: int | None, /, *, count: Count = 32, reach: Count = 128, shared: bool = False) -> None:
    """Nothing is added to the embedding: scores get a bias.

    Args:
        count: Buckets of distances.
        reach: The distance from which on all share a bucket.
        shared: Whether all blocks share the first one's table, and a decoder's buckets are all of the past, as in T5.
    """


# What is added to the embedding of a width, for graphs of up to a length; the others act inside the attention.
POSITIONS: dict[str, Callable[..., nn.Module | None]] = (
    {
        "none": _nothing,
        "sinusoidal": _sinusoidal,
        "learned": _learned,
        "rotary": _rotary,
    }
    | dict.fromkeys(RELATIVE, _nothing)
    | {"t5": _t5}
)


def _last(tokens: int, n: int) -> tuple[Graph, ...]:
    return (window(n, tokens - 1, sides="past"),)


@cached
def _one_more(graph: Graph) -> Graph:
    return complete(graph.num_receivers + 1).to(graph.device)


def _check(settings: TransformerSettings, signature: Signature) -> None:
    if settings.tied and not (isinstance(signature, Tokens) and signature.inputs == signature.outputs):
        raise ConfigError("tied=True needs a task that reads and writes the same tokens")
    named = Choice.of(settings.positions).name
    if named in RELATIVE and Choice.of(settings.attention).name != "softmax":
        raise ConfigError(
            f"positions={named!r} is a bias, which only attention='softmax' takes: for another attention "
            "choose none, sinusoidal, learned or rotary"
        )
    attention = Choice.of(settings.attention).name
    if attention in BACKWARDS and settings.readout in ("class", "first"):
        raise ConfigError(
            f"attention={attention!r} looks back, and readout={settings.readout!r} is the first node, which would "
            "know itself alone: choose another readout, for example mean"
        )
    check_readout(settings.readout, signature)
