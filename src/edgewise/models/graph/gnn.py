"""The graph network: a stack of graph layers, an output per node or, through a readout, per graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, cast

import torch
from torch import Tensor, nn

from edgewise import layers
from edgewise.configuration import Choice, Count, OneOf, Portion, Settings, Share, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, LayerSample, Neighborhood, Sample
from edgewise.graphs.layout import scratch
from edgewise.layers.plain.linear import Embedding, unit
from edgewise.models.graph.graph_layers import EDGE_LAYERS, GRAPH_LAYERS, RELATIONAL, WEIGHTED_LAYERS, Site
from edgewise.models.parts import Activation, features_of_edges
from edgewise.models.signature import Features, Signature, Tokens, accepted, check_readout

AnyGraph = Graph | Sample | LayerSample | Neighborhood


@dataclass(frozen=True)
class GNNSettings(Settings):
    """What a graph network can be.

    Args:
        layer: The graph layer; "gat", "gatv2", "gine", "pna" and "gated-gcn" read the features of edges, "gated-gcn"
            may update them; "rgcn", "rgat" and "hgt" read the kinds of edges, "hgt" also those of nodes.
        width: Channels of every node between layers, all heads together.
        depth: Number of graph layers, the output layer included.
        connection: "none"; "residual" adds a hidden layer's input to its result; "concatenate" puts both side by side;
            with "jumping" the output reads the results of all hidden layers, with "jumping-max" their largest;
            "residual-jumping" does both.
        norm: The normalisation between a hidden layer and its activation; "unit" comes after it, rows of length 1.
        dropout: Probability for the inputs of every layer.
        activation: The activation of the hidden layers.
        readout: "none", or a readout where the task wants one output per graph, with an MLP behind it.
        edge_dropout: Probability for the edges of every hidden layer, left out while training.
        virtual_node: Whether one more node exchanges messages with all nodes of its graph after every hidden layer.
    """

    layer: Annotated[Choice | str, OneOf(GRAPH_LAYERS)] = "gcn"
    width: Count = 16
    depth: Count = 2
    connection: Annotated[str, OneOf(CONNECTIONS)] = "none"
    norm: Annotated[str, OneOf(GRAPH_NORMS)] = "none"
    dropout: Share = 0.5
    activation: Activation = "relu"
    readout: Annotated[Choice | str, OneOf(GRAPH_OUTPUTS)] = "none"
    edge_dropout: Portion = 0.0
    virtual_node: bool = False


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
    "residual-jumping": lambda x, y: x + y,
}
JUMPS = {"jumping": "concatenate", "jumping-max": "max", "residual-jumping": "concatenate"}


class GraphOutput(nn.Module):
    """One output per graph: a readout, then an MLP, (5.6); called `output(graph, x)`, as a graph layer is.

    Equation    output = MLP(z / n), z the readout; n = 1, or where it is `scaled` the mean number of nodes of the first
                graphs that train, so that a sum has the scale of a mean and still depends on a graph's size
    """

    size: Tensor  # n, 0 before training

    def __init__(self, readout: nn.Module, mlp: nn.Module, scaled: bool = False) -> None:
        super().__init__()
        self.readout, self.mlp, self.scaled = readout, mlp, scaled
        if scaled:
            self.register_buffer("size", torch.zeros(()))

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        z = self.readout(graph, x)
        if self.scaled:
            if self.training:
                self.size.copy_(torch.where(self.size > 0, self.size, x.shape[-2] / z.shape[-2]))
            z = z / self.size.clamp(min=1)
        return self.mlp(z)


def _graph_output(readout: str) -> Callable[..., GraphOutput]:
    def build(
        width: int, outputs: int, activation: str, /, *, hidden: tuple[int, ...] = (), scaled: bool = False
    ) -> GraphOutput:
        """A readout and an MLP.

        Args:
            hidden: Width of each hidden layer of the MLP; none: a linear map.
            scaled: Divide by the mean number of nodes of the first graphs that train: a sum's scale is then a mean's.
        """
        mlp = layers.MLP([width, *hidden, outputs], activation) if hidden else nn.Linear(width, outputs)
        return GraphOutput(layers.READOUTS[readout](width), mlp, scaled)

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
                on a Neighborhood, outputs are exact: layer_l for all nodes that layer_l+1 reads, in chunks; GCN reads
                its nodes' degrees in the whole graph
                with edge features, layer_l(graph, X, e): every layer reads the same e, or with the stream of
                "gated-gcn" X^(l+1), e^(l+1) = layer_l(graph, X^(l), e^(l))
                with "gcnii", layer_l(graph, X^(l), X^(2)) from l = 2 on; layer_1 and the output are GCN
                jumping: the output reads [X^(2) ‖ ... ‖ X^(L)], or their largest;  norm "unit": X / ‖X‖₂, row by row,
                after σ (Alg. 4, line 6);  virtual_node: X + MLP(Σ X) after each hidden layer
    Symbols     hidden[l] = layer_l; output = the last layer on nodes, and on graphs GraphOutput with the MLP;
                virtual[l] = the `VirtualNode` after layer_l
    Shapes      x [*, N, inputs] or SparseFeatures, or tokens [*, N] -> [*, N, outputs], with a readout [*, G, outputs];
                e [E, signature.edges] in the graph's edge order, on a Sample that of the graph which was sampled; or
                e [E] int64, the kind of each edge, which is one-hot to a layer of features
    Edge cases  depth 1 on nodes is one layer from inputs to outputs; the first hidden layer, which changes the width,
                has no connection around it
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
        self.signature = accepted(self, signature, Features, Tokens, knows=("edges", "weights"))
        width, edges = settings.width, signature.edges if isinstance(signature, Features) else 0
        self.weighted = isinstance(signature, Features) and signature.weighted
        _check(settings, signature, edges)
        edges = 0 if self.weighted else edges
        self.embed = Embedding(signature.inputs, width) if isinstance(signature, Tokens) else None
        grows = settings.connection == "concatenate"  # by one width per hidden layer
        inputs = signature.inputs if self.embed is None else width
        widths = [inputs, *(width * (layer if grows else 1) for layer in range(1, settings.depth + 1))]
        on_nodes = not signature.whole_graph
        hidden = settings.depth - on_nodes
        streams = _streams(settings)
        make = partial(_layer, settings, signature)
        self.hidden = nn.ModuleList(
            make(
                width if streams and index else edges, inputs, width, hands_on=index < settings.depth - 1, number=index
            )
            for index, inputs in enumerate(widths[:hidden])
        )
        self.norms = nn.ModuleList(chosen("norm", settings.norm, GRAPH_NORMS)(width) for _ in range(hidden))
        self.virtual = nn.ModuleList(
            layers.VirtualNode(layers.MLP([wide, width, wide], settings.activation))
            for wide in (widths[1 : hidden + 1] if settings.virtual_node else ())
        )
        how = JUMPS.get(settings.connection)
        read = width * hidden if how == "concatenate" and hidden else widths[hidden]
        if on_nodes:
            of_edges = width if streams and hidden else edges
            self.output = make(of_edges, read, signature.outputs, last=True, number=hidden)
        else:
            output = chosen("readout", settings.readout, GRAPH_OUTPUTS)
            self.output = output(read, signature.outputs, settings.activation)
        self.jump = layers.JumpingKnowledge(how) if how and hidden else None
        self.activation = chosen("activation", settings.activation, layers.ACTIVATIONS)
        self.reads_types = _kinds(signature) > 0 and Choice.of(settings.layer).name == "hgt"

    def forward(self, graph: AnyGraph, x: Tensor | layers.SparseFeatures, e: Tensor | None = None) -> Tensor:
        if isinstance(graph, Neighborhood):
            return self._by_layer(graph, cast(Tensor, x))
        x = x if self.embed is None else self.embed(x)
        if Choice.of(self.settings.layer).name not in RELATIONAL:
            e = features_of_edges(graph, e, getattr(self.signature, "edges", 0), x)
        types = cast(Features, self.signature).types(x) if self.reads_types else None
        states: list[Tensor] = []
        first: Tensor | None = None
        streamed: tuple[Tensor, ...] = ()
        for index, (hop, of_edges) in enumerate(self._hops(graph, e, types)):
            if self.jump is not None and index == len(self.hidden):  # of a sample, those nodes that the output reads
                x = self.jump([state.narrow(-2, 0, states[-1].shape[-2]) for state in states])
            weight: dict[str, Tensor] = {}
            if self.weighted and of_edges:
                weight, of_edges = {"edge_weight": of_edges[0][..., 0]}, ()
            x, streamed = self._layer(index, hop, x, streamed or of_edges, first, weight)
            first = x if index == 0 else first
            states += [x] if self.jump is not None else []
        return cast(Tensor, x)

    def _layer(
        self,
        index: int,
        hop: Graph,
        x: Tensor | layers.SparseFeatures,
        of_edges: tuple[Tensor, ...] = (),
        first: Tensor | None = None,
        weight: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What comes of one layer, of nodes and of a stream of edges; behind the hidden ones lies the output. Some
        layers read the result of the first one, or weights of edges, too."""
        read = layers.dropout(x, self.settings.dropout, self.training)
        if index == len(self.hidden):
            return self.output(hop, read, *of_edges, **weight), ()
        layer, norm, connection = self.hidden[index], self.norms[index], self.settings.connection
        initial = (cast(Tensor, first).narrow(-2, 0, read.shape[-2]),) if isinstance(layer, layers.GCNII) else ()
        y = layer(hop if of_edges else self._thinned(hop), read, *of_edges, *initial, **weight)
        y, *streamed = y if isinstance(y, tuple) else (y,)
        y = self.activation(norm(hop, y) if isinstance(norm, layers.PairNorm) else norm(y))
        if self.settings.norm == "unit":
            y = unit(y)
        if index > 0 and connection in ("residual", "concatenate", "residual-jumping"):
            y = CONNECTIONS[connection](layers.at_receivers(hop, cast(Tensor, x)), y)
        return self.virtual[index](hop, y) if len(self.virtual) else y, tuple(streamed)

    def _by_layer(self, among: Neighborhood, x: Tensor) -> Tensor:
        """Exact outputs of some nodes: each layer for all nodes that the next one reads, before the next one."""
        if self.signature.whole_graph or any(not getattr(part, "local", True) for part in self.modules()):
            what = "a readout, a virtual node, the layer 'dynamic-edge-conv' and the norm 'pair'"
            raise ConfigError(f"{what} read all nodes of a graph at once: it is too large")
        if _streams(self.settings):
            raise ConfigError("this graph is too large for features that layers hand on with its edges: stream=false")
        if self.jump is not None:
            raise ConfigError("the connection 'jumping' reads all layers' results at once, and this graph is too large")
        if any(isinstance(layer, layers.GCNII) for layer in self.hidden):
            raise ConfigError(
                "the layer 'gcnii' reads the first layer's result in every layer: this graph is too large"
            )
        if any(isinstance(layer, layers.MoNet | layers.SAGELSTM) for layer in (*self.hidden, self.output)):
            raise ConfigError(
                "the layers 'monet' and 'sage-lstm' read degrees or the order of all nodes: this graph is too large; "
                "choose sage-mean, sage-pool, gcn, gin or gat"
            )
        needed = among.needed(len(self.hidden) + 1)
        convolves = any(isinstance(layer, layers.GCN) for layer in (*self.hidden, self.output))
        inputs = among.needed(len(needed) + 1)[0] if convolves else needed[0]
        degrees = among.degrees(inputs) if convolves else None
        for index, rows in enumerate(needed):
            made: Tensor | None = None
            for first, hop in among.hops(rows):
                read = x[hop.nodes if index == 0 else torch.searchsorted(needed[index - 1], hop.nodes)]
                read = self.embed(read.to(among.device)) if self.embed and index == 0 else read.to(among.device)
                graph, of_edges = hop.graphs[0].to(among.device), tuple[Tensor, ...]()
                if degrees is not None:
                    of_senders = degrees[torch.searchsorted(inputs, hop.nodes)].to(among.device)
                    graph, weight = layers.renormalised(graph, read.dtype, degrees=of_senders)
                    of_edges = (weight,)
                y, _ = self._layer(index, graph, read, of_edges)
                made = scratch((len(rows), y.shape[-1]), y.dtype) if made is None else made
                made[first : first + len(y)] = y
            x = cast(Tensor, made)
        return x[torch.searchsorted(needed[-1], among.nodes)].to(among.device)

    def _thinned(self, graph: Graph) -> Graph:
        """The graph of one hidden layer: while training, some edges are missing."""
        p = self.settings.edge_dropout
        return layers.drop_edges(graph, p) if p and self.training else graph

    def _hops(
        self, graph: Graph | Sample | LayerSample, e: Tensor | None, types: Tensor | None
    ) -> list[tuple[Graph, tuple[Any, ...]]]:
        """The graph of each layer, the output layer included, with its edges' features or a sample's weights, and with
        the types of its nodes where these are read."""
        depth = len(self.hidden) + 1
        if isinstance(graph, Graph):
            known: tuple[Any, ...] = () if e is None else (e,)
            known = known if types is None else (e, types)
            return [(graph, known)] * (depth - 1) + [(graph, () if self.signature.whole_graph else known)]
        if any(not getattr(layer, "local", True) for layer in (*self.virtual, *self.hidden, self.output)):
            what = "a virtual node and the layer 'dynamic-edge-conv' read all nodes of a graph"
            raise ConfigError(f"{what}, and a sample has some of them")
        if _streams(self.settings):
            raise ConfigError(
                "layers hand features of edges on, and sampled hops have no edges in common: stream=false"
            )
        if self.signature.whole_graph or len(graph.graphs) != depth:
            raise ConfigError(f"sampled graphs need an output per node and one hop for each of {depth} layers")
        if isinstance(graph, Sample):
            own = zip(graph.graphs, graph.edges, strict=True)
            of_edges = [(hop, None if e is None else e[edges]) for hop, edges in own]
            if types is not None:
                return [(hop, (of_hop, types[: hop.num_senders])) for hop, of_hop in of_edges]
            return [(hop, () if of_hop is None else (of_hop,)) for hop, of_hop in of_edges]
        settings = self.settings
        usual = (Choice.of(settings.layer).name, settings.connection, settings.edge_dropout)
        if usual != ("fast-gcn", "none", 0.0):
            raise ConfigError("layers sampled by importance need the layer 'fast-gcn', no connection, no edge dropout")
        return [(hop, (weight,)) for hop, weight in zip(graph.graphs, graph.weights, strict=True)]


def _layer(
    settings: GNNSettings, signature: Signature, edges: int, inputs: int, outputs: int, **place: Any
) -> nn.Module:
    site = Site(inputs, outputs, settings.width, settings.activation, edges, kinds=_kinds(signature), **place)
    return chosen("layer", settings.layer, GRAPH_LAYERS)(site)


def _kinds(signature: Signature) -> int:
    return signature.kinds if isinstance(signature, Features) else 0


def _streams(settings: GNNSettings) -> bool:
    """Whether each layer reads what the one before it made of the edges."""
    return bool(Choice.of(settings.layer).options.get("stream"))


def _check(settings: GNNSettings, signature: Signature, edges: int) -> None:
    layer = Choice.of(settings.layer).name
    weighted = isinstance(signature, Features) and signature.weighted
    if weighted and layer not in WEIGHTED_LAYERS:
        have = ", ".join(WEIGHTED_LAYERS)
        what = f"the layer {layer!r} has no place for weights of edges, and this task has some: {have} have"
        raise ConfigError(
            f"{what}; without --task.edge_weight the column is a feature, which {', '.join(EDGE_LAYERS)} read"
        )
    if edges and not weighted and layer not in EDGE_LAYERS:
        readers = ", ".join(EDGE_LAYERS)
        what = f"the layer {layer!r} reads no edge features, and this task has some: {readers} do"
        right = "--task.edge_weight NAME makes one a weight, and --task.ignore leaves them out"
        raise ConfigError(f"{what}; of one's own tables {right}")
    if edges and settings.edge_dropout:
        raise ConfigError("edge_dropout cannot leave out edges that have features")
    if layer == "hgt" and settings.edge_dropout:
        raise ConfigError("edge_dropout cannot leave out edges of layers that read types: choose attention_dropout")
    if _streams(settings) and settings.edge_dropout:
        raise ConfigError("edge_dropout cannot leave out edges that layers hand features on")
    check_readout(Choice.of(settings.readout).name, signature)
