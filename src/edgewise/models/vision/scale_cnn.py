"""The scale-equivariant network: convolutions that see an image at several scales at once."""

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn

from edgewise.configuration import Count, NonNegative, Settings, Share
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.layers import BatchNorm, MeanReadout, ScaleConvolution, ScaleSpace, dropout
from edgewise.models.signature import Features, Signature, accepted


@dataclass(frozen=True)
class ScaleCNNSettings(Settings):
    """What a scale-equivariant network can be.

    Args:
        levels: Scales of the image, each twice the one before.
        widths: Channels of every layer, at each scale.
        radius: Reach of the filters in pixels, at the finest scale.
        reach: Scales that a filter sees, its own included.
        dropout: Probability for the features before the output.
    """

    levels: Count = 3
    widths: tuple[Count, ...] = (8, 16)
    radius: NonNegative = 1.5
    reach: Count = 2
    dropout: Share = 0.0


class ScaleCNN(nn.Module):
    """Convolutions over places and scales, the strongest scale, the mean over the image, then a linear map.

    Equation    X^(0) = scales(X),  X^(l+1) = ReLU(BN(X^(l) * W_l)),  output = W mean_i max_s x_i(s) + b
    Symbols     space = scales, `ScaleSpace`; convolutions = * of `ScaleConvolution`; norms = BN, one for all scales
    Shapes      x [*, N, inputs] on the graph `disc` -> [*, 1, outputs]
    Errors      ConfigError for tokens, a task that wants an output per node, or no layer; GraphError for another graph,
                or a disc that reaches less far than the filters of the coarsest scale, radius · 2^(levels - 1)
    Edge cases  levels = 1: an ordinary convolutional network
    Cost        that of its convolutions, levels · reach times an ordinary network's
    Differs     the paper's networks are residual, for segmentation and patches of Camelyon; the strongest scale and the
                mean make an image's outputs
    Reference   Worrall & Welling, "Deep scale-spaces: equivariance over scale", 2019

    Example
        >>> import torch
        >>> from edgewise.graphs import disc
        >>> model = ScaleCNN(ScaleCNNSettings(2, (3,), radius=1), Features(1, 10, length=16, whole_graph=True))
        >>> model(disc(4, 4, radius=2), torch.zeros(5, 16, 1)).shape
        torch.Size([5, 1, 10])
    """

    def __init__(self, settings: ScaleCNNSettings, signature: Signature) -> None:
        super().__init__()
        if not settings.widths:
            raise ConfigError("a scale-cnn needs at least one layer: give widths=")
        self.settings, self.signature = settings, accepted(self, signature, Features, whole_graph=True)
        self.space = ScaleSpace(settings.levels)
        self.convolutions = nn.ModuleList(
            ScaleConvolution(*pair, settings.radius, settings.reach, bias=False)  # the norm has a bias
            for pair in pairwise([signature.inputs, *settings.widths])
        )
        self.norms = nn.ModuleList(BatchNorm(width) for width in settings.widths)
        self.readout = MeanReadout()
        self.output = nn.Linear(settings.widths[-1], signature.outputs)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        h: Tensor = self.space(graph, x)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            h = norm(convolution(graph, h)).relu()
        z = self.readout(graph, h.amax(-2))
        return self.output(dropout(z, self.settings.dropout, self.training))
