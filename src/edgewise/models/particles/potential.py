"""Potentials: an energy that depends on where atoms are, and the forces that follow from it."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from edgewise.configuration import Bounds, Count, Settings
from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.tracing import is_real
from edgewise.kernels import ends
from edgewise.layers import MLP, SchNet
from edgewise.layers.plain.linear import Embedding
from edgewise.layers.plain.sides import check_nodes
from edgewise.models.signature import Atoms, Signature, accepted

ELEMENTS = 119  # atomic numbers from 0, which is no element, to 118


@dataclass(frozen=True)
class PotentialSettings(Settings):
    """What a potential can be.

    Args:
        width: Channels of an atom, and filters of the convolutions.
        depth: Number of SchNet's interaction blocks.
        gaussians: Gaussians that a distance is spread over, from 0 to the radius.
    """

    width: Count = 64
    depth: Count = 3
    gaussians: Annotated[int, Bounds(at_least=2)] = 32


class Potential(nn.Module):
    """The energy of every atom, and the force on it: minus the gradient of the energy of all.

    Equation    h_i^(0) = a_(Z_i);  h^(l+1) = SchNet(h^(l), x);  E = Σ_i ε_i, ε_i = MLP(h_i^(L));  F_i = -∂E/∂x_i
    Symbols     embed = a, one vector per element Z; layers = `SchNet`, its cutoff the task's radius; energy = MLP
    Shapes      features [*, N, 2 D + 1] = position x (Å), edges of the periodic cell (Å; 0: open along that axis) and
                atomic number Z -> [*, N, 1 + D] = ε_i (eV) and F_i (eV/Å)
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
        self.settings, self.signature = settings, accepted(self, signature, Atoms, whole_graph=False)
        self.radius = self.signature.radius
        width = settings.width
        self.embed = Embedding(ELEMENTS, width, of="atomic numbers")
        blocks = (SchNet(width, width, settings.gaussians, self.radius) for _ in range(settings.depth))
        self.layers = nn.ModuleList(blocks)
        self.energy = MLP([width, width, 1], "silu")

    def forward(self, graph: Graph, features: Tensor) -> Tensor:
        if torch.is_inference_mode_enabled():  # whose tensors cannot be differentiated
            with torch.inference_mode(False), torch.no_grad():
                return self(graph, features.clone())
        check_nodes(graph, features, self.signature.inputs, name="features")
        x, cell, Z = features.split([self.signature.space, self.signature.space, 1], -1)
        self._check_whole(Z)
        training = torch.is_grad_enabled()
        with torch.enable_grad():
            x = x if x.requires_grad else x.detach().requires_grad_()
            energies = self.energies(graph, x, cell, Z.squeeze(-1).long())
            (slope,) = torch.autograd.grad(energies.sum(), x, create_graph=training)
        return torch.cat([energies, -slope], -1)

    def _check_whole(self, Z: Tensor) -> None:
        if is_real(Z) and bool((wrong := (Z.frac() != 0).flatten()).any()):
            first = int(wrong.nonzero()[0])
            what = f"number {first} of them is {float(Z.flatten()[first]):g}"
            raise ShapeError(f"{self.embed.of} must be whole numbers, but {what}")

    def energies(self, graph: Graph, x: Tensor, cell: Tensor, Z: Tensor) -> Tensor:
        """ε_i [*, N, 1] of atoms Z [*, N] at x [*, N, D], each in its cell [*, N, D]."""
        h, box = self.embed(Z), None
        if not is_real(cell) or bool((cell > 0).any()):
            box = ends(graph, torch.where(cell > 0, cell, torch.inf))[0]
        for layer in self.layers:
            h = layer(graph, h, x, box)
        return self.energy(h)
