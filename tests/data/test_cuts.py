"""Cuts of one's own data: which examples train, choose the weights and test, and that each is tested once by folds."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from edgewise.data.record import Settled
from edgewise.data.splits import How, Splits, divided, joined
from edgewise.errors import ConfigError, DataError
from edgewise.tasks import (
    graph_folder,
    knowledge_folder,
    link_folder,
    molecule_table,
    node_folder,
    own_choices,
    parallel_text,
    text_table,
)
from tasks.own.test_graphs import write as write_graphs

DRAW = torch.Generator().manual_seed(0)
CLASSES = torch.cat([torch.zeros(150), torch.ones(40), torch.full((10,), 2)]).long()[
    torch.randperm(200, generator=DRAW)
]
GROUPS = (torch.rand(200, generator=DRAW) ** 2 * 25).long()
UNITS = joined(GROUPS.tolist())


def names_of(values: Tensor, parts: Splits) -> list[set[int]]:
    return [set(values[rows].tolist()) for rows in parts.values()]


@pytest.mark.parametrize("cut", ["random", "stratified", "group", "scaffold"])
@pytest.mark.parametrize("folds", [2, 5])
def test_folds_test_each_example_once_and_another_draw_tests_others(cut: str, folds: int) -> None:
    units = UNITS if cut in ("group", "scaffold") else None

    def parts(fold: int) -> Splits:
        return divided(How(cut, fold, folds, "patient" * (cut == "group")), 200, units, CLASSES)

    tested = torch.cat([parts(fold)["test"] for fold in range(folds)])
    assert tested.sort().values.tolist() == list(range(200))
    for fold in range(folds):
        whole = torch.cat([*parts(fold).values()])
        assert whole.sort().values.tolist() == list(range(200)) and len(parts(fold)["valid"]) > 10
    assert all(torch.equal(parts(1)[split], parts(1)[split]) for split in ("train", "test"))
    assert not torch.equal(parts(0)["test"], parts(folds)["test"])


def test_each_part_and_fold_has_the_same_share_of_each_class() -> None:
    for how in (How("stratified", 3), How("stratified", 3, 5)):
        parts = divided(how, 200, classes=CLASSES)
        assert torch.bincount(CLASSES[parts["test"]]).tolist() == [30, 8, 2]
        assert len(parts["test"]) == 40 and torch.bincount(CLASSES[parts["train"]]).min() >= 6
    lone = torch.tensor([7, *[0] * 10, *[3] * 10])
    assert all(0 in divided(How("stratified", fold), 21, classes=lone)["train"] for fold in range(8))


@pytest.mark.parametrize("cut", ["random", "stratified", "group", "time"])
def test_of_many_examples_more_train(cut) -> None:
    for count, shares in ((990, (0.6, 0.2, 0.2)), (1000, (0.8, 0.1, 0.1))):
        classes, units = torch.arange(count) % 2, torch.arange(count) // 2
        given = {"stratified": {"classes": classes}, "group": {"units": units}, "time": {"times": torch.arange(count)}}
        how = How(cut, group="patient" * (cut == "group"), time="day" * (cut == "time"))
        parts = divided(how, count, **given.get(cut, {}))
        assert [len(rows) for rows in parts.values()] == [round(share * count) for share in shares]


def test_groups_stay_together_whatever_their_sizes_and_no_part_is_empty() -> None:
    for folds in (0, 3):
        for fold in range(3):
            parts = divided(How("group", fold, folds, "patient"), 200, UNITS)
            train, valid, test = names_of(GROUPS, parts)
            assert not (train & valid or train & test or valid & test)
            assert len(parts["test"]) == pytest.approx(200 / (folds or 5), abs=15)
    few = joined([0] * 80 + [1] * 15 + [2] * 5)
    assert sorted(map(len, divided(How("group", 1, group="patient"), 100, few).values())) == [5, 15, 80]
    with pytest.raises(DataError, match="2 different values of patient do not make 3 parts"):
        divided(How("group", group="patient"), 4, joined("aabb"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cut": "group"}, "--task.cut group needs --task.group"),
        ({"cut": "time", "group": "a"}, "--task.group and --task.cut time are different cuts"),
        ({"time": "b", "group": "a"}, "--task.group and --task.time are different cuts"),
        ({"time": "b", "folds": 5}, "a cut by time has one test part: no cross-validation"),
        ({"folds": 1}, "task.folds must be at least 2"),
    ],
)
def test_cuts_that_contradict_one_another_are_refused(options: dict, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        How(**options)


def table(place: Path, rows: int = 60, **columns: str) -> str:
    """Texts of which each is there twice, in other groups and at other times."""
    lines = [
        f"text {n % 40},{'uvw'[n % 3]},g{n % 7},2020-{1 + n % 12:02}-{1 + n % 28:02},{n + 0.5}" for n in range(rows)
    ]
    place.write_text("text,label,site,seen,size\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return str(place)


def parts_of(own: Settled, cells: list[str]) -> list[set[str]]:
    return [{cells[row] for row in rows.tolist()} for rows in own.splits.values()]


def test_equal_texts_stay_together_in_every_cut_and_what_was_done_is_said(tmp_path) -> None:
    file = table(tmp_path / "t.csv")
    for options, told in (
        ({"group": "site"}, "texts cut by site, of which there are "),
        ({"cut": "time"}, "texts by seen: train 2020-01-"),
        ({}, "texts cut with equal shares of each label"),
        ({"folds": 4, "fold": 1}, "texts cut with equal shares of each label, fold 1 of 4 tests"),
        ({"label": "size"}, "texts cut at random"),
    ):
        options = {"label": "label", "level": "character"} | options
        if "group" in options:  # all 40 texts are tied to one another by their sites
            with pytest.raises(DataError, match="different values of site do not make 3 parts"):
                text_table(file, **options)
            options |= {"group": "seen"}
            told = told.replace("site", "seen")
        task = text_table(file, **options)
        train, valid, test = parts_of(task.own, task.own.given.inputs["text"])
        assert not (train & valid or train & test or valid & test), options
        assert any(line.startswith(told) for line in task.summary), task.summary


def test_the_only_column_of_dates_says_when_and_several_are_asked_about(tmp_path) -> None:
    file = Path(table(tmp_path / "t.csv", 40))
    task = text_table(str(file), label="label", level="character", cut="time")
    seen = [line.split(",")[3] for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    train, valid, test = parts_of(task.own, seen)
    assert max(train) < min(valid) and max(valid) < min(test)
    named = text_table(str(file), label="label", level="character", time="size")
    assert named.splits["train"].tolist() == list(range(24))
    text = file.read_text(encoding="utf-8").replace("size", "made").splitlines()
    file.write_text("\n".join([text[0], *(line.rpartition(",")[0] + ",2021-02-03" for line in text[1:])]) + "\n")
    with pytest.raises(DataError, match=r"the columns seen, made hold dates: give --task\.time NAME"):
        text_table(str(file), label="label", cut="time")
    with pytest.raises(DataError, match=r"no column that is read holds dates: give --task\.time NAME"):
        text_table(str(file), label="label", cut="time", ignore="seen,made")
    with pytest.raises(DataError, match="it has no column 'place' of groups of texts"):
        text_table(str(file), label="label", group="place")


def test_parts_of_the_files_are_kept_and_what_is_in_two_of_them_is_said(tmp_path) -> None:
    rows = [f"text {n % 25},{'uv'[n % 2]},{('train', 'valid', 'test')[n // 10]}" for n in range(30)]
    (tmp_path / "t.csv").write_text("text,label,split\n" + "\n".join(rows) + "\n", encoding="utf-8")
    task = text_table(str(tmp_path / "t.csv"), level="character", cut="given")
    assert "5 texts of the test part train too" in task.summary and len(task.splits["test"]) == 10
    for options, asked in (({"folds": 3}, "--folds"), ({"cut": "random"}, "--task.cut random")):
        with pytest.raises(DataError, match=f"name the parts, and {asked} makes others: give --task.ignore split"):
            text_table(str(tmp_path / "t.csv"), **options)
    assert len(text_table(str(tmp_path / "t.csv"), level="character", ignore="split", folds=3).splits["test"]) > 8
    with pytest.raises(DataError, match="the files name no parts"):
        text_table(str(tmp_path / "t.csv"), ignore="split", cut="given")


def test_molecules_of_one_scaffold_are_in_one_part(tmp_path) -> None:
    pytest.importorskip("rdkit")
    rings = ("c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCOC1", "c1ccsc1", "C1CCNCC1", "c1ccoc1", "C1CC1")
    rows = [f"{'C' * (n // 8)}{rings[n % 8]},{'uv'[n % 3 > 0]}" for n in range(48)]
    (tmp_path / "m.csv").write_text("smiles,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    task = molecule_table(str(tmp_path / "m.csv"), cut="scaffold")
    found = [{row % 8 for row in rows.tolist()} for rows in task.splits.values()]
    assert sum(map(len, found)) == 8 == len(set().union(*found))
    assert any(line.startswith("molecules cut by scaffold, of which there are 5 train") for line in task.summary)
    with pytest.raises(ConfigError, match="texts have no scaffolds"):
        text_table(str(tmp_path / "m.csv"), text="smiles", cut="scaffold")


def test_graphs_pairs_and_nodes_are_cut_by_a_column_that_is_no_feature(tmp_path) -> None:
    rows = "".join(f"de {n},el {n},d{n % 6}\n" for n in range(60))
    (tmp_path / "p.csv").write_text("source,target,page\n" + rows, encoding="utf-8")
    pairs = parallel_text(file=str(tmp_path / "p.csv"), level="character", beam=1, group="page")
    assert sum(map(len, parts_of(pairs.own, [f"d{n % 6}" for n in range(60)]))) == 6
    graphs = Path(write_graphs(tmp_path / "graphs"))
    text = (graphs / "graphs.csv").read_text(encoding="utf-8").splitlines()
    names = [text[0] + ";plant", *(f"{line};p{n % 5}" for n, line in enumerate(text[1:]))]
    (graphs / "graphs.csv").write_text("\n".join(names) + "\n", encoding="utf-8")
    task = graph_folder(str(graphs), label="mass", group="plant")
    found = parts_of(task.own, [f"p{n % 5}" for n in range(len(text))])
    assert sum(map(len, found)) == len(set().union(*found)) > 3
    place = tmp_path / "nodes"
    place.mkdir()
    rows = "".join(f"n{n},{n % 5},town {n % 9},{'uv'[n % 2]}\n" for n in range(60))
    (place / "nodes.csv").write_text("id,size,town,label\n" + rows, encoding="utf-8")
    (place / "edges.csv").write_text("source,target\n" + "".join(f"n{n},n{n + 1}\n" for n in range(59)))
    nodes = node_folder(str(place), group="town")
    assert sum(map(len, parts_of(nodes.own, [f"t{n % 9}" for n in range(60)]))) == 9
    assert [column.name for column in nodes.given.x] == ["size"]


def test_folds_of_links_test_each_link_once(tmp_path) -> None:
    (tmp_path / "nodes.csv").write_text("id\n" + "".join(f"n{n}\n" for n in range(20)), encoding="utf-8")
    edges = "".join(f"n{n},n{(n + step) % 20}\n" for n in range(20) for step in (1, 2))
    (tmp_path / "edges.csv").write_text("source,target\n" + edges, encoding="utf-8")
    tested = [
        tuple(pair) for fold in range(4) for pair in link_folder(str(tmp_path), fold=fold, folds=4).cut.test.T.tolist()
    ]
    assert len(tested) == len({*tested}) == 40


def test_folds_of_facts_and_choices_test_each_once_and_choices_may_be_cut_at_one_time(tmp_path) -> None:
    facts = "".join(f"e{n}\tknows\te{(n + step) % 20}\n" for n in range(20) for step in (1, 2))
    (tmp_path / "facts.txt").write_text(facts, encoding="utf-8")
    told = [
        tuple(fact)
        for n in range(4)
        for fact in knowledge_folder(str(tmp_path), fold=n, folds=4).splits["test"].tolist()
    ]
    assert len(told) == len({*told}) == 40
    with pytest.raises(DataError, match="one file names no parts: leave out"):
        knowledge_folder(str(tmp_path), cut="given")
    rows = "".join(f"u{n % 8},i{n},{1000 + n}\n" for n in range(80))
    (tmp_path / "c.csv").write_text("user,item,time\n" + rows, encoding="utf-8")
    tested = torch.cat([own_choices(str(tmp_path / "c.csv"), fold=n, folds=5).splits["test"] for n in range(5)])
    assert len(tested.unique(dim=0)) == len(tested) == 80
    assert own_choices(str(tmp_path / "c.csv"), folds=5).splits["test"][:, 0].bincount().tolist() == [2] * 8
    parts = own_choices(str(tmp_path / "c.csv"), cut="time")
    latest = {parts.choices.items[item] for item in parts.splits["test"][:, 1].tolist()}
    assert latest == {f"i{n}" for n in range(64, 80)}
