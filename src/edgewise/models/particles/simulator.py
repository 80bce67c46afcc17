"""Graph network simulators: a learned acceleration moves particles from one frame to the next."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from edgewise.configuration import Bounds, Count, OneOf, Settings
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph
from edgewise.kernels import gaussians
from edgewise.layers import MLP, EdgeUpdate, GraphNetwork, NodeUpdate, displacements, lengths
from edgewise.layers.plain.sides import check_edges, check_nodes
from edgewise.models.parts import Activation
from edgewise.models.signature import MovingParticles, Signature, accepted


@dataclass(frozen=True)
class SimulatorSettings(Settings):
    """What a graph network simulator can be.

    Args:
        width: Channels of every edge and every node.
        depth: Number of message-passing steps.
        gaussians: Gaussians in which an edge's two lengths are expanded.
        reduce: How a node combines its edges.
        activation: The activation inside every network.
    """

    width: Count = 64
    depth: Count = 3
    gaussians: Annotated[int, Bounds(at_least=2)] = 32
    reduce: Annotated[str, OneOf(("sum", "mean", "max"))] = "sum"
    activation: Activation = "relu"


class InteractionBlock(nn.Module):
    """One step of the processor: a graph network block without a whole, what it finds normalised and added.

    Equation    m_ij = MLP([e_ij ‖ h_i ‖ h_j]);  e_ij' = e_ij + LN(m_ij);  h_i' = h_i + LN(MLP([h_i ‖ ⊕_j m_ij]))
    Shapes      h [*, N, width], e [*, E, width] -> h', e' of the same shapes
    """

    def __init__(self, settings: SimulatorSettings) -> None:
        super().__init__()
        width, activation = settings.width, settings.activation
        edge = EdgeUpdate(MLP([3 * width, width, width], activation))
        node = NodeUpdate(MLP([2 * width, width, width], activation), settings.reduce)
        self.block = GraphNetwork(edge, node, None)
        self.norm_h, self.norm_e = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, graph: Graph, h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        update, m_ij, _ = self.block.update(graph, h, e)
        assert m_ij is not None
        return h + self.norm_h(update), e + self.norm_e(m_ij)


class Simulator(nn.Module):
    """Graph network simulator (GNS): encode, process, decode an acceleration, take one semi-implicit Euler step.

    Equation    h_i = LN(MLP(c_i));  e_ij = LN(MLP([r_ij ‖ g(|r_ij|) ‖ s_ij ‖ g(|s_ij|)]))
                (h, e) ← `InteractionBlock`(h, e), depth times
                v_i' = v_i + σ MLP(h_i);  x_i' = x_i + v_i'
    Symbols     x_i, v_i = position and last move of a particle, c_i = its other features: earlier moves,
                walls; r_ij = x_i - x_j, or x_i - (x_j + e_ij); s_ij = r_ij + v_i - v_j, which r_ij would be a frame
                later without a force;
                g(d) = (d, exp(-((G - 1)(d - k/(G - 1)))²/2) for k < G), G = gaussians; σ = signature.acceleration
    Shapes      [*, N, 2 D + K] = [x ‖ v ‖ c] -> x' [*, N, D]; lengths in units of the radius of the graph; where the
                task's edges have features, also e [*, E, D] = how far the image of the sender is from it
    Edge cases  a particle without neighbours still moves by its own features; two on one spot are fine
    Cost        time O(depth (N + E) width²), memory O(depth (N + E) width)
    Differs     there an edge knows r_ij and |r_ij| only. A hard contact happens within a small part of the radius: the
                Gaussians, and where the pair would be a frame later, make it plain. One hidden layer instead of two; ⊕
                reads m_ij before its LN
    Reference   Sanchez-Gonzalez et al., "Learning to simulate complex physics with graph networks", 2020, §3

    Example
        >>> model = Simulator(SimulatorSettings(), MovingParticles(5, 2, space=2))
        >>> for p in model.decode.linears[-1].parameters(): _ = p.data.zero_()  # no acceleration
        >>> alone = Graph.from_edge_index([[], []], num_nodes=1)
        >>> model(alone, torch.tensor([[1.0, 2.0, 0.5, -0.5, 0.0]])).tolist()
        [[1.5, 1.5]]
    """

    def __init__(self, settings: SimulatorSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = (
            settings,
            accepted(self, signature, MovingParticles, whole_graph=False, knows=("edges",)),
        )
        width, activation = settings.width, settings.activation
        space, known = self.signature.space, self.signature.known
        if known < 1:
            raise ConfigError("a simulator needs features beside position and velocity, and this task has none")
        edges = 2 * (space + 1 + settings.gaussians)
        self.encode_nodes = nn.Sequential(MLP([known, width, width], activation), nn.LayerNorm(width))
        self.encode_edges = nn.Sequential(MLP([edges, width, width], activation), nn.LayerNorm(width))
        self.blocks = nn.ModuleList(InteractionBlock(settings) for _ in range(settings.depth))
        self.decode = MLP([width, width, space], activation)

    def forward(self, graph: Graph, x: Tensor, e: Tensor | None = None) -> Tensor:
        space = self.signature.space
        check_nodes(graph, x, self.signature.inputs)
        if (e is None) != (not self.signature.edges):
            raise ShapeError(f"this simulator reads {self.signature.edges} features of an edge: where images are")
        x, v, known = x.split([space, space, self.signature.known], -1)
        h, h_ij = self.encode_nodes(known), self.encode_edges(self.edges(graph, x, v, e))
        for block in self.blocks:
            h, h_ij = block(graph, h, h_ij)
        v = v + self.signature.acceleration * self.decode(h)
        return x + v

    def edges(self, graph: Graph, x: Tensor, v: Tensor, e: Tensor | None = None) -> Tensor:
        """The features of an edge: its displacement now and a frame later, each with its length in Gaussians."""
        parts, both = [], displacements(graph, torch.cat([x, x + v], -1))
        if e is not None:
            check_edges(graph, e, self.signature.space)
            both = both - torch.cat([e, e], -1)
        for r_ij in both.chunk(2, -1):
            length = lengths(r_ij)
            parts += [r_ij, length, gaussians(length, self.settings.gaussians)]
        return torch.cat(parts, -1)
