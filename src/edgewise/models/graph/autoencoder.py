"""The graph auto-encoder: positions in space, near for nodes that are linked and far for the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, OneOf, Settings, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, blocks
from edgewise.graphs.derived import cached
from edgewise.layers import EGNN, Linear, MessageNetwork
from edgewise.layers.plain.linear import check_dense
from edgewise.models.signature import Features, Signature, accepted


@dataclass(frozen=True)
class GraphAutoencoderSettings(Settings):
    """What a graph auto-encoder can be.

    Args:
        layer: The graph layer; with "egnn", places turn with the noise that they begin with.
        width: Channels of a node, and of the hidden layers of the networks on nodes and pairs.
        depth: Number of graph layers.
    """

    layer: Annotated[str, OneOf(ENCODERS)] = "egnn"
    width: Count = 64
    depth: Count = 4


class EGNNEncoder(nn.Module):
    """E(n)-equivariant layers, which move the places.

    Equation    h_i = h_0;  (h, x) ← EGNN(h, x, a), depth times;  z = e^s x
    """

    def __init__(self, settings: GraphAutoencoderSettings, signature: Signature) -> None:
        super().__init__()
        width = settings.width
        self.start = nn.Parameter(torch.zeros(width))
        self.layers = nn.ModuleList(EGNN(width, width, edges=1) for _ in range(settings.depth))
        # Noise has |x_i - x_j|² = 2 D on average: begin where a pair is as likely linked as not, at a distance of 10.
        self.log_scale = nn.Parameter(torch.tensor(0.5 * math.log(5 / signature.inputs)))

    def forward(self, pairs: Graph, x: Tensor, a_ij: Tensor) -> Tensor:
        h = self.start.expand(*x.shape[:-1], -1)
        for layer in self.layers:
            h, x = layer(pairs, h, x, a_ij)
        return self.log_scale.exp() * x


class MessageEncoder(nn.Module):
    """The same without geometry: the noise is a feature like any other.

    Equation    h_i = W x_i + b;  h ← MessageNetwork(h, a), depth times;  z_i = V h_i + c
    """

    def __init__(self, settings: GraphAutoencoderSettings, signature: Signature) -> None:
        super().__init__()
        width = settings.width
        self.embed = Linear(signature.inputs, width)
        self.layers = nn.ModuleList(MessageNetwork(width, width, edges=1) for _ in range(settings.depth))
        self.output = Linear(width, signature.outputs)

    def forward(self, pairs: Graph, x: Tensor, a_ij: Tensor) -> Tensor:
        h = self.embed(x)
        for layer in self.layers:
            h = layer(pairs, h, a_ij)
        return self.output(h)


ENCODERS: dict[str, Callable[[GraphAutoencoderSettings, Signature], nn.Module]] = {
    "egnn": EGNNEncoder,
    "message-network": MessageEncoder,
}


class GraphAutoencoder(nn.Module):
    """The encoder: from noise at every node to positions that hold the graph, over all pairs of nodes of each graph.

    Equation    z = encoder(complete graph, x, a_ij = [j → i is an edge])
    Symbols     x = noise, by which nodes that the graph itself does not distinguish get positions of their own
    Shapes      x [*, N, D] -> z [*, N, D]
    Cost        O(Σ n² width²) over the graphs of a batch, of n nodes each
    Reference   Satorras, Hoogeboom & Welling, "E(n) equivariant graph neural networks", 2021, §5.2

    Example
        >>> model = GraphAutoencoder(GraphAutoencoderSettings(width=8, depth=1), Features(3, 3))
        >>> model(Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2), torch.randn(2, 3)).shape
        torch.Size([2, 3])
    """

    def __init__(self, settings: GraphAutoencoderSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features, whole_graph=False)
        if signature.inputs != signature.outputs:
            raise ConfigError("a graph auto-encoder moves positions: choose a task with as many outputs as inputs")
        self.encoder = chosen("layer", settings.layer, ENCODERS)(settings, signature)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        check_dense(x)
        pairs, linked = pairs_and_links(graph)
        return self.encoder(pairs, x, linked.to(x.dtype).expand(*x.shape[:-2], -1, -1))


@cached
def pairs_and_links(graph: Graph) -> tuple[Graph, Tensor]:
    """The complete graph on each member, and for each of its edges [E', 1] whether the graph has it.

    Example
        >>> pairs, linked = pairs_and_links(Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2))
        >>> pairs.num_edges, linked.flatten().tolist()
        (4, [False, True, True, False])
    """
    pairs = blocks(graph.sizes.tolist()).to(graph.device)
    number = pairs.receivers * graph.num_senders + pairs.senders
    return pairs, torch.isin(number, graph.receivers * graph.num_senders + graph.senders).unsqueeze(-1)
