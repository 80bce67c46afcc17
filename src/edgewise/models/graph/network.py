"""Encode, process, decode: full graph network blocks on features of edges, nodes and the graph as a whole."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn

from edgewise.configuration import Count, Natural, OneOf, Settings, Share, chosen
from edgewise.graphs import Graph
from edgewise.layers import MLP, NORMS, EdgeUpdate, GraphNetwork, NodeUpdate, WholeUpdate
from edgewise.models.parts import Activation, Norm, features_of_edges
from edgewise.models.signature import Features, Signature, accepted


@dataclass(frozen=True)
class GraphNetworkSettings(Settings):
    """What an encode-process-decode graph network can be.

    Args:
        width: Channels of every edge, every node and the whole.
        depth: Number of blocks between encoder and decoder.
        reduce: How a node combines its edges, and the whole its edges and nodes.
        norm: The normalisation of what each block reads.
        activation: The activation inside every update.
        dropout: Probability for the hidden channels of every update.
    """

    width: Count = 32
    depth: Natural = 3
    reduce: Annotated[str, OneOf(("sum", "mean"))] = "mean"
    norm: Norm = "layer"
    activation: Activation = "relu"
    dropout: Share = 0.0


class ResidualBlock(nn.Module):
    """A graph network block that reads normalised features and adds its result to them; gives x', e' and u'."""

    def __init__(self, settings: GraphNetworkSettings) -> None:
        super().__init__()
        width = settings.width
        self.norm_x, self.norm_e, self.norm_u = (chosen("norm", settings.norm, NORMS)(width) for _ in range(3))
        self.block = _block(settings, 4 * width, 3 * width, 3 * width)

    def forward(self, graph: Graph, x: Tensor, e: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new_x, new_e, new_u = self.block.update(graph, self.norm_x(x), self.norm_e(e), self.norm_u(u))
        assert new_e is not None and new_u is not None
        return x + new_x, e + new_e, u + new_u


class GraphNetworkModel(nn.Module):
    """Encode, process, decode: edges, nodes and the whole get features, blocks update them, one of them is decoded.

    Equation    (x, e, u) = encode(x, e, u);  (x, e, u) ← (x, e, u) + block_l(norm(x, e, u)) for l = 1..L
                on nodes: output = W x + b;  on graphs: output = W u + b
    Symbols     encode, blocks[l].block = `GraphNetwork`s with an MLP of one hidden layer for each update; decode = W, b
    Shapes      x [*, N, inputs] (, e [*, E, signature.edges] where edges have features, or e [E] int64, the kind of
                each edge, which becomes one-hot, and u [*, G, signature.whole] where graphs as a whole have features)
                -> [*, N, outputs], for a task on whole graphs [*, G, outputs]
    Edge cases  an isolated node reads the whole only
    Cost        O(L (E + N + G) width²) time, O(L (E + N + G) width) memory
    Differs     there the blocks share their weights; here each has its own, with a residual around it
    Reference   Battaglia et al., "Relational inductive biases, deep learning, and graph networks", 2018, Fig. 6 (c)

    Example
        >>> import torch
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> GraphNetworkModel(GraphNetworkSettings(), Features(3, 7, whole_graph=True))(pair, torch.ones(2, 3)).shape
        torch.Size([1, 7])
    """

    def __init__(self, settings: GraphNetworkSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features, knows=("edges", "whole"))
        width, inputs, edges, whole = settings.width, signature.inputs, self.signature.edges, self.signature.whole
        self.encode = _block(settings, edges + 2 * inputs + whole, inputs + width + whole, 2 * width + whole)
        self.blocks = nn.ModuleList(ResidualBlock(settings) for _ in range(settings.depth))
        self.decode = nn.Linear(width, signature.outputs)

    def forward(self, graph: Graph, x: Tensor, e: Tensor | None = None, u: Tensor | None = None) -> Tensor:
        x, e, u = self.encode.update(graph, x, features_of_edges(graph, e, self.signature.edges, x), u)
        for block in self.blocks:
            x, e, u = block(graph, x, e, u)
        return self.decode(u if self.signature.whole_graph else x)


def _block(settings: GraphNetworkSettings, edge: int, node: int, whole: int) -> GraphNetwork:
    def mlp(inputs: int) -> MLP:
        return MLP([inputs, settings.width, settings.width], settings.activation, settings.dropout)

    updates = EdgeUpdate(mlp(edge)), NodeUpdate(mlp(node), settings.reduce), WholeUpdate(mlp(whole), settings.reduce)
    return GraphNetwork(*updates)
