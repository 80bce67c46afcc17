import json
import sys

import numpy as np
import pytest
import torch

from edgewise.tasks import nbody as task_named
from edgewise.tasks.particles.nbody import Forecast, Trajectories, draw, simulate

module = sys.modules["edgewise.tasks.particles.nbody"]  # its function has the same name


def one_by_one(q, x, v, steps):
    """The simulation with loops, for one trajectory: x and v [N, 3] after some steps."""
    x, v = x.copy(), v.copy()
    for _ in range(steps):
        force = np.zeros_like(x)
        for i in range(len(q)):
            for j in range(len(q)):
                if i != j:
                    force[i] += q[i] * q[j] * (x[i] - x[j]) / np.linalg.norm(x[i] - x[j]) ** 3
        v = v + 0.001 * force.clip(-100, 100)
        x = x + 0.001 * v
    return x, v


def test_the_simulation_is_the_loop_over_all_pairs():
    q, x, v = draw(3, 5, np.random.RandomState(0))
    x[0, :, 1] = x[0, :, 0] + 0.01  # so near that the force is clipped
    found = simulate(q, x, v, (0, 1))
    for m in range(3):
        for frame in (0, 1):
            place, speed = one_by_one(q[m], x[m].T, v[m].T, 100 * (frame + 1))
            assert np.allclose(found.positions[m, frame], place, atol=1e-9)
            assert np.allclose(found.velocities[m, frame], speed, atol=1e-7)


def test_trajectories_are_drawn_in_the_papers_order():
    """The same calls of the legacy generator as the source makes, noise included."""
    q, x, v = draw(2, 5, np.random.RandomState(43))
    source = np.random.RandomState(43)
    for m in range(2):
        assert np.array_equal(q[m], source.choice([-1.0, 0.0, 1.0], size=(5, 1), p=[0.5, 0, 0.5])[:, 0])
        assert np.array_equal(x[m], source.randn(3, 5))
        direction = source.randn(3, 5)
        assert np.allclose(v[m], direction * 0.5 / np.sqrt((direction**2).sum(0)))
        for _ in range(2):
            source.randn(49, 3, 5)


@pytest.fixture
def task(cache, monkeypatch):
    monkeypatch.setattr(module, "POOL", 40)
    return task_named(training=30, held_out=10, horizon=1)


def test_it_is_simulated_once_and_a_damaged_cache_is_not_believed(task, cache, monkeypatch):
    (cached,) = (cache / "nbody").iterdir()
    again = simulate
    calls = []
    monkeypatch.setattr(module, "simulate", lambda *args: calls.append(1) or again(*args))
    assert torch.equal(task_named(training=30, held_out=10, horizon=1).x, task.x)
    assert not calls
    cached.write_bytes(cached.read_bytes()[:-100])
    assert torch.equal(task_named(training=30, held_out=10, horizon=1).target, task.target)
    assert calls == [1]


def tiny(turned: bool = False) -> Forecast:
    positions, velocities = torch.randn(2, 6, 2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    moving = Trajectories(torch.ones(6, 5, dtype=torch.float64), positions, velocities)
    splits = {"train": torch.arange(4), "valid": torch.tensor([4]), "test": torch.tensor([5])}
    return Forecast("nbody", moving, splits, turned)


class Rest(torch.nn.Module):
    def forward(self, graph, x):
        return x[..., :3]


def test_batches_losses_and_scores():
    task = tiny()
    batch = task.train_batch(3, torch.Generator().manual_seed(0))
    assert batch.x.shape == (3, 5, 7) and batch.target.shape == (3, 5, 3) and batch.graph.num_edges == 20
    assert batch.graph is task.graph()
    outputs = Rest()(batch.graph, batch.x)
    score = task.score(outputs, batch)
    assert torch.allclose((score["mse"] / score["count"]).float(), task.loss(outputs, batch))
    assert [len(b.x) for b in task.batches("train", 3)] == [3, 1]


def test_turned_trajectories_keep_all_lengths_and_angles():
    tasks = tiny(), tiny(turned=True)
    both = [task.train_batch(3, torch.Generator().manual_seed(0)) for task in tasks]
    vectors = [torch.cat([b.x[..., :3], b.x[..., 3:6], b.target], 1) for b in both]
    assert (vectors[0] - vectors[1]).abs().max() > 0.1
    gram = [v @ v.transpose(1, 2) for v in vectors]
    assert torch.allclose(*gram, atol=1e-4)
    assert torch.equal(both[0].x[..., 6:], both[1].x[..., 6:])
    held_out = [next(task.batches("valid", 1)).x for task in tasks]
    assert torch.equal(*held_out)


def test_a_forecast_is_told_beside_the_truth():
    task = tiny()
    answer = task.predict(Rest(), None, "test:0", "cpu")
    assert answer["truth"] == task.target[5].tolist()
    assert answer["forecast"] == task.x[5, :, :3].tolist()
    assert answer["mse"] == pytest.approx((task.x[5, :, :3] - task.target[5]).square().mean().item())
    json.dumps(answer)
