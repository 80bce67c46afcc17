import json
import sys

import numpy as np
import pytest
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.tasks import molecular_dynamics as task_named
from edgewise.tasks.core.task import PatternChoice
from edgewise.tasks.particles.molecular_dynamics import CALCULATORS, EnergiesAndForces, Frames, box, drift, simulate

ase = pytest.importorskip("ase")
units = pytest.importorskip("ase.units")
module = sys.modules["edgewise.tasks.particles.molecular_dynamics"]
STEPS = {"training": 2, "held_out": 1, "frames": 3}


@pytest.fixture
def quick(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(module, "WARM_UP", 1)
    monkeypatch.setattr(module, "EVERY", 3)


def copper(count=3):
    """Some copper atoms in a row, not quite at rest."""
    atoms = ase.Atoms(f"Cu{count}", [[2.5 * k, 0.1 * (k % 2), 0] for k in range(count)])
    atoms.set_velocities(np.random.RandomState(0).randn(count, 3) * 0.005 / units.fs)
    return atoms


def test_atoms_move_as_newton_wants():
    """Velocity Verlet written out in Å, fs, u and eV."""
    atoms, emt = copper(), CALCULATORS["emt"]()
    found = simulate(atoms, emt, frames=4, every=2, step=3.0)
    x, v, m = atoms.get_positions(), found.velocities[0].numpy(), atoms.get_masses()[:, None] * module.KINETIC

    def force(x):
        body = ase.Atoms(atoms.numbers, x, calculator=CALCULATORS["emt"]())
        return body.get_forces(), body.get_potential_energy()

    for frame in range(4):
        f, energy = force(x)
        assert np.allclose(found.positions[frame], x, atol=1e-9) and np.allclose(found.velocities[frame], v, atol=1e-9)
        assert np.allclose(found.forces[frame], f, atol=1e-7) and found.energies[frame] == pytest.approx(energy)
        assert found.kinetic[frame] == pytest.approx(float((0.5 * m * v**2).sum()))
        for _ in range(2):
            v = v + 1.5 * force(x)[0] / m
            x = x + 3.0 * v
            v = v + 1.5 * force(x)[0] / m
    assert np.array_equal(atoms.get_positions(), copper().get_positions())


def test_the_unit_of_kinetic_energy_is_ases():
    assert pytest.approx(1 / units.fs**2, rel=1e-7) == module.KINETIC  # theirs is of CODATA 2014
    atoms = copper()
    assert float(simulate(atoms, CALCULATORS["emt"](), 1).kinetic[0]) == pytest.approx(atoms.get_kinetic_energy())


class Springs(pytest.importorskip("ase.calculators.calculator").Calculator):
    """A calculator of one's own: each atom hangs on a spring at the origin."""

    implemented_properties = ("energy", "forces")

    def calculate(self, atoms=None, properties=None, system_changes=()):
        super().calculate(atoms, properties, system_changes)
        x = self.atoms.get_positions()
        self.results = {"energy": 0.5 * (x**2).sum(), "forces": -x}


def test_any_calculator_moves_atoms_and_a_bath_has_its_temperature():
    atoms = ase.Atoms("Ar20", np.zeros((20, 3)))
    found = simulate(atoms, Springs(), 150, every=5, step=5.0, temperature=100.0, seed=1)
    again = simulate(atoms, Springs(), 3, every=5, step=5.0, temperature=100.0, seed=1)
    assert torch.equal(found.positions[:3], again.positions)
    assert torch.equal(found.forces, -found.positions)
    temperature = float(found.kinetic[30:].mean()) / (1.5 * 20 * units.kB)
    assert 85 < temperature < 115


def test_drift_is_what_the_total_energy_does():
    still = torch.zeros(5, 1, 3, dtype=torch.float64)
    v = still.clone()
    v[..., 0] = (2 * 0.5 / module.KINETIC) ** 0.5  # kinetic energy 0.5 eV
    energies = torch.tensor([1.0, 1.1, 1.2, 1.3, 1.4], dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    told = drift(Frames(one.long(), one, torch.zeros(3), still, v, still, energies))
    assert (told.largest, told.trend) == (pytest.approx(0.4), pytest.approx(0.4))
    assert (told.kinetic, told.total) == (pytest.approx(0.5), pytest.approx(1.5))


def test_a_simulation_keeps_its_energy_and_a_longer_step_less_so():
    found = [drift(simulate(copper(), CALCULATORS["emt"](), 60, step=step)) for step in (2.0, 8.0)]
    assert found[0].largest < 2e-3 * found[0].kinetic
    assert 8 < found[1].largest / found[0].largest < 24  # of second order in the step


def test_the_box_of_atoms():
    assert box(ase.Atoms("Cu", cell=[4, 5, 6], pbc=[True, False, True])).tolist() == [4, 0, 6]
    assert box(ase.Atoms("Cu")).tolist() == [0, 0, 0]
    assert box(ase.Atoms("Cu", cell=[[4, 1, 0], [0, 5, 0], [0, 0, 6]])).tolist() == [0, 0, 0]
    for atoms in (ase.Atoms("Cu", cell=[[4, 1, 0], [0, 5, 0], [0, 0, 6]], pbc=True), ase.Atoms("Cu", pbc=True)):
        with pytest.raises(ConfigError, match="box along the axes"):
            box(atoms)


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


def test_it_is_simulated_once_and_a_damaged_cache_is_not_believed(quick, tmp_path, monkeypatch):
    task, again, calls = task_named(**STEPS), simulate, []
    (cached,) = (tmp_path / ".cache" / "edgewise" / "molecular-dynamics").iterdir()
    monkeypatch.setattr(module, "simulate", lambda *args: calls.append(1) or again(*args))
    assert torch.equal(task_named(**STEPS, radius=4.0).x, task.x)
    assert not calls
    cached.write_bytes(cached.read_bytes()[:-100])
    assert torch.equal(task_named(**STEPS).target, task.target)
    assert len(calls) == 4


def test_a_crystal_has_no_surface(quick):
    task = task_named(body="crystal", radius=3.5, training=1, held_out=1, frames=2)
    assert task.frames.cell.tolist() == pytest.approx([7.22] * 3)
    assert 11 < task.frame_graph(0).num_edges / 32 < 14  # the 12 nearest; without periodicity half of them were missing
    assert task.frames.forces.sum(-2).abs().max() < 1e-9


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


def test_a_batch_is_cut_between_frames():
    task = made()
    batch = task.train_batch(4, torch.Generator().manual_seed(0))
    parts = batch.split(3)
    assert [len(part.x) for part in parts] == [4, 4, 8]
    outputs = Guess()(batch.graph, batch.x)
    mean = sum(part.size * task.loss(Guess()(part.graph, part.x), part) for part in parts) / batch.size
    assert torch.allclose(mean, task.loss(outputs, batch))


def test_a_pattern_may_stand_for_the_radius_graph():
    task = made()
    (batch,) = task.batches("train", 4, PatternChoice("complete"))
    assert batch.graph.num_edges == 4 * 16


def test_a_prediction_stands_beside_the_simulation():
    task = made()
    answer = task.predict(Guess(), None, "test:1", "cpu")
    assert answer["simulated_forces"] == task.target[5, :, 1:].tolist()
    assert answer["forces"] == task.x[5, :, :3].tolist()
    assert answer["simulated_energy"] == pytest.approx(float(task.frames.energies[5, 0]), abs=1e-5)
    json.dumps(answer)
    for request in ("test:2", "valid:-1", "7", "all"):
        with pytest.raises(DataError):
            task.predict(Guess(), None, request, "cpu")


def test_a_model_that_gives_no_forces_is_refused():
    task = made()
    batch = task.train_batch(2, torch.Generator())
    with pytest.raises(ConfigError, match="choose potential"):
        task.loss(batch.x[:, :3], batch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"training": 0}, "training"),
        ({"held_out": 0}, "held_out"),
        ({"frames": 0}, "frames"),
        ({"size": 0}, "size"),
        ({"seed": -1}, "seed"),
        ({"temperatures": ()}, "temperatures"),
        ({"temperatures": (float("nan"),)}, "temperatures"),
        ({"element": "Fe"}, "element"),
        ({"body": "cube"}, "body"),
        ({"calculator": "os.system"}, "calculator"),
        ({"radius": 0.0, **STEPS}, "radius"),
    ],
)
def test_impossible_options_are_refused(options, message, quick):
    with pytest.raises(ConfigError, match=message):
        task_named(**options)


def test_an_impossible_simulation_is_refused():
    for wrong in ({"frames": 0}, {"every": 0}, {"step": 0.0}, {"temperature": -1.0}):
        with pytest.raises(ConfigError, match="impossible"):
            simulate(copper(), CALCULATORS["emt"](), **{"frames": 2} | wrong)
