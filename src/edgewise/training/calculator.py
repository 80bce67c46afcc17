"""A trained potential as an ASE calculator: energies and forces for ASE's dynamics."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from edgewise.errors import ConfigError, EdgewiseError, installing
from edgewise.models import Potential
from edgewise.tasks.particles.atoms import EnergiesAndForces
from edgewise.training.runs import LoadedRun, load_run


def calculator(run: Path | str | LoadedRun) -> Any:
    """An ASE calculator of energies and forces by a run's best weights, in float64.

    Equation    E = Σ_i (ε_i + ε_0), F_i = -∂E/∂x_i, on the radius graph of where the atoms are now
    Symbols     run = a run folder, or what `load_run` gives; ε_0 = the training frames' mean energy of an atom, or of
                one's own frames that of an atom of its element
    Shapes      any number of atoms of the elements that it was trained on -> energy (eV), energies [N], forces [N, 3]
                (eV/Å); of one's own frames in any cell, else in a box whose edges are longer than twice the radius
    Errors      ConfigError for a run that is no potential, an element not trained on or, but for one's own frames, a
                skewed cell; GraphError for a box that is too small
    Cost        a radius graph and a pass forward and backward for each new set of positions
    Reference   Larsen et al., "The atomic simulation environment", 2017
    """
    loaded = run if isinstance(run, LoadedRun) else load_run(run, device="cpu")
    task, model = loaded.task, loaded.model
    if not isinstance(task, EnergiesAndForces) or not isinstance(model, Potential):
        trained = f"{loaded.config.model.name} on {loaded.config.task.name}"
        raise ConfigError(f"a calculator needs a potential, and this run is {trained}: train own-potential, say")
    try:
        from ase.calculators.calculator import Calculator, all_changes
    except ImportError as error:
        raise EdgewiseError(f"a calculator is one of ASE's: {installing('atoms')}") from error
    potential = deepcopy(model).double().eval()
    own: EnergiesAndForces = task

    class PotentialCalculator(Calculator):  # type: ignore[misc]
        implemented_properties = ("energy", "free_energy", "energies", "forces")

        def calculate(self, atoms: Any = None, properties: Any = None, system_changes: Any = all_changes) -> None:
            super().calculate(atoms, properties, system_changes)
            Z, known = torch.from_numpy(self.atoms.numbers).long(), own.elements
            if strange := sorted(set(Z.tolist()) - known):
                raise ConfigError(f"this potential was trained on the elements {sorted(known)}, not on {strange}")
            with torch.no_grad():
                energies, forces = own.told(potential(*own.seen(self.atoms)), Z)
            total, parts = float(energies.sum()), {"energies": energies.numpy(), "forces": forces.numpy()}
            self.results = {"energy": total, "free_energy": total, **parts}

    return PotentialCalculator()
