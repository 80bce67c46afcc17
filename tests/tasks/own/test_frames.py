"""Frames of atoms of one's own: extended XYZ and tables, their parts, what trains, and what is said of others."""

from pathlib import Path

import numpy as np
import pytest
import torch

import edgewise
from edgewise.errors import ConfigError, DataError
from edgewise.tasks import atom_frames
from edgewise.training import Choice, LoadedRun, RunConfig, TrainSettings, train
from edgewise.training.calculator import calculator
from edgewise.training.simple import best_simple

ase = pytest.importorskip("ase")
io = pytest.importorskip("ase.io")
ALONE = {"H": -3.0, "O": -40.0}  # eV
WATER, PAIR = ["O", "H", "H"], ["O", "H"]


def frame(number: int, periodic: bool = False, forces: bool = True):
    """A water molecule or a pair of atoms, whose energy is that of its atoms and of a spring for each coordinate."""
    from ase.calculators.singlepoint import SinglePointCalculator

    symbols = WATER if number % 2 else PAIR
    x = np.random.default_rng(number).normal(size=(len(symbols), 3))
    atoms = ase.Atoms(symbols, x, cell=[[3, 0, 0], [1, 3, 0], [0, 0, 3]] if periodic else None, pbc=periodic)
    known = {"energy": sum(ALONE[symbol] for symbol in symbols) + 0.01 * number}
    atoms.calc = SinglePointCalculator(atoms, **known, **({"forces": -x} if forces else {}))
    return atoms


def xyz(path: Path, numbers=range(10), **options) -> str:
    io.write(path, [frame(number, **options) for number in numbers], format="extxyz")
    return str(path)


def test_energies_are_counted_from_those_of_atoms_and_forces_are_over_their_strength(tmp_path):
    task = atom_frames(xyz(tmp_path / "a.xyz"), radius=2.0)
    train = task.splits["train"].tolist()
    symbols = [frame(n).get_chemical_symbols() for n in train]
    counts = np.array([[one.count("H"), one.count("O")] for one in symbols])
    energies = np.array([frame(n).get_potential_energy() for n in train])
    alone = np.linalg.lstsq(counts, energies, rcond=None)[0]
    strength = np.sqrt(np.concatenate([frame(n).get_forces() for n in train]).ravel().__pow__(2).mean())
    assert task.atomic[[1, 8]].tolist() == pytest.approx(alone) and task.scale == pytest.approx(strength)
    batch = task.batch(torch.tensor([3, 4]), None)
    left = [frame(n).get_potential_energy() - counts_of @ alone for n, counts_of in ((3, [2, 1]), (4, [1, 1]))]
    assert batch.target[[0, 3], 0].tolist() == pytest.approx([left[0] / 3 / strength, left[1] / 2 / strength], rel=1e-4)
    assert batch.target[3:, 1:].numpy() == pytest.approx(frame(4).get_forces() / strength, rel=1e-5)
    energies, _ = task.told(batch.target[:3], torch.tensor([8, 1, 1]))
    assert float(energies.sum()) == pytest.approx(frame(3).get_potential_energy(), abs=1e-4)
    assert any("H -" in line and "least squares" in line for line in task.summary)


def test_scores_are_mean_errors_over_what_is_known(tmp_path):
    file = tmp_path / "a.xyz"
    io.write(file, [frame(n, forces=n != 4) for n in range(10)], format="extxyz")
    task = atom_frames(str(file), radius=2.0)
    numbers = torch.tensor([3, 4])
    batch = task.batch(numbers, None)
    outputs = torch.randn(5, 4)
    sums = task.score(outputs, batch)
    count = float(sums.pop("count"))
    found = task.finish({name: float(value) / count for name, value in sums.items()})
    Z = [torch.tensor([8, 1, 1]), torch.tensor([8, 1])]
    said = [task.told(part, z) for part, z in zip(outputs.split([3, 2]), Z, strict=True)]
    energy = [float(said[k][0].sum()) - frame(n).get_potential_energy() for k, n in ((0, 3), (1, 4))]
    each = np.array(energy) / [3, 2] * 1000
    force = (said[0][1].numpy() - frame(3).get_forces()) * 1000
    wanted = {"energy_mae": np.abs(each).mean(), "energy_rmse": np.sqrt((each**2).mean())}
    wanted |= {"force_mae": np.abs(force).mean(), "force_rmse": np.sqrt((force**2).mean())}
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-4)
    one, other = task.answers(outputs, batch)
    assert (one.weights.tolist(), other.weights.tolist()) == ([1, 1], [9, 0])
    assert float(other.figures["force_mae"][0]) == pytest.approx(wanted["force_mae"], rel=1e-4)
    assert task.loss(outputs, batch).isfinite()


def test_the_simple_method_says_the_energy_of_the_atoms_alone(tmp_path):
    task = atom_frames(xyz(tmp_path / "a.xyz"), radius=2.0)
    simple = best_simple(task)
    forces = np.concatenate([frame(n).get_forces() for n in task.splits["test"].tolist()])
    assert simple.metric == "force_mae" and simple.test == pytest.approx(1000 * np.abs(forces).mean(), rel=1e-4)


def test_a_table_of_atoms_is_read_as_extended_xyz_is(tmp_path):
    rows = ["frame,element,x,y,z,fx,fy,fz,energy,cell,pbc"]
    for n in range(10):
        atoms = frame(n, periodic=True)
        cell = " ".join(map(repr, np.ravel(atoms.cell).tolist()))
        for k in range(len(atoms)):
            numbers = [*atoms.positions[k].tolist(), *atoms.get_forces()[k].tolist(), atoms.get_potential_energy()]
            rows.append(f"f{n},{atoms.symbols[k]},{','.join(map(repr, numbers))},{cell},T T T")
    (tmp_path / "a.csv").write_text("\n".join(rows))
    table, file = (
        atom_frames(str(tmp_path / "a.csv"), radius=4.0),
        atom_frames(xyz(tmp_path / "a.xyz", periodic=True), radius=4.0),
    )
    ours, theirs = (task.batch(torch.arange(10), None) for task in (table, file))
    for one, other in ((ours.x, theirs.x), (ours.e, theirs.e), (ours.target, theirs.target)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert table.name_of(3) == "f3" and ours.graph.num_edges > 20 * len(ours.x)
    (tmp_path / "a.csv").write_text("\n".join(rows).replace("f1,H", "f1,Xy", 1).replace(",T T T", ",T F T", 1))
    with pytest.raises(DataError) as told:
        atom_frames(str(tmp_path / "a.csv"))
    assert "'Xy' is no element" in str(told.value) and "pbc is 'T T T', and 'T F T' in line 2" in str(told.value)


def test_files_name_the_parts_and_a_fifth_of_those_that_train_chooses_the_weights(tmp_path):
    (
        xyz(tmp_path / "train_300K.xyz"),
        xyz(tmp_path / "test-1.xyz", range(10, 13)),
        xyz(tmp_path / "others.xyz", range(3)),
    )
    task = atom_frames(str(tmp_path))
    assert {split: len(rows) for split, rows in task.splits.items()} == {"train": 8, "valid": 2, "test": 3}
    assert {task.name_of(int(n))[:10] for n in task.splits["test"]} == {"test-1.xyz"}


def test_other_names_of_energies_and_forces_are_found_or_asked_for(tmp_path):
    text = Path(xyz(tmp_path / "a.xyz")).read_text()
    (tmp_path / "b.xyz").write_text(text.replace(":forces:", ":REF_forces:").replace(" energy=", " REF_energy="))
    task = atom_frames(str(tmp_path / "b.xyz"))
    assert torch.equal(task.target, atom_frames(str(tmp_path / "a.xyz")).target)
    (tmp_path / "b.xyz").write_text(text.replace(" energy=", " b_energy=1 a_energy="))
    with pytest.raises(DataError, match=r"which are the energy, of b_energy, a_energy: give --task\.energy NAME"):
        atom_frames(str(tmp_path / "b.xyz"))
    assert atom_frames(str(tmp_path / "b.xyz"), energy="a_energy").metric == "force_mae"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2\n\nH 0 0 0\n", "line 1: the frame has 1 of its 2 atoms"),
        ("1\n\nH 0 0 0\n\n1\n\nH 0 0 x\n", "line 5: no frame of extended XYZ: could not convert"),
        ("1\n\nH 0 0 0\nH 0 0 0\n", "line 4: a frame begins with the number of its atoms, not with 'H 0 0 0'"),
        ("1\nenergy=1\nH 0 0 nan\n", "line 1: positions must be finite numbers"),
        (
            '1\nLattice="1 0 0 2 0 0 0 0 1" pbc="T T T" energy=1\nH 0 0 0\n',
            "line 1: it is periodic along vectors that span",
        ),
        ("1\nProperties=species:S:1:pos:R:3\nH 0 0 0\n", "no frame has an energy: give --task.energy NAME"),
    ],
)
def test_what_cannot_be_read_is_named(text, said, tmp_path):
    (tmp_path / "a.xyz").write_text(text)
    with pytest.raises(DataError, match=said):
        atom_frames(str(tmp_path / "a.xyz"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("frames")
    task = Choice("atom-frames", {"file": xyz(place / "a.xyz", range(12), periodic=True), "radius": 3.5})
    model = Choice("potential", {"layer": "painn", "width": 8, "depth": 1})
    train(RunConfig(task, model, train=TrainSettings(steps=2, batch=4)), place / "run", progress=False)
    return place / "run"


def test_ase_moves_atoms_by_the_run_as_it_predicts(run):
    atoms, trained = frame(20, periodic=True), edgewise.load(run)
    (said,) = trained.predict([atoms])
    atoms.calc = calculator(run)
    assert atoms.get_potential_energy() == pytest.approx(said["energy"], abs=1e-4)
    assert atoms.get_forces() == pytest.approx(np.array(said["forces"]), abs=1e-4)
    io.write(run.parent / "new.xyz", [atoms, frame(21, periodic=True)], format="extxyz")
    both = trained.predict(run.parent / "new.xyz")
    assert [one["frame"] for one in both] == ["0", "1"] and both[0]["energy"] == pytest.approx(said["energy"], abs=1e-4)
    row = {
        "symbols": atoms.get_chemical_symbols(),
        "positions": atoms.positions,
        "cell": atoms.cell.tolist(),
        "pbc": True,
    }
    assert trained.predict([row])[0]["energy"] == pytest.approx(said["energy"], abs=1e-5)
    twice = atoms.repeat((2, 1, 1))
    twice.calc = calculator(run)
    assert twice.get_potential_energy() == pytest.approx(2 * atoms.get_potential_energy())


def test_a_file_of_the_model_has_energies_and_forces_in_their_units(run):
    trained = edgewise.load(run)
    alone = trained.task.alone(trained.model, None)
    y = alone.model.eval()(*alone.call)
    energies, forces = trained.task.told(trained.model(*alone.call).detach(), alone.call[1][:, -1].long())
    torch.testing.assert_close(y.double(), torch.cat([energies[:, None], forces], -1), rtol=1e-5, atol=1e-4)


def test_what_a_run_cannot_predict_is_said(run):
    trained = edgewise.load(run)
    with pytest.raises(DataError, match="Ni: the frames that train have H, O"):
        trained.predict([ase.Atoms("Ni")])
    with pytest.raises(DataError, match="pbc says along which it is periodic"):
        trained.predict([{"symbols": ["H"], "positions": [[0, 0, 0]], "cell": [3, 3, 3]}])
    with pytest.raises(DataError, match="a frame has elements, and a position of each"):
        trained.predict([{"symbols": ["H"], "positions": [[0, 0]]}])
    with pytest.raises(ConfigError, match="must be 'given'"):
        trained.task.batch(torch.tensor([0]), edgewise.complete)
    assert isinstance(calculator(LoadedRun(None, trained.task, None, trained.model)), object)
