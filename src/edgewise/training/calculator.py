"""A trained potential as an ASE calculator: energies and forces for ASE's dynamics."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from edgewise.errors import ConfigError, EdgewiseError, installing
from edgewise.graphs import radius_graph
from edgewise.models import Potential
from edgewise.tasks.particles.atoms import EnergiesAndForces, box
from edgewise.training.runs import LoadedRun, load_run


def calculator(run: Path | str | LoadedRun) -> Any:
    """An ASE calculator of energies and forces by a run's best weights, in float64.

    Equation    E = Σ_i (ε_i + ε_0), F_i = -∂E/∂x_i, on the radius graph of where the atoms are now
    Symbols     run = a run folder, or what `load_run` gives; ε_0 = the training frames' mean energy of an atom
    Shapes      any number of atoms of the elements that it was trained on -> energy (eV), energies [N], forces [N, 3]
                (eV/Å); in open space, or in a periodic box whose edges are longer than twice the radius
    Errors      ConfigError for a run that is no potential, an element not trained on or a skewed cell; GraphError for a
                box that is too small
    Cost        a radius graph and a pass forward and backward for each new set of positions
    Reference   Larsen et al., "The atomic simulation environment", 2017
    """
    loaded = run if isinstance(run, LoadedRun) else load_run(run, device="cpu")
    task, model = loaded.task, loaded.model
    if not isinstance(task, EnergiesAndForces) or not isinstance(model, Potential):
        trained = f"{loaded.config.model.name} on {loaded.config.task.name}"
        raise ConfigError(f"a calculator needs a potential, and this run is {trained}: train copper-schnet, say")
    try:
        from ase.calculators.calculator import Calculator, all_changes
    except ImportError as error:
        raise EdgewiseError(f"a calculator is one of ASE's: {installing('atoms')}") from error
    potential, zero, known = deepcopy(model).double().eval(), task.zero, set(task.frames.numbers.tolist())

    class PotentialCalculator(Calculator):  # type: ignore[misc]
        implemented_properties = ("energy", "free_energy", "energies", "forces")

        def calculate(self, atoms: Any = None, properties: Any = None, system_changes: Any = all_changes) -> None:
            super().calculate(atoms, properties, system_changes)
            Z, x, cell = self.atoms.numbers, torch.from_numpy(self.atoms.get_positions()), box(self.atoms)
            if strange := sorted(set(Z.tolist()) - known):
                raise ConfigError(f"this potential was trained on the elements {sorted(known)}, not on {strange}")
            graph = radius_graph(x, potential.radius, cell=torch.where(cell > 0, cell, torch.inf).tolist())
            features = torch.cat([x, cell.expand_as(x), torch.from_numpy(Z)[:, None].double()], -1)
            with torch.no_grad():
                energies, forces = potential(graph, features).split([1, x.shape[1]], -1)
            energies = (energies[:, 0] + zero).numpy()
            total = float(energies.sum())
            self.results = {"energy": total, "free_energy": total, "energies": energies, "forces": forces.numpy()}

    return PotentialCalculator()
