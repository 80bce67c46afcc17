"""A graph from one .npz file."""

from pathlib import Path

import numpy as np
import pytest

from edgewise.errors import DataError
from edgewise.tasks import node_folder


def arrays(**changed: object) -> dict[str, np.ndarray]:
    plain = {
        "edge_index": np.array([[0, 1, 3], [1, 2, 0]]),
        "x": np.arange(8.0).reshape(4, 2),
        "labels": np.array([1, 0, -1, 1]),
        "train": np.array([True, False, False, False]),
        "valid": np.array([1]),
        "test": np.array([3]),
    }
    return {name: np.asarray(value) for name, value in (plain | changed).items() if value is not None}


def save(folder: Path, **changed: object) -> str:
    np.savez(folder / "graph.npz", **arrays(**changed))
    return str(folder)


def test_the_npz_file_says_the_same(tmp_path) -> None:
    task = node_folder(save(tmp_path), undirected=False)
    assert task.graph().edge_index().tolist() == [[3, 0, 1], [0, 1, 2]]
    assert task.nodes.labels.tolist() == [1, 0, -1, 1]
    assert {split: rows.tolist() for split, rows in task.nodes.splits.items()} == {
        "train": [0],
        "valid": [1],
        "test": [3],
    }


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"labels": None}, "it lacks labels"),
        ({"x": None, "labels": np.array(1)}, r"labels must be whole numbers \[4\]"),
        ({"x": None, "labels": np.array([0, 1, 1])}, "edge_index: edge 2: sender 3 is out of range"),
        ({"x": np.array([[1.0, np.nan]] * 4)}, r"x\[0, 1\] is nan, not a finite number"),
        ({"x": np.diag([1.0, 1.0, 1e39, 1.0])}, r"x\[2, 2\] is 1e\+39, beyond 3.4e\+38, the largest float32"),
        ({"x": np.zeros((4, 0))}, "x must be numbers"),
        ({"x": np.array([["a"]] * 4)}, "x must be numbers"),
        ({"x": np.array([[{}]] * 4)}, "not a .npz file"),  # objects would have to be unpickled
        ({"labels": np.zeros(3, dtype=int)}, r"whole numbers \[4\]"),
        ({"labels": np.full(4, np.inf)}, r"whole numbers \[4\]"),
        ({"labels": np.array([0.5, np.nan, 1, 2]), "valid": np.array([1])}, "node 1 of the valid split has no label"),
        ({"labels": -np.ones(4, dtype=int)}, "no node has a label"),
        (
            {"labels": np.array([0, 1, -2, 1])},
            "labels of node 2 are -2, and whole numbers are -1 where unknown: give a",
        ),
        ({"labels": np.array([0, 10**12, 0, 0])}, "labels must be 0, 1"),
        ({"edge_index": np.array([[0], [4]])}, "edge_index"),
        ({"edge_index": np.array([0, 1])}, "edge_index"),
        (
            {"edge_index": np.array([[0.5], [1]])},
            r"edge_index must be whole numbers \[2, E\], not float64 \[2, 1\]",
        ),
        ({"test": None}, "give all or none"),
        ({"test": np.array([4])}, r"test must be a mask \[4\] or nodes from 0 to 3"),
        ({"test": np.array([True])}, "test must be a mask"),
        (
            {"test": np.array([0, 0, 0, 1], dtype=np.uint8)},
            "graph.npz: the test split lists node 0 3 times: if it is a",
        ),
        ({"test": np.array([3, 0])}, "graph.npz: node 0 is in two splits, train and test"),
        ({"test": np.array([2])}, "node 2 of the test split has no label"),
        ({"test": np.zeros(4, dtype=bool)}, "no node is in the test split"),
    ],
)
def test_a_malformed_array_is_named(tmp_path, changed: dict, told: str) -> None:
    with pytest.raises(DataError, match=told):
        node_folder(save(tmp_path, **changed))


def test_arrays_have_a_column_for_each_target(tmp_path) -> None:
    labels = np.stack([np.arange(30) / 7, np.arange(30) % 2], 1)
    labels[3] = np.nan
    edges = np.stack([np.arange(30), (np.arange(30) + 1) % 30])
    np.savez(tmp_path / "graph.npz", edge_index=edges, x=np.ones((30, 2)), labels=labels)
    task = node_folder(str(tmp_path))
    assert [target.name for target in task.fitted.targets] == ["labels 0", "labels 1"]
    assert [target.kind for target in task.fitted.targets] == ["number", "class"]
    assert sum(map(len, task.splits.values())) == 29
    np.savez(tmp_path / "graph.npz", edge_index=edges, x=np.ones((30, 2)), labels=labels[:, :0])
    with pytest.raises(DataError, match=r"of several targets \[30, T\], not float64 \[30, 0\]"):
        node_folder(str(tmp_path))


def test_without_x_each_node_has_its_degree(tmp_path) -> None:
    task = node_folder(save(tmp_path, x=None, edge_index=np.array([[0, 1, 0, 3], [2, 2, 1, 2]])))
    assert "each node has log(1 + degree): nothing else is known of it" in task.summary
    assert [column.name for column in task.fitted.columns] == ["log(1 + degree)"]
    x = task.nodes.x[:, 0]
    assert x[2] > x[0] == x[1] > x[3]
