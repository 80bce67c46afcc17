"""Networks beyond message passing: on pairs of nodes, and on subgraphs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from edgewise import layers
from edgewise.configuration import Count, Natural, Positive, Settings
from edgewise.graphs import Graph
from edgewise.models.parts import Readout
from edgewise.models.signature import Features, Signature, accepted, check_readout


@dataclass(frozen=True)
class PairNetworkSettings(Settings):
    """What a network on pairs of nodes can be.

    Args:
        width: Channels of every pair.
        depth: Number of blocks.
        marked: Whether the network reads a graph once for each node, with that node marked: stronger, and n times the
            work.
        gain: How much larger than usual weights begin: above 1, they tell more apart as drawn and cannot be trained.
        readout: "none", or a readout where the task wants one output per graph.
    """

    width: Count = 16
    depth: Count = 5
    marked: bool = False
    gain: Positive = layers.GAIN
    readout: Readout = "none"


@dataclass(frozen=True)
class SubgraphNetworkSettings(Settings):
    """What a network on subgraphs can be.

    Args:
        width: Channels of every node of a subgraph.
        depth: Layers of message passing inside a subgraph.
        hops: How far a subgraph reaches from its root.
        gain: How much larger than usual weights begin: above 1, they tell more apart as drawn and cannot be trained.
        readout: "none", or a readout where the task wants one output per graph.
    """

    width: Count = 16
    depth: Count = 3
    hops: Natural = 2
    gain: Positive = layers.GAIN
    readout: Readout = "none"


class _Higher(nn.Module):
    """One layer, a readout where the task wants one output per graph, a norm and an MLP."""

    settings: PairNetworkSettings | SubgraphNetworkSettings
    signature: Features
    layer: nn.Module

    def _finish(self) -> None:
        settings, signature = self.settings, self.signature
        check_readout(settings.readout, signature)
        reads = settings.readout in layers.READOUTS
        self.readout = layers.READOUTS[settings.readout](settings.width) if reads else None
        self.norm = layers.NORMS["batch"](settings.width)  # graphs that are hard to tell apart differ by little
        self.head = layers.MLP([settings.width, 8 * settings.width, signature.outputs], "gelu")

    def forward(self, graph: Graph, x: Tensor | layers.SparseFeatures) -> Tensor:
        h = self.layer(graph, x.to_dense() if isinstance(x, layers.SparseFeatures) else x)
        y: Tensor = self.head(self.norm(h if self.readout is None else self.readout(graph, h)))
        return y


class PairNetwork(_Higher):
    """A provably powerful graph network, and an output per node or, through a readout, per graph.

    Equation    on nodes: output = MLP(norm(PPGN(graph, X)));  on graphs: output = MLP(norm(readout(PPGN(graph, X))))
    Symbols     layer = `PPGN`, or `Marked(PPGN)` where settings.marked; norm = BatchNorm; head = MLP
    Shapes      x [*, N, inputs] -> [*, N, outputs], with a readout [*, G, outputs]
    Cost        O(depth Σ n³ width) time, O(depth Σ n² width) memory; n times as much where nodes are marked
    Reference   Maron et al., "Provably powerful graph networks", 2019

    Example
        >>> import torch
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> settings = PairNetworkSettings(readout="sum")
        >>> PairNetwork(settings, Features(3, 7, whole_graph=True)).eval()(pair, torch.ones(2, 3)).shape
        torch.Size([1, 7])
    """

    def __init__(self, settings: PairNetworkSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features)
        self._finish()
        inputs, width = self.signature.inputs + settings.marked, settings.width
        network = layers.PPGN(inputs, width, width, settings.depth, settings.gain)
        self.layer = layers.Marked(network) if settings.marked else network


class SubgraphNetwork(_Higher):
    """An I²-GNN, and an output per node or, through a readout, per graph.

    Equation    on nodes: output = MLP(norm(I2GNN(graph, X)));  on graphs: output = MLP(norm(readout(I2GNN(graph, X))))
    Symbols     layer = `I2GNN`; norm = BatchNorm; head = MLP
    Shapes      x [*, N, inputs] -> [*, N, outputs], with a readout [*, G, outputs]
    Cost        that of message passing on Σ_i d_i copies of what is within settings.hops of node i
    Reference   Huang et al., "Boosting the cycle counting power of graph neural networks with I²-GNNs", 2023

    Example
        >>> import torch
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> settings = SubgraphNetworkSettings(readout="sum")
        >>> SubgraphNetwork(settings, Features(3, 7, whole_graph=True)).eval()(pair, torch.ones(2, 3)).shape
        torch.Size([1, 7])
    """

    def __init__(self, settings: SubgraphNetworkSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features)
        self._finish()
        inputs, width = self.signature.inputs, settings.width
        self.layer = layers.I2GNN(inputs, width, width, settings.depth, settings.hops, settings.gain)
