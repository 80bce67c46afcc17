"""A user's own graph, from CSV files or one .npz file."""

from pathlib import Path

import pytest
import torch

from edgewise.errors import DataError
from edgewise.tasks import node_folder

NODES = "node,height,width,label,split\na,1,2.5,red,train\nb,2,0,blue,valid\nc,3,-1,,\nd,4,1e3,red,test\n"
EDGES = "sender,receiver\na,b\nb,c\nd,a\n"


def write(folder: Path, nodes: str = NODES, edges: str = EDGES) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return str(folder)


def test_csv_files(tmp_path, monkeypatch) -> None:
    task = node_folder(write(tmp_path), scale="none")
    assert task.nodes.x.tolist() == [[1, 2.5], [2, 0], [3, -1], [4, 1000]]
    assert task.nodes.classes == ("blue", "red")
    assert task.nodes.labels.tolist() == [1, 0, -1, 1]
    assert {split: rows.tolist() for split, rows in task.nodes.splits.items()} == {
        "train": [0],
        "valid": [1],
        "test": [3],
    }
    assert node_folder(str(tmp_path), undirected=False).graph().edge_index().tolist() == [[3, 0, 1], [0, 1, 2]]
    assert task.graph().num_edges == 6
    monkeypatch.chdir(tmp_path)
    assert node_folder(".").name == task.name == tmp_path.name


def test_columns_are_read_unless_they_are_ignored(tmp_path) -> None:
    edges = "sender,receiver,since,weight\na,b,1999,2\nb,c,2001,3\nd,a,2002,4\n"
    folder = write(tmp_path, edges=edges)
    assert node_folder(folder).nodes.e.shape == (6, 2)  # features of edges: nothing is passed over
    task = node_folder(folder, ignore="since, weight,width", scale="none")
    assert task.nodes.x.tolist() == [[1], [2], [3], [4]] and task.nodes.e is None
    assert task.graph().num_edges == 6
    with pytest.raises(DataError, match="no table has the columns wieght"):
        node_folder(folder, ignore="since,weight,wieght")
    with pytest.raises(DataError, match="label are needed"):
        node_folder(folder, ignore="since,weight,label")


MIXED = """id,age,city,member,score,label,split
p0,20,Bonn,yes,0.5,a,train
p1,30,Ulm,no,,b,train
p2,,Bonn,,n/a,a,valid
p3,60,,YES,1.5,b,test
"""


def test_columns_are_numbers_truth_values_or_categories(tmp_path) -> None:
    """Numbers are standardised by the nodes that train; what is missing is their mean, and said."""
    task = node_folder(write(tmp_path, MIXED, "source,target\np0,p1\n"))
    age, bonn, ulm, member, score, score_missing = task.nodes.x.t().tolist()
    assert age == [-1, 1, 0, 7]  # missing in no row that trains
    assert bonn == [1, 0, 1, 0] and ulm == [0, 1, 0, 0]
    assert member == [1, 0, 0.5, 1]
    assert "age: missing in 1 rows, but in none that the model was trained on: its mean is set" in task.changes
    assert score == [0, 0, 0, 1] and score_missing == [0, 1, 1, 0]  # one known value of those that train: only centred
    assert "age (a number, missing in 1 rows), city (a category of 2, missing in 1 rows), member (a boolean" in (
        task.describe()
    )
    plain = node_folder(str(tmp_path), scale="none")
    assert plain.nodes.x[:, 0].tolist() == [20, 30, 25, 60]
    assert plain.graph().edge_index().tolist() == [[1, 0], [0, 1]]


def test_a_column_of_texts_that_do_not_repeat_is_no_feature_and_all_problems_are_said_at_once(tmp_path) -> None:
    lines = "".join(f"{row},street {row},{'' if row % 2 else 'NA'},{row % 2}\n" for row in range(6))
    with pytest.raises(DataError) as caught:
        node_folder(write(tmp_path, "size,address,empty,label\n" + lines, "from,to\n0,1\n"))
    first, second = str(caught.value).split("\n")
    assert "address holds 6 different texts in 6 rows" in first and "give --task.ignore address" in first
    assert "empty holds no value at all: give --task.ignore empty" in second
    assert len(node_folder(str(tmp_path), ignore="address,empty").nodes.x[0]) == 1


def test_parquet_files_say_the_same(tmp_path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    nodes = {
        "node": [7, 8, 9, 11],
        "height": [1, 2, 3, 4],
        "width": [2.5, 0, -1, 1000],
        "label": pa.array(["red", "blue", None, "red"]).dictionary_encode(),
        "split": ["train", "valid", None, "test"],
    }
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"sender": [7.0, 8.0, 11.0], "receiver": [8, 9, 7]}), tmp_path / "edges.parquet")
    task, plain = node_folder(str(tmp_path)).nodes, node_folder(write(tmp_path / "csv")).nodes
    assert torch.equal(task.x, plain.x)
    assert torch.equal(task.labels, plain.labels)
    assert task.classes == plain.classes
    assert task.graph.edge_index().tolist() == plain.graph.edge_index().tolist()
    assert all(torch.equal(task.splits[split], plain.splits[split]) for split in plain.splits)
    (tmp_path / "edges.parquet").unlink()
    (tmp_path / "edges.csv").write_text("sender,receiver\n7,8\n8,10\n", encoding="utf-8")  # a table of each kind
    with pytest.raises(DataError, match=r"edges\.csv: line 3: there is no node '10'"):
        node_folder(str(tmp_path))


def test_without_names_nodes_are_their_rows_and_without_parts_they_are_cut_at_random(tmp_path) -> None:
    lines = "".join(f"{n},{'abc'[n % 3] if n < 20 else ''}\n" for n in range(22))
    folder = write(tmp_path, "size,label\n" + lines, "sender,receiver\n0,21\n")
    first, again, other = node_folder(folder), node_folder(folder), node_folder(folder, fold=1)
    assert first.graph().edge_index().tolist() == [[21, 0], [0, 21]]
    assert {split: len(rows) for split, rows in first.nodes.splits.items()} == {"train": 12, "valid": 4, "test": 4}
    assert torch.cat(list(first.nodes.splits.values())).sort().values.tolist() == list(range(20))
    assert torch.equal(first.nodes.splits["test"], again.nodes.splits["test"])
    assert not torch.equal(first.nodes.splits["train"], other.nodes.splits["train"])
