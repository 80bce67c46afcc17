"""Trajectories of particles of one's own: files, parts, scores beside going straight on, and roll-outs to a file."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch

import edgewise
from edgewise.data.examples import Asked
from edgewise.data.splits import SPLITS
from edgewise.deployment import answering, predict_file
from edgewise.deployment.trained import Trained
from edgewise.errors import ConfigError, DataError
from edgewise.models.particles.forecast import Particles, ParticlesSettings
from edgewise.models.particles.simulator import Simulator, SimulatorSettings
from edgewise.tasks import trajectories
from edgewise.tasks.own.trajectories import TrajectoryFiles
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
    for number in range(6):
        np.savez(folder / f"{number}.npz", positions=positions(number))
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
        (
            {"positions": np.zeros((9, 2, 2)), "box": np.array([1, np.inf]), "periodic": True},
            "is periodic where it has no edge",
        ),
        ({"positions": np.zeros((9, 2, 2)), "box": [1, 1], "periodic": [True] * 3}, "give 2 truth values, or one"),
        ({"positions": np.zeros((9, 2, 2)), "periodic": [0.5]}, "not a trajectory such as"),
        ({"positions": np.full((9, 2, 2), "a")}, "not a trajectory such as .*Cannot cast"),
    ],
)
def test_what_cannot_be_read_is_named(folder, change, said):
    np.savez(folder / "0.npz", **change)
    with pytest.raises(DataError, match=said):
        trajectories(str(folder), history=3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({8: "3,b,B,0,0\n3,b,B,0,0"}, "particle b is in frame 3 2 times: each is in each once"),
        ({6: None}, "particle b is in frame 2 0 times"),
        ({15: "8,a,A,0,0", 16: "8,b,B,0,0"}, "its frames must be evenly apart, not 1 and 2"),
        ({6: "2,b,C,0,0"}, "particle b changes its kind"),
    ],
)
def test_a_table_lacks_no_particle_and_no_frame(folder, tmp_path, change, said):
    rows = ["step,particle,kind,x,y", *(f"{step},{one},{one.upper()},0,0" for step in range(8) for one in "ab")]
    rows = [change.get(number, row) for number, row in enumerate(rows)]
    (tmp_path / "t.csv").write_text("\n".join(row for row in rows if row))
    with pytest.raises(DataError, match=said):
        trajectories(str(tmp_path / "t.csv"), history=3)


def periodic(folder, flags=True, **options):
    """Films in a box of unequal sides, in which they are written; the radius is above the shorter one."""
    for number in range(6):
        moved = positions(number) + number
        known = {"kinds": np.array([*"abab"][: moved.shape[1]]), "box": BOX, "periodic": flags}
        np.savez(folder / f"{number}.npz", positions=moved % BOX, **known)
    return trajectories(str(folder), history=3, radius=2.1, **options)


BOX = np.array([2.0, 3.0])


def simulator(task):
    torch.manual_seed(0)
    return Simulator(SimulatorSettings(8, 1, 4), task.signature)


def test_in_a_periodic_box_moves_are_the_shortest_and_each_image_acts_as_a_particle_there(folder, tmp_path):
    task = periodic(folder)
    for one in task.all:
        assert np.diff(one.positions, axis=0) == pytest.approx(np.diff(positions(int(one.name)), axis=0), abs=1e-12)
    one, model = task.all[0], simulator(task)
    tiles = [(a, b) for a in (0, -2, -1, 1, 2) for b in (0, -1, 1)]
    tiled = np.concatenate([one.positions + BOX * tile for tile in tiles], 1)
    np.savez(tmp_path / "tiled.npz", positions=tiled, kinds=np.array(one.kinds * 15), box=[np.inf] * 2, periodic=False)
    whole, count = task.elsewhere(tmp_path / "tiled.npz"), len(one.kinds)
    assert not whole.all[0].periodic.any() and whole.batch(torch.tensor([[0, 9]]), None).e.eq(0).all()
    (alone,), (among,) = task.go_on(model, [0], 1), whole.go_on(model, [0], 1)
    assert alone[-1].numpy() == pytest.approx(among[-1, :count].numpy(), abs=1e-6)
    graph = task.batch(torch.tensor([[0, 9], [1, 9]]), None).graph
    assert (graph.senders == graph.receivers).any()  # its own images act on a particle
    with pytest.raises(ConfigError, match="reads no features of edges"):
        Particles(ParticlesSettings("linear"), task.signature)
    (tmp_path / "walls").mkdir()
    walled = periodic(tmp_path / "walls", [False, True])
    near = walled.batch(torch.tensor([[0, 9]]), None).x[:, 10:14]
    assert (near[:, [1, 3]] == 1).all() and (near[:, [0, 2]] < 1).all()  # x has walls, y has none


def test_a_row_of_json_is_read_as_a_file_and_a_periodic_one_needs_periodic_training(folder, tmp_path):
    task = periodic(folder, steps=2)
    content = np.load(folder / "2.npz")
    row = {name: content[name].tolist() for name in content}
    trained = Trained(simulator(task), task)
    (said,), (other,) = trained.predict([row]), trained.predict([str(folder / "2.npz")])
    assert said["last_positions"] == other["last_positions"] and len(trained.explain(row).nodes) == 3
    with pytest.raises(DataError, match=r"the trajectory: not a trajectory such as .*positions must be"):
        trained.predict([{"kinds": ["a"]}])
    opened = periodic(folder, False)
    with pytest.raises(DataError, match="3 frames of 3 particles, of at least 4"):
        opened.asked(json.dumps(row | {"positions": row["positions"][:3]}))
    with pytest.raises(DataError, match="the trajectory has no pbc: give"):
        opened.asked(json.dumps(row | {"pbc": True}))
    with pytest.raises(DataError, match="its box is periodic, and none of those that train is"):
        opened.asked(json.dumps(row))


def test_cells_of_extended_xyz_are_boxes_along_the_axes_that_stay(tmp_path):
    pytest.importorskip("ase")

    def read(*cells):
        head = 'Lattice="{}" pbc="T T F" Properties=species:S:1:pos:R:3'
        frames = [f"1\n{head.format(cell)}\nH {n} 0 0\n" for n, cell in enumerate(cells)]
        (tmp_path / "a.xyz").write_text("".join(frames))
        return TrajectoryFiles(Asked("films"), history=2).read(tmp_path, None)[1][0]

    box = "2.5 0 0 0 3 0 0 0 9"
    one = read(*[box] * 4)
    assert one.period.tolist() == [2.5, 3, np.inf] and one.positions[:, 0, 0].tolist() == [0, 1, 2, 3]
    (film,) = answering.films_of(tmp_path, {"box": [], "periodic": []})  # the script beside an exported file
    assert all(map(np.array_equal, film, one))
    with pytest.raises(DataError, match="line 10: its periodic cell is another"):
        read(box, box, box, "2.6 0 0 0 3 0 0 0 9")
    with pytest.raises(ValueError, match="must be a box along the axes, the same in each frame"):
        [*answering.films_of(tmp_path, {"box": [], "periodic": []})]
    with pytest.raises(DataError, match="line 1: a periodic cell must be a box along the axes"):
        read(*["2.5 1 0 0 3 0 0 0 9"] * 4)


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
