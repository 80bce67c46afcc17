"""Polarizable atoms: numbers and vectors of each node, which exchange messages that turn as space does."""

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.configuration import Count, Positive
from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.kernels import collect, ends, gaussians
from edgewise.layers.geometric.convolutions import Several
from edgewise.layers.geometric.geometry import displacements, envelope, lengths
from edgewise.layers.geometric.spherical import by_type
from edgewise.layers.geometric.tensor_field import Typed
from edgewise.layers.plain.layer import Example, Layer, example_graph
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.mlp import MLP

SMOOTH = 1e-4  # below the root of a squared length: its slope has a slope where the length is 0


class PaiNN(Layer):
    """Interaction block of PaiNN: messages of numbers and vectors, then both mix at each node, through their lengths.

    Equation    [a ‖ b ‖ c]_ij = φ(s_j) ∘ W(r_ij),  W(r) = F e(r) ½ (cos(π r / r_c) + 1) for r < r_c, else 0
                s_i' = s_i + Σ_j a_ij;  v_i' = v_i + Σ_j b_ij ∘ v_j + c_ij ∘ x_ij / r_ij             (7), (8)
                [a ‖ b ‖ c]_i = ψ([s_i' ‖ |V v_i'|])
                s_i'' = s_i' + a_i + b_i ∘ (U v_i' · V v_i');  v_i'' = v_i' + c_i ∘ U v_i'           (9), (10)
    Symbols     h = [s ‖ v], rows of type 0 and 1 as in `TFN`; phi = φ, psi = ψ; filters = F; mixed = U, V; cutoff =
                r_c; e = `gaussians` of the distance from 0 to r_c
    Shapes      h [*, N, 4, channels], or [*, N, 1, channels] where all v are 0, x [*, N, 3], cell [3]
                -> [*, N, 4, channels]; cutoff in the unit of x
    Edge cases  a node without senders within the cutoff mixes what it has; positions may coincide
    Cost        O(N C² + E C G) time for G Gaussians, O(E C) memory
    Differs     the paper's radial functions are sin(k π r / r_c) / r, and F has a bias; here |V v| is smooth at 0:
                √(|V v|² + 10⁻⁴)
    Reference   Schütt, Unke & Gastegger, "Equivariant message passing for the prediction of tensorial properties", 2021

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer, s = PaiNN(3, cutoff=5.0), torch.randn(2, 1, 3)
        >>> y = layer(pair, s, torch.tensor([[0.0, 0.0, 0.0], [0.0, 3.0, 0.0]]))  # vectors along the line
        >>> y.shape, y[:, [1, 3]].abs().max().item()
        (torch.Size([2, 4, 3]), 0.0)
    """

    def __init__(self, channels: Count, gaussians: Several = 20, cutoff: Positive = 5.0) -> None:
        super().__init__()
        self.channels, self.gaussians, self.cutoff = channels, gaussians, cutoff
        self.phi = MLP([channels, channels, 3 * channels], "silu")
        self.filters = Linear(gaussians, 3 * channels, bias=False)
        self.mixed = Linear(channels, 2 * channels, bias=False)
        self.psi = MLP([2 * channels, channels, 3 * channels], "silu")

    def forward(self, graph: Graph, h: Typed, x: Tensor, cell: Tensor | None = None) -> Tensor:
        return self.along(graph, h, displacements(graph, x, cell))

    def along(self, graph: Graph, h: Tensor, x_ij: Tensor) -> Tensor:
        """The block, given the vectors x_ij [*, E, 3] from senders to receivers."""
        self._check(graph, h, x_ij)
        s, *v = by_type(h)
        r_ij = lengths(x_ij)
        W = self.filters(envelope(r_ij, self.cutoff) * gaussians(r_ij, self.gaussians, self.cutoff))
        direction = x_ij / torch.where(r_ij > 0, r_ij, 1.0)
        sent = torch.cat([self.phi(s.squeeze(-2)), *(one.flatten(-2) for one in v)], -1)
        phi_j, *v_j = ends(graph, sent[..., :0], sent)[1].unflatten(-1, (-1, self.channels)).split(3, -2)
        a, b, c = (phi_j * W.unflatten(-1, (3, -1))).split(1, -2)
        vectors = c * direction.unsqueeze(-1)
        m_ij = torch.cat([a, vectors + b * v_j[0] if v else vectors], -2)
        before = h if v else functional.pad(h, (0, 0, 0, 3))
        return self.mix(before + collect(graph, m_ij.flatten(-2)).unflatten(-1, (4, -1)))  # (7), (8)

    def mix(self, h: Tensor) -> Tensor:
        """Numbers and vectors of each node by itself (9), (10)."""
        s, v = by_type(h)
        Uv, Vv = self.mixed(v).chunk(2, -1)
        size = (Vv.square().sum(-2) + SMOOTH).sqrt()
        a, b, c = self.psi(torch.cat([s.squeeze(-2), size], -1)).unflatten(-1, (3, -1)).split(1, -2)
        return h + torch.cat([a + b * (Uv * Vv).sum(-2, keepdim=True), c * Uv], -2)

    def _check(self, graph: Graph, h: Tensor, x_ij: Tensor) -> None:
        rows = h.shape[-2:-1].numel()
        if h.ndim < 3 or h.shape[-3] != graph.num_receivers or rows not in (1, 4) or x_ij.shape[-1] != 3:
            what = f"h is {list(h.shape)} and lines are {list(x_ij.shape)}"
            raise ShapeError(f"{what}, but must be [*, {graph.num_receivers}, 4, C], a number and a vector, and [*, 3]")
        if h.dtype != x_ij.dtype and not torch.is_autocast_enabled(h.device.type):
            kinds = [str(t.dtype).removeprefix("torch.") for t in (h, x_ij)]
            raise ShapeError(f"features are {kinds[0]} and positions {kinds[1]}, but must be of one dtype")

    @staticmethod
    def example() -> Example:
        return PaiNN(2, gaussians=6, cutoff=4.0), example_graph(), (torch.randn(5, 4, 2), torch.randn(5, 3))
