"""Swin: a vision transformer on ever coarser images, whose attention stays within squares that shift."""

from dataclasses import dataclass
from functools import partial
from math import isqrt

from torch import Tensor, nn

from edgewise import layers
from edgewise.configuration import Count, Settings, Share, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, complete, squares
from edgewise.kernels import dropout
from edgewise.models.parts import Norm, Readout, draw_weights
from edgewise.models.signature import Features, Signature, accepted


@dataclass(frozen=True)
class SwinSettings(Settings):
    """What a Swin transformer can be.

    Args:
        width: Channels of every pixel in the first stage; each later stage has twice as many.
        depths: Blocks of each stage; every second one shifts its squares by half their size.
        heads: Attention heads of each stage.
        window: Pixels along a side of a square.
        hidden: Width inside the feed-forward networks, in widths of their stage.
        norm: The normalisation.
        dropout: Probability for embeddings, attention weights and what each part of a block adds.
        readout: What reads the pixels of the last stage.
    """

    width: Count = 32
    depths: tuple[Count, ...] = (2, 2)
    heads: tuple[Count, ...] = (2, 4)
    window: Count = 7
    hidden: Count = 4
    norm: Norm = "layer"
    dropout: Share = 0.0
    readout: Readout = "mean"

    @property
    def merges(self) -> int:
        """How often four pixels become one."""
        return len(self.depths) - 1


class Stage(nn.Module):
    """Blocks on one size of image, and the graphs on which they attend: squares, and shifted squares in turn."""

    def __init__(self, settings: SwinSettings, number: int, rows: int) -> None:
        super().__init__()
        width, heads = settings.width << number, settings.heads[number]
        size = min(settings.window, rows)
        shift = size // 2 if size < rows else 0  # one square that holds all has nowhere to go
        self.blocks = nn.ModuleList(
            layers.PreNormBlock(
                width,
                layers.WindowAttention(width, heads, rows, size, dropout=settings.dropout),
                layers.FeedForward(width, settings.hidden * width),
                settings.norm,
                settings.dropout,
            )
            for _ in range(settings.depths[number])
        )
        self.graphs = [squares(rows, rows, size), squares(rows, rows, size, shift)]

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            x = block(self.graphs[number % 2].to(x.device), x)
        return x


class Swin(nn.Module):
    """Stages of blocks with a merging of pixels, four into one, between them.

    Equation    X_0 = LN(embed(x));  X ← MERGE(X) after each stage but the last;
                Y = X + W-ATT(LN(X)), X' = Y + MLP(LN(Y)), W-ATT within squares and shifted squares in turn    (3)
                output = readout(LN(X)) W
    Symbols     stages[s].blocks; merges[s] = MERGE; head = W; settings.norm = the name of LN in NORMS
    Shapes      features x [*, N, inputs], N pixels or patches row by row of a square image -> [*, G, outputs]
    Edge cases  a stage whose image is one square attends to all of it
    Cost        time O(N (width² + window² width)) for a block of the first stage; each later stage has
                a quarter of the pixels
    Differs     images are square; no stochastic depth
    Reference   Liu et al., "Swin Transformer: hierarchical vision transformer using shifted windows", 2021

    Example
        >>> import torch
        >>> from edgewise.graphs import complete
        >>> model = Swin(SwinSettings(width=8, window=2), Features(1, 10, length=16, whole_graph=True))
        >>> model(complete(16), torch.randn(3, 16, 1)).shape  # 4 x 4 pixels, then 2 x 2
        torch.Size([3, 1, 10])
    """

    def __init__(self, settings: SwinSettings, signature: Signature) -> None:
        super().__init__()
        self.settings = settings
        self.signature = accepted(self, signature, Features, whole_graph=True, length=True)
        rows = _check(settings, self.signature)
        count = len(settings.depths)
        self.embed = layers.Linear(signature.inputs, settings.width)
        norm = chosen("norm", settings.norm, layers.NORMS)
        self.norm_in = norm(settings.width)
        self.stages = nn.ModuleList(Stage(settings, number, rows >> number) for number in range(count))
        self.merges = nn.ModuleList(
            layers.PatchMerging(settings.width << n, rows >> n, settings.norm) for n in range(count - 1)
        )
        last = settings.width << (count - 1)
        self.norm = norm(last)
        self.readout = chosen("readout", settings.readout, layers.READOUTS)(last)
        self.head = nn.Linear(last, signature.outputs)
        draw_weights(self, partial(nn.init.trunc_normal_, std=0.02))

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        if not graph.is_complete:
            raise ConfigError("swin attends within squares of its own: give it the graph 'complete'")
        h = dropout(self.norm_in(self.embed(x)), self.settings.dropout, self.training)
        for merge, stage in zip([nn.Identity(), *self.merges], self.stages, strict=True):
            h = stage(merge(h))
        return self.head(self.readout(complete(h.shape[-2]).to(h.device), self.norm(h)))


def _check(settings: SwinSettings, signature: Features) -> int:
    """The rows of the image, or a ConfigError that says what does not fit."""
    rows = isqrt(signature.length or 0)
    if rows * rows != signature.length:
        raise ConfigError(f"swin reads square images, and {signature.length} pixels are none: choose another patch")
    if not settings.depths or len(settings.depths) != len(settings.heads):
        raise ConfigError(f"depths={settings.depths} and heads={settings.heads} need one number a stage")
    if rows % (1 << (len(settings.depths) - 1)):
        raise ConfigError(f"{rows} x {rows} pixels cannot be halved {len(settings.depths) - 1} times")
    return rows
