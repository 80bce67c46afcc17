"""BART: an encoder-decoder that has learned to restore texts, and then tells which class a text is of."""

from dataclasses import dataclass

from torch import Tensor, nn

from edgewise.errors import ShapeError
from edgewise.graphs import EncoderDecoderGraph, Graph
from edgewise.graphs.derived import cached
from edgewise.kernels import dropout
from edgewise.models.signature import Signature, TokenPairs, Tokens, accepted
from edgewise.models.text.encoder_decoder import EncoderDecoder, EncoderDecoderSettings


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
    """Each text of a graph as a source and as its own target.

    Example
        >>> from edgewise.graphs import complete, draw
        >>> print(draw(twice(Graph.batch([complete(2), complete(1)])).cross))
        ##.
        ##.
        ..#
    """
    sizes = graph.sizes.tolist()
    if 0 in sizes:
        raise ShapeError(f"text {sizes.index(0)} is empty: a class is told from a text's last token, so it needs one")
    pairs = EncoderDecoderGraph.of(sizes, sizes)
    return EncoderDecoderGraph(graph, pairs.decoder.to(graph.device), pairs.cross.to(graph.device))
