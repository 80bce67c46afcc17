import json
import sys

import numpy as np
import pytest
import torch

from edgewise.data.splits import fixed
from edgewise.deployment.answering import answers
from edgewise.deployment.interface import Exportable
from edgewise.deployment.program import standard
from edgewise.models import Potential, PotentialSettings
from edgewise.tasks import molecular_dynamics as task_named
from edgewise.tasks.particles.atoms import CALCULATORS, KINETIC, EnergiesAndForces, Frames, drift, simulate

ase = pytest.importorskip("ase")
units = pytest.importorskip("ase.units")


def copper(count=3):
    """Some copper atoms in a row, not quite at rest."""
    atoms = ase.Atoms(f"Cu{count}", [[2.5 * k, 0.1 * (k % 2), 0] for k in range(count)])
    atoms.set_velocities(np.random.RandomState(0).randn(count, 3) * 0.005 / units.fs)
    return atoms


def test_atoms_move_as_newton_wants():
    """Velocity Verlet written out in Å, fs, u and eV."""
    atoms, emt = copper(), CALCULATORS["emt"]()
    made = simulate(atoms, emt, frames=4, every=2, step=3.0)
    x, v, m = atoms.get_positions(), made.velocities[0].numpy(), atoms.get_masses()[:, None] * KINETIC

    def force(x):
        body = ase.Atoms(atoms.numbers, x, calculator=CALCULATORS["emt"]())
        return body.get_forces(), body.get_potential_energy()

    for frame in range(4):
        f, energy = force(x)
        assert np.allclose(made.positions[frame], x, atol=1e-9) and np.allclose(made.velocities[frame], v, atol=1e-9)
        assert np.allclose(made.forces[frame], f, atol=1e-7) and made.energies[frame] == pytest.approx(energy)
        assert made.kinetic[frame] == pytest.approx(float((0.5 * m * v**2).sum()))
        for _ in range(2):
            v = v + 1.5 * force(x)[0] / m
            x = x + 3.0 * v
            v = v + 1.5 * force(x)[0] / m
    assert np.array_equal(atoms.get_positions(), copper().get_positions())


class Springs(pytest.importorskip("ase.calculators.calculator").Calculator):
    """A calculator of one's own: each atom hangs on a spring at the origin."""

    implemented_properties = ("energy", "forces")

    def calculate(self, atoms=None, properties=None, system_changes=()):
        super().calculate(atoms, properties, system_changes)
        x = self.atoms.get_positions()
        self.results = {"energy": 0.5 * (x**2).sum(), "forces": -x}


def test_any_calculator_moves_atoms_and_a_bath_has_its_temperature():
    atoms = ase.Atoms("Ar20", np.zeros((20, 3)))
    made = simulate(atoms, Springs(), 150, every=5, step=5.0, temperature=100.0, seed=1)
    repeated = simulate(atoms, Springs(), 3, every=5, step=5.0, temperature=100.0, seed=1)
    assert torch.equal(made.positions[:3], repeated.positions)
    assert torch.equal(made.forces, -made.positions)
    temperature = float(made.kinetic[30:].mean()) / (1.5 * 20 * units.kB)
    assert 85 < temperature < 115


def test_drift_is_what_the_total_energy_does():
    still = torch.zeros(5, 1, 3, dtype=torch.float64)
    v = still.clone()
    v[..., 0] = (2 * 0.5 / KINETIC) ** 0.5  # kinetic energy 0.5 eV
    energies = torch.tensor([1.0, 1.1, 1.2, 1.3, 1.4], dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    changed = drift(Frames(one.long(), one, torch.zeros(3), still, v, still, energies))
    assert (changed.largest, changed.trend) == (pytest.approx(0.4), pytest.approx(0.4))
    assert (changed.kinetic, changed.total) == (pytest.approx(0.5), pytest.approx(1.5))


module = sys.modules["edgewise.tasks.particles.atoms"]
STEPS = {"training": 2, "held_out": 1, "frames": 3}


@pytest.fixture
def quick(cache, monkeypatch):
    monkeypatch.setattr(module, "WARM_UP", 1)
    monkeypatch.setattr(module, "EVERY", 3)


def test_frames_hold_what_the_calculator_says(quick):
    task = task_named(**STEPS)
    assert task.frames.positions.shape == (4, 3, 13, 3)
    for request in ("train:0", "train:5", "test:2"):
        atoms = task.atoms(request)
        atoms.calc = CALCULATORS["emt"]()
        row = task.target[task.frame(request)]
        assert np.allclose(row[:, 1:], atoms.get_forces(), atol=1e-5)
        assert float(row[0, 0] + task.zero) * 13 == pytest.approx(atoms.get_potential_energy(), abs=1e-4)
        number = task.frame(request)
        kinetic = float(task.frames.kinetic.flatten()[number])
        assert atoms.get_kinetic_energy() == pytest.approx(kinetic)


def test_splits_share_no_trajectory_and_the_seed_decides(quick):
    task, other = task_named(**STEPS), task_named(**STEPS, seed=1)
    assert {split: rows.tolist() for split, rows in task.splits.items()} == {
        "train": [0, 1, 2, 3, 4, 5],
        "valid": [6, 7, 8],
        "test": [9, 10, 11],
    }
    assert len({tuple(x) for x in task.places.flatten(1).tolist()}) == 12
    assert not torch.equal(task.places, other.places)


def made(count=6, atoms=4) -> EnergiesAndForces:
    """Frames that nobody simulated: the first four train."""
    random = torch.Generator().manual_seed(0)
    x, v, f = (torch.randn(count, 1, atoms, 3, dtype=torch.float64, generator=random) for _ in range(3))
    energies = torch.randn(count, 1, dtype=torch.float64, generator=random)
    masses = torch.ones(atoms, dtype=torch.float64)
    frames = Frames(torch.full((atoms,), 29), masses, torch.zeros(3).double(), x, v, f, energies)
    splits = {"train": torch.arange(4), "valid": torch.tensor([4]), "test": torch.tensor([4, 5])}
    return EnergiesAndForces("made", frames, splits, 2.0)


class Guess(torch.nn.Module):
    def forward(self, graph, x):
        return torch.cat([x[:, :1], x[:, :3]], -1)


def test_batches_losses_and_scores():
    task = made()
    batch = task.train_batch(3, torch.Generator().manual_seed(0))
    assert batch.x.shape == (12, 7) and batch.target.shape == (12, 4) and batch.graph.sizes.tolist() == [4, 4, 4]
    assert torch.equal(batch.graph.senders // 4, batch.graph.receivers // 4)
    outputs = Guess()(batch.graph, batch.x)
    score = task.score(outputs, batch)
    assert score["count"] == 3
    assert torch.allclose((score["loss"] / 3).float(), task.loss(outputs, batch))
    total, forces = outputs[:, 0].view(3, 4).sum(1), outputs[:, 1:]
    energy = (total - batch.target[:, 0].view(3, 4).sum(1)) / 4
    expected = 0.1 * energy.square().mean() / task.energy_scale**2
    expected += (forces - batch.target[:, 1:]).square().mean() / task.force_scale**2
    assert torch.allclose(task.loss(outputs, batch), expected)


def test_errors_are_shares_of_deviations_over_the_whole_split():
    task = made()
    sums = {}
    for batch in task.batches("train", 3):  # of 3 and of 1
        for name, value in task.score(Guess()(batch.graph, batch.x), batch).items():
            sums[name] = sums.get(name, 0) + value
    count = sums.pop("count")
    told = task.finish({name: float(value / count) for name, value in sums.items()})
    x, target = task.x[:4], task.target[:4]
    error = (x[..., :3] - target[..., 1:]).square().mean().sqrt()
    assert told["force_rmse"] == pytest.approx(float(error))
    assert told["force_error"] == pytest.approx(float(error / target[..., 1:].square().mean().sqrt()))
    energy = (x[..., 0].mean(1) - target[:, 0, 0]).square().mean().sqrt()
    assert told["energy_rmse"] == pytest.approx(float(energy))
    assert told["energy_error"] == pytest.approx(float(energy / target[:, 0, 0].std(correction=0)))


def test_a_prediction_stands_beside_the_simulation():
    task = made()
    answer = task.predict(Guess(), None, "test:1", "cpu")
    assert answer["simulated_forces"] == task.target[5, :, 1:].tolist()
    assert answer["forces"] == task.x[5, :, :3].tolist()
    assert answer["simulated_energy"] == pytest.approx(float(task.frames.energies[5, 0]), abs=1e-5)
    json.dumps(answer)


@pytest.mark.parametrize("edge", [0.0, 9.0])
def test_a_script_answers_for_frames_as_the_task_does(edge, tmp_path):
    draw = torch.Generator().manual_seed(0)
    x = 4 * torch.rand(3, 2, 5, 3, generator=draw, dtype=torch.float64)
    numbers, cell = torch.tensor([29, 29, 28, 29, 28]), torch.tensor([edge, 0.0, edge], dtype=torch.float64)
    frames = Frames(numbers, torch.ones(5), cell, x, x, -x, x.square().sum((-1, -2)))
    task = EnergiesAndForces("two metals", frames, fixed(1, 1, 1), radius=4.0)
    model = Potential(PotentialSettings(width=8, depth=1), task.signature).eval()
    alone = task.alone(model, None)
    wrapped = Exportable(alone.model, alone.call[0], ("features",)).eval()
    about = {"preprocessing": task.preprocessing(), "inputs": [*wrapped.inputs(*alone.call)]}

    def call(arrays):
        given = {name: torch.from_numpy(arrays[name]) for name in about["inputs"]}
        with standard():
            return {name: y.detach().numpy() for name, y in wrapped(**given).items()}

    atoms = task.atoms("test:0")
    pytest.importorskip("ase.io").write(tmp_path / "a.xyz", atoms, format="extxyz")
    (said,) = answers(call, about, tmp_path / "a.xyz")
    graph, *features = task.seen(atoms)
    energies, forces = task.told(model(graph, *(one.float() for one in features)).detach(), numbers)
    assert said["energy"] == pytest.approx(float(energies.sum()), rel=1e-5)
    assert np.array(said["forces"]) == pytest.approx(forces.numpy(), rel=1e-4, abs=1e-5)
    atoms.set_cell([9, 7, 9])
    atoms.pbc = True
    pytest.importorskip("ase.io").write(tmp_path / "a.xyz", atoms, format="extxyz")
    with pytest.raises(ValueError, match="this file reads atoms in "):
        [*answers(call, about, tmp_path / "a.xyz")]
