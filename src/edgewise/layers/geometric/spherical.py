"""Features of several types: numbers that stay, vectors that turn, and tensors of higher order that turn faster.

Features of types 0, ..., L with C channels each are one tensor h [*, N, (L + 1)², C], whose rows l² to (l + 1)² - 1 are
of type l. A rotation R of space turns the rows of type l by the Wigner matrix D^l(R): type 0 stays, type 1 turns as the
vectors x, y, z do. A reflection changes the sign of odd types besides. Harmonics and Clebsch-Gordan coefficients are
e3nn's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from edgewise.configuration import Bounds, Count, Natural, require
from edgewise.errors import ConfigError, EdgewiseError, ShapeError, installing
from edgewise.graphs import Graph
from edgewise.graphs.checks import whole_number
from edgewise.graphs.tracing import constant
from edgewise.kernels import EdgeNetwork, TensorProduct, maps_of
from edgewise.layers.geometric.geometry import beside, displacements, lengths
from edgewise.layers.plain.layer import Layer
from edgewise.layers.plain.linear import Linear, check_dense
from edgewise.layers.plain.mlp import MLP
from edgewise.layers.plain.running import uncompiled

LARGEST = 3  # type of a feature


@dataclass(frozen=True)
class Coupling:
    """Which types a layer's features have, and by which filters a sender's type becomes another.

    Equation    type k becomes type l by the filters J = |k - l|, ..., min(k + l, filters)
    Args:
        types: L, the largest type, from 0 to 3.
        filters: The largest type of a filter, at most 2 L, which is also the default: none left out, as in the papers.
        chiral: Whether to couple with odd k + J + l too, as the cross product (1, 1, 1) does. A layer then follows
            rotations only and can tell a molecule from its mirror image; without, it follows reflections as well.

    Example
        >>> [Coupling(1).into(l) for l in (0, 1)]  # the pairs (k, J)
        [((0, 0), (1, 1)), ((0, 1), (1, 0), (1, 1), (1, 2))]
        >>> Coupling(1, filters=1, chiral=False).into(1)
        ((0, 1), (1, 0))
    """

    types: int = 1
    filters: int | None = None
    chiral: bool = True

    def __post_init__(self) -> None:
        require(self, Annotated[int, Bounds(at_least=0, at_most=LARGEST)], types=self.types)
        if self.filters is not None:
            require(self, Annotated[int, Bounds(at_least=0, at_most=2 * self.types)], filters=self.filters)

    @property
    def most(self) -> int:
        """The largest type of a filter."""
        return 2 * self.types if self.filters is None else self.filters

    @property
    def rows(self) -> int:
        """(L + 1)², the rows of a feature."""
        return (self.types + 1) ** 2

    def into(self, out: int) -> tuple[tuple[int, int], ...]:
        """The paths (k, J) that lead to a type."""
        return tuple(
            (k, J)
            for k in range(self.types + 1)
            for J in range(abs(k - out), min(k + out, self.most) + 1)
            if self.chiral or (k + J + out) % 2 == 0
        )

    @property
    def paths(self) -> tuple[int, ...]:
        """How many paths lead to each type."""
        return tuple(len(self.into(out)) for out in range(self.types + 1))

    @property
    def filtered(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """The types that each type k becomes by a filter J."""
        pairs = [(k, J) for k in range(self.types + 1) for J in range(self.most + 1)]
        types = {pair: tuple(out for out in range(self.types + 1) if pair in self.into(out)) for pair in pairs}
        return {pair: outs for pair, outs in types.items() if outs}

    def basis(self, graph: Graph, x: Tensor | Basis, cell: Tensor | None = None) -> Basis:
        """What layers of this coupling read of positions: computed once, it is passed to all of them instead of x.

        Shapes      x [*, N, 3], cell [3] or [] -> `Basis`; a basis stays what it is
        Errors      ShapeError where x does not fit the graph, has not three coordinates, or is another coupling's basis
        Cost        O(E (2L + 1)²) time and memory
        """
        if isinstance(x, Basis):
            if x.coupling != self:
                raise ShapeError(f"this basis was made for {x.coupling}, and the layer has {self}")
            return x
        check_dense(x)
        if x.shape[-1:] != (3,):
            raise ShapeError(f"spherical harmonics live in three dimensions: x is {list(x.shape)}, not [*, N, 3]")
        return self.along(displacements(graph, x, cell))

    def along(self, x_ij: Tensor) -> Basis:
        """The basis, given the vectors x_ij [*, E, 3] from senders to receivers."""
        r_ij = lengths(x_ij)
        apart = r_ij > 0
        direction = torch.where(apart, x_ij / torch.where(apart, r_ij, 1.0), 0.0)
        return Basis(self, r_ij, harmonics(self.most, direction))


@dataclass(frozen=True, eq=False)
class Basis:
    """The matrices between types that turn with space, for each edge: a layer weighs them by functions of the distance.

    Equation    Q^(lk)_J(x_ij) = sqrt(2l + 1) Σ_m C^(kJl)_m Y_Jm(x_ij / |x_ij|): type k becomes type l
    Symbols     distances = |x_ij| [*, E, 1]; harmonics = Y [*, E, (most + 1)²]; C = Clebsch-Gordan coefficients;
                scale [*, E, 1] = what radial weights are multiplied by, as `envelope`, or None
    Edge cases  two nodes on one spot have no direction: only J = 0 couples them
    """

    coupling: Coupling
    distances: Tensor
    harmonics: Tensor
    scale: Tensor | None = None

    @cached_property
    def matrices(self) -> tuple[Tensor, ...]:
        """Q^(lk)_J for the P_l paths (k, J) into each type l, [*, E, (2l + 1) P_l, (L + 1)²]."""
        C = _into_types(self.coupling, self.harmonics.dtype, self.harmonics.device)
        return tuple((self.harmonics @ part).unflatten(-1, (-1, self.coupling.rows)) for part in C)

    def couple(self, graph: Graph, h: Tensor) -> list[Tensor]:
        """Q^(lk)_J(x_ij) h_j^k for each type l: h [*, N, (L + 1)², C] -> [*, E, 2l + 1, P_l, C]."""
        h_j = self.senders(graph, h)
        if h.dtype != self.harmonics.dtype and not torch.is_autocast_enabled(h.device.type):
            kinds = [str(t.dtype).removeprefix("torch.") for t in (h, self.harmonics)]
            raise ShapeError(f"features are {kinds[0]} and positions {kinds[1]}, but must be of one dtype")
        return [(Q @ h_j).unflatten(-2, (2 * out + 1, -1)) for out, Q in enumerate(self.matrices)]

    def message(self, h: Tensor, weight: Tensor | EdgeNetwork) -> TensorProduct:
        """R^(lkJ) ∘ Q^(lk)_J(x_ij) h_j^k of every path, for `collect`: h [*, N, (L + 1)², C], R [*, E, P C]."""
        coefficients = _by_filters(self.coupling, self.harmonics.dtype, self.harmonics.device)
        paths = tuple(self.coupling.filtered.items())
        return TensorProduct(weight, h, harmonics=self.harmonics, paths=paths, coefficients=coefficients)

    def senders(self, graph: Graph, h: Tensor) -> Tensor:
        """h_j of every edge, [*, E, (L + 1)², C]; `ends` would copy the receivers' too."""
        if h.ndim < 3 or h.shape[-3:-1] != (graph.num_senders, self.coupling.rows):
            wanted = f"[*, {graph.num_senders}, {self.coupling.rows}, C]"
            raise ShapeError(f"h is {list(h.shape)}, but must be {wanted} for types up to {self.coupling.types}")
        return h.index_select(-3, graph.senders)


def by_type(h: Tensor) -> tuple[Tensor, ...]:
    """The rows of each type: h [*, (L + 1)², C] -> [*, 1, C], [*, 3, C], [*, 5, C], ..."""
    check_dense(h)
    types = 0 if h.ndim < 2 else round(sqrt(h.shape[-2]))
    if types**2 != h.shape[-2:-1].numel() or not types:
        raise ShapeError(f"features of several types are [*, (L + 1)², C], with 1, 4, 9, ... rows, not {list(h.shape)}")
    return h.split([2 * out + 1 for out in range(types)], -2)


def harmonics(most: int, direction: Tensor) -> Tensor:
    """Real spherical harmonics of types 0, ..., most: unit vectors [*, 3] -> [*, (most + 1)²], |Y_J|² = 2J + 1.

    Errors      EdgewiseError where e3nn is not installed

    Example
        >>> harmonics(1, torch.tensor([0.0, 0.0, 1.0]))  # 1, and sqrt(3) times x, y, z
        tensor([1.0000, 0.0000, 0.0000, 1.7321])
    """
    check_dense(direction)
    most = whole_number(most, "the largest type")
    if direction.shape[-1:] != (3,):
        raise ShapeError(f"directions are {list(direction.shape)}, but must be unit vectors [*, 3]")
    Y: Tensor = _harmonics(most)(direction)
    return Y


@uncompiled
@constant
def _harmonics(most: int) -> Callable[[Tensor], Tensor]:
    with warnings.catch_warnings():  # PyTorch's, about the compiler that e3nn uses
        warnings.simplefilter("ignore")
        compute: Callable[[Tensor], Tensor] = _o3().SphericalHarmonics(range(most + 1), False, "component")
    return compute


def _coefficients(k: int, J: int, out: int) -> Tensor:
    """sqrt(2l + 1) C of a path into type l, [2k + 1, 2J + 1, 2l + 1], in float64."""
    C: Tensor = _o3().wigner_3j(k, J, out, dtype=torch.float64, device="cpu")
    return sqrt(2 * out + 1) * C


@uncompiled
@constant
def _into_types(coupling: Coupling, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """For each type l, the matrix from harmonics to the entries of Q: [(most + 1)², (2l + 1) P_l (L + 1)²]."""
    matrices = []
    for out, count in enumerate(coupling.paths):
        C = torch.zeros((coupling.most + 1) ** 2, 2 * out + 1, count, coupling.rows, dtype=torch.float64)
        for path, (k, J) in enumerate(coupling.into(out)):
            C[J * J : (J + 1) ** 2, :, path, k * k : (k + 1) ** 2] = _coefficients(k, J, out).permute(1, 2, 0)
        matrices.append(C.flatten(1).to(device, dtype))
    return tuple(matrices)


@uncompiled
@constant
def _by_filters(coupling: Coupling, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """For each (k, J), the matrix from products of Y_J and type k to all l: [Σ (2l + 1), (2J + 1) P (2k + 1)]."""
    matrices = []
    for (k, J), outs in coupling.filtered.items():
        blocks = [torch.zeros(2 * out + 1, 2 * J + 1, len(outs), 2 * k + 1, dtype=torch.float64) for out in outs]
        for path, (out, block) in enumerate(zip(outs, blocks, strict=True)):
            block[:, :, path] = _coefficients(k, J, out).permute(2, 1, 0)
        matrices.append(torch.cat(blocks).flatten(1).to(device, dtype))
    return tuple(matrices)


def _o3() -> Any:
    try:
        from e3nn import o3
    except ImportError as error:
        raise EdgewiseError(f"spherical harmonics are e3nn's: {installing('geometry')}") from error
    return o3


class RadialWeights(Layer):
    """How much each path counts at a distance, channel by channel: a network of the distance and of what an edge knows.

    Equation    R^(lkJ)(|x_ij|, a_ij) = MLP([|x_ij| ‖ a_ij])
    Symbols     network = the MLP, with two hidden layers; paths = their number P
    Shapes      a_ij [*, E, edges] -> an `EdgeNetwork` of width P C
    Cost        O(E hidden (hidden + P C))
    """

    def __init__(self, channels: Count, hidden: Count, edges: Natural, paths: Count) -> None:
        super().__init__()
        self.channels = channels
        self.network = MLP([1 + edges, hidden, hidden, paths * channels], "silu")

    def forward(self, basis: Basis, a_ij: Tensor | None = None) -> EdgeNetwork:
        return self.network.message_of_edges(beside(basis.distances, a_ij), scale=basis.scale)


class TypedLinear(Layer):
    """A linear map of the channels of each type by itself: what mixes channels and still turns with them.

    Equation    h'^l = W^l h^l, and + b for l = 0
    Symbols     maps[l] = W^l, whose width may differ from type to type
    Shapes      for each type l: [*, N, 2l + 1, inputs[l]] -> [*, N, 2l + 1, outputs[l]]

    Example
        >>> TypedLinear([2, 2], [3, 1])(by_type(torch.randn(5, 4, 2)))[1].shape
        torch.Size([5, 3, 1])
    """

    def __init__(self, inputs: Sequence[Natural], outputs: Sequence[Natural], bias: bool = False) -> None:
        super().__init__()
        if len(inputs) != len(outputs):
            raise ConfigError(f"TypedLinear: inputs has {len(inputs)} types of features, and outputs {len(outputs)}")
        sizes = enumerate(zip(inputs, outputs, strict=True))
        self.maps = nn.ModuleList(Linear(into, out, bias and kind == 0) for kind, (into, out) in sizes)

    @property
    def read_by(self) -> Tensor:
        """W^0, the weights that read numbers."""
        return maps_of(self.maps)[0][0]

    def forward(self, parts: Sequence[Tensor]) -> list[Tensor]:
        return [W(part) for W, part in zip(self.maps, parts, strict=True)]


class Gate(Layer):
    """The nonlinearity: numbers pass an activation, and open or close the channels of what turns.

    Equation    h_i'^0 = silu(h_i^0);  h_i'^l = sigmoid(W^l h_i^0 + b^l) ⊙ h_i^l for l > 0
    Shapes      h [*, N, (L + 1)², C] -> the same
    Cost        O(N L C²)
    Reference   Weiler et al., "3D steerable CNNs", 2018, §4.2

    Example
        >>> Gate(2, types=0)(torch.zeros(1, 1, 2)).tolist()
        [[[0.0, 0.0]]]
    """

    def __init__(self, channels: Count, types: Natural) -> None:
        super().__init__()
        self.gates = Linear(channels, types * channels) if types else None

    def forward(self, h: Tensor) -> Tensor:
        first, *others = by_type(h)
        if self.gates is None:
            return nn.functional.silu(first)
        gates = torch.sigmoid(self.gates(first)).chunk(len(others), -1)
        opened = [gate * h_l for gate, h_l in zip(gates, others, strict=True)]
        return torch.cat([nn.functional.silu(first), *opened], -2)
