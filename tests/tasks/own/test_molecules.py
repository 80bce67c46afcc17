"""Molecules of one's own from a table."""

import json
from pathlib import Path
from typing import Any

import pytest

from edgewise import deployment
from edgewise.apps.command.main import main
from edgewise.errors import DataError
from edgewise.tasks import molecule_table
from edgewise.tasks.graphs.molecules import identity

pytest.importorskip("rdkit")


def write(path: Path, count: int = 40) -> Path:
    tails = ("O", "N", "Cl", "C(=O)O")
    lines = ["Name;Structure;log P;toxic;note"]
    for n in range(count):
        logp, toxic = (
            ("" if n % 7 == 0 else f"{n / 10 + 0.05:.2f}".replace(".", ",")),
            ("" if n % 4 == 0 else "yn"[n % 2]),
        )
        lines.append(f"m{n};{'C' * (1 + n // 4)}{tails[n % 4]};{logp};{toxic};x{n}")
    path.write_text("\n".join(lines) + "\n", encoding="cp1252")
    return path


def test_any_columns_several_targets_and_gaps(tmp_path) -> None:
    task = molecule_table(str(write(tmp_path / "m.csv")), label="log P,toxic")
    assert task.graphs.targets.shape == (40, 3) and task.graphs.targets[1, 0].item() == pytest.approx(0.15)
    assert int(task.graphs.targets[:, 0].isnan().sum()) == 6 and task.name_of(3) == "m3"
    said = "\n".join(task.summary)
    assert "Structure has the smiles" in said and "not read: the columns note" in said
    assert sum(map(len, task.splits.values())) == 38  # m0 and m28 have no target at all
    assert "2 molecules without a label, in no part" in task.summary
    one = molecule_table(str(tmp_path / "m.csv"), label="toxic")
    assert one.classes == ("n", "y") and one.metric == "accuracy" and one.signature.outputs == 2
    bonds = molecule_table(str(tmp_path / "m.csv"), label="log P", bonds=True)
    assert bonds.signature.edges == 8 and bonds.metric == "rmse"


def test_two_spellings_of_one_molecule_are_in_one_part(tmp_path) -> None:
    ways = ("O{}", "[OH:3]{}", "[2H]O{}", "[H]O{}", "[18OH]{}")
    lines = [f"{'C' * (n + 1)}O,{n}.5\n{ways[n % 5].format('C' * (n + 1))},{n}.25" for n in range(20)]
    (tmp_path / "m.csv").write_text("smiles,y\n" + "\n".join(lines) + "\n", encoding="utf-8")
    task = molecule_table(str(tmp_path / "m.csv"))
    part_of = {row: split for split, rows in task.splits.items() for row in rows.tolist()}
    assert all(part_of[2 * n] == part_of[2 * n + 1] for n in range(20))


@pytest.mark.parametrize(
    ("spellings", "others"),
    [
        (("CS(=O)C", "C[S+]([O-])C"), ("CS(=O)(=O)C",)),
        (("CS(=O)(=O)C", "C[S+2]([O-])([O-])C"), ("CSC",)),
        (("CN(=O)=O", "C[N+](=O)[O-]"), ("CN=O",)),
        (("CC(=O)[O-].[Na+]", "[Na+].CC(=O)[O-]", "CC(=O)O[Na]"), ("CC(=O)O", "CC(=O)[O-]")),
        (("[2H]/C=C/F", "C=CF"), ("[H]/C(Cl)=C/F",)),
        (("[H]/C(Cl)=C/F", "Cl/C=C\\F"), ("Cl/C=C/F",)),
        (("Oc1ccccc1", "C1=CC=CC=C1O", "OC=1C=CC=CC1"), ("OC1CCCCC1",)),
        (("C[C@H](N)C(=O)O", "N[C@@H](C)C(=O)O"), ("N[C@H](C)C(=O)O", "NC(C)C(=O)O")),
        (("CC(=O)C",), ("CC(O)=C",)),
        (("CCN.Cl", "Cl.CCN"), ("CCN", "CC[NH3+].[Cl-]")),
    ],
)
def test_what_is_another_spelling_and_what_another_molecule(spellings: Any, others: Any) -> None:
    one = {identity(smiles) for smiles in spellings}
    assert len(one) == 1 and not one & {identity(smiles) for smiles in others}


def test_all_bad_smiles_are_listed_with_other_problems(tmp_path) -> None:
    text = write(tmp_path / "m.csv").read_text(encoding="cp1252").splitlines()
    text[3], text[7], text[9] = text[3].replace("C", "C(", 1), text[7].replace("C", "C1", 1), "m99;C"
    (tmp_path / "m.csv").write_text("\n".join(text) + "\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        molecule_table(str(tmp_path / "m.csv"), label="toxic")
    told = str(caught.value)
    for part in (
        "line 10 does not have 5 columns",
        "line 4: not a molecule in SMILES: 'C(Cl'",
        "line 8: not a molecule",
    ):
        assert part in told
    (tmp_path / "m.csv").write_text(f"smiles,y\n{'C' * 9000},1.5\n", encoding="utf-8")
    with pytest.raises(DataError, match="4,096"):
        molecule_table(str(tmp_path / "m.csv"))
    (tmp_path / "m.csv").write_text("smiles,y\n", encoding="utf-8")
    with pytest.raises(DataError, match="it has no molecules"):
        molecule_table(str(tmp_path / "m.csv"))


def test_new_molecules_are_predicted_from_a_table_or_one_by_one(tmp_path, capsys) -> None:
    options = ("--task.file", str(write(tmp_path / "m.csv")), "--task.label", "log P,toxic", "--train.steps", "2")
    assert main(["train", "own-molecules", *options, "--run", str(tmp_path / "run")]) == 0
    trained = deployment.load(tmp_path / "run")
    by_smiles, by_name = trained.predict(["CCO", "m3"])
    assert by_smiles["smiles"] == "CCO" and set(by_smiles["toxic"]["probabilities"]) == {"n", "y"}
    assert by_name["molecule"] == "m3" and by_name["toxic"]["label"] == "n"
    for request, atoms in (("CCO", ["C0", "C1", "O2"]), ("m3", ["C0", "C1", "O2", "O3"])):
        subject = trained.task.subject(trained.model, None, request)
        assert list(subject.names) == atoms and subject.explained(trained.model)[2] == "log P"
    out = tmp_path / "answers.csv"
    (tmp_path / "new.csv").write_text("Structure,Name\nCCO,ethanol\nCCCl,\n", encoding="utf-8")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new.csv"), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"] == 2
    rows = out.read_text(encoding="utf-8").splitlines()
    assert rows[0].startswith("molecule,smiles,log P.value,toxic.class,toxic.probabilities.n")
    assert rows[1].startswith("ethanol,CCO,") and float(rows[1].split(",")[2]) == pytest.approx(
        by_smiles["log P"]["value"]
    )
