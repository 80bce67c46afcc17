"""The graph network: a stack of graph layers, an output per node or, through a readout, per graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise import layers
from edgewise.configuration import Choice, Count, OneOf, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, LayerSample, Neighborhood, Sample
from edgewise.graphs.store.layout import scratch
from edgewise.models.parts import Activation
from edgewise.models.signature import Features, Signature, Tokens, accepted, check_readout

AnyGraph = Graph | Sample | LayerSample | Neighborhood


@dataclass(frozen=True)
class GNNSettings:
    """What a graph network can be.

    Args:
        layer: The graph layer; "gat", "gatv2", "gine", "gated-gcn" and "rgcn" read the features of edges; "gated-gcn"
            may update them.
        width: Channels of every node between layers, all heads together.
        depth: Number of graph layers, the output layer included.
        connection: "none"; "residual" adds a hidden layer's input to its result; "concatenate" puts both side by side;
            with "jumping" the output reads the results of all hidden layers, with "jumping-max" their largest.
        norm: The normalisation between a hidden layer and its activation; "unit" comes after it, rows of length 1.
        dropout: Probability for the inputs of every layer.
        activation: The activation of the hidden layers.
        readout: "none", or a readout where the task wants one output per graph, with an MLP behind it.
        edge_dropout: Probability for the edges of every hidden layer, left out while training.
        virtual_node: Whether one more node exchanges messages with all nodes of its graph after every hidden layer.
    """

    layer: Annotated[Choice | str, OneOf(GRAPH_LAYERS)] = "gcn"
    width: int = 16
    depth: int = 2
    connection: Annotated[str, OneOf(CONNECTIONS)] = "none"
    norm: Annotated[str, OneOf(GRAPH_NORMS)] = "none"
    dropout: float = 0.5
    activation: Activation = "relu"
    readout: Annotated[Choice | str, OneOf(GRAPH_OUTPUTS)] = "none"
    edge_dropout: float = 0.0
    virtual_node: bool = False


class Site(NamedTuple):
    """What a layer is built from, whichever its kind: widths, whether it is the output layer of a task on nodes, and
    whether another layer could read what it makes of the edges."""

    inputs: int
    outputs: int
    hidden: int
    activation: str
    edges: int = 0
    last: bool = False
    hands_on: bool = False

    def mlp(self, inputs: int) -> layers.MLP:
        """The network of a layer that has one."""
        return layers.MLP([inputs, self.hidden, self.outputs], self.activation)


def _attention(layer: type[layers.GAT] | type[layers.GATv2]) -> Callable[..., nn.Module]:
    def build(at: Site, /, *, heads: Count = 1, output_heads: Count = 1, attention_dropout: float = 0.0) -> nn.Module:
        """Attention over the edges.

        Args:
            heads: Attention heads of the hidden layers, concatenated.
            output_heads: Attention heads of the output layer, averaged.
            attention_dropout: Probability for attention weights.
        """
        if at.last:
            return layer(at.inputs, at.outputs, output_heads, False, attention_dropout, at.edges)
        if heads < 1 or at.outputs % heads:
            raise ConfigError(f"{heads} heads do not divide a width of {at.outputs}")
        return layer(at.inputs, at.outputs // heads, heads, dropout=attention_dropout, edges=at.edges)

    return build


def _gated_gcn(at: Site, /, *, stream: bool = False) -> nn.Module:
    """Gated convolution.

    Args:
        stream: Whether each layer hands new features of the edges on to the next one.
    """
    make = layers.EdgeStream if stream and at.hands_on else layers.GatedGCN
    return make(at.inputs, at.outputs, at.edges)


def _sage_union(at: Site, /, *, reduce: Annotated[str, OneOf(("mean", "max"))] = "mean") -> nn.Module:
    """GraphSAGE with a node among its neighbours, (5.8).

    Args:
        reduce: What is made of them, "mean" or "max".
    """
    return layers.SAGEUnion(at.inputs, at.outputs, cast(Any, reduce))


def _rgcn(at: Site, /, *, bases: int = 0) -> nn.Module:
    """Relational convolution over edges of several kinds.

    Args:
        bases: Matrices whose mixtures are those of the relations, at most as many as there are relations; 0: each
            relation has one of its own.
    """
    relations = at.edges or 1
    return layers.RGCN(at.inputs, at.outputs, relations, min(bases, relations))


def _monet(at: Site, /, *, kernels: Count = 3) -> nn.Module:
    """Mixture model convolution over the degrees of both ends.

    Args:
        kernels: Number of Gaussians.
    """
    return layers.MoNet(at.inputs, at.outputs, kernels, coordinates=layers.DegreeCoordinates(2))


def _dynamic_edge_conv(at: Site, /, *, neighbors: Count = 10) -> nn.Module:
    """Edge convolution over the nearest nodes in feature space.

    Args:
        neighbors: How many nodes a node attends to, itself included.
    """
    return layers.DynamicEdgeConv(at.mlp(2 * at.inputs), neighbors)


GRAPH_LAYERS: dict[str, Callable[..., nn.Module]] = {
    "gcn": lambda at, /: layers.GCN(at.inputs, at.outputs),
    "sage-mean": lambda at, /: layers.SAGEMean(at.inputs, at.outputs),
    "sage-pool": lambda at, /: layers.SAGEPool(at.inputs, at.outputs, at.hidden),
    "sage-lstm": lambda at, /: layers.SAGELSTM(at.inputs, at.outputs, at.hidden),
    "sage-union": _sage_union,
    "gat": _attention(layers.GAT),
    "gatv2": _attention(layers.GATv2),
    "gin": lambda at, /: layers.GIN(at.mlp(at.inputs)),
    "gine": lambda at, /: layers.GINE(at.mlp(at.inputs), at.edges),
    "gated-gcn": _gated_gcn,
    "rgcn": _rgcn,
    "monet": _monet,
    "edge-conv": lambda at, /: layers.EdgeConv(at.mlp(2 * at.inputs)),
    "dynamic-edge-conv": _dynamic_edge_conv,
    "fast-gcn": lambda at, /: layers.FastGCN(at.inputs, at.outputs),
}
EDGE_LAYERS = ("gat", "gatv2", "gine", "gated-gcn", "rgcn")  # read features of edges, each with a map of its own


GRAPH_NORMS: dict[str, Callable[[int], nn.Module]] = layers.NORMS | {
    "pair": lambda width: layers.PairNorm(),
    "unit": lambda width: nn.Identity(),  # after the activation, in `GNN._layer`
}

# From what a hidden layer read, x, and what came of it, y.
CONNECTIONS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "none": lambda x, y: y,
    "residual": lambda x, y: x + y,
    "concatenate": lambda x, y: torch.cat([x, y], -1),
    "jumping": lambda x, y: y,  # all results, in front of the output
    "jumping-max": lambda x, y: y,
}
JUMPS = {"jumping": "concatenate", "jumping-max": "max"}


class GraphOutput(nn.Module):
    """One output per graph: a readout, then an MLP, (5.6); called `output(graph, x)`, as a graph layer is."""

    def __init__(self, readout: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.readout, self.mlp = readout, mlp

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return self.mlp(self.readout(graph, x))


def _graph_output(readout: str) -> Callable[..., GraphOutput]:
    def build(width: int, outputs: int, activation: str, /, *, hidden: tuple[int, ...] = ()) -> GraphOutput:
        """A readout and an MLP.

        Args:
            hidden: Width of each hidden layer of the MLP; none: a linear map.
        """
        mlp = layers.MLP([width, *hidden, outputs], activation) if hidden else nn.Linear(width, outputs)
        return GraphOutput(layers.READOUTS[readout](width), mlp)

    return build


GRAPH_OUTPUTS: dict[str, Callable[..., Any]] = {
    "none": lambda width, outputs, activation, /: None,
    **{name: _graph_output(name) for name in layers.READOUTS},
}


class GNN(nn.Module):
    """A stack of graph layers: the hidden ones with normalisation, activation and a connection around them.

    Equation    X^(l+1) = σ(norm(layer_l(graph, dropout(X^(l)))))    (5.1), (5.4)
                on nodes: output = layer_L(graph, dropout(X^(L)));  on graphs: output = MLP(readout(X^(L+1)))    (5.6)
                on a Sample, layer_l reads its own hop of sampled neighbours (Hamilton et al., 2017, Alg. 2)
                on a Neighborhood, outputs are exact: layer_l for all nodes that layer_l+1 reads, in chunks
                with edge features, layer_l(graph, X, e): every layer reads the same e, or with the stream of
                "gated-gcn" X^(l+1), e^(l+1) = layer_l(graph, X^(l), e^(l))
                jumping: the output reads [X^(2) ‖ ... ‖ X^(L)], or their largest;  norm "unit": X / ‖X‖₂, row by row,
                after σ (Alg. 4, line 6);  virtual_node: X + MLP(Σ X) after each hidden layer
    Symbols     hidden[l] = layer_l; output = the last layer on nodes, and on graphs GraphOutput with the MLP;
                virtual[l] = the `VirtualNode` after layer_l
    Shapes      x [*, N, inputs] or SparseFeatures, or tokens [*, N] -> [*, N, outputs], with a readout [*, G, outputs];
                e [E, signature.edges] in the graph's edge order, on a Sample that of the graph which was sampled; or
                e [E] int64, the kind of each edge, which is one-hot to a layer of features
    Errors      ConfigError for settings that do not fit the task or one another
    Edge cases  depth 1 on nodes is one layer from inputs to outputs; the first hidden layer, which changes the width,
                has no connection around it
    Cost        that of its layers
    Differs     the MLP of (5.6) is a linear map unless the readout's option `hidden` gives it layers
    Reference   Kipf & Welling, 2017; Veličković et al., 2018; Xu et al., 2018 and 2019; Baggag & Saad, §5

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> GNN(GNNSettings(Choice("gat", {"heads": 8}), width=64), Features(3, 7))(pair, torch.ones(2, 3)).shape
        torch.Size([2, 7])
    """

    def __init__(self, settings: GNNSettings, signature: Signature) -> None:
        super().__init__()
        self.settings = settings
        self.signature = accepted(self, signature, Features, Tokens, knows=("edges",))
        width, edges = settings.width, signature.edges if isinstance(signature, Features) else 0
        _check(settings, signature, edges)
        self.embed = nn.Embedding(signature.inputs, width) if isinstance(signature, Tokens) else None
        grows = settings.connection == "concatenate"  # by one width per hidden layer
        inputs = signature.inputs if self.embed is None else width
        widths = [inputs, *(width * (layer if grows else 1) for layer in range(1, settings.depth + 1))]
        on_nodes = not signature.whole_graph
        hidden = settings.depth - on_nodes
        streams = _streams(settings)
        self.hidden = nn.ModuleList(
            _layer(settings, width if streams and index else edges, inputs, width, hands_on=index < settings.depth - 1)
            for index, inputs in enumerate(widths[:hidden])
        )
        self.norms = nn.ModuleList(chosen("norm", settings.norm, GRAPH_NORMS)(width) for _ in range(hidden))
        self.virtual = nn.ModuleList(
            layers.VirtualNode(layers.MLP([wide, width, wide], settings.activation))
            for wide in (widths[1 : hidden + 1] if settings.virtual_node else ())
        )
        read = width * hidden if settings.connection == "jumping" and hidden else widths[hidden]
        if on_nodes:
            of_edges = width if streams and hidden else edges
            self.output = _layer(settings, of_edges, read, signature.outputs, last=True)
        else:
            output = chosen("readout", settings.readout, GRAPH_OUTPUTS)
            self.output = output(read, signature.outputs, settings.activation)
        how = JUMPS.get(settings.connection)
        self.jump = layers.JumpingKnowledge(how) if how and hidden else None
        self.activation = chosen("activation", settings.activation, layers.ACTIVATIONS)

    def forward(self, graph: AnyGraph, x: Tensor | layers.SparseFeatures, e: Tensor | None = None) -> Tensor:
        if isinstance(graph, Neighborhood):
            return self._by_layer(graph, cast(Tensor, x))
        x = x if self.embed is None else self.embed(x)
        if e is not None and not e.is_floating_point() and Choice.of(self.settings.layer).name != "rgcn":
            edges = cast(Features, self.signature).edges
            e = functional.one_hot(e, edges).to(x.dtype)
        states: list[Tensor] = []
        streamed: tuple[Tensor, ...] = ()
        for index, (hop, of_edges) in enumerate(self._hops(graph, e)):
            if self.jump is not None and index == len(self.hidden):  # of a sample, those nodes that the output reads
                x = self.jump([state.narrow(-2, 0, states[-1].shape[-2]) for state in states])
            x, streamed = self._layer(index, hop, x, streamed or of_edges)
            states += [x] if self.jump is not None else []
        return cast(Tensor, x)

    def _layer(
        self, index: int, hop: Graph, x: Tensor | layers.SparseFeatures, of_edges: tuple[Tensor, ...] = ()
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What comes of one layer, of nodes and of a stream of edges; behind the hidden ones lies the output."""
        read = layers.dropout(x, self.settings.dropout, self.training)
        if index == len(self.hidden):
            return self.output(hop, read, *of_edges), ()
        layer, norm, connection = self.hidden[index], self.norms[index], self.settings.connection
        y = layer(hop if of_edges else self._thinned(hop), read, *of_edges)
        y, *streamed = y if isinstance(y, tuple) else (y,)
        y = self.activation(norm(hop, y) if isinstance(norm, layers.PairNorm) else norm(y))
        if self.settings.norm == "unit":
            y = functional.normalize(y, dim=-1)
        if index > 0 and connection in ("residual", "concatenate"):
            y = CONNECTIONS[connection](layers.at_receivers(hop, cast(Tensor, x)), y)
        return self.virtual[index](hop, y) if len(self.virtual) else y, tuple(streamed)

    def _by_layer(self, among: Neighborhood, x: Tensor) -> Tensor:
        """Exact outputs of some nodes: each layer for all nodes that the next one reads, before the next one."""
        whole = self.signature.whole_graph or len(self.virtual) > 0
        if whole or any(isinstance(norm, layers.PairNorm) for norm in self.norms):
            raise ConfigError(
                "a readout, a virtual node and the norm 'pair' read all nodes of a graph at once: it is too large"
            )
        if _streams(self.settings):
            raise ConfigError("this graph is too large for features that layers hand on with its edges: stream=false")
        if self.jump is not None:
            raise ConfigError("the connection 'jumping' reads all layers' results at once, and this graph is too large")
        needed = among.needed(len(self.hidden) + 1)
        for index, rows in enumerate(needed):
            made: Tensor | None = None
            for first, hop in among.hops(rows):
                read = x[hop.nodes if index == 0 else torch.searchsorted(needed[index - 1], hop.nodes)]
                read = self.embed(read.to(among.device)) if self.embed and index == 0 else read.to(among.device)
                y, _ = self._layer(index, hop.graphs[0].to(among.device), read)
                made = scratch((len(rows), y.shape[-1]), y.dtype) if made is None else made
                made[first : first + len(y)] = y
            x = cast(Tensor, made)
        return x[torch.searchsorted(needed[-1], among.nodes)].to(among.device)

    def _thinned(self, graph: Graph) -> Graph:
        """The graph of one hidden layer: while training, some edges are missing."""
        p = self.settings.edge_dropout
        return layers.drop_edges(graph, p) if p and self.training else graph

    def _hops(self, graph: Graph | Sample | LayerSample, e: Tensor | None) -> list[tuple[Graph, tuple[Tensor, ...]]]:
        """The graph of each layer, the output layer included, with its edges' features or a sample's weights."""
        depth = len(self.hidden) + 1
        if isinstance(graph, Graph):
            known: tuple[Tensor, ...] = () if e is None else (e,)
            return [(graph, known)] * (depth - 1) + [(graph, () if self.signature.whole_graph else known)]
        if len(self.virtual):
            raise ConfigError("a virtual node reads all nodes of a graph, and a sample has some of them")
        if _streams(self.settings):
            raise ConfigError(
                "layers hand features of edges on, and sampled hops have no edges in common: stream=false"
            )
        if self.signature.whole_graph or len(graph.graphs) != depth:
            raise ConfigError(f"sampled graphs need an output per node and one hop for each of {depth} layers")
        if isinstance(graph, Sample):
            own = zip(graph.graphs, graph.edges, strict=True)
            return [(hop, () if e is None else (e[edges],)) for hop, edges in own]
        settings = self.settings
        usual = (Choice.of(settings.layer).name, settings.connection, settings.edge_dropout)
        if usual != ("fast-gcn", "none", 0.0):
            raise ConfigError("layers sampled by importance need the layer 'fast-gcn', no connection, no edge dropout")
        return [(hop, (weight,)) for hop, weight in zip(graph.graphs, graph.weights, strict=True)]


def _layer(settings: GNNSettings, edges: int, inputs: int, outputs: int, **place: bool) -> nn.Module:
    site = Site(inputs, outputs, settings.width, settings.activation, edges, **place)
    return chosen("layer", settings.layer, GRAPH_LAYERS)(site)


def _streams(settings: GNNSettings) -> bool:
    """Whether each layer reads what the one before it made of the edges."""
    return bool(Choice.of(settings.layer).options.get("stream"))


def _check(settings: GNNSettings, signature: Signature, edges: int) -> None:
    if settings.width < 1 or settings.depth < 1:
        raise ConfigError(f"width={settings.width} and depth={settings.depth} must be at least 1")
    if not 0 <= settings.edge_dropout <= 1:
        raise ConfigError(f"edge_dropout={settings.edge_dropout} must be a probability, from 0 to 1")
    layer = Choice.of(settings.layer).name
    if edges and layer not in EDGE_LAYERS:
        readers = ", ".join(EDGE_LAYERS)
        raise ConfigError(f"the layer {layer!r} reads no edge features, and this task has some: {readers} do")
    if edges and settings.edge_dropout:
        raise ConfigError("edge_dropout cannot leave out edges that have features")
    if _streams(settings) and settings.edge_dropout:
        raise ConfigError("edge_dropout cannot leave out edges that layers hand features on")
    chosen("connection", settings.connection, CONNECTIONS)
    check_readout(Choice.of(settings.readout).name, signature)
