"""Citation graphs: a miniature with CiteSeer's gaps, the real Cora, and PyTorch Geometric's reader beside this one."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise.tasks import PatternChoice, citation
from edgewise.tasks.nodes.citation import read_planetoid, remotes
from tasks.miniature import NODES, PAPERS, TEST, TRAIN, planetoid_parts, write_planetoid


def test_every_test_paper_gets_its_own_row(tmp_path: Path) -> None:
    data, parts = read_planetoid(write_planetoid(tmp_path), "cora"), planetoid_parts()
    features = data.features.toarray()
    assert features.shape == (NODES, 5)
    assert np.array_equal(features[:PAPERS], parts["allx"].toarray())
    for row, paper in enumerate(TEST):
        assert np.array_equal(features[paper], parts["tx"].toarray()[row])
        assert data.labels[paper] == parts["ty"][row].argmax()
    assert np.array_equal(data.labels[:PAPERS], parts["ally"].argmax(1))
    assert not features[[513, 515]].any()
    assert data.labels[[513, 515]].tolist() == [-1, -1]


def test_splits_are_the_public_ones(tmp_path: Path) -> None:
    data = read_planetoid(write_planetoid(tmp_path), "cora")
    assert data.train.tolist() == list(range(TRAIN))
    assert data.valid.tolist() == list(range(TRAIN, TRAIN + 500))
    assert data.test.tolist() == TEST


def test_edges_go_both_ways_once_without_loops(tmp_path: Path) -> None:
    data = read_planetoid(write_planetoid(tmp_path), "cora")
    edges = set(zip(*data.edges.tolist(), strict=True))
    expected = {(a, b) for a, others in planetoid_parts()["graph"].items() for b in others if a != b}
    assert edges == expected | {(b, a) for a, b in expected}
    assert len(edges) == data.edges.shape[1]


def test_the_task_fits_together(tmp_path: Path, echo) -> None:
    task = citation("citeseer", folder=str(write_planetoid(tmp_path, "citeseer")))
    assert (task.name, task.signature.inputs, task.signature.outputs) == ("citeseer", 5, 3)
    assert task.nodes.classes == ("class 0", "class 1", "class 2")
    assert task.graph(PatternChoice("complete")).num_receivers == NODES
    answer = task.predict(echo(5, 3), None, "513,0", "cpu")["nodes"]
    assert answer[0]["label"] is None
    assert answer[1]["label"] in task.nodes.classes


def assert_as_pyg_reads(folder: Path, name: str) -> None:
    planetoid_reader = pytest.importorskip("torch_geometric.io.planetoid")
    theirs = planetoid_reader.read_planetoid_data(str(folder), name)
    task = citation(name, folder=str(folder), normalise=False)
    assert torch.equal(task.nodes.x.to_dense(), theirs.x.to_dense().float())
    known = task.nodes.labels >= 0
    assert torch.equal(task.nodes.labels[known], theirs.y[known])
    assert not theirs.y[~known].any()  # there a paper without class counts as class 0
    for split, mask in (("train", theirs.train_mask), ("valid", theirs.val_mask), ("test", theirs.test_mask)):
        assert torch.equal(task.nodes.splits[split].sort().values, mask.nonzero().flatten())
    return task, theirs


@pytest.mark.filterwarnings("ignore")  # PyG's reader asks numpy and scipy for names that they deprecate
def test_citeseers_gaps_are_read_as_pyg_reads_them(tmp_path: Path) -> None:
    assert_as_pyg_reads(write_planetoid(tmp_path, "citeseer"), "citeseer")


@pytest.mark.filterwarnings("ignore")
def test_cora_is_what_pyg_reads(data) -> None:
    task, theirs = assert_as_pyg_reads(data("planetoid"), "cora")
    assert set(zip(*task.graph().edge_index().tolist(), strict=True)) == set(
        zip(*theirs.edge_index.tolist(), strict=True)
    )
    assert task.graph().num_edges == theirs.edge_index.shape[1] == 10_556


def test_cora_has_its_known_numbers(data) -> None:
    task = citation(folder=str(data("planetoid")))
    assert task.nodes.x.shape == (2708, 1433)
    assert task.nodes.x.graph.num_edges == 49_216
    assert (task.graph().num_receivers, task.graph().num_edges) == (2708, 10_556)
    assert [len(task.nodes.splits[split]) for split in ("train", "valid", "test")] == [140, 500, 1000]
    assert task.nodes.labels[:140].bincount().tolist() == [20] * 7
    counts = dict(zip(task.nodes.classes, task.nodes.labels.bincount().tolist(), strict=True))
    assert counts == {
        "theory": 351,
        "reinforcement learning": 217,
        "genetic algorithms": 418,
        "neural networks": 818,
        "probabilistic methods": 426,
        "case based": 298,
        "rule learning": 180,
    }
    torch.testing.assert_close(task.nodes.x.to_dense().sum(1), torch.ones(2708))


def test_coras_hashes_are_those_of_its_files(data) -> None:
    for file in remotes("cora"):
        content = (data("planetoid") / file.name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file.sha256
        assert len(content) <= file.max_bytes
