"""Potentials: an energy that depends on where atoms are, and the forces that follow from it."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from edgewise.configuration import Bounds, Count, Settings
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.tracing import is_real
from edgewise.kernels import ends
from edgewise.layers import MLP, PaiNN, SchNet, displacements
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
        depth: Number of SchNet's interaction blocks.
        gaussians: Gaussians that a distance is spread over, from 0 to the radius.
        layer: Atoms exchange numbers ("schnet"), or vectors too, by which they see angles ("painn").
    """

    width: Count = 64
    depth: Count = 3
    gaussians: Annotated[int, Bounds(at_least=2)] = 32
    layer: Literal["schnet", "painn"] = "schnet"


class Potential(nn.Module):
    """The energy of every atom, and the force on it: minus the gradient of the energy of all.

    Equation    h_i^(0) = a_(Z_i);  h^(l+1) = SchNet(h^(l), x);  E = Σ_i ε_i, ε_i = MLP(h_i^(L));  F_i = -∂E/∂x_i
    Symbols     embed = a, one vector per element Z; layers = `SchNet` or `PaiNN`, whose vectors begin at 0 and whose
                numbers are h_i, their cutoff the task's radius; energy = MLP
    Shapes      features [*, N, 2 D + 1] = position x (Å), edges of the periodic cell (Å; 0: open along that axis) and
                atomic number Z -> [*, N, 1 + D] = ε_i (eV) and F_i (eV/Å); where the task's edges have features,
                features [*, N, D + 1] = x and Z, and e [E, D] = how far a sender's image is from the sender
    Edge cases  an atom without neighbours has an energy of its own and no force; members of a disjoint batch may have
                different cells. Energy and force are continuous where an edge enters or leaves a radius graph of that
                radius, because SchNet's filters and their slope end there at 0
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
        self.radius, self.vectors = self.signature.radius, settings.layer == "painn"
        if self.vectors and self.signature.space != 3:
            raise ConfigError(f"PaiNN's vectors are those of 3 dimensions, not of {self.signature.space}: take schnet")
        width, spread = settings.width, (settings.gaussians, self.radius)
        self.embed = Embedding(ELEMENTS, width, of="atomic numbers")
        blocks = (
            PaiNN(width, *spread) if self.vectors else SchNet(width, width, *spread) for _ in range(settings.depth)
        )
        self.layers = nn.ModuleList(blocks)
        energy = MLP([width, width, 1], "silu")
        self.energy = begin_small(energy) if self.vectors else energy

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
        if e is None and not self.vectors:
            for layer in self.layers:
                h = layer(graph, h, x, box)  # which halves the work where all edges lead both ways
            return self.energy(h)
        x_ij = displacements(graph, x, box) if e is None else displacements(graph, x) - e
        if self.vectors:
            h = h.unsqueeze(-2)
        for block in self.layers:
            h = cast(PaiNN | SchNet, block).along(graph, h, x_ij)
        return self.energy(h[..., 0, :] if self.vectors else h)
