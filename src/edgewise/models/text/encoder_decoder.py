"""The encoder-decoder transformer, and BART: a source attends to itself, a target to its past and to the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, cast

from torch import Tensor, nn
from torch.nn import functional

from edgewise import layers
from edgewise.configuration import Choice, Count, Natural, OneOf, Settings, Share, chosen
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import EncoderDecoderGraph, Graph
from edgewise.graphs.checks import shown
from edgewise.graphs.derived import cached
from edgewise.kernels import dropout
from edgewise.layers.plain.linear import Embedding
from edgewise.models.parts import DECODER_BLOCKS, FEED_FORWARDS, draw_weights
from edgewise.models.signature import Signature, TokenPairs, Tokens, accepted
from edgewise.models.text.transformer import ATTENTIONS, POSITIONS, Site


@dataclass(frozen=True)
class EncoderDecoderSettings(Settings):
    """What an encoder-decoder transformer can be.

    Args:
        width: Channels of every position, d_model.
        encoder_depth: Blocks that read the source.
        decoder_depth: Blocks that write the target.
        heads: Attention heads, which share the width.
        positions: "none"; "sinusoidal" or "learned", added to the embedding; the others act inside the attention of
            source to source and target to target.
        feed_forward: The feed-forward networks, by their activation; "swiglu" and "geglu" are gated.
        block: Where a block normalises: what each stage reads ("pre-norm") or what it leaves ("post-norm").
        dropout: Probability for embeddings and what each stage adds.
        attention_dropout: Probability for attention weights.
        tied: Whether the output layer is the token embedding, which source and target share, transposed.
        scaled: Whether the embedding of a token is multiplied by √width where it is read.
    """

    width: Count = 256
    encoder_depth: Natural = 3
    decoder_depth: Natural = 3
    heads: Count = 8
    positions: Annotated[Choice | str, OneOf(POSITIONS)] = "sinusoidal"
    feed_forward: Annotated[Choice | str, OneOf(FEED_FORWARDS)] = "relu"
    block: Annotated[Choice | str, OneOf(DECODER_BLOCKS)] = "pre-norm"
    dropout: Share = 0.1
    attention_dropout: Share = 0.0
    tied: bool = True
    scaled: bool = True


class EncoderDecoder(nn.Module):
    """An encoder on the source, and a decoder that attends to its own past and to the encoder's output.

    Equation    M = E_L ∘ ... ∘ E_1 (√d E_x + P),  Y_L = D_L(·, M) ∘ ... ∘ D_1(·, M) (√d E_y + P),  output = Y_L Eᵀ
    Symbols     embed = E, of one vocabulary for both sides; P = positions; d = width; encoder, decoder = the blocks E_l
                and D_l; memory = M; with pre-norm, M and Y_L are normalised
    Shapes      x = [source ‖ target] [*, S + T] int64 on an `EncoderDecoderGraph` -> [*, T, outputs]
    Edge cases  many pairs are one disjoint graph over flat tokens: nothing is padded
    Cost        time O((S + T) depth width² + E width + T width outputs); memory O((S + T) depth width + T outputs)
    Differs     pre-norm by default, which needs hardly any warm-up
    Reference   Vaswani et al., "Attention is all you need", 2017

    Example
        >>> import torch
        >>> settings = EncoderDecoderSettings(width=8, encoder_depth=1, decoder_depth=1, heads=2)
        >>> model = EncoderDecoder(settings, TokenPairs(10, 10))
        >>> pairs = EncoderDecoderGraph.of([3, 2], [2, 4])
        >>> model(pairs, torch.zeros(5 + 6, dtype=torch.int64)).shape  # an output for each position of the targets
        torch.Size([6, 10])
    """

    def __init__(self, settings: EncoderDecoderSettings, signature: Signature) -> None:
        super().__init__()
        _check(settings, accepted(self, signature, TokenPairs, whole_graph=False))
        self.settings, self.signature = settings, signature
        width = settings.width
        self.embed = Embedding(signature.inputs, width)
        positions = chosen("positions", settings.positions, POSITIONS)
        self.encoder_positions = positions(width, signature.length)
        self.decoder_positions = positions(width, signature.length)
        block = chosen("block", settings.block, DECODER_BLOCKS)()
        named = Choice.of(settings.positions)
        site = Site(width, settings.heads, named, block.bias, settings.attention_dropout)
        past = replace(site, past=bool(named.options.get("shared")))
        attention = ATTENTIONS["softmax"]
        cross = partial(layers.MultiHeadAttention, width, settings.heads, bias=block.bias, dropout=site.dropout)
        feed_forward = partial(chosen("feed_forward", settings.feed_forward, FEED_FORWARDS), width, block.bias)
        self.encoder = nn.ModuleList(
            block.encoder(width, attention(site), feed_forward(), block.norm, settings.dropout)
            for _ in range(settings.encoder_depth)
        )
        self.decoder = nn.ModuleList(
            block.decoder(width, attention(past), cross(), feed_forward(), block.norm, settings.dropout)
            for _ in range(settings.decoder_depth)
        )
        site.share(self.encoder)
        past.share(self.decoder)
        last = chosen("norm", block.last, layers.NORMS)
        self.encoder_norm, self.decoder_norm = last(width), last(width)
        self.head = None if settings.tied else nn.Linear(width, signature.outputs, bias=False)
        nn.init.normal_(self.embed.weight, std=width**-0.5)
        draw_weights(self, nn.init.xavier_uniform_)

    def forward(self, graph: EncoderDecoderGraph, x: Tensor) -> Tensor:
        sources, targets = graph.encoder.num_receivers, graph.decoder.num_receivers
        if not isinstance(x, Tensor) or x.shape[-1:] != (sources + targets,):
            raise ShapeError(f"x is {shown(x)}: it must hold {sources} source and then {targets} target tokens")
        source, target = x.split([sources, targets], -1)
        memory = self.keys_and_values(self.encode(graph.encoder, source))
        return self.decode(graph.decoder, target, graph.cross, memory)

    def encode(self, graph: Graph, source: Tensor) -> Tensor:
        """The encoder's output for source tokens [*, S]: [*, S, width]."""
        h = self._embedded(graph, source, self.encoder_positions)
        for block in self.encoder:
            h = block(graph, h)
        return self.encoder_norm(h)

    def keys_and_values(self, encoded: Tensor) -> list[layers.KeysAndValues]:
        """Those of the encoder's output [*, S, width] that each decoder block attends to, computed once."""
        return [cast(layers.MultiHeadAttention, block.cross).keys_and_values(encoded) for block in self.decoder]

    def decode(
        self,
        graph: Graph,
        target: Tensor,
        cross: Graph,
        memory: Sequence[layers.KeysAndValues],
        caches: Sequence[layers.Cache | None] | None = None,
    ) -> Tensor:
        """Scores of the token after each target token [*, T]: [*, T, outputs].

        With `caches`, `target` holds the new tokens only, and the graph is causal(total).rows(total - new, total).
        """
        h = self.hidden(graph, target, cross, memory, caches)
        return functional.linear(h, self.embed.weight) if self.head is None else self.head(h)

    def hidden(
        self,
        graph: Graph,
        target: Tensor,
        cross: Graph,
        memory: Sequence[layers.KeysAndValues],
        caches: Sequence[layers.Cache | None] | None = None,
    ) -> Tensor:
        """What the last decoder block leaves of target tokens [*, T]: [*, T, width]."""
        h = self._embedded(graph, target, self.decoder_positions)
        for block, kv, cache in zip(self.decoder, memory, caches or [None] * len(self.decoder), strict=True):
            h = block(graph, h, kv, cross, cache)
        return self.decoder_norm(h)

    def caches(self, graph: Graph) -> list[layers.Cache]:
        """The cache of each decoder block for decoding on that kind of graph, still empty."""
        return [cast(layers.MultiHeadAttention, block.attention).cache(graph) for block in self.decoder]

    def _embedded(self, graph: Graph, tokens: Tensor, positions: nn.Module | None) -> Tensor:
        h = self.embed(tokens) * (self.settings.width**0.5 if self.settings.scaled else 1)
        if positions is not None:
            h = positions(graph, h)
        return dropout(h, self.settings.dropout, self.training)


def _check(settings: EncoderDecoderSettings, signature: TokenPairs) -> None:
    if settings.tied and signature.inputs != signature.outputs:
        raise ConfigError("tied=True needs a task that reads and writes the same tokens")


@dataclass(frozen=True)
class BARTSettings(EncoderDecoderSettings):
    """What an encoder-decoder that classifies texts can be: the settings of `encoder-decoder`, whose weights fit it."""


class BART(EncoderDecoder):
    """An encoder-decoder that reads a text on both sides, and tells its class from the last token of the decoder.

    Equation    M = encoder(x),  Y = decoder(x, M),  output = y_n W + b
    Symbols     x = the n tokens of a text, its end included; M, Y = the states of `EncoderDecoder`; classifier = (W, b)
    Shapes      tokens x [*, N] int64 on G texts side by side -> [*, G, outputs]; on an `EncoderDecoderGraph`, of a task
                of sources and targets, the scores of `EncoderDecoder`, whose weights have the same names
    Edge cases  the encoder attends along the given graph, the decoder always to its past and to all of its own text
    Cost        that of `EncoderDecoder` with a target as long as its source
    Differs     the classifier is one linear map, as the paper says; the library `transformers` has two, with tanh
    Reference   Lewis et al., "BART: denoising sequence-to-sequence pre-training for natural language generation,
                translation, and comprehension", 2020, §3.1

    Example
        >>> import torch
        >>> from edgewise.graphs import complete
        >>> settings = BARTSettings(width=8, encoder_depth=1, decoder_depth=1, heads=2)
        >>> model = BART(settings, Tokens(10, 3, length=9, whole_graph=True))
        >>> texts = Graph.batch([complete(4), complete(2)])
        >>> model(texts, torch.zeros(6, dtype=torch.int64)).shape
        torch.Size([2, 3])
    """

    def __init__(self, settings: BARTSettings, signature: Signature) -> None:
        if not isinstance(signature, Tokens):
            super().__init__(settings, signature)
            return
        accepted(self, signature, Tokens, whole_graph=True, length=True)
        super().__init__(settings, TokenPairs(signature.inputs, signature.inputs, length=signature.length))
        self.signature = signature
        self.classifier = nn.Linear(settings.width, signature.outputs)

    def forward(self, graph: Graph | EncoderDecoderGraph, x: Tensor) -> Tensor:
        if isinstance(graph, EncoderDecoderGraph):
            return super().forward(graph, x)
        pairs = twice(graph)
        memory = self.keys_and_values(self.encode(pairs.encoder, x))
        h = self.hidden(pairs.decoder, x, pairs.cross, memory)
        last = h.index_select(-2, graph.sizes.cumsum(0) - 1)
        return self.classifier(dropout(last, self.settings.dropout, self.training))


@cached
def twice(graph: Graph) -> EncoderDecoderGraph:
    """Each text of a graph as a source and as its own target."""
    sizes = graph.sizes.tolist()
    if 0 in sizes:
        raise ShapeError(f"text {sizes.index(0)} is empty: a class is told from a text's last token, so it needs one")
    pairs = EncoderDecoderGraph.of(sizes, sizes)
    return EncoderDecoderGraph(graph, pairs.decoder.to(graph.device), pairs.cross.to(graph.device))
