"""Swin: attention within the squares of an image, biased by where in the square; then four pixels become one."""

from typing import Annotated

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, chosen
from edgewise.errors import ShapeError
from edgewise.graphs import Graph, squares
from edgewise.graphs.derived import cached
from edgewise.kernels import Dot, EdgeBias
from edgewise.kernels.scores import Score
from edgewise.layers.attention.attention import PositionalAttention
from edgewise.layers.attention.transformer import NORMS, check_normed
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.linear import Linear, Wide


class WindowAttention(PositionalAttention):
    """Swin's attention between pixels, with a learned bias for each offset down and across, on any graph of pixels.

    Equation    s_ij = q_i·k_j / √C + B_h[y_i − y_j, x_i − x_j]    (4)
    Symbols     b [H, (2 size − 1)²] = B̂, row by row from 1 − size; columns = pixels in a row of the image; the graph's
                windows are `squares(height, columns, size, shift)`
    Shapes      x [*, N, width] -> [*, N, width], N pixels row by row
    Edge cases  pixels `size` or more apart share the table's ends; a shifted window that wraps around is two
    Cost        that of MultiHeadAttention with E = N size² edges, and O(E H) for their biases
    Reference   Liu et al., "Swin Transformer: hierarchical vision transformer using shifted windows", 2021, §3.2

    Example
        >>> layer = WindowAttention(width=2, heads=1, columns=2, size=2, bias=False)
        >>> layer.projection.weight.data = torch.cat([torch.zeros(4, 2), torch.eye(2)])  # q·k = 0, v = x
        >>> layer.output.weight.data = torch.eye(2)
        >>> layer.b.data[0, :] = -torch.inf
        >>> layer.b.data[0, 1] = 0.0  # only the pixel right below counts: [y_i − y_j, x_i − x_j] = [−1, 0]
        >>> layer(squares(2, 2, 2), torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]]))[:2, 0].tolist()
        [3.0, 4.0]
    """

    def __init__(
        self, width: int, heads: int, columns: Count, size: Count, *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__(width, heads, bias=bias, dropout=dropout)
        self.columns, self.size = columns, size
        self.b = nn.Parameter(torch.empty(heads, (2 * size - 1) ** 2))
        nn.init.trunc_normal_(self.b, std=0.02)

    def score(self, graph: Graph, q: Tensor, k: Tensor) -> Score:
        return Dot() + EdgeBias(self.b.T.index_select(0, column_of(graph, self.columns, self.size)))

    @staticmethod
    def example() -> Example:
        return WindowAttention(6, 3, columns=4, size=2, dropout=0.5), squares(2, 4, 2, shift=1), (torch.randn(8, 6),)


@cached
def column_of(graph: Graph, columns: int, size: int) -> Tensor:
    """Which of the biases each edge reads, int64 [E]."""
    if graph.num_senders % columns:
        raise ShapeError(f"{graph.num_senders} pixels do not make rows of {columns}")
    i, j, farthest = graph.receivers + graph.offset, graph.senders, size - 1
    down, across = i // columns - j // columns, i % columns - j % columns
    down, across = down.clamp(-farthest, farthest), across.clamp(-farthest, farthest)
    return (down + farthest) * (2 * size - 1) + across + farthest


class PatchMerging(Layer):
    """Four pixels become one with twice the channels; called `merge(x)`.

    Equation    z_(y, x) = LN(x_(2y, 2x) ‖ x_(2y+1, 2x) ‖ x_(2y, 2x+1) ‖ x_(2y+1, 2x+1)) W
    Symbols     reduction = Wᵀ; columns = pixels in a row of the image; norm = the name of LN in NORMS
    Shapes      x [*, N, width] -> [*, N / 4, 2 width], pixels row by row
    Cost        O(N width²)
    Reference   Liu et al., "Swin Transformer", 2021, §3.1

    Example
        >>> merge = PatchMerging(1, columns=2)
        >>> merge.norm = nn.Identity()
        >>> merge.reduction.weight.data = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]])
        >>> merge(torch.tensor([[1.0], [2.0], [3.0], [4.0]])).tolist()  # their sum, and the lower left one
        [[10.0, 3.0]]
    """

    def __init__(self, width: Count, columns: Count, norm: str = "layer") -> None:
        super().__init__()
        self.width, self.columns = width, columns
        self.norm = chosen("norm", norm, NORMS)(4 * width)
        self.reduction = Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Annotated[Tensor, Wide("width")]) -> Tensor:
        if x.ndim < 2:
            raise ShapeError(f"x is {list(x.shape)}, but must be [*, N, {self.width}], a row for each pixel")
        rows, left = divmod(x.shape[-2], self.columns)
        if left or rows % 2 or self.columns % 2:
            raise ShapeError(f"{x.shape[-2]} pixels in rows of {self.columns} do not merge two by two")
        four = x.unflatten(-2, (rows // 2, 2, self.columns // 2, 2))  # [*, y, down, x, across, C]
        four = four.movedim((-2, -4), (-3, -2)).flatten(-3)  # across before down, as the paper's code
        four = four.flatten(-3, -2)
        check_normed(self.norm, four)
        return self.reduction(self.norm(four))
