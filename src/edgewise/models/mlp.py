"""The perceptron as a model: the baseline that reads no graph."""

from dataclasses import dataclass
from typing import Annotated, cast

from torch import Tensor, nn

from edgewise.configuration import Bounds, Count, Settings, Share
from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.layers import MLP, RandomizedMLP, SparseFeatures
from edgewise.layers.plain.linear import check_dense
from edgewise.models.parts import Activation
from edgewise.models.signature import Features, Signature, accepted


@dataclass(frozen=True)
class MLPSettings(Settings):
    """What a perceptron can be.

    Args:
        hidden: Width of each hidden layer.
        activation: The activation of the hidden layers.
        dropout: Probability for the hidden layers.
    """

    hidden: tuple[Count, ...] = (256, 256)
    activation: Activation = "relu"
    dropout: Share = 0.0


class Perceptron(nn.Module):
    """A multilayer perceptron on each node or, where the task wants one output per graph, on all its nodes in a row.

    Equation    φ(x) of `MLP`, x = the node's features, or [x_1 ‖ ... ‖ x_N]    (3.4)
    Shapes      on nodes: x [*, N, inputs] or SparseFeatures -> [*, N, outputs];
                on graphs: x [*, length, inputs] -> [*, 1, outputs]
    Edge cases  the graph is ignored and may be None
    Reference   Baggag & Saad, §3.1

    Example
        >>> import torch
        >>> model = Perceptron(MLPSettings((8,)), Features(1, 10, length=64, whole_graph=True))
        >>> model(None, torch.zeros(5, 64, 1)).shape
        torch.Size([5, 1, 10])
    """

    def __init__(self, settings: MLPSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features, length=signature.whole_graph)
        inputs = signature.inputs * (signature.length or 1) if signature.whole_graph else signature.inputs
        self.mlp = MLP([inputs, *settings.hidden, signature.outputs], settings.activation, settings.dropout)

    def forward(self, graph: Graph | None, x: Tensor | SparseFeatures) -> Tensor:
        if not self.signature.whole_graph:
            return self.mlp(x)
        check_dense(x)
        if x.shape[-2:-1] != (self.signature.length,):
            raise ShapeError(f"this perceptron reads graphs of {self.signature.length} nodes, got x {list(x.shape)}")
        return self.mlp(cast(Tensor, x).flatten(-2)).unsqueeze(-2)


@dataclass(frozen=True)
class RandomizedMLPSettings(Settings):
    """What a perceptron with a randomised backward pass can be.

    Args:
        hidden: Width of each hidden layer.
        keep: Part of every layer's inputs that is stored for the backward pass, above 0 and at most 1.
    """

    hidden: tuple[Count, ...] = (256, 256)
    keep: Annotated[float, Bounds(above=0, at_most=1)] = 0.1


class RandomizedPerceptron(Perceptron):
    """A perceptron that trains within a memory budget: its gradients are random, and right on average.

    Equation    φ(x) of `RandomizedMLP`, x as in `Perceptron`
    Shapes      as `Perceptron`; dense features only
    Reference   Oktay, McGreivy, Aduol, Beatson & Adams, 2021

    Example
        >>> import torch
        >>> signature = Features(1, 10, length=64, whole_graph=True)
        >>> model = RandomizedPerceptron(RandomizedMLPSettings((8,), 0.5), signature)
        >>> model(None, torch.zeros(5, 64, 1)).shape
        torch.Size([5, 1, 10])
    """

    def __init__(self, settings: RandomizedMLPSettings, signature: Signature) -> None:
        super().__init__(MLPSettings(settings.hidden), signature)
        inputs = signature.inputs * (signature.length or 1) if signature.whole_graph else signature.inputs
        self.mlp = RandomizedMLP([inputs, *settings.hidden, signature.outputs], settings.keep)
