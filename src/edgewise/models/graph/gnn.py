"""The graph network: a stack of graph layers, an output per node or, through a readout, per graph."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from edgewise.errors import ConfigError
from edgewise.graphs import Graph, LayerSample, Sample
from edgewise.layers import (
    ACTIVATIONS,
    GAT,
    GCN,
    GIN,
    GINE,
    MLP,
    NORMS,
    READOUTS,
    SAGELSTM,
    DegreeCoordinates,
    DynamicEdgeConv,
    EdgeConv,
    FastGCN,
    GatedGCN,
    GATv2,
    MoNet,
    PairNorm,
    SAGEMean,
    SAGEPool,
    SparseFeatures,
    at_receivers,
    chosen,
    drop_edges,
    dropout,
)
from edgewise.models.signature import Features, Signature, Tokens, accepted, check_readout


@dataclass(frozen=True)
class GNNSettings:
    """What a graph network can be.

    Args:
        layer: A name of GRAPH_LAYERS: "gcn", "sage-mean", "sage-pool", "sage-lstm", "gat", "gatv2", "gin",
            "gated-gcn", "monet", "edge-conv", "dynamic-edge-conv", "fast-gcn" or "gine"; "gine" and "gated-gcn" read
            the features of edges.
        width: Channels of every node between layers, all heads together.
        depth: Number of graph layers, the output layer included.
        heads: Attention heads of the hidden layers, concatenated ("gat", "gatv2").
        output_heads: Attention heads of the output layer, averaged ("gat", "gatv2").
        connection: "none"; "residual" adds a hidden layer's input to its result; "concatenate" puts both side by side.
        norm: A name of NORMS, or "pair", between a hidden layer and its activation.
        dropout: Probability for the inputs of every layer.
        attention_dropout: Probability for attention weights ("gat", "gatv2").
        activation: A name of ACTIVATIONS.
        readout: "none", or a name of READOUTS where the task wants one output per graph.
        neighbors: How many nodes a node listens to, itself included ("dynamic-edge-conv").
        kernels: Number of Gaussians ("monet").
        edge_dropout: Probability for the edges of every hidden layer, left out while training.
    """

    layer: str = "gcn"
    width: int = 16
    depth: int = 2
    heads: int = 1
    output_heads: int = 1
    connection: str = "none"
    norm: str = "none"
    dropout: float = 0.5
    attention_dropout: float = 0.0
    activation: str = "relu"
    readout: str = "none"
    neighbors: int = 10
    kernels: int = 3
    edge_dropout: float = 0.0


def _attention(
    layer: type[GAT] | type[GATv2], settings: GNNSettings, inputs: int, outputs: int, last: bool
) -> nn.Module:
    if last:
        return layer(inputs, outputs, settings.output_heads, concatenate=False, dropout=settings.attention_dropout)
    if settings.heads < 1 or outputs % settings.heads:
        raise ConfigError(f"{settings.heads} heads do not divide a width of {outputs}")
    return layer(inputs, outputs // settings.heads, settings.heads, dropout=settings.attention_dropout)


# Each makes a layer of `inputs` -> `outputs` channels; `last`: it is the output layer of a task on nodes.
GRAPH_LAYERS: dict[str, Callable[[GNNSettings, int, int, bool], nn.Module]] = {
    "gcn": lambda settings, inputs, outputs, last: GCN(inputs, outputs),
    "sage-mean": lambda settings, inputs, outputs, last: SAGEMean(inputs, outputs),
    "sage-pool": lambda settings, inputs, outputs, last: SAGEPool(inputs, outputs, settings.width),
    "sage-lstm": lambda settings, inputs, outputs, last: SAGELSTM(inputs, outputs, settings.width),
    "gat": lambda settings, inputs, outputs, last: _attention(GAT, settings, inputs, outputs, last),
    "gatv2": lambda settings, inputs, outputs, last: _attention(GATv2, settings, inputs, outputs, last),
    "gin": lambda settings, inputs, outputs, last: GIN(MLP([inputs, settings.width, outputs], settings.activation)),
    "gine": lambda settings, inputs, outputs, last: _gine(settings, inputs, outputs, 0),
    "gated-gcn": lambda settings, inputs, outputs, last: GatedGCN(inputs, outputs),
    "monet": lambda settings, inputs, outputs, last: MoNet(
        inputs, outputs, settings.kernels, coordinates=DegreeCoordinates(2)
    ),
    "edge-conv": lambda settings, inputs, outputs, last: EdgeConv(_edge_mlp(settings, inputs, outputs)),
    "dynamic-edge-conv": lambda settings, inputs, outputs, last: DynamicEdgeConv(
        _edge_mlp(settings, inputs, outputs), settings.neighbors
    ),
    "fast-gcn": lambda settings, inputs, outputs, last: FastGCN(inputs, outputs),
}


# The same for a task with features of edges, of that width: each layer reads them with a map of its own.
EDGE_LAYERS: dict[str, Callable[[GNNSettings, int, int, int], nn.Module]] = {
    "gine": lambda settings, inputs, outputs, edges: _gine(settings, inputs, outputs, edges),
    "gated-gcn": lambda settings, inputs, outputs, edges: GatedGCN(inputs, outputs, edges),
}


def _gine(settings: GNNSettings, inputs: int, outputs: int, edges: int) -> GINE:
    return GINE(MLP([inputs, settings.width, outputs], settings.activation), edges)


def _edge_mlp(settings: GNNSettings, inputs: int, outputs: int) -> MLP:
    return MLP([2 * inputs, settings.width, outputs], settings.activation)


GRAPH_NORMS: dict[str, Callable[[int], nn.Module]] = NORMS | {"pair": lambda width: PairNorm()}

# From what a hidden layer read, x, and what came of it, y.
CONNECTIONS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "none": lambda x, y: y,
    "residual": lambda x, y: x + y,
    "concatenate": lambda x, y: torch.cat([x, y], -1),
}


class GraphOutput(nn.Module):
    """One output per graph: a readout, then a linear map; called `output(graph, x)`, as a graph layer is."""

    def __init__(self, readout: str, width: int, outputs: int) -> None:
        super().__init__()
        self.readout = chosen("readout", readout, READOUTS)(width)
        self.linear = nn.Linear(width, outputs)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return self.linear(self.readout(graph, x))


class GNN(nn.Module):
    """A stack of graph layers: the hidden ones with normalisation, activation and a connection around them.

    Equation    X^(l+1) = σ(norm(layer_l(graph, dropout(X^(l)))))    (5.1), (5.4)
                on nodes: output = layer_L(graph, dropout(X^(L)));  on graphs: output = W readout(X^(L+1))    (5.6)
                on a Sample, layer_l reads its own hop of sampled neighbours (Hamilton et al., 2017, Alg. 2)
                with edge features, layer_l(graph, X, e): every layer reads the same e
    Symbols     hidden[l] = layer_l; output = the last layer on nodes, and on graphs GraphOutput, its linear = W
    Shapes      x [*, N, inputs] or SparseFeatures, or tokens [*, N] -> [*, N, outputs], with a readout [*, G, outputs];
                e [E, signature.edges] in the graph's edge order, on a Sample that of the graph which was sampled
    Errors      ConfigError for settings that do not fit the task or one another
    Edge cases  depth 1 on nodes is one layer from inputs to outputs; the first hidden layer, which changes the width,
                has no connection around it
    Cost        that of its layers
    Differs     (5.6) has an MLP after the readout, here it is linear
    Reference   Kipf & Welling, 2017; Veličković et al., 2018; Xu et al., 2019; Baggag & Saad, §5

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> GNN(GNNSettings("gat", width=64, heads=8), Features(3, 7))(pair, torch.ones(2, 3)).shape
        torch.Size([2, 7])
    """

    def __init__(self, settings: GNNSettings, signature: Signature) -> None:
        super().__init__()
        self.settings = settings
        self.signature = accepted(self, signature, Features, Tokens, knows=("edges",))
        width, edges = settings.width, signature.edges if isinstance(signature, Features) else 0
        _check(settings, signature, edges)
        self.embed = nn.Embedding(signature.inputs, width) if isinstance(signature, Tokens) else None
        widths = _input_widths(settings, signature.inputs if self.embed is None else width)
        on_nodes = not signature.whole_graph
        hidden = settings.depth - on_nodes
        self.hidden = nn.ModuleList(_layer(settings, edges, inputs, width, False) for inputs in widths[:hidden])
        self.norms = nn.ModuleList(chosen("norm", settings.norm, GRAPH_NORMS)(width) for _ in range(hidden))
        if on_nodes:
            self.output = _layer(settings, edges, widths[hidden], signature.outputs, True)
        else:
            self.output = GraphOutput(settings.readout, widths[hidden], signature.outputs)
        self.activation = chosen("activation", settings.activation, ACTIVATIONS)

    def forward(
        self, graph: Graph | Sample | LayerSample, x: Tensor | SparseFeatures, e: Tensor | None = None
    ) -> Tensor:
        p, training = self.settings.dropout, self.training
        x = x if self.embed is None else self.embed(x)
        *hops, (last, entries) = self._hops(graph, e)
        for index, ((hop, of_edges), layer, norm) in enumerate(zip(hops, self.hidden, self.norms, strict=True)):
            y = layer(hop if of_edges else self._thinned(hop), dropout(x, p, training), *of_edges)
            y = self.activation(norm(hop, y) if isinstance(norm, PairNorm) else norm(y))
            connected = index > 0 and self.settings.connection != "none"
            x = CONNECTIONS[self.settings.connection](at_receivers(hop, cast(Tensor, x)), y) if connected else y
        return self.output(last, dropout(x, p, training), *entries)

    def _hops(self, graph: Graph | Sample | LayerSample, e: Tensor | None) -> list[tuple[Graph, tuple[Tensor, ...]]]:
        """The graph of each layer, the output layer included, with its edges' features or a sample's weights."""
        layers = len(self.hidden) + 1
        if isinstance(graph, Graph):
            known: tuple[Tensor, ...] = () if e is None else (e,)
            return [(graph, known)] * (layers - 1) + [(graph, () if self.signature.whole_graph else known)]
        if self.signature.whole_graph or len(graph.graphs) != layers:
            raise ConfigError(f"sampled graphs need an output per node and one hop for each of {layers} layers")
        if isinstance(graph, Sample):
            own = zip(graph.graphs, graph.edges, strict=True)
            return [(hop, () if e is None else (e[edges],)) for hop, edges in own]
        if (self.settings.layer, self.settings.connection, self.settings.edge_dropout) != ("fast-gcn", "none", 0.0):
            raise ConfigError("layers sampled by importance need the layer 'fast-gcn', no connection, no edge dropout")
        return [(hop, (weight,)) for hop, weight in zip(graph.graphs, graph.weights, strict=True)]

    def _thinned(self, graph: Graph) -> Graph:
        """The graph of one hidden layer: while training, some edges are missing."""
        p = self.settings.edge_dropout
        return drop_edges(graph, p) if p and self.training else graph


def _layer(settings: GNNSettings, edges: int, inputs: int, outputs: int, last: bool) -> nn.Module:
    if edges:
        return EDGE_LAYERS[settings.layer](settings, inputs, outputs, edges)
    return chosen("layer", settings.layer, GRAPH_LAYERS)(settings, inputs, outputs, last)


def _input_widths(settings: GNNSettings, inputs: int) -> list[int]:
    """What each layer reads, and after the last the output: concatenation grows by one width per hidden layer."""
    grows = settings.connection == "concatenate"
    return [inputs, *(settings.width * (layer if grows else 1) for layer in range(1, settings.depth + 1))]


def _check(settings: GNNSettings, signature: Signature, edges: int) -> None:
    if settings.width < 1 or settings.depth < 1:
        raise ConfigError(f"width={settings.width} and depth={settings.depth} must be at least 1")
    if not 0 <= settings.edge_dropout <= 1:
        raise ConfigError(f"edge_dropout={settings.edge_dropout} must be a probability, from 0 to 1")
    if edges and settings.layer not in EDGE_LAYERS:
        readers = ", ".join(EDGE_LAYERS)
        raise ConfigError(f"the layer {settings.layer!r} reads no edge features, and this task has some: {readers} do")
    if edges and settings.edge_dropout:
        raise ConfigError("edge_dropout cannot leave out edges that have features")
    chosen("connection", settings.connection, CONNECTIONS)
    check_readout(settings.readout, signature)
