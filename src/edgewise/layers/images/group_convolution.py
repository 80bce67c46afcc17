"""Convolutions over groups of planar motions: when the image turns, so do the features, and nothing else changes."""

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import pi
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count, NonNegative, require
from edgewise.errors import GraphError, ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.patterns import Disc
from edgewise.kernels import aggregate
from edgewise.layers.geometric.geometry import displacements
from edgewise.layers.plain.layer import Example, Layer, example_graph
from edgewise.layers.plain.linear import Dense, check_alike
from edgewise.layers.plain.sides import NodeRows


@dataclass(frozen=True)
class PlaneGroup:
    """The rotations by multiples of 360° / n about a point and, with `reflections`, those after a mirror.

    Equation    g = r^k m^f: element f n + k turns by 360° k / n, after mirroring the columns where f = 1
    Symbols     rotations = n; order = |G| = n, or 2 n with reflections. (4, False) is p4, (4, True) is p4m

    Example
        >>> PlaneGroup(4).matrices()[1].tolist()  # (down, across) -> (-across, down): `torch.rot90`
        [[0.0, -1.0], [1.0, 0.0]]
        >>> PlaneGroup(3).relative().tolist()  # g⁻¹h: row g, column h
        [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
    """

    rotations: int = 4
    reflections: bool = False

    def __post_init__(self) -> None:
        require(self, Count, rotations=self.rotations)

    @property
    def order(self) -> int:
        return self.rotations * (1 + self.reflections)

    def matrices(self) -> Tensor:
        """What each element does to (down, across): [|G|, 2, 2], in float64; exact for quarter turns."""
        angle = 2 * pi / self.rotations * torch.arange(self.rotations, dtype=torch.float64)
        cos, sin = angle.cos().round(decimals=15), angle.sin().round(decimals=15)
        turns = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
        return torch.cat([turns, turns * turns.new_tensor([1.0, -1.0])]) if self.reflections else turns

    def relative(self) -> Tensor:
        """The number of g⁻¹h for every g and h: [|G|, |G|]."""
        element = torch.arange(self.order)
        turn, mirror = element % self.rotations, element // self.rotations
        seen = (1 - 2 * mirror[:, None]) * (turn - turn[:, None]) % self.rotations  # mirrored, turns run backwards
        return seen + self.rotations * (mirror[:, None] ^ mirror)


def lattice_points(radius: float) -> Tensor:
    """The points (down, across) of the integer lattice within a distance of the origin: [K, 2]."""
    return torch.tensor(lattice(radius))


@cache
def lattice(radius: float) -> tuple[tuple[int, int], ...]:
    """The same as numbers, which a program that is exported reads as they are."""
    side = range(-int(radius), int(radius) + 1)
    return tuple((down, across) for down, across in product(side, side) if down**2 + across**2 <= radius**2 + 1e-9)


def over_pixels(rule: Disc, x: Tensor, bank: Tensor, dilation: int = 1) -> Tensor:
    """Torch's convolution of the pixels of a `disc`: x [*, N, C], bank [C', C, 2 R + 1, 2 R + 1] -> [*, N, C'].

    Beyond the border there is nothing; on a torus, the other side.
    """
    images = x.reshape(-1, rule.height, rule.width, x.shape[-1]).permute(0, 3, 1, 2)
    border = bank.shape[-1] // 2 * dilation
    if rule.torus:
        images = functional.pad(images, [border] * 4, mode="circular")
    y = functional.conv2d(images, bank, padding=0 if rule.torus else border, dilation=dilation)
    return y.permute(0, 2, 3, 1).reshape(*x.shape[:-1], len(bank))


def on_plane(graph: Graph, p: Tensor, cell: Tensor | None) -> Tensor:
    """p_j - p_i of every edge, for positions (down, across) [*, N, 2]."""
    p_ji = displacements(graph, p, cell)
    if p_ji.shape[-1] != 2:
        raise ShapeError(f"positions are {list(p.shape)}, but must be [*, N, 2]: down and across")
    return -p_ji


def weights_at(p: Tensor, group: PlaneGroup, radius: float) -> Tensor:
    """How much each filter point counts at p, seen from every pose: p [*, 2] -> [*, |G|, K]."""
    seen = torch.einsum("...e,ged->...gd", p, group.matrices().to(p))  # pᵀ g = (g⁻¹ p)ᵀ
    apart = seen.unsqueeze(-2) - lattice_points(radius).to(p)
    return (1 - apart.abs()).clamp(min=0).prod(-1)


@cached
def _weights_over_disc(graph: Graph, rule: Disc, group: PlaneGroup, radius: float, dtype: torch.dtype) -> Tensor:
    """The filter points' weights at the square of pixels around one, inside of the disc: [|G|, P, K]."""
    side = torch.arange(-rule.reach, rule.reach + 1, dtype=torch.float64, device=graph.device)
    square = torch.cartesian_prod(side, side).view(-1, 2)
    inside = square.square().sum(-1) <= rule.radius**2 + 1e-9
    return (weights_at(square, group, radius) * inside[:, None, None]).transpose(0, 1).to(dtype).contiguous()


class _PlaneConvolution(Layer):
    """Filters on the lattice points within a radius, evaluated wherever a neighbour is seen, from every pose."""

    def __init__(
        self, group: PlaneGroup, poses: int, inputs: Count, outputs: Count, radius: NonNegative, bias: bool
    ) -> None:
        super().__init__()
        self.group, self.radius = group, float(radius)
        self.weight = nn.Parameter(torch.empty(len(lattice_points(radius)), poses, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        bound = self.weight[..., 0].numel() ** -0.5
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound)

    def convolve(self, graph: Graph, x: Tensor, W: Tensor, p: Tensor | None, cell: Tensor | None) -> Tensor:
        """Σ_j Σ_h W(g⁻¹(p_j - p_i), g, h) x_j(h) + b, for x [*, N, H, inputs] and W [K, |G|, H, inputs, outputs]."""
        if x.ndim < 3 or x.shape[-3] != graph.num_senders or x.shape[-2:] != W.shape[2:4]:
            poses, inputs = W.shape[2:4]
            wanted = f"{graph.num_senders} nodes, {poses} poses and {inputs} channels"
            raise ShapeError(f"the features of {wanted} were expected, not {list(x.shape)}")
        check_alike(x, W)
        if p is not None:
            p_ij = on_plane(graph, p, cell)
            y = self._over_edges(graph, x, W, p_ij if p_ij.is_floating_point() else p_ij.to(x.dtype))
        elif isinstance(graph.rule, Disc) and graph.is_square:
            y = self._over_lattice(graph, graph.rule, x, W)
        else:
            raise GraphError(f"{graph} does not say where its nodes are: give positions p, or take the pattern disc")
        return y if self.bias is None else y + self.bias

    def _over_lattice(self, graph: Graph, rule: Disc, x: Tensor, W: Tensor) -> Tensor:
        """The same weights at every pixel: a bank of transformed filters, and torch's convolution."""
        b = _weights_over_disc(graph, rule, self.group, self.radius, x.dtype)
        bank = torch.einsum("gpk,kghio->gohip", b, W).flatten(2, 3).flatten(0, 1)
        bank = bank.unflatten(-1, (2 * rule.reach + 1, 2 * rule.reach + 1))
        return over_pixels(rule, x.flatten(-2), bank).unflatten(-1, (W.shape[1], W.shape[-1]))

    def _over_edges(self, graph: Graph, x: Tensor, W: Tensor, p_ij: Tensor) -> Tensor:
        """Any positions: weigh the senders for every pose and filter point, then sum over the points."""
        b = weights_at(p_ij, self.group, self.radius)  # [*, E, |G|, K]
        copies = x.flatten(-2).unsqueeze(-2).expand(*x.shape[:-2], b.shape[-2] * b.shape[-1], -1)
        weighed = aggregate(graph, copies, b.flatten(-2)).unflatten(-2, b.shape[-2:]).unflatten(-1, x.shape[-2:])
        return torch.einsum("...gkhi,kghio->...go", weighed, W.to(weighed))


class LiftingConvolution(_PlaneConvolution):
    """Convolution of an image with one filter in every pose: from nodes to nodes × group.

    Equation    y_i(g) = Σ_{j ∈ N(i)} W(g⁻¹(p_j - p_i)) x_j + b
                W(p) = Σ_k max(0, 1 - |p_1 - k_1|) max(0, 1 - |p_2 - k_2|) W_k    (bilinear interpolation)
    Symbols     g in group = G; k = the K lattice points within radius; weight [K, 1, inputs, outputs] = W_k;
                p [N, 2] = where the nodes are, (down, across)
    Shapes      x [*, N, inputs] (, p [*, N, 2] in pixels, cell [2] as in `EGNN`) -> [*, N, |G|, outputs]
    Errors      GraphError without p on a graph that is no `disc`
    Edge cases  no senders: b. On a `disc`, positions are its pixels'; with p they may be anywhere
    Cost        on a `disc` a 2-d convolution with |G| outputs channels; with p, O((E + N inputs) |G| K)
    Differs     the paper has p4 and p4m on a square lattice; here the filter is a disc, which other rotations fit too
    Reference   Cohen & Welling, "Group equivariant convolutional networks", 2016, (10)

    Example
        >>> from edgewise.graphs import disc
        >>> layer = LiftingConvolution(PlaneGroup(4), 1, 1, radius=1, bias=False)
        >>> layer.weight.data = torch.tensor([1.0, 0, 0, 0, 0]).view(5, 1, 1, 1)  # what is one row up
        >>> x = torch.tensor([[1.0], [2.0], [3.0], [4.0]])  # 1 2 over 3 4
        >>> layer(disc(2, 2, radius=1), x)[2].flatten().tolist()  # beside the 3: up, left, down, right
        [1.0, 0.0, 0.0, 4.0]
    """

    def __init__(self, group: PlaneGroup, inputs: int, outputs: int, radius: float = 1.5, bias: bool = True) -> None:
        super().__init__(group, 1, inputs, outputs, radius, bias)

    def forward(self, graph: Graph, x: NodeRows, p: Tensor | None = None, cell: Tensor | None = None) -> Tensor:
        W = self.weight.unsqueeze(1).expand(-1, self.group.order, -1, -1, -1)
        return self.convolve(graph, x.unsqueeze(-2), W, p, cell)

    @staticmethod
    def example() -> Example:
        return LiftingConvolution(PlaneGroup(4), 2, 2, radius=1), example_graph(), (torch.randn(5, 2), _positions())


class GroupConvolution(_PlaneConvolution):
    """Convolution over a group: features have a place and a pose, and are compared with neighbours' in every pose.

    Equation    y_i(g) = Σ_{j ∈ N(i)} Σ_{h ∈ G} W(g⁻¹(p_j - p_i), g⁻¹h) x_j(h) + b;  W(p, h) as in `LiftingConvolution`
    Symbols     as in `LiftingConvolution`; weight [K, |G|, inputs, outputs] = W_k(h)
    Shapes      x [*, N, |G|, inputs] (, p [*, N, 2], cell [2]) -> [*, N, |G|, outputs]
    Edge cases  a group of one element is an ordinary convolution
    Cost        on a `disc` a 2-d convolution, |G| inputs to |G| outputs; with p, O((E + N |G| inputs) |G| K)
    Reference   Cohen & Welling, 2016, (11)

    Example
        >>> from edgewise.graphs import disc
        >>> layer = GroupConvolution(PlaneGroup(4), 1, 1, radius=0, bias=False)
        >>> layer.weight.data = torch.tensor([0.0, 1.0, 0.0, 0.0]).view(1, 4, 1, 1)  # what is there a quarter turn on
        >>> layer(disc(1, 1), torch.tensor([5.0, 6.0, 7.0, 8.0]).view(1, 4, 1)).flatten().tolist()
        [6.0, 7.0, 8.0, 5.0]
    """

    relative: Tensor

    def __init__(self, group: PlaneGroup, inputs: int, outputs: int, radius: float = 1.5, bias: bool = True) -> None:
        super().__init__(group, group.order, inputs, outputs, radius, bias)
        self.register_buffer("relative", group.relative(), persistent=False)

    def forward(self, graph: Graph, x: Dense, p: Tensor | None = None, cell: Tensor | None = None) -> Tensor:
        W = self.weight.index_select(1, self.relative.flatten()).unflatten(1, self.relative.shape)
        return self.convolve(graph, x, W, p, cell)

    @staticmethod
    def example() -> Example:
        inputs = torch.randn(5, 4, 1), _positions()
        return GroupConvolution(PlaneGroup(4), 1, 2, radius=1), example_graph(), inputs


class GroupPooling(Layer):
    """The strongest pose, or the mean of all: what is left turns with the image and nothing more.

    Equation    y_i = max_g x_i(g), or 1/|G| Σ_g x_i(g)
    Symbols     reduce = "max" or "mean"
    Shapes      x [*, N, |G|, C] -> [*, N, C]
    Cost        O(N |G| C)
    Reference   Cohen & Welling, 2016, §6.3

    Example
        >>> GroupPooling()(None, torch.tensor([[[1.0], [7.0], [3.0], [0.0]]])).tolist()
        [[7.0]]
    """

    def __init__(self, reduce: Literal["max", "mean"] = "max") -> None:
        super().__init__()
        self.reduce = reduce

    def forward(self, graph: Graph | None, x: Dense) -> Tensor:
        if x.ndim < 3:
            raise ShapeError(f"x is {list(x.shape)}, but must be [*, N, |G|, C]: a row for each pose of each node")
        return x.amax(-2) if self.reduce == "max" else x.mean(-2)

    @staticmethod
    def example() -> Example:
        return GroupPooling(), example_graph(), (torch.randn(5, 4, 2),)


def _positions() -> Tensor:
    """Off the lattice, where the weights have a slope."""
    return torch.tensor([[0.0, 0.0], [0.3, 0.7], [-0.4, 0.2], [5.0, 5.0], [1.2, -0.4]])
