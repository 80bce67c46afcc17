"""Trajectories of particles of one's own: files, parts, scores beside going straight on, and roll-outs to a file."""

import csv
import shutil

import numpy as np
import pytest
import torch

import edgewise
from edgewise.data.splits import SPLITS
from edgewise.deployment import predict_file
from edgewise.errors import DataError
from edgewise.tasks import trajectories
from edgewise.training import Choice, RunConfig, TrainSettings, evaluate, load_run, train
from edgewise.training.simple import best_simple

FALL = np.array([0.0, -0.02])  # of the velocity, in each frame


def positions(number, frames=12):
    """Particles that fall freely, some more than others."""
    draw, t = np.random.default_rng(number), np.arange(frames)[:, None, None]
    x, v = draw.uniform(2, 4, (3 + number % 2, 2)), draw.normal(size=(3 + number % 2, 2)) * 0.1
    return x + t * v + t * (t - 1) / 2 * FALL


@pytest.fixture
def folder(tmp_path):
    (place := tmp_path / "mine").mkdir()
    for number in range(6):
        x = positions(number)
        kinds = np.array(["a", "b", "a", "b"][: x.shape[1]])
        np.savez(place / f"{number}.npz", positions=x, kinds=kinds, box=[9.0, 9.0])
    return place


class Newton(torch.nn.Module):
    """The right answer: all fall alike."""

    def __init__(self, reach):
        super().__init__()
        self.fall = torch.nn.Parameter(torch.from_numpy(FALL / reach).float())

    def forward(self, graph, x):
        return x[:, :2] + x[:, 2:4] + self.fall


def test_scores_are_those_of_going_straight_on_and_of_a_perfect_model(folder):
    task = trajectories(str(folder), history=3)
    assert task.epoch_size == sum(12 - 4 for _ in task.splits["train"])
    perfect = Newton(task.reach)
    found = evaluate(perfect, task, "test", 5)
    assert found["constant_velocity_rmse"] == pytest.approx(0.02, rel=1e-4) and found["rmse"] < 1e-5
    steps = np.arange(1, 9)
    straight = np.sqrt(np.mean((0.02 * steps * (steps + 1) / 2) ** 2))
    assert found["rollout_constant_velocity_rmse"] == pytest.approx(straight, rel=1e-6)
    assert found["rollout_rmse"] < 1e-4
    simple = best_simple(task)
    assert (simple.name, simple.test) == ("constant velocity", pytest.approx(0.02, rel=1e-6))


def test_walls_are_far_in_open_space_and_kinds_are_features(folder):
    closed = trajectories(str(folder), history=3, radius=2.0)
    batch = closed.batch(torch.tensor([[0, 5], [1, 5]]), None)
    assert batch.graph.sizes.tolist() == [3, 4] and len(batch.x) == 7
    assert batch.x[:, -2:].argmax(1).tolist() == [0, 1, 0, 0, 1, 0, 1]
    assert batch.target[0].numpy() == pytest.approx(positions(0)[5, 0] / 2.0, rel=1e-6)
    opened = trajectories(str(folder), history=3, radius=2.0, box=(float("inf"), 9.0))
    near = opened.batch(torch.tensor([[0, 5]]), None).x[:, 10:14]
    assert (near[:, [0, 2]] == 1).all() and near.isfinite().all()


def test_a_table_and_extended_xyz_are_read_as_arrays_are(folder, tmp_path):
    pytest.importorskip("ase")
    rows, frames = ["trajectory,step,particle,kind,x,y,z"], []
    x = np.pad(positions(1), ((0, 0), (0, 0), (0, 1)), constant_values=0.5)
    for step, places in enumerate(x):
        lines = [",".join(map(repr, place)) for place in places.tolist()]
        rows += [f"one,{step},p{n},{'HOHO'[n]},{line}" for n, line in enumerate(lines)][::-1]
        frames += ["4", "Properties=species:S:1:pos:R:3"]
        frames += [f"{'HOHO'[n]} {line.replace(',', ' ')}" for n, line in enumerate(lines)]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    (tmp_path / "t.xyz").write_text("\n".join([*frames, ""]))
    for number in range(6):
        np.savez(folder / f"{number}.npz", positions=x, kinds=np.array([*"HOHO"]))
    task = trajectories(str(folder))
    for name in ("t.csv", "t.xyz"):
        (read,) = task.elsewhere(tmp_path / name).all
        assert read.kinds == ("H", "O", "H", "O") and read.positions == pytest.approx(x, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"positions": np.zeros((4, 2, 2))}, "0: 4 frames of 2 particles, of at least 5"),
        ({"positions": np.full((9, 2, 2), np.nan)}, "0: positions must be finite"),
        ({"positions": np.zeros((9, 2, 3))}, r"all have 2 axes, or all have 3"),
        ({"positions": np.zeros((9, 2, 2)), "kinds": np.array(["a"])}, "kinds must be those of 2 particles"),
        ({"positions": np.zeros((9, 2, 2)), "box": np.array([1.0, -1.0])}, "give 2 edges above 0"),
    ],
)
def test_what_cannot_be_read_is_named(folder, change, said):
    np.savez(folder / "0.npz", **change)
    with pytest.raises(DataError, match=said):
        trajectories(str(folder), history=3)


def test_a_run_rolls_out_a_new_start_after_its_files_are_gone(folder, tmp_path):
    task = Choice("trajectories", {"folder": str(folder), "history": 3, "steps": 6})
    model = Choice("simulator", {"width": 8, "depth": 1})
    train(RunConfig(task, model, train=TrainSettings(steps=2, batch=4)), tmp_path / "run", progress=False)
    before = edgewise.load(tmp_path / "run").predict(["test:0"])
    shutil.rmtree(folder)
    trained = edgewise.load(tmp_path / "run")
    assert trained.predict(["test:0"]) == before and {*before[0]["rmse_after_steps"]} == {1, 6}
    folder.mkdir()
    np.savez(folder / "start.npz", positions=positions(7, 4), kinds=np.array([*"abab"]))
    assert predict_file(trained, folder / "start.npz", tmp_path / "out.csv") == 4 * (4 + 6)
    rows = [*csv.DictReader((tmp_path / "out.csv").read_text().splitlines())]
    assert [float(rows[0][axis]) for axis in "xy"] == pytest.approx(positions(7)[0, 0].tolist())
    (said,) = trained.predict([str(folder / "start.npz")])
    assert said["last_positions"][3] == pytest.approx([float(rows[-1][axis]) for axis in "xy"], rel=1e-6)
    again = trained.task.elsewhere(tmp_path / "out.csv")  # what it writes is a trajectory that it reads
    assert again.all[0].positions.shape == (10, 4, 2)
    with pytest.raises(DataError, match="gone"):
        evaluate(trained.model, load_run(tmp_path / "run").task, "test", 4)
    np.savez(folder / "start.npz", positions=positions(7), kinds=np.array([*"abac"]))
    with pytest.raises(DataError, match="start: the kinds 'c': those that train are a, b"):
        trained.predict([str(folder / "start.npz")])
    assert {*SPLITS} == {*trained.task.splits}
