import json
import sys

import numpy as np
import pytest
import torch

from edgewise.errors import DataError
from edgewise.tasks import molecular_dynamics as task_named
from edgewise.tasks.particles.atoms import CALCULATORS, EnergiesAndForces, Frames

ase = pytest.importorskip("ase")
units = pytest.importorskip("ase.units")
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


def test_it_is_simulated_once_and_a_damaged_cache_is_not_believed(quick, cache, monkeypatch):
    task, again, calls = task_named(**STEPS), module.simulate, []
    (cached,) = (cache / "molecular-dynamics").iterdir()
    monkeypatch.setattr(module, "simulate", lambda *args: calls.append(1) or again(*args))
    assert torch.equal(task_named(**STEPS, radius=4.0).x, task.x)
    assert not calls
    cached.write_bytes(cached.read_bytes()[:-100])
    assert torch.equal(task_named(**STEPS).target, task.target)
    assert len(calls) == 4


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
    for request in ("test:2", "valid:-1", "7", "all"):
        with pytest.raises(DataError):
            task.predict(Guess(), None, request, "cpu")
