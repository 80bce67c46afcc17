"""Kernel regression as a model: it reads positions and the values known there, and learns how far to look."""

from dataclasses import dataclass

from torch import Tensor, nn

from edgewise.configuration import Positive, Settings
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph
from edgewise.layers import KernelRegression
from edgewise.layers.plain.linear import check_dense
from edgewise.models.signature import Features, Signature, accepted


@dataclass(frozen=True)
class KernelRegressionSettings(Settings):
    """What a kernel regression can be.

    Args:
        sigma: The width σ of the Gaussian kernel, in units of x, from which learning starts.
    """

    sigma: Positive = 1.0


class KernelRegressionModel(nn.Module):
    """Nadaraya-Watson regression of the last `outputs` channels on those before them.

    Equation    (4.1): see `KernelRegression`
    Shapes      x [*, N, inputs], the position and then the values known there -> [*, N, outputs]
    Edge cases  the graph says whose values are known: it has no edge from any other node
    Cost        O(E inputs)
    Reference   Nadaraya, 1964; Watson, 1964; Baggag & Saad, §4.1

    Example
        >>> import torch
        >>> from edgewise.graphs import causal
        >>> model = KernelRegressionModel(KernelRegressionSettings(), Features(inputs=2, outputs=1))
        >>> model(causal(5), torch.randn(5, 2)).shape
        torch.Size([5, 1])
    """

    def __init__(self, settings: KernelRegressionSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features, whole_graph=False)
        if signature.inputs <= signature.outputs:
            raise ConfigError("kernel regression reads positions and the values known there: more inputs than outputs")
        self.regression = KernelRegression(settings.sigma)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        check_dense(x)
        outputs = self.signature.outputs
        if x.shape[-1:] != (self.signature.inputs,):
            raise ShapeError(f"features are {[*x.shape]}; this model reads [*, N, {self.signature.inputs}]")
        return self.regression(graph, x[..., :-outputs], x[..., -outputs:])
