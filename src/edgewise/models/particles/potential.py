"""Potentials: an energy that depends on where atoms are, and the forces that follow from it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Bounds, Count, Settings
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.tracing import is_real
from edgewise.kernels import collect, ends, gaussians
from edgewise.layers import MLP, TFN, Coupling, Gate, MessageNetwork, PaiNN, SchNet, displacements, lengths
from edgewise.layers.geometric.geometry import envelope
from edgewise.layers.plain.linear import Embedding
from edgewise.layers.plain.mlp import begin_small
from edgewise.layers.plain.sides import check_edges, check_nodes
from edgewise.models.signature import Atoms, Signature, accepted

ELEMENTS = 119  # atomic numbers from 0, which is no element, to 118


@dataclass(frozen=True)
class PotentialSettings(Settings):
    """What a potential can be.

    Args:
        width: Channels of an atom, and filters of the convolutions.
        depth: Number of blocks.
        gaussians: Gaussians that a distance is spread over, from 0 to the radius.
        layer: Atoms exchange numbers ("schnet", "egnn"), or vectors too, by which they see angles ("painn", "tfn").
    """

    width: Count = 64
    depth: Count = 3
    gaussians: Annotated[int, Bounds(at_least=2)] = 32
    layer: Literal["schnet", "egnn", "painn", "tfn"] = "schnet"


class StillEGNN(MessageNetwork):
    """An EGNN layer whose nodes stay where they are, and whose messages end at a radius.

    Equation    m_ij = φ_e(h_i, h_j, e(r_ij)) ½ (cos(π r_ij / r_c) + 1);  h_i' = h_i + φ_h(h_i, Σ_{j ∈ N(i)} m_ij)
    Symbols     e, r_c as in `SchNet`; the rest as in `MessageNetwork`
    Reference   Satorras, Hoogeboom & Welling, 2021, §5.3
    """

    def __init__(self, channels: int, gaussians: int, cutoff: float) -> None:
        super().__init__(channels, channels, gaussians)
        self.gaussians, self.cutoff = gaussians, cutoff

    def along(self, graph: Graph, h: Tensor, x_ij: Tensor) -> Tensor:
        """The layer, given the vectors x_ij [*, E, D] from senders to receivers."""
        r_ij = lengths(x_ij)
        m_ij = self.phi_e(h, gaussians(r_ij, self.gaussians, self.cutoff))
        m_i = collect(graph, replace(m_ij, scale=envelope(r_ij, self.cutoff)))
        return h + self.phi_h(torch.cat([h, m_i], -1))


class TensorFieldBlock(nn.Module):
    """`Gate`, then a `TFN` of numbers and vectors whose messages end at a radius.

    Equation    h' = h + TFN(Gate(h)), whose a_ij = e(r_ij), and R times ½ (cos(π r_ij / r_c) + 1)
    Symbols     e, r_c as in `SchNet`
    """

    def __init__(self, channels: int, gaussians: int, cutoff: float) -> None:
        super().__init__()
        self.gaussians, self.cutoff = gaussians, cutoff
        self.gate = Gate(channels, types=1)
        self.layer = TFN(channels, edges=gaussians, coupling=Coupling(1, chiral=False))

    def along(self, graph: Graph, h: Tensor, x_ij: Tensor) -> Tensor:
        """The block, given the vectors x_ij [*, E, 3] from senders to receivers."""
        h = functional.pad(h, (0, 0, 0, self.layer.coupling.rows - h.shape[-2]))
        basis = self.layer.coupling.along(x_ij)
        ending = replace(basis, scale=envelope(basis.distances, self.cutoff))
        return h + self.layer(graph, self.gate(h), ending, gaussians(basis.distances, self.gaussians, self.cutoff))


Block = SchNet | StillEGNN | PaiNN | TensorFieldBlock
BLOCKS: dict[str, Callable[[int, int, float], Block]] = {
    "schnet": lambda width, *spread: SchNet(width, width, *spread),
    "egnn": StillEGNN,
    "painn": PaiNN,
    "tfn": TensorFieldBlock,
}


class Potential(nn.Module):
    """The energy of every atom, and the force on it: minus the gradient of the energy of all.

    Equation    h_i^(0) = a_(Z_i);  h^(l+1) = layer(h^(l), x);  E = Σ_i ε_i, ε_i = MLP(h_i^(L));  F_i = -∂E/∂x_i
    Symbols     embed = a, one vector per element Z; layers = of BLOCKS, whose vectors begin at 0 and whose
                numbers are h_i, their cutoff the task's radius; energy = MLP
    Shapes      features [*, N, 2 D + 1] = position x (Å), edges of the periodic cell (Å; 0: open along that axis) and
                atomic number Z -> [*, N, 1 + D] = ε_i (eV) and F_i (eV/Å); where the task's edges have features,
                features [*, N, D + 1] = x and Z, and e [E, D] = how far a sender's image is from the sender
    Edge cases  an atom without neighbours has an energy of its own and no force; members of a disjoint batch may have
                different cells. Energy and force are continuous where an edge enters or leaves a radius graph of that
                radius, because messages and their slope end there at 0
    Cost        three times that of its layers: the force is a backward pass, through which training goes once more
    Reference   Schütt et al., "SchNet", 2017, §4

    Example
        >>> from edgewise import radius_graph
        >>> model = Potential(PotentialSettings(width=4, depth=1), Atoms(7, 4, space=3, radius=5.0))
        >>> copper = torch.tensor([[0.0, 0, 0, 0, 0, 0, 29], [2.5, 0, 0, 0, 0, 0, 29]])
        >>> push, pull = model(radius_graph(copper[:, :3], 5.0), copper)[:, 1:]
        >>> torch.equal(push, -pull), push[1:].abs().tolist()  # along the line between the two, one against the other
        (True, [0.0, 0.0])
    """

    differentiates: ClassVar[bool] = True

    def __init__(self, settings: PotentialSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Atoms, whole_graph=False, knows=("edges",))
        self.radius, self.vectors = self.signature.radius, settings.layer in ("painn", "tfn")
        if self.vectors and self.signature.space != 3:
            kind, space = settings.layer, self.signature.space
            raise ConfigError(f"the vectors of {kind} are those of 3 dimensions, not of {space}: take schnet or egnn")
        width, spread = settings.width, (settings.gaussians, self.radius)
        self.embed = Embedding(ELEMENTS, width, of="atomic numbers")
        block = BLOCKS[settings.layer]
        self.layers = nn.ModuleList(block(width, *spread) for _ in range(settings.depth))
        energy = MLP([width, width, 1], "silu")
        self.energy = energy if settings.layer == "schnet" else begin_small(energy)

    def forward(self, graph: Graph, features: Tensor, e: Tensor | None = None) -> Tensor:
        if torch.is_inference_mode_enabled():  # whose tensors cannot be differentiated
            with torch.inference_mode(False), torch.no_grad():
                return self(graph, features.clone(), e if e is None else e.clone())
        check_nodes(graph, features, self.signature.inputs, name="features")
        if (e is None) != (not self.signature.edges):
            need = f"needs e [{graph.num_edges}, {self.signature.space}], where images are" if e is None else "has no e"
            raise ShapeError(f"this potential {need}: its edges have {self.signature.edges} features")
        if e is not None:
            check_edges(graph, e, self.signature.edges)
        x, cell, Z = features.split([space := self.signature.space, features.shape[-1] - space - 1, 1], -1)
        self._check_whole(Z)
        training = torch.is_grad_enabled()
        with torch.enable_grad():
            x = x if x.requires_grad else x.detach().requires_grad_()
            energies = self.energies(graph, x, cell, Z.squeeze(-1).long(), e)
            (slope,) = torch.autograd.grad(energies.sum(), x, create_graph=training)
        return torch.cat([energies, -slope], -1)

    def _check_whole(self, Z: Tensor) -> None:
        if is_real(Z) and bool((wrong := (Z.frac() != 0).flatten()).any()):
            first = int(wrong.nonzero()[0])
            what = f"number {first} of them is {float(Z.flatten()[first]):g}"
            raise ShapeError(f"{self.embed.of} must be whole numbers, but {what}")

    def energies(self, graph: Graph, x: Tensor, cell: Tensor, Z: Tensor, e: Tensor | None = None) -> Tensor:
        """ε_i [*, N, 1] of atoms Z [*, N] at x [*, N, D], each in its cell [*, N, D], or with images that are e from
        the senders [*, E, D]."""
        h, box = self.embed(Z), None
        if e is None and (not is_real(cell) or bool((cell > 0).any())):
            box = ends(graph, torch.where(cell > 0, cell, torch.inf))[0]
        if e is None and isinstance(self.layers[0], SchNet):
            for layer in self.layers:
                h = layer(graph, h, x, box)  # which halves the work where all edges lead both ways
            return self.energy(h)
        x_ij = displacements(graph, x, box) if e is None else displacements(graph, x) - e
        if self.vectors:
            h = h.unsqueeze(-2)
        for block in self.layers:
            h = cast(Block, block).along(graph, h, x_ij)
        return self.energy(h[..., 0, :] if self.vectors else h)
