import pytest
import torch
from torch import nn

from edgewise.errors import ShapeError
from edgewise.layers import ResidualBlock, ResNet
from layers.parity import assert_same


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(4, 4, 1), (4, 6, 2)])
@pytest.mark.parametrize("training", [True, False])
def test_a_residual_block_is_the_equation(inputs, outputs, stride, training):
    """Convolution as an explicit sum over the nine places, and batch normalisation by hand; forward and gradient."""
    block, x = ResidualBlock(inputs, outputs, stride).double().train(training), torch.randn(3, inputs, 6, 6).double()
    x.requires_grad_()

    def convolve(x, weight, stride):
        pad = weight.shape[-1] // 2
        padded, size = nn.functional.pad(x, (pad,) * 4), x.shape[-1]
        places = [(dy, dx) for dy in range(2 * pad + 1) for dx in range(2 * pad + 1)]
        shifted = [
            torch.einsum("oi,mihw->mohw", weight[..., dy, dx], padded[..., dy : dy + size, dx : dx + size])
            for dy, dx in places
        ]
        return sum(shifted)[..., ::stride, ::stride]

    def normalise(x):
        if not training:
            return x / (1 + 1e-5) ** 0.5
        mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), correction=0, keepdim=True)
        return (x - mean) / (variance + 1e-5).sqrt()

    y = normalise(convolve(normalise(convolve(x, block.first.weight, stride)).relu(), block.second.weight, 1))
    shortcut = x if block.shortcut is None else normalise(convolve(x, block.shortcut.weight, stride))
    assert_same(block(x), (shortcut + y).relu(), [x, block.first.weight, block.second.weight], tolerance=1e-10)


def test_a_tile_of_any_size_becomes_a_vector_and_tiles_do_not_mix():
    network = ResNet(8).eval()
    for size in (8, 32, 45):
        tiles = torch.randint(256, (3, size, size, 3), dtype=torch.uint8)
        assert network(tiles).shape == (3, 8)
        assert torch.allclose(network(tiles)[1:2], network(tiles[1:2]), atol=1e-6)
    assert network(tiles[:0]).shape == (0, 8)


@pytest.mark.parametrize("tiles", [torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.zeros(2, 32, 32, 3)])
def test_what_is_no_tile_is_refused(tiles):
    with pytest.raises(ShapeError, match="must be bytes"):
        ResNet(8)(tiles)
