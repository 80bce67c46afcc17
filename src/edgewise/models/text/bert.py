"""BERT: an encoder that attends to both sides; it learns from masked tokens first, and then from few labels."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count, Natural, Settings, Share, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.kernels import dropout
from edgewise.layers import ACTIVATIONS, NORMS, READOUTS, FeedForward, Learned, MultiHeadAttention, PostNormBlock
from edgewise.layers.plain.linear import Embedding
from edgewise.models.parts import Activation, Norm, Readout, draw_weights
from edgewise.models.signature import Signature, Tokens, accepted, check_readout


@dataclass(frozen=True)
class BERTSettings(Settings):
    """What an encoder that is trained on masked tokens can be.

    Args:
        width: Channels of every token, d_model.
        depth: Number of blocks, L.
        heads: Attention heads, which share the width.
        hidden: Width inside the feed-forward networks; None: 4 * width.
        activation: The activation of the feed-forward networks and of the head.
        norm: The normalisation: "fine-layer" has BERT's ε.
        dropout: Probability for embeddings and what each stage adds.
        attention_dropout: Probability for attention weights; None: as dropout.
        head_dropout: Probability for what the head for whole texts reads; None: as dropout.
        readout: "none", or where the task wants one output per text a readout: "first" is BERT's pooler.
    """

    width: Count = 128
    depth: Natural = 4
    heads: Count = 4
    hidden: Count | None = None
    activation: Activation = "gelu"
    norm: Norm = "fine-layer"
    dropout: Share = 0.1
    attention_dropout: Share | None = None
    head_dropout: Share | None = None
    readout: Readout = "none"

    @property
    def of_attention(self) -> float:
        """The probability for attention weights."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    @property
    def of_head(self) -> float:
        """The probability for what the head for whole texts reads."""
        return self.dropout if self.head_dropout is None else self.head_dropout


class MaskedHead(nn.Module):
    """Scores of all tokens at each place, from the embedding of the tokens.

    Equation    LN(σ(h W + b)) Eᵀ + c
    Symbols     dense = (W, b); norm = LN; bias = c; embedding = E
    Shapes      h [*, N, width], embedding [tokens, width] -> [*, N, tokens]
    Cost        O(N width (width + tokens))
    Reference   Devlin et al., 2019; layout: the library `transformers`
    """

    def __init__(self, width: int, tokens: int, activation: str, norm: str) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = chosen("activation", activation, ACTIVATIONS)
        self.norm = chosen("norm", norm, NORMS)(width)
        self.bias = nn.Parameter(torch.zeros(tokens))

    def forward(self, h: Tensor, embedding: Tensor) -> Tensor:
        return functional.linear(self.norm(self.activation(self.dense(h))), embedding, self.bias)


class BERT(nn.Module):
    """Post-norm transformer blocks on a graph that joins both sides, below a head for masked tokens or for whole texts.

    Equation    H = T_L ∘ ... ∘ T_1 (LN(E_x + P)),  output = LN(σ(H W + b)) Eᵀ + c for tokens,
                readout(H) W + b for texts; readout "first": tanh(h_0 W_p + b_p)
    Symbols     embed = E; positions = P; norm = LN; blocks[l] = T_{l+1}; masked or head = what follows
    Shapes      tokens x [*, N] int64 -> [*, N, tokens], with a readout [*, G, outputs]; `hidden(graph, x)`: H. Of
                some places alone, rows [R] -> [*, R, tokens]
    Edge cases  many texts are one disjoint graph over flat tokens: nothing is padded
    Cost        time O(depth (N width² + E width) + N width tokens); memory O(depth N width + N tokens)
    Differs     no second segment and no next-sentence prediction, as in RoBERTa; the head for texts has BERT's one
                dropout, behind the readout, and not RoBERTa's other one in front of it
    Reference   Devlin et al., "BERT: pre-training of deep bidirectional transformers", 2019; RoBERTa: Liu et al., 2019

    Example
        >>> from edgewise.graphs import complete
        >>> model = BERT(BERTSettings(width=8, depth=1, heads=2), Tokens(30, 30, length=16))
        >>> model(complete(5), torch.zeros(2, 5, dtype=torch.int64)).shape
        torch.Size([2, 5, 30])
    """

    def __init__(self, settings: BERTSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Tokens, length=True, knows=("places",))
        _check(settings, self.signature)
        width, tokens = settings.width, signature.inputs
        self.embed = Embedding(tokens, width)
        self.positions = Learned(signature.length or 1, width)
        self.norm = chosen("norm", settings.norm, NORMS)(width)
        attention = partial(MultiHeadAttention, width, settings.heads, dropout=settings.of_attention)
        feed_forward = partial(FeedForward, width, settings.hidden or 4 * width, settings.activation)
        self.blocks = nn.ModuleList(
            PostNormBlock(width, attention(), feed_forward(), settings.norm, settings.dropout)
            for _ in range(settings.depth)
        )
        if signature.whole_graph:
            self.readout = chosen("readout", settings.readout, READOUTS)(width)
            self.head = nn.Linear(width, signature.outputs)
        else:
            self.masked = MaskedHead(width, tokens, settings.activation, settings.norm)
        draw_weights(self, partial(nn.init.normal_, std=0.02), nn.Embedding)

    def forward(self, graph: Graph, x: Tensor, rows: Tensor | None = None) -> Tensor:
        h = self.hidden(graph, x)
        if rows is not None:
            h = h.index_select(-2, rows)
        if not self.signature.whole_graph:
            return self.masked(h, self.embed.weight)
        return self.head(dropout(self.readout(graph, h), self.settings.of_head, self.training))

    def hidden(self, graph: Graph, x: Tensor) -> Tensor:
        """What the last block leaves of tokens [*, N]: [*, N, width]."""
        h = dropout(self.norm(self.positions(graph, self.embed(x))), self.settings.dropout, self.training)
        for block in self.blocks:
            h = block(graph, h)
        return h


def _check(settings: BERTSettings, signature: Tokens) -> None:
    if not signature.whole_graph and signature.inputs != signature.outputs:
        raise ConfigError("the head for single tokens guesses which token it was: this task wants other outputs")
    check_readout(settings.readout, signature)
