"""Targets, parts and scales: fitted to what trains, or as a run has kept them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from edgewise.data import record
from edgewise.data.examples import Asked, Examples, read_examples
from edgewise.data.record import settle, targets_of
from edgewise.errors import DataError

ASKED = Asked("texts", {"text": ("text",)}, label=("size", "kind"))


def rows_of(place: Path, lines: list[str], asked: Asked = ASKED) -> Examples:
    (place / "t.csv").write_text("\n".join(["id,text,size,kind", *lines]) + "\n", encoding="utf-8")
    return read_examples(place / "t.csv", asked, [])


def lines(count: int = 30) -> list[str]:
    return [
        f"n{n},text {n % 10},{'' if n % 3 == 0 else n + 0.5},{'' if n % 4 == 0 else 'uv'[n % 2]}" for n in range(count)
    ]


def test_what_trains_alone_gives_the_scales_and_equal_texts_stay_together(tmp_path) -> None:
    rows = rows_of(tmp_path, lines())
    own = settle(rows, "", "auto", 0, rows.inputs["text"])
    fitted, splits, changes = own.fitted, own.splits, own.changes
    assert [target.kind for target in fitted.targets] == ["number", "class"] and changes == ()
    values = torch.tensor([n + 0.5 for n in splits["train"].tolist() if n % 3], dtype=torch.float64)
    assert fitted.scales[0] == pytest.approx((values.mean().item(), values.std(correction=0).item()))
    parts = {split: {rows.inputs["text"][row] for row in chosen.tolist()} for split, chosen in splits.items()}
    assert not parts["train"] & parts["test"] and not parts["train"] & parts["valid"]
    assert sum(map(len, splits.values())) == sum(n % 3 != 0 or n % 4 != 0 for n in range(30))  # n12, ... have no target


def test_a_run_s_parts_and_scales_are_taken_whatever_has_become_of_the_file(tmp_path) -> None:
    rows = rows_of(tmp_path, lines())
    own = settle(rows, "", "auto", 0)
    fitted, splits = own.fitted, own.splits
    (tmp_path / "run").mkdir()
    own.keep(tmp_path / "run")
    kept = json.loads((tmp_path / "run" / record.DATA).read_text(encoding="utf-8"))
    assert kept["texts"] == 30 and [one["name"] for one in kept["targets"]] == ["size", "kind"]
    changed = rows_of(tmp_path, [*reversed(lines()), "new,t,9999.5,w"])
    later = settle(changed, str(tmp_path / "run"), "auto", 7)
    again, parts, changes = later.fitted, later.splits, later.changes
    assert again == fitted
    for split in splits:
        names = {changed.names[row] for row in parts[split].tolist()}
        assert names == {rows.names[row] for row in splits[split].tolist()}
    assert any("by which nothing is measured: 1" in change for change in changes)
    assert any("texts with other labels than the run's count as unlabelled: w" in change for change in changes)


def test_numbers_among_which_a_few_cells_are_none_are_a_mistake(tmp_path) -> None:
    rows = rows_of(tmp_path, [*lines(), "m1,a,about 3,u", "m2,b,n.d.,u"])
    with pytest.raises(
        DataError, match=r"size holds numbers with fractions, and 'about 3', 'n\.d\.': empty such cells"
    ):
        targets_of(rows, "auto")
    assert targets_of(rows, "class")[0].kind == "class"


def test_all_doubtful_targets_are_named(tmp_path) -> None:
    rows = rows_of(tmp_path, [f"n{n},t,{n},name {n}" for n in range(30)])
    with pytest.raises(DataError) as caught:
        targets_of(rows, "auto")
    assert "size: 30 different whole numbers in 30 texts" in str(caught.value)
    assert "kind: 30 labels of 30 texts differ" in str(caught.value)


def test_infinity_among_numbers_is_a_mistake(tmp_path) -> None:
    with pytest.raises(DataError, match="size holds numbers with fractions, and 'inf': empty such cells"):
        targets_of(rows_of(tmp_path, [*lines(), "m1,a,inf,u"]), "auto")


def test_what_cannot_be_learned_is_refused_or_said(tmp_path) -> None:
    asked = replace(ASKED, label=("kind",))
    with pytest.raises(DataError, match="kind: all labels are 'u': one class leaves nothing to learn"):
        settle(rows_of(tmp_path, [f"n{n},t{n},1,u" for n in range(30)], asked), "", "auto", 0)
    rows = rows_of(tmp_path, [f"n{n},t{n},1,{'uvw'[n // 10]}" for n in range(30)], asked)
    splits = {"train": torch.arange(12), "valid": torch.arange(12, 16), "test": torch.arange(16, 30)}
    said = settle(replace(rows, splits=splits), "", "auto", 0).changes
    assert said == ("kind: no text that trains is of the class w",)
    rare = rows_of(tmp_path, [f"n{n},t{n},{n + 0.5 if n > 20 else ''},{'uv'[n % 2]}" for n in range(30)])
    with pytest.raises(DataError, match="size: no text that trains has a label"):
        settle(replace(rare, splits=splits), "", "auto", 0)
