"""Over-smoothing: how alike a graph's nodes have become, and layers that keep them apart."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from edgewise.configuration import Positive, chosen
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph
from edgewise.kernels import aggregate
from edgewise.kernels.operator.layout import widened
from edgewise.layers.graph.gcn import renormalised
from edgewise.layers.graph.graph_network import spread
from edgewise.layers.plain.layer import Example, Layer, checked, small_example
from edgewise.layers.plain.linear import Dense
from edgewise.layers.plain.mlp import MLP
from edgewise.layers.plain.sides import NodeRows


@checked
def dirichlet_energy(graph: Graph, x: NodeRows, relative: bool = False) -> Tensor:
    """How much neighbours differ: 0 where the nodes of a component differ by their degrees alone.

    Equation    E(X) = tr(Xᵀ (I - Â) X) = ½ Σ_{(i, j)} ‖x_i / √(1 + d_i) - x_j / √(1 + d_j)‖²
    Symbols     Â: `renormalised`; relative: E(X) / ‖X‖², from 0 to 2 whatever the features' size
    Shapes      x [*, N, C] -> [*]
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  the sum over edges holds for graphs whose edges go both ways; features that are all 0 have energy 0
    Cost        O(E C)
    Reference   Cai & Wang, "A note on over-smoothing for graph neural networks", 2020, definition 3.1

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> dirichlet_energy(pair, torch.tensor([[1.0], [3.0]])).item()  # (1/√2 - 3/√2)²
        2.0
    """
    loops, entries = renormalised(graph, x.dtype)
    energy = (x * (x - aggregate(loops, x, entries))).sum((-2, -1))
    if not relative:
        return energy
    return energy / x.square().sum((-2, -1)).clamp(min=torch.finfo(x.dtype).tiny)


class PairNorm(Layer):
    """PairNorm: keeps the mean distance between the nodes of a graph, whatever the depth.

    Equation    x_i^c = x_i - 1/n Σ_j x_j,  x_i' = s x_i^c / √(1/n Σ_j ‖x_j^c‖² + ε), over the nodes of each graph
    Symbols     scale = s; ε = 1e-5
    Shapes      x [*, N, C] -> [*, N, C]
    Edge cases  a graph of one node gives 0. Of features in half precision lengths are computed in float32
    Cost        O(N C)
    Differs     PyTorch Geometric takes a batch of graphs for one, here each has its own mean and length
    Reference   Zhao & Akoglu, "PairNorm: tackling oversmoothing in GNNs", 2020, (10)-(11)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> PairNorm()(pair, torch.tensor([[1.0], [5.0]])).flatten()
        tensor([-1.0000,  1.0000])
    """

    local: ClassVar[bool] = False

    def __init__(self, scale: Positive = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, graph: Graph, x: NodeRows) -> Tensor:
        members = graph.membership()
        x = x - spread(graph, aggregate(members, x, reduce="mean"))
        length = aggregate(members, widened(x).square().sum(-1, keepdim=True), reduce="mean")
        return self.scale * x * spread(graph, (length + 1e-5).rsqrt()).to(x.dtype)

    @staticmethod
    def example() -> Example:
        return small_example(PairNorm())


class VirtualNode(Layer):
    """A virtual node: one more node, which exchanges messages with every node of its graph.

    Equation    x_i' = x_i + MLP(Σ_{j ∈ V_g} x_j),  g the graph of i
    Symbols     mlp = MLP, from width to width
    Shapes      x [*, N, width] -> [*, N, width]
    Edge cases  members of a batch have a virtual node each
    Cost        O(N width + G |MLP|)
    Differs     there the virtual node keeps a state of its own from layer to layer; here it begins anew
    Reference   Gilmer et al., 2017, §5.2; Hu et al., "Open graph benchmark", 2020

    Example
        >>> layer = VirtualNode(MLP([1, 1]))
        >>> for p, value in zip(layer.parameters(), (1.0, 0.0)): _ = p.data.fill_(value)
        >>> layer(Graph.from_edge_index([[], []], num_nodes=2), torch.tensor([[1.0], [2.0]])).flatten().tolist()
        [4.0, 5.0]
    """

    local: ClassVar[bool] = False

    def __init__(self, mlp: MLP) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, graph: Graph, x: NodeRows) -> Tensor:
        return x + spread(graph, self.mlp(aggregate(graph.membership(), x)))

    @staticmethod
    def example() -> Example:
        return small_example(VirtualNode(MLP([3, 4, 3], "tanh")))


class JumpingKnowledge(Layer):
    """Jumping knowledge: what a node was after every layer, side by side or the largest; called `jump(states)`.

    Equation    x_i = ‖_l x_i^(l), or max_l x_i^(l) channel by channel
    Symbols     how = "concatenate" or "max"
    Shapes      L states [*, N, C] -> [*, N, L * C], or [*, N, C]
    Cost        O(L N C)
    Reference   Xu et al., "Representation learning on graphs with jumping knowledge networks", 2018

    Example
        >>> JumpingKnowledge("max")([torch.tensor([[1.0, 5.0]]), torch.tensor([[2.0, 3.0]])]).tolist()
        [[2.0, 5.0]]
    """

    def __init__(self, how: str = "concatenate") -> None:
        super().__init__()
        chosen("how", how, JUMPS)  # or its error
        self.how = how

    def forward(self, states: Sequence[Dense]) -> Tensor:
        shared = None if self.how == "max" else -1
        # Not by a set: of an exported model, sizes have no hash.
        alike = [
            state.device == states[0].device and state.shape[:shared] == states[0].shape[:shared] for state in states
        ]
        if not alike or not all(alike) or min(state.ndim for state in states) < 2:
            shapes = ", ".join(f"{list(state.shape)} on {state.device}" for state in states)
            raise ShapeError(
                f"states of all layers are of the same nodes, [*, N, C], and for max as wide, not {shapes}"
            )
        return JUMPS[self.how](list(states))


JUMPS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "concatenate": lambda states: torch.cat(states, -1),
    "max": lambda states: torch.stack(states).amax(0),
}


def drop_edges(graph: Graph, p: float) -> Graph:
    """DropEdge: the same nodes, each edge left out with probability p; torch.manual_seed decides which.

    Errors      ConfigError for a probability outside [0, 1]
    Edge cases  each direction of an edge is dropped by itself; a batch stays one
    Cost        O(E)
    Reference   Rong et al., "DropEdge: towards deep graph convolutional networks on node classification", 2020

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> drop_edges(pair, 0.0).num_edges, drop_edges(pair, 1.0).num_edges
        (2, 0)
    """
    if not 0 <= p <= 1:
        raise ConfigError(f"p={p} must be a probability, from 0 to 1")
    return graph.keep_edges(torch.rand(graph.num_edges, device=graph.device) >= p)
