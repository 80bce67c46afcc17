"""Convolutions over scales: an image of half the size gives the same features, one scale further down."""

from math import hypot

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, NonNegative
from edgewise.errors import GraphError, ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.patterns import Disc
from edgewise.kernels import aggregate
from edgewise.layers.images.group_convolution import lattice, lattice_points, on_plane, over_pixels
from edgewise.layers.plain.layer import Example, Layer, example_graph
from edgewise.layers.plain.linear import Dense, check_alike
from edgewise.layers.plain.sides import NodeRows


class ScaleSpace(Layer):
    """An image at several scales: each is the one before, smoothed over twice the distance.

    Equation    z_i(0) = x_i;  z_i(s + 1) = Σ_{j ∈ N(i)} h((p_j - p_i) / 2^s) z_j(s),  h = [1 2 1]ᵀ [1 2 1] / 16
    Symbols     levels = number of scales; p [N, 2] = where the nodes are
    Shapes      x [*, N, C] (, p [*, N, 2] in pixels, cell [2] as in `EGNN`) -> [*, N, levels, C]
    Errors      GraphError without positions, on a graph that is no `disc`, or one below √2 · 2^(levels - 2) pixels
    Edge cases  beyond the border there is nothing; of other nodes, those at multiples of 2^s in both directions count
    Cost        O(levels N C) on a `disc`, O(levels E C) with p
    Differs     the paper smooths by Gaussians; with this "algorithme à trous" halving is a shift by one scale exactly
    Reference   Worrall & Welling, "Deep scale-spaces: equivariance over scale", 2019, §3

    Example
        >>> from edgewise.graphs import disc
        >>> layer = ScaleSpace(2)
        >>> layer(disc(1, 3), torch.tensor([[0.0], [16.0], [0.0]]))[:, 1].flatten().tolist()
        [2.0, 4.0, 2.0]
    """

    def __init__(self, levels: Count) -> None:
        super().__init__()
        self.levels = levels

    def forward(self, graph: Graph, x: NodeRows, p: Tensor | None = None, cell: Tensor | None = None) -> Tensor:
        p_ij = None if p is None else on_plane(graph, p, cell)
        h = torch.tensor([1.0, 2.0, 1.0, 2.0, 4.0, 2.0, 1.0, 2.0, 1.0]).to(x) / 16  # in the order of lattice_points
        W = h[:, None, None] * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        z = [x]
        for s in range(self.levels - 1):
            z.append(spread(graph, z[-1], W, 1.5, 2**s, p_ij))
        return torch.stack(z, -2)

    @staticmethod
    def example() -> Example:
        return ScaleSpace(3), example_graph(), (torch.randn(5, 2), _positions())


class ScaleConvolution(Layer):
    """Convolution over places and scales: at each scale the same filter, spread out, which sees coarser scales too.

    Equation    y_i(s) = Σ_{j ∈ N(i)} Σ_{t = 0..reach-1} W((p_j - p_i) / 2^s, t) x_j(s + t) + b
    Symbols     scale s enlarges 2^s times; weight [K, reach, inputs, outputs] = W at the K lattice points within radius
    Shapes      x [*, N, S, inputs] (, p [*, N, 2], cell [2]) -> [*, N, S, outputs]
    Errors      GraphError without positions, on a graph that is no `disc`, or one smaller than the largest filter
    Edge cases  scales beyond the last count as 0, as does what lies beyond the border; other nodes as in `ScaleSpace`
    Cost        on a `disc` S dilated 2-d convolutions; with p, time O(S (E + N outputs) K reach inputs)
    Differs     the scales are those of `ScaleSpace`; scales form a semigroup, so enlarging has no inverse
    Reference   Worrall & Welling, "Deep scale-spaces: equivariance over scale", 2019, (11)

    Example
        >>> from edgewise.graphs import disc
        >>> layer = ScaleConvolution(1, 1, radius=0, reach=2, bias=False)
        >>> layer.weight.data = torch.tensor([1.0, -1.0]).view(1, 2, 1, 1)  # less what is left one scale on
        >>> layer(disc(1, 1), torch.tensor([9.0, 5.0, 2.0]).view(1, 3, 1)).flatten().tolist()
        [4.0, 3.0, 2.0]
    """

    def __init__(
        self, inputs: Count, outputs: Count, radius: NonNegative = 1.5, reach: Count = 2, bias: bool = True
    ) -> None:
        super().__init__()
        self.radius = float(radius)
        self.weight = nn.Parameter(torch.empty(len(lattice_points(radius)), reach, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        bound = self.weight[..., 0].numel() ** -0.5
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound)

    def forward(self, graph: Graph, x: Dense, p: Tensor | None = None, cell: Tensor | None = None) -> Tensor:
        reach, inputs = self.weight.shape[1:3]
        if x.ndim < 3 or x.shape[-3] != graph.num_senders or x.shape[-1] != inputs:
            nodes = f"{graph.num_senders} nodes at some scales with {inputs} channels"
            raise ShapeError(f"the features of {nodes} were expected, not {list(x.shape)}")
        check_alike(x, self.weight)
        p_ij = None if p is None else on_plane(graph, p, cell)
        y = []
        for s in range(x.shape[-2]):
            seen = x[..., s : s + reach, :]
            W = self.weight[:, : seen.shape[-2]].flatten(1, 2)
            y.append(spread(graph, seen.flatten(-2), W, self.radius, 2**s, p_ij))
        stacked = torch.stack(y, -2)
        return stacked if self.bias is None else stacked + self.bias

    @staticmethod
    def example() -> Example:
        return ScaleConvolution(2, 2, radius=1), example_graph(), (torch.randn(5, 3, 2), _positions())


def spread(graph: Graph, x: Tensor, W: Tensor, radius: float, scale: int, p_ij: Tensor | None = None) -> Tensor:
    """Σ_j W((p_j - p_i) / scale) x_j with W at lattice points alone: x [*, N, C], W [K, C, C'] -> [*, N, C'].

    Symbols     p_ij [*, E, 2] = p_j - p_i; None: the graph is a `disc`, whose pixels have their places
    Errors      GraphError for another graph without p_ij, or a disc that does not reach as far as the filter
    Edge cases  a node counts at a lattice point if it is within a hundredth of a pixel in both directions
    """
    points = lattice(radius)
    if p_ij is not None:
        there = (p_ij.unsqueeze(-2) - scale * lattice_points(radius).to(p_ij)).abs().amax(-1) < 0.01  # [*, E, K]
        copies = x.unsqueeze(-2).expand(*x.shape[:-1], len(points), -1)
        return torch.einsum("...ki,kio->...o", aggregate(graph, copies, there.to(x)), W.to(x))
    rule, farthest = graph.rule, scale * max(hypot(*point) for point in points)
    if not isinstance(rule, Disc) or not graph.is_square:
        raise GraphError(f"{graph} does not say where its nodes are: give positions p, or take the pattern disc")
    if rule.radius < farthest - 1e-9:
        raise GraphError(f"a filter reaches {farthest:.2f} pixels at scale {scale}, and the disc only {rule.radius:g}")
    side = 2 * int(radius) + 1
    places = torch.tensor([(down + int(radius)) * side + across + int(radius) for down, across in points])
    bank = W.new_zeros(side * side, *W.shape[1:]).index_copy(0, places.to(W.device), W)
    return over_pixels(rule, x, bank.permute(2, 1, 0).unflatten(-1, (side, side)), scale)


def _positions() -> Tensor:
    return torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
