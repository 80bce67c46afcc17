"""What a run keeps of the links of one's own graph, whatever becomes of the files."""

from pathlib import Path

import pytest
import torch

from edgewise import training
from edgewise.errors import DataError
from edgewise.tasks import link_folder
from edgewise.tasks.own.nodes import OwnLinks
from edgewise.training import Choice, RunConfig, TrainSettings, train
from tasks.own.test_links import NODES, write

PARTS = ("train", "valid", "valid_none", "test", "test_none")


@pytest.fixture
def run(tmp_path) -> Path:
    task = Choice("link-folder", {"folder": write(tmp_path / "mine"), "width": 4})
    train(RunConfig(task, Choice("gnn", {"width": 4}), train=TrainSettings(steps=2)), tmp_path / "run", progress=False)
    return tmp_path / "run"


def pairs(task: OwnLinks, part: str) -> set[tuple[str, ...]]:
    """The pairs of a part by the names of their nodes."""
    return {tuple(sorted(str(task.shown(node)) for node in pair)) for pair in getattr(task.cut, part).T.tolist()}


def test_the_same_files_are_cut_as_they_were_in_the_same_order(run) -> None:
    mine = str(run.parent / "mine")
    before, kept = link_folder(mine), link_folder(mine, like=str(run))
    for part in PARTS:
        assert torch.equal(getattr(before.cut, part), getattr(kept.cut, part))
    assert torch.equal(before.graph().edge_index(), kept.graph().edge_index())
    assert torch.equal(before.x, kept.x) and kept.changes == ()
    other = link_folder(mine, fold=7, like=str(run))
    assert pairs(other, "test") == pairs(before, "test")  # the run's cut, not that of another fold


def test_changed_files_move_no_link_and_no_scale_and_are_said(run, capsys) -> None:
    mine = run.parent / "mine"
    before = link_folder(str(mine))
    assert (run / "split.csv").read_text().startswith("source,target,part\n")  # names that a data frame can hold
    rows = (mine / "nodes.csv").read_text().splitlines()
    (mine / "nodes.csv").write_text("\n".join([rows[0], "new,1000,b", *rows[:0:-1]]) + "\n")  # another order
    gone, none = min(pairs(before, "test")), min(pairs(before, "valid_none"))
    links = [row for row in (mine / "edges.csv").read_text().splitlines() if set(row.split(",")) != set(gone)]
    (mine / "edges.csv").write_text("\n".join([*links, ",".join(none), "new,p0"]) + "\n")
    trained = training.load_run(run)
    told = capsys.readouterr().err
    for line in (
        "nodes.csv has changed since the run was trained",
        "left out of test: 1 link, no longer there",
        "left out of valid: 1 pair, linked now",
        "2 links in no part of the run's split, read by no model",
    ):
        assert line in told
    assert isinstance(trained.task, OwnLinks)
    for part in PARTS:
        assert pairs(trained.task, part) == pairs(before, part) - {gone, none}
    assert trained.task.graph().num_edges == before.graph().num_edges
    ages = {str(trained.task.shown(node)): float(trained.task.x[node, 0]) for node in range(NODES + 1)}
    assert all(ages[f"p{n}"] == float(before.x[n, 0]) for n in range(NODES))


def test_a_run_of_nodes_or_without_links_that_are_left_is_refused(run) -> None:
    mine = run.parent / "mine"
    (mine / "edges.csv").write_text("source,target\np0,p1\n")
    with pytest.raises(DataError, match=r"of the links of .*run, none of the (train|valid|test) split is there"):
        link_folder(str(mine), like=str(run))
    (run / "split.csv").write_text("node,part\np0,train\n")
    with pytest.raises(DataError, match="the cut of a run's links"):
        link_folder(str(mine), like=str(run))


def test_links_of_a_file_are_measured_as_the_test_part_is(run) -> None:
    loaded, file = training.load_run(run), run.parent / "later.csv"
    assert isinstance(loaded.task, OwnLinks)
    named = {part: sorted(pairs(loaded.task, part)) for part in PARTS}
    rows = [f"{b},{a},yes" for a, b in named["test"]] + [f"{a},{b},no" for a, b in named["test_none"]]
    rows += [f"{','.join(named['train'][0])},yes", "p0,stranger,yes", "p0,p0,yes", "p1,p0,?"]
    file.write_text("source,target,label\n" + "\n".join(rows) + "\n")
    measured = training.on_data(loaded, file)
    assert isinstance(measured.task, OwnLinks) and pairs(measured.task, "test_none") == {*named["test_none"]}
    scores = training.evaluate(loaded.model, loaded.task, "test", 1)
    assert training.evaluate(measured.model, measured.task, "test", 1) == pytest.approx(scores)
    assert measured.task.changes == (
        f"{file}: left out 1 of 14 links, with names that the run has not: stranger",
        f"{file}: left out 1 of 14 links, which trained or chose the weights",
    )
    assert training.evaluate(loaded.model, loaded.task, "test", 1) == scores  # the run's own part is as it was
    file.write_text("source,target\n" + "\n".join(map(",".join, named["test"][:3])) + "\n")
    drawn = training.on_data(loaded, file).task
    assert isinstance(drawn, OwnLinks) and len(pairs(drawn, "test_none")) == 3
    assert not pairs(drawn, "test_none") & {*named["train"], *named["valid"], *named["test"]}
    file.write_text("source,target\n" + ",".join(named["train"][0]) + "\n")
    with pytest.raises(DataError, match="nothing can be measured: no links are left"):
        training.on_data(loaded, file)
