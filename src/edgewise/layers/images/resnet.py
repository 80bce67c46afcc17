"""A compact residual network: pictures become feature vectors."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count
from edgewise.errors import ShapeError
from edgewise.layers.plain.layer import Layer
from edgewise.layers.plain.linear import Dense, check_alike, check_dense, check_device


class ResidualBlock(Layer):
    """Two convolutions and what they read added to their result; called `block(x)`.

    Equation    y = ReLU(x' + BN(W_2 * ReLU(BN(W_1 * x)))),  x' = x, or BN(W_0 * x) where the shape changes
    Symbols     * = convolution, 3 × 3, W_0 1 × 1; stride = pixels that W_1 and W_0 go on each time
    Shapes      x [M, inputs, h, w] -> [M, outputs, h / stride, w / stride]
    Cost        O(M h w outputs (inputs + outputs) / stride²)
    Reference   He et al., "Deep residual learning for image recognition", 2016, (1), (2), Fig. 2

    Example
        >>> block = ResidualBlock(1, 1).eval()
        >>> for p in block.parameters(): _ = p.data.zero_()
        >>> block(torch.tensor([[[[-1.0, 2.0]]]])).tolist()  # ReLU(x + 0)
        [[[[0.0, 2.0]]]]
    """

    def __init__(self, inputs: Count, outputs: Count, stride: Count = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        same = inputs == outputs and stride == 1
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.norm_0 = None if same else nn.BatchNorm2d(outputs)

    def forward(self, x: Dense) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.first.in_channels:
            raise ShapeError(f"pictures are {list(x.shape)}, but must be [M, {self.first.in_channels}, h, w]")
        check_alike(x, self.first.weight)
        y = functional.relu(self.norm_1(self.first(x)))
        y = self.norm_2(self.second(y))
        if self.shortcut is not None and self.norm_0 is not None:
            x = self.norm_0(self.shortcut(x))
        return functional.relu(x + y)


class ResNet(Layer):
    """A compact residual network: pictures to feature vectors, by three blocks and a mean over the places.

    Equation    f = mean over places of (block_3 ∘ block_2 ∘ block_1)(ReLU(BN(W * (u / 127.5 - 1))))
    Symbols     stem = W, 5 × 5, stride 2; blocks of width / 4, width / 2 and width channels, strides 1, 2, 2
    Shapes      tiles [M, h, w, 3] of bytes u, of any h and w -> [M, width]
    Edge cases  no tiles: [0, width]
    Cost        for tiles of 32 × 32 and a width of 64, 4 million multiplications each
    Differs     a tenth of ResNet-18's depth and width, for tiles of some dozens of pixels
    Reference   He et al., 2016; Baggag & Saad, §5.6, footnote 7

    Example
        >>> ResNet(8).eval()(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)).shape
        torch.Size([2, 8])
    """

    def __init__(self, width: Count = 64) -> None:
        super().__init__()
        self.width = width
        quarter, half = max(1, width // 4), max(1, width // 2)
        self.stem = nn.Conv2d(3, quarter, 5, stride=2, padding=2, bias=False)
        self.norm = nn.BatchNorm2d(quarter)
        self.blocks = nn.Sequential(
            ResidualBlock(quarter, quarter), ResidualBlock(quarter, half, 2), ResidualBlock(half, width, 2)
        )

    def forward(self, tiles: Tensor) -> Tensor:
        check_dense(tiles)
        if tiles.ndim != 4 or tiles.shape[-1] != 3 or tiles.dtype != torch.uint8:
            raise ShapeError(f"tiles are {list(tiles.shape)} of {tiles.dtype}, but must be bytes [M, h, w, 3]")
        check_device(tiles, self.stem.weight)
        u = tiles.permute(0, 3, 1, 2).to(self.stem.weight.dtype) / 127.5 - 1
        return self.blocks(functional.relu(self.norm(self.stem(u)))).mean((-2, -1))
