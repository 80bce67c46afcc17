"""Deep sets: every node is read alone, and there is one output for the set of them."""

from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from edgewise.configuration import Count, Natural, Settings, Share, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.layers import ACTIVATIONS, MLP, NORMS, READOUTS, HopfieldLookup, SparseFeatures, dropout
from edgewise.models.parts import Activation, Norm, Readout
from edgewise.models.signature import Features, Signature, accepted


@dataclass(frozen=True)
class DeepSetsSettings(Settings):
    """What a network on sets can be.

    Args:
        hidden: Width of each layer that reads a node.
        activation: The activation of those layers.
        norm: The normalisation of what the readout reads.
        dropout: Probability for the hidden layers and for what the readout gives.
        input_dropout: Probability for the features.
        readout: What reads the set.
        memories: Learned patterns, of which each node retrieves what resembles it before the readout. 0: none.
    """

    hidden: tuple[Count, ...] = (64, 64)
    activation: Activation = "relu"
    norm: Norm = "layer"
    dropout: Share = 0.0
    input_dropout: Share = 0.0
    readout: Readout = "hopfield"
    memories: Natural = 0


class DeepSets(nn.Module):
    """A perceptron on every node, then a readout, which alone sees that they belong together.

    Equation    h_i = LN(σ(φ(x_i)));  output_g = readout_{i ∈ V_g}(h_i) W
                with memories, h_i ← h_i + Σ_m softmax_m(β q_i·k_m) v_m,  q_i = h_i W_Q
    Symbols     mlp = φ of `MLP`; activation = σ; settings.norm = the name of LN in NORMS; head = Wᵀ;
                lookup = `HopfieldLookup`, with W_Q, k and v
    Shapes      x [*, N, inputs] or SparseFeatures -> [*, G, outputs] for a batch of G graphs
    Edge cases  the graph's edges do not matter, only which nodes are whose
    Cost        that of `MLP` on N nodes and of the readout
    Reference   Zaheer et al., "Deep sets", 2017, Theorem 2; with readout="hopfield", Ramsauer et al., 2021, §4

    Example
        >>> import torch
        >>> from edgewise.graphs import complete
        >>> model = DeepSets(DeepSetsSettings((8,)), Features(3, 2, whole_graph=True))
        >>> model(Graph.batch([complete(4), complete(1)]), torch.randn(5, 3)).shape
        torch.Size([2, 2])
    """

    def __init__(self, settings: DeepSetsSettings, signature: Signature) -> None:
        super().__init__()
        if not settings.hidden:
            raise ConfigError("deep-sets needs at least one hidden layer")
        self.settings, self.signature = settings, accepted(self, signature, Features, whole_graph=True)
        width = settings.hidden[-1]
        self.mlp = MLP([signature.inputs, *settings.hidden], settings.activation, settings.dropout)
        self.activation = chosen("activation", settings.activation, ACTIVATIONS)
        self.norm = chosen("norm", settings.norm, NORMS)(width)
        self.readout = chosen("readout", settings.readout, READOUTS)(width)
        self.lookup = HopfieldLookup(width, memories=settings.memories) if settings.memories else None
        self.head = nn.Linear(width, signature.outputs)

    def forward(self, graph: Graph, x: Tensor | SparseFeatures) -> Tensor:
        x = dropout(x, self.settings.input_dropout, self.training)
        h = self.norm(self._drop(self.activation(self.mlp(x))))
        h = h if self.lookup is None else h + self.lookup(graph, h)
        return self.head(self._drop(self.readout(graph, h)))

    def _drop(self, x: Tensor) -> Tensor:
        return cast(Tensor, dropout(x, self.settings.dropout, self.training))
