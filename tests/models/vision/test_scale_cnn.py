"""The scale-equivariant network: its equation by dilated convolutions, and that scales share one filter."""

import pytest
import torch
from torch.nn import functional

from edgewise import ConfigError, disc
from edgewise.models import Features, ScaleCNN, ScaleCNNSettings

SIDE = 8
SIGNATURE = Features(2, 5, length=SIDE * SIDE, whole_graph=True)
SMOOTH = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]], dtype=torch.float64) / 16


def written_out(model: ScaleCNN, x: torch.Tensor) -> torch.Tensor:
    """In evaluation mode, with PyTorch's dilated convolutions on images [B, C, Y, X]."""
    levels = [x.transpose(1, 2).unflatten(-1, (SIDE, SIDE))]
    for s in range(model.settings.levels - 1):
        filters = SMOOTH.expand(2, 1, 3, 3)
        levels.append(functional.conv2d(levels[-1], filters, padding=2**s, dilation=2**s, groups=2))
    for convolution, norm in zip(model.convolutions, model.norms, strict=True):
        made = []
        for s in range(len(levels)):
            total = 0
            for t in range(min(model.settings.reach, len(levels) - s)):
                square = convolution.weight[:, t].unflatten(0, (3, 3)).permute(3, 2, 0, 1)  # radius 1.5: 3 x 3 points
                total = total + functional.conv2d(levels[s + t], square, padding=2**s, dilation=2**s)
            shape = (1, -1, 1, 1)
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            total = (total - norm.running_mean.view(shape)) * scale.view(shape) + norm.bias.view(shape)
            made.append(total.relu())
        levels = made
    z = torch.stack(levels).amax((-2, -1)).mean(0)
    return (z @ model.output.weight.T + model.output.bias).unsqueeze(1)


def test_it_is_its_equation():
    torch.manual_seed(0)
    model = ScaleCNN(ScaleCNNSettings(3, (3, 4)), SIGNATURE).double()
    graph, x = disc(SIDE, SIDE, 6.0), torch.randn(4, SIDE * SIDE, 2, dtype=torch.float64, requires_grad=True)
    model(graph, x)  # norms that have seen something
    model.eval()
    found, expected = model(graph, x), written_out(model, x)
    assert torch.allclose(found, expected, atol=1e-10)
    leaves = [x, *model.parameters()]
    ours, theirs = (torch.autograd.grad(y.square().sum(), leaves, retain_graph=True) for y in (found, expected))
    assert all(torch.allclose(a, b, atol=1e-9) and b.abs().max() > 0 for a, b in zip(ours, theirs, strict=True))


def test_the_features_of_an_image_of_half_the_size_are_those_of_the_next_scale():
    """In the middle of a large image, where the border is far: an impulse halved, and one level further down."""
    torch.manual_seed(0)
    side = 32
    model = ScaleCNN(ScaleCNNSettings(3, (3,), radius=1.0, reach=1), Features(1, 2, length=side**2, whole_graph=True))
    model = model.double().eval()
    graph = disc(side, side, 8.0)
    small = torch.zeros(side, side, dtype=torch.float64)
    small[13:19, 13:19] = torch.rand(6, 6, dtype=torch.float64)
    fine = model.convolutions[0](graph, model.space(graph, small.view(1, -1, 1)))[0, :, 0].view(side, side, -1)
    space = model.space(graph, small.view(1, -1, 1)).clone()
    doubled = torch.zeros(1, side, side, 3, 1, dtype=torch.float64)
    doubled[0, ::2, ::2, 1, 0] = space[0, :, 0, 0].view(side, side)[
        8:24, 8:24
    ]  # the same picture, spread out, at s = 1
    coarse = model.convolutions[0](graph, doubled.flatten(1, 2))[0, :, 1].view(side, side, -1)
    assert torch.allclose(coarse[::2, ::2][3:13, 3:13], fine[8:24, 8:24][3:13, 3:13], atol=1e-12)


def test_a_network_without_a_layer_is_refused():
    with pytest.raises(ConfigError, match="at least one layer"):
        ScaleCNN(ScaleCNNSettings(widths=()), SIGNATURE)
