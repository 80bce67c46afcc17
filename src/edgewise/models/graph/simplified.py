"""Simplified graph convolution: powers of the normalised adjacency, then one linear map."""

from dataclasses import dataclass

from torch import Tensor, nn

from edgewise.configuration import Count, Settings
from edgewise.graphs import Graph
from edgewise.kernels import aggregate
from edgewise.models.signature import Features, Signature, accepted


@dataclass(frozen=True)
class SimplifiedSettings(Settings):
    """What a simplified graph convolution can be.

    Args:
        depth: How often features spread.
    """

    depth: Count = 2


class Simplified(nn.Module):
    """Features spread K times over the graph with self-loops, then a linear map, which alone is trained.

    Equation    Ŷ = Â^K X W + b,  Â = the mean over a node and its neighbours
    Symbols     settings.depth = K; linear = W, b
    Shapes      x [*, N, inputs] -> [*, N, outputs]
    Edge cases  an isolated node keeps its own features
    Cost        time O(K E inputs + N inputs outputs)
    Differs     there Â is the symmetrically normalised adjacency
    Reference   Wu et al., "Simplifying graph convolutional networks", 2019

    Example
        >>> import torch
        >>> from edgewise.graphs import complete
        >>> Simplified(SimplifiedSettings(), Features(3, 2))(complete(4), torch.randn(4, 3)).shape
        torch.Size([4, 2])
    """

    def __init__(self, settings: SimplifiedSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features)
        self.linear = nn.Linear(signature.inputs, signature.outputs)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        looped = graph.add_self_loops()
        for _ in range(self.settings.depth):
            x = aggregate(looped, x, reduce="mean")
        return self.linear(x)
