import numpy as np
import pytest
import torch

from edgewise import ConfigError, Graph, GraphError
from edgewise.errors import CheckpointError
from edgewise.models import Potential, PotentialSettings
from edgewise.tasks.particles.atoms import EnergiesAndForces, Frames, drift, simulate
from edgewise.training import Choice, LoadedRun, RunConfig
from edgewise.training.calculator import calculator

ase = pytest.importorskip("ase")
CONFIG = RunConfig(Choice("molecular-dynamics"), Choice("potential"))


@pytest.fixture
def loaded():
    """A potential with random weights, as if it had been trained on copper."""
    x = torch.randn(2, 1, 3, 3, dtype=torch.float64)
    copper = torch.full((3,), 29), torch.full((3,), 63.5).double(), torch.zeros(3).double()
    frames = Frames(*copper, x, x, x, torch.tensor([[9.0], [12.0]]).double())
    task = EnergiesAndForces("made", frames, {"train": torch.arange(2)}, 3.0)
    model = Potential(PotentialSettings(width=8, depth=2, gaussians=8), task.signature)
    with torch.no_grad():
        model.energy.linears[1].weight.mul_(50)
    return LoadedRun(CONFIG, task, None, model)


def cluster():
    return ase.Atoms("Cu5", np.random.RandomState(0).rand(5, 3) * 4)


def test_it_says_what_the_model_says(loaded):
    atoms = cluster()
    atoms.calc = calculator(loaded)
    graph = torch.cdist(*[torch.from_numpy(atoms.positions)] * 2) <= 3
    edges = (graph & ~torch.eye(5, dtype=torch.bool)).nonzero().T
    x = torch.cat([torch.from_numpy(atoms.positions), torch.zeros(5, 3), torch.full((5, 1), 29.0)], -1)
    assert {w.dtype for w in loaded.model.parameters()} == {torch.float32}  # the calculator has a copy
    y = loaded.model.double()(Graph.from_edge_index(edges, num_nodes=5), x).detach()
    assert loaded.task.zero == 3.5
    assert np.allclose(atoms.get_potential_energies(), y[:, 0] + 3.5)
    assert atoms.get_potential_energy() == pytest.approx(float(y[:, 0].sum()) + 5 * 3.5)
    assert np.allclose(atoms.get_forces(), y[:, 1:])


def test_forces_are_those_of_the_energy(loaded):
    """ASE's own central differences."""
    from ase.calculators.fd import calculate_numerical_forces

    atoms = cluster()
    atoms.calc = calculator(loaded)
    assert np.abs(atoms.get_forces()).max() > 0.5
    assert np.abs(atoms.get_forces() - calculate_numerical_forces(atoms, eps=1e-4)).max() <= 1e-6


def test_a_periodic_body_has_no_place_of_its_own(loaded):
    atoms = ase.Atoms("Cu8", np.random.RandomState(0).rand(8, 3) * 6.5, cell=[6.5, 7, 8], pbc=True)
    atoms.calc = calculator(loaded)
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    atoms.positions += [3.0, -2.0, 5.0]
    atoms.wrap()
    assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-9) and np.allclose(atoms.get_forces(), forces)
    twice = atoms.repeat((2, 1, 1))
    twice.calc = calculator(loaded)
    assert twice.get_potential_energy() == pytest.approx(2 * energy)
    atoms.cell[0, 0] = 5.0
    with pytest.raises(GraphError, match="half of the cell's shortest edge"):
        atoms.get_potential_energy()


def test_a_trajectory_at_constant_energy_keeps_it(loaded):
    """Atoms cross the radius on their way: the forces must be continuous there."""
    atoms = cluster()
    atoms.positions *= 1.2
    found = simulate(atoms, calculator(loaded), frames=120, step=1.0)
    r = torch.cdist(found.positions, found.positions)
    assert len({int((frame <= 3).sum()) for frame in r}) > 1
    told = drift(found)
    assert told.kinetic > 0.1 and told.largest < 0.01 * told.kinetic
    assert (found.velocities[-1] * found.masses[:, None]).sum(0).abs().max() < 1e-9


def test_what_is_no_potential_or_was_never_seen_is_refused(loaded, tmp_path):
    atoms = ase.Atoms("CuNi", [[0, 0, 0], [2, 0, 0]])
    atoms.calc = calculator(loaded)
    with pytest.raises(ConfigError, match=r"\[29\], not on \[28\]"):
        atoms.get_potential_energy()
    with pytest.raises(ConfigError, match="needs a potential"):
        calculator(LoadedRun(CONFIG, loaded.task, None, torch.nn.Linear(1, 1)))
    with pytest.raises(CheckpointError, match="not a run folder"):
        calculator(tmp_path)
