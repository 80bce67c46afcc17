"""Readouts: one vector for each graph of a batch. A graph attends to its nodes, so a readout is attention too."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from edgewise.configuration import Count
from edgewise.graphs import Graph, complete
from edgewise.kernels import SenderBias, Uniform, aggregate, attend
from edgewise.layers.attention.hopfield import HopfieldPooling
from edgewise.layers.attention.positions import positions
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.sides import NodeRows


class _Readout(Layer):
    """A reduction of the nodes of each graph."""

    reduce: ClassVar[str]

    def forward(self, graph: Graph, x: NodeRows) -> Tensor:
        return aggregate(graph.membership(), x, reduce=self.reduce)


class MeanReadout(_Readout):
    """Mean of the nodes of each graph.

    Equation    z_g = 1/|V_g| Σ_{i ∈ V_g} x_i    (5.7)
    Shapes      x [*, N, C] -> [*, G, C] for a batch of G graphs; one graph is a batch of one
    Edge cases  a graph without nodes gives 0
    Cost        O(N C)
    Reference   Baggag & Saad, §5.2

    Example
        >>> two = Graph.batch([complete(1), complete(2)])
        >>> MeanReadout()(two, torch.tensor([[5.0], [1.0], [3.0]])).tolist()
        [[5.0], [2.0]]
    """

    reduce = "mean"

    @staticmethod
    def example() -> Example:
        return MeanReadout(), _two_graphs(), (torch.randn(5, 3),)


class SumReadout(_Readout):
    """Sum of the nodes of each graph: unlike the mean, it depends on how many there are (Xu et al., 2019).

    Equation    z_g = Σ_{i ∈ V_g} x_i
    Shapes      x [*, N, C] -> [*, G, C]
    Edge cases  a graph without nodes gives 0
    Cost        O(N C)

    Example
        >>> SumReadout()(complete(2), torch.tensor([[1.0], [3.0]])).tolist()
        [[4.0]]
    """

    reduce = "sum"

    @staticmethod
    def example() -> Example:
        return SumReadout(), _two_graphs(), (torch.randn(5, 3),)


class MaxReadout(_Readout):
    """Largest value of each channel over the nodes of each graph.

    Equation    z_g = max_{i ∈ V_g} x_i, channel by channel
    Shapes      x [*, N, C] -> [*, G, C]
    Edge cases  a graph without nodes gives 0
    Cost        O(N C)

    Example
        >>> MaxReadout()(complete(2), torch.tensor([[1.0, 7.0], [3.0, 2.0]])).tolist()
        [[3.0, 7.0]]
    """

    reduce = "max"

    @staticmethod
    def example() -> Example:
        return MaxReadout(), _two_graphs(), (torch.randn(5, 3),)


class AttentionReadout(Layer):
    """Weighted mean of the nodes of each graph, with weights learned from their features.

    Equation    z_g = Σ_{i ∈ V_g} softmax_{i ∈ V_g}(wᵀ x_i) x_i
    Symbols     gate = wᵀ
    Shapes      x [*, N, C] -> [*, G, C]
    Edge cases  a graph without nodes gives 0; with w = 0 it is MeanReadout
    Cost        O(N C)
    Differs     there gate and value are networks, and the gate a sigmoid; here the gate is a softmax of a linear map
    Reference   Li et al., "Gated graph sequence neural networks", 2016, (7)

    Example
        >>> readout = AttentionReadout(1)
        >>> readout.gate.weight.data.fill_(100.0)
        tensor([[100.]])
        >>> readout(complete(2), torch.tensor([[1.0], [3.0]])).tolist()  # nearly the largest
        [[3.0]]
    """

    def __init__(self, width: Count) -> None:
        super().__init__()
        self.gate = Linear(width, 1, bias=False)  # a bias would cancel in the softmax

    def forward(self, graph: Graph, x: NodeRows) -> Tensor:
        score = Uniform() + SenderBias(self.gate(x))
        return attend(graph.membership(), None, None, x.unsqueeze(-2), score).squeeze(-2)

    @staticmethod
    def example() -> Example:
        return AttentionReadout(3), _two_graphs(), (torch.randn(5, 3),)


class FirstReadout(Layer):
    """The first node of each graph, through a linear map and tanh: where texts begin with a token that stands for all.

    Equation    z_g = tanh(x_0 W + b),  0 the first node of V_g
    Symbols     dense = (W, b)
    Shapes      x [*, N, C] -> [*, G, C]
    Edge cases  a graph without nodes gives 0; not permutation-equivariant, by design
    Cost        O(N C + G C²)
    Reference   Devlin et al., 2019 (the "pooler")

    Example
        >>> readout = FirstReadout(1)
        >>> readout.dense.weight.data, readout.dense.bias.data = torch.ones(1, 1), torch.zeros(1)
        >>> readout(Graph.batch([complete(1), complete(2)]), torch.tensor([[0.0], [99.0], [3.0]])).tolist()
        [[0.0], [1.0]]
    """

    equivariant: ClassVar[bool] = False

    def __init__(self, width: Count) -> None:
        super().__init__()
        self.dense = Linear(width, width)

    def forward(self, graph: Graph, x: NodeRows) -> Tensor:
        members = graph.membership()
        x_0 = aggregate(members, torch.where((positions(graph) == 0).unsqueeze(-1), x, 0))
        return torch.where(members.in_degrees().unsqueeze(-1) > 0, self.dense(x_0).tanh(), 0.0)

    @staticmethod
    def example() -> Example:
        return FirstReadout(3), _two_graphs(), (torch.randn(5, 3),)


READOUTS: dict[str, Callable[[int], nn.Module]] = {
    "mean": lambda width: MeanReadout(),
    "sum": lambda width: SumReadout(),
    "max": lambda width: MaxReadout(),
    "attention": AttentionReadout,
    "first": FirstReadout,
    "hopfield": lambda width: HopfieldPooling(width, beta=1.0),  # 1 / √width would hardly choose among a few nodes
}


def _two_graphs() -> Graph:
    return Graph.batch([complete(3), complete(2)])
