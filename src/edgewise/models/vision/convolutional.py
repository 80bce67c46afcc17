"""Equivariant convolutional networks: they see an image in every pose, or at several scales, at once."""

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count, NonNegative, Settings, Share
from edgewise.errors import ConfigError, GraphError
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.patterns import Disc, disc
from edgewise.kernels import dropout
from edgewise.layers import (
    BatchNorm,
    GroupConvolution,
    GroupPooling,
    LiftingConvolution,
    MeanReadout,
    PlaneGroup,
    ScaleConvolution,
    ScaleSpace,
)
from edgewise.models.signature import Features, Signature, accepted


@dataclass(frozen=True)
class GroupCNNSettings(Settings):
    """What a group-equivariant convolutional network can be.

    Args:
        rotations: Poses of every feature: 4 turn by 90°, 8 by 45°; 1 makes an ordinary convolutional network.
        reflections: Mirrored poses too, twice as many in all.
        widths: Channels of every layer, for each pose.
        halve: Layers, counted from 1, after which the image is halved by taking the maximum of 2 x 2 pixels.
        radius: Reach of the filters in pixels; no more is used than the graph has.
        dropout: Probability for the features before the output.
    """

    rotations: Count = 4
    reflections: bool = False
    widths: tuple[Count, ...] = (8, 8, 16, 16)
    halve: tuple[Count, ...] = (1, 3)
    radius: NonNegative = 2.3
    dropout: Share = 0.0


class GroupCNN(nn.Module):
    """Convolutions over a group, the strongest pose, the mean over the image, then a linear map: blind to the pose.

    Equation    X^(1) = ReLU(BN(lift(X))),  X^(l+1) = ReLU(BN(X^(l) * W_l)),  output = W mean_i max_g x_i(g) + b
    Symbols     lift, * = `LiftingConvolution`, `GroupConvolution`; BN = batch normalisation, one for all poses
    Shapes      x [*, height·width, inputs] on the graph `disc` -> [*, 1, outputs]
    Errors      ConfigError for tokens, for a task that wants an output per node, for layers that there are not;
                GraphError for another graph, or an image that cannot be halved
    Edge cases  one rotation and no reflections: an ordinary convolutional network
    Cost        that of its convolutions, (|G| width)² for each pixel and filter point
    Differs     the layers and widths are not the paper's; the mean over the image comes after the poses' maximum
    Reference   Cohen & Welling, "Group equivariant convolutional networks", 2016

    Example
        >>> import torch
        >>> model = GroupCNN(GroupCNNSettings(widths=(2, 3), halve=(1,)), Features(1, 10, length=16, whole_graph=True))
        >>> model(disc(4, 4, radius=2.3), torch.zeros(5, 16, 1)).shape
        torch.Size([5, 1, 10])
    """

    def __init__(self, settings: GroupCNNSettings, signature: Signature) -> None:
        super().__init__()
        depth = len(settings.widths)
        if not depth or not all(1 <= layer <= depth for layer in settings.halve):
            raise ConfigError(f"a group-cnn needs a layer, and halves after some of its {depth}: not {settings.halve}")
        self.settings, self.signature = settings, accepted(self, signature, Features, whole_graph=True)
        group, radius, widths = PlaneGroup(settings.rotations, settings.reflections), settings.radius, settings.widths
        lift = LiftingConvolution(group, signature.inputs, widths[0], radius, bias=False)  # the norm has a bias
        others = [GroupConvolution(group, *pair, radius, bias=False) for pair in pairwise(widths)]
        self.convolutions = nn.ModuleList([lift, *others])
        self.norms = nn.ModuleList(BatchNorm(width) for width in widths)
        self.pooling, self.readout = GroupPooling(), MeanReadout()
        self.output = nn.Linear(widths[-1], signature.outputs)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        layers = zip(self.convolutions, self.norms, strict=True)
        for layer, (convolution, norm) in enumerate(layers, start=1):
            x = norm(convolution(graph, x)).relu()
            if layer in self.settings.halve:
                graph, x = halved(graph, x)
        z = self.readout(graph, self.pooling(graph, x))
        return self.output(dropout(z, self.settings.dropout, self.training))


def halved(graph: Graph, x: Tensor) -> tuple[Graph, Tensor]:
    """An image of half the height and width: of every 2 x 2 pixels the largest value of each pose and channel.

    Shapes      x [*, height·width, |G|, C] -> [*, height·width/4, |G|, C], with the `disc` of the smaller image
    Errors      GraphError for a graph that is no `disc`, or for an odd height or width
    """
    rule = graph.rule
    if not isinstance(rule, Disc) or rule.height % 2 or rule.width % 2:
        raise GraphError(f"only a disc of even height and width is halved, not {graph}")
    smaller = _halved(graph, rule)
    images = x.reshape(-1, rule.height, rule.width, x.shape[-2] * x.shape[-1]).permute(0, 3, 1, 2)
    pooled = functional.max_pool2d(images, 2).permute(0, 2, 3, 1)
    return smaller, pooled.reshape(*x.shape[:-3], smaller.num_receivers, *x.shape[-2:])


@cached
def _halved(graph: Graph, rule: Disc) -> Graph:
    return disc(rule.height // 2, rule.width // 2, rule.radius, rule.torus).to(graph.device)


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
    """Convolutions over places and scales, the strongest place, the mean over the scales, then a linear map.

    Equation    X^(0) = scales(X),  X^(l+1) = ReLU(BN(X^(l) * W_l)),  output = W mean_s max_i x_i(s) + b
    Symbols     space = scales, `ScaleSpace`; convolutions = * of `ScaleConvolution`; norms = BN, one for all scales
    Shapes      x [*, N, inputs] on the graph `disc` -> [*, 1, outputs]
    Errors      ConfigError for tokens, a task that wants an output per node, or no layer; GraphError for another graph,
                or a disc that reaches less far than the filters of the coarsest scale, radius · 2^(levels - 1)
    Edge cases  levels = 1: an ordinary convolutional network
    Cost        that of its convolutions, levels · reach times an ordinary network's
    Differs     the paper's networks are residual, for segmentation and patches of Camelyon. A place's maximum is the
                same for an image of twice the size, one scale on; its mean would be four times as large
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
        self.output = nn.Linear(settings.widths[-1], signature.outputs)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        h: Tensor = self.space(graph, x)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            h = norm(convolution(graph, h)).relu()
        z = h.amax(-3, keepdim=True).mean(-2)
        return self.output(dropout(z, self.settings.dropout, self.training))
