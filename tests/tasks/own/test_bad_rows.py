"""Rows that cannot be read: all are named, or left out and listed."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgewise.apps.command.main import main
from edgewise.errors import DataError
from edgewise.tasks import image_folder, molecule_table, node_folder, text_table


def test_molecules_are_left_out_listed_and_found_again(tmp_path: Path, capsys) -> None:
    rows = "".join(f"{'C' * (n % 9 + 1)}{'ON'[n % 2]},{n / 7:.2f}\n" for n in range(20))
    file, run = tmp_path / "m.csv", tmp_path / "run"
    file.write_text(f"smiles,y\n{rows}C(C)(C)(C)(C)C,1.5\n,2.5\nCCO\n")
    with pytest.raises(DataError) as caught:
        molecule_table(str(file))
    assert [n for n in range(20, 30) if f"line {n}" in str(caught.value)] == [22, 23, 24]
    command = ["train", "own-molecules", "--task.file", str(file), "--train.steps", "1", "--evaluation.simple", "0"]
    assert main([*command, "--bad-rows", "skip", "--run", str(run)]) == 0
    assert "that cannot be read left out (skipped.csv of the run): " in capsys.readouterr().out
    with (run / "skipped.csv").open(newline="") as listed:
        reasons = [row["reason"] for row in csv.DictReader(listed)]
    assert [any(f"line {n}" in reason for reason in reasons) for n in (22, 23, 24)] == [True] * 3 and len(reasons) == 3
    assert main(["evaluate", str(run)]) == 0


def test_texts_without_letters_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    rows = [f"{n},good {n},{'uv'[n % 2]},{part}" for n, part in enumerate(("train", "train", "valid", "test"))]
    file.write_text("\n".join(["id,text,label,split", "a, ,v,train", *rows, "b,,v,test"]) + "\n")
    task = text_table(str(file), level="character", bad_rows="skip")
    assert [task.name_of(number) for number in range(4)] == ["0", "1", "2", "3"]
    assert {split: rows.tolist() for split, rows in task.splits.items()} == {"train": [0, 1], "valid": [2], "test": [3]}


def test_edges_to_no_node_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,age,label\n" + "".join(f"n{n},{n},{'uv'[n % 2]}\n" for n in range(10)))
    edges = "".join(f"n{n},n{(n + 1) % 10},{n}\n" for n in range(10))
    (tmp_path / "edges.csv").write_text(f"source,target,weight\nx,n1,7\n{edges}n1,y,8\nn1\n")
    with pytest.raises(DataError, match="there is no node 'x'"):
        node_folder(str(tmp_path))
    task = node_folder(str(tmp_path), bad_rows="skip", undirected=False, scale="none")
    assert task.graph().num_edges == 10 and sorted(task.nodes.e[:, 0].tolist()) == [*range(10)]
    assert len(task.given.skipped) == 3 and "3 rows that cannot be read left out" in "\n".join(task.summary)


def test_pictures_that_are_damaged_are_left_out(tmp_path: Path) -> None:
    for n in range(12):
        place = tmp_path / "uv"[n % 2]
        place.mkdir(exist_ok=True)
        Image.fromarray(np.full((8, 8), 20 * n, np.uint8)).save(place / f"{n}.png")
    (tmp_path / "u" / "damaged.png").write_bytes(b"none")
    with pytest.raises(DataError, match=r"damaged.png: not a readable picture"):
        image_folder(str(tmp_path))
    task = image_folder(str(tmp_path), bad_rows="skip")
    assert len(task.images.pixels) == 12 and "u/damaged.png" not in [task.name_of(n) for n in range(12)]
