"""A graph of one's own from a folder: tables of nodes and edges, or arrays; what is wrong is named all at once."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise.data.columns import Column
from edgewise.data.examples import DEGREE, Asked, OneGraph, read_tables
from edgewise.errors import DataError
from edgewise.tasks import link_folder, node_folder

NODES = "node,height,width,label,split\na,1,2.5,red,train\nb,2,0,blue,valid\nc,3,-1,,\nd,4,1e3,red,test\n"
EDGES = "sender,receiver\na,b\nb,c\nd,a\n"
PARTS = ("train", "train", "valid", "test")
SPLITS = {"train": [0], "valid": [1], "test": [3]}


def write(folder: Path, nodes: str = NODES, edges: str = EDGES) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return str(folder)


def save(folder: Path, **changed: object) -> str:
    plain = {
        "edge_index": np.array([[0, 1, 3], [1, 2, 0]]),
        "x": np.arange(8.0).reshape(4, 2),
        "labels": np.array([1, 0, -1, 1]),
        "train": np.array([True, False, False, False]),
        "valid": np.array([1]),
        "test": np.array([3]),
    }
    arrays = {name: np.asarray(value) for name, value in (plain | changed).items() if value is not None}
    np.savez(folder / "graph.npz", **arrays)
    return str(folder)


def splits_of(task: object) -> dict[str, list[int]]:
    return {split: rows.tolist() for split, rows in task.splits.items()}  # type: ignore[attr-defined]


def test_tables_and_arrays_say_the_same(tmp_path, monkeypatch) -> None:
    task = node_folder(write(tmp_path / "tables"), scale="none")
    assert task.nodes.x.tolist() == [[1, 2.5], [2, 0], [3, -1], [4, 1000]] and task.classes == ("blue", "red")
    (tmp_path / "arrays").mkdir()
    for place in (str(tmp_path / "tables"), save(tmp_path / "arrays")):
        one = node_folder(place, undirected=False)
        assert one.nodes.labels[[0, 1, 3], 0].tolist() == [1, 0, 1] and splits_of(one) == SPLITS
        assert one.graph().edge_index().tolist() == [[3, 0, 1], [0, 1, 2]] and node_folder(place).graph().num_edges == 6
    monkeypatch.chdir(tmp_path / "tables")
    assert node_folder(".").name == task.name == "tables"


def test_columns_are_numbers_truth_values_or_categories(tmp_path) -> None:
    """Numbers are standardised by the nodes that train; what is missing is their mean, and said."""
    mixed = (
        "id,age,city,member,score,label,split\np0,20,Bonn,yes,0.5,a,train\np1,30,Ulm,no,,b,train\n"
        "p2,,Bonn,,n/a,a,valid\np3,60,,YES,1.5,b,test\n"
    )
    task = node_folder(write(tmp_path, mixed, "source,target\np0,p1\n"))
    age, bonn, ulm, member, score, score_missing = task.nodes.x.t().tolist()
    assert age == [-1, 1, 0, 7]  # missing in no row that trains
    assert bonn == [1, 0, 1, 0] and ulm == [0, 1, 0, 0] and member == [1, 0, 0.5, 1]
    assert "age: missing in 1 rows, but in none that the model was trained on: its mean is set" in task.changes
    assert score == [0, 0, 0, 1] and score_missing == [0, 1, 1, 0]  # one known value of those that train: only centred
    assert "age (a number, missing in 1 rows), city (a category of 2, missing in 1 rows), member (a boolean" in (
        task.describe()
    )
    assert node_folder(str(tmp_path), scale="none").nodes.x[:, 0].tolist() == [20, 30, 25, 60]


def test_without_names_nodes_are_their_rows_and_without_parts_they_are_cut_at_random(tmp_path) -> None:
    lines = "".join(f"{n},{'abc'[n % 3] if n < 20 else ''}\n" for n in range(22))
    folder = write(tmp_path, "size,label\n" + lines, "sender,receiver\n0,21\n")
    first, again, other = node_folder(folder), node_folder(folder), node_folder(folder, fold=1)
    assert first.graph().edge_index().tolist() == [[21, 0], [0, 21]]
    assert {split: len(rows) for split, rows in first.splits.items()} == {"train": 12, "valid": 4, "test": 4}
    assert sorted(node for rows in splits_of(first).values() for node in rows) == list(range(20))
    assert splits_of(first) == splits_of(again) != splits_of(other)


def test_columns_are_read_unless_they_are_ignored(tmp_path) -> None:
    edges = "sender,receiver,since,weight\na,b,1999,2\nb,c,2001,3\nd,a,2002,4\n"
    folder = write(tmp_path, edges=edges)
    assert node_folder(folder).nodes.e.shape == (6, 2)
    task = node_folder(folder, ignore="since, weight,width", scale="none")
    assert task.nodes.x.tolist() == [[1], [2], [3], [4]] and task.nodes.e is None
    for ignore, told in (("wieght", "no table has the columns wieght"), ("label", "label are needed")):
        with pytest.raises(DataError, match=told):
            node_folder(folder, ignore=f"since,weight,{ignore}")


def test_where_nothing_is_known_of_nodes_their_degrees_are(tmp_path) -> None:
    edges = np.array([[0, 0, 1], [1, 2, 1]])
    bare = OneGraph(Path(), (), "nodes", 3, ["a", "b", "7"])
    (column,) = bare.described(edges).x
    assert isinstance(column, Column) and str(column) == f"{DEGREE} (a number)"
    assert np.expm1(column.values) == pytest.approx([2, 3, 1])
    assert bare.described(edges[:, :0]).x[0].values.tolist() == [0, 0, 0]
    assert bare.number_of == {"a": 0, "b": 1, "7": 2} and OneGraph(Path(), (), "nodes", 2).number_of == {"0": 0, "1": 1}
    task = node_folder(save(tmp_path, x=None, edge_index=np.array([[0, 1, 0, 3], [2, 2, 1, 2]])))
    assert f"each node has {DEGREE}: nothing else is known of it" in task.summary
    x = task.nodes.x[:, 0]
    assert x[2] > x[0] == x[1] > x[3]
    (tmp_path / "graph.npz").unlink()
    assert node_folder(write(tmp_path, edges="sender,receiver\n")).graph().num_edges == 0


def test_labels_with_decimal_commas_are_a_quantity(tmp_path) -> None:
    """They used to be classes called 0,5 and 1,5."""
    nodes = "id;h;label\n" + "".join(f"n{n};{n};{n % 7},5\n" for n in range(30))
    task = node_folder(write(tmp_path, nodes, "a;b\nn0;n1\n"))
    assert task.metric == "rmse" and task.nodes.labels[:3, 0].tolist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize("names", [[f"{10**18 + n}" for n in range(4)], ["1001", "1002", "007", "7"]])
def test_numbers_that_name_nodes_are_found_as_they_are_written(tmp_path, names: list[str]) -> None:
    """As numbers two of them were one."""
    nodes = "age,user,label,split\n" + "".join(
        f"{n},{name},{'uv'[n % 2]},{part}\n" for n, (name, part) in enumerate(zip(names, PARTS, strict=True))
    )
    task = node_folder(write(tmp_path, nodes, f"source,target\n{names[0]},{names[1]}\n{names[2]},{names[3]}\n"))
    assert "user names the nodes: each end of an edge is one of its cells" in task.summary
    assert task.graph().num_edges == 4 and task.nodes.x.shape == (4, 1)


@pytest.mark.parametrize(
    ("names", "ends", "told"),
    [
        (range(1, 21), [(n, 7 * n % 19 + 1) for n in range(1, 19)] + [(0, 3)], "'0', no cell of user. Give --task.id,"),
        (
            [f"{n:03}" for n in range(1, 21)],
            [(n, n % 19 + 1) for n in range(1, 19)],
            r"of user; did you mean '0\d\d'\?",
        ),
        ([f"p{n}" for n in range(20)], [("p3", "p4"), ("p5", "P6"), ("p9", "x")], r"'P6'; did you mean 'p6'\?\n.*'x'$"),
        (range(100, 120), [(100, 101), (102, 7), (108, 105)], "line 3: there is no node '7'"),
        (range(19, -1, -1), [(0, 1), (2, 7)], r"what names the nodes\? Give --task\.id, one of user, row"),
    ],
    ids=["a row", "without zeros", "names", "numbers", "rows in another order"],
)
def test_an_end_that_is_no_name_is_that_mistake_and_no_row(tmp_path, names, ends, told: str) -> None:
    """One stray end made rows of all: each edge joined two others."""
    nodes = "user,label\n" + "".join(f"{name},{'uv'[n % 2]}\n" for n, name in enumerate(names))
    edges = "source,target\n" + "".join(f"{i},{j}\n" for i, j in ends)
    with pytest.raises(DataError, match=told):
        node_folder(write(tmp_path, nodes, edges))


def test_nodes_are_their_rows_where_that_is_said(tmp_path) -> None:
    nodes = "rank,label\n" + "".join(f"{n + 1},{'uv'[n % 2]}\n" for n in range(20))
    folder = write(tmp_path, nodes, "source,target\n" + "".join(f"{n},{n + 1}\n" for n in range(19)))
    with pytest.raises(DataError, match=r"no cell of rank\. Give --task\.id, one of rank, row"):
        node_folder(folder)
    assert node_folder(folder, id="row").graph().num_edges == 38


@pytest.mark.parametrize(
    ("name", "ignore", "known"),
    [("", (), None), ("note", ("note",), None), ("note", (), ({"h": "number"}, {}))],
    ids=["an index of pandas", "ignored", "new"],
)
def test_a_node_is_there_twice_whatever_is_in_columns_that_are_not_read(tmp_path, name: str, ignore, known) -> None:
    rows = [(f"p{n},{n % 5},{'uv'[n % 2]}") for n in (0, 1, 2, 3, 1)]
    write(tmp_path, f"{name},id,h,label\n" + "".join(f"{n},{row}\n" for n, row in enumerate(rows)), "from,to\np0,p1\n")
    asked = Asked("nodes", label=("label",), ignore=frozenset(ignore), known=known)
    given = read_tables(tmp_path / "nodes.csv", [tmp_path / "edges.csv"], asked)
    assert given.names == ["p0", "p1", "p2", "p3"] and "nodes.csv: 1 repeated row, read once" in given.notes


def test_columns_that_a_run_read_or_found_are_not_looked_for_in_another_order(tmp_path) -> None:
    """The ends were swapped, and with another column of names it would have been a guess which one names the nodes."""
    place = Path(write(tmp_path / "sizes", "who,size\nA,10\nA,11\nB,12\nB,13\n", "from,to\n10,11\n12,10\n"))
    files = place / "nodes.csv", [place / "edges.csv"]
    assert read_tables(*files, Asked("nodes")).names == ["10", "11", "12", "13"]  # guessed
    with pytest.raises(DataError, match="there is no node '10'"):
        read_tables(*files, Asked("nodes", known=({"size": "number"}, {})))
    nodes = "who,size,label,split\n" + "".join(f"n{n},{n},{'uv'[n % 2]},{part}\n" for n, part in enumerate(PARTS))
    task = node_folder(write(tmp_path / "mine", nodes, "a,b\nn0,n1\nn2,n3\n"), undirected=False)
    assert task.fitted.names == {"node": "who", "sender": "a", "receiver": "b"}
    more = "twin,size,who\n" + "".join(f"n{3 - n},{n},n{n}\n" for n in range(4))
    new = task.elsewhere(Path(write(tmp_path / "new", more, "b,a\nn1,n0\nn3,n2\n")))
    assert new.given.names == ["n0", "n1", "n2", "n3"] == task.given.names
    assert new.graph().edge_index().tolist() == task.graph().edge_index().tolist() == [[0, 2], [1, 3]]
    renamed = task.elsewhere(Path(write(tmp_path / "renamed", nodes.replace("who", "name"), "to,from\nn1,n0\n")))
    assert renamed.given.names == task.given.names  # found anew


@pytest.mark.parametrize(
    ("nodes", "edges", "told"),
    [
        (NODES.replace("label", "class"), EDGES, "expected label"),
        (NODES.replace(",test", ","), EDGES, "no node is in the test split"),
        (NODES.replace("red,test", ",test"), EDGES, "node [3d] of the test split has no label"),
        (NODES.replace("red", "").replace("blue", ""), EDGES, "no node has a label"),
        (NODES.replace("width", "Label"), EDGES, "it has the columns Label and label, and which is meant is a guess"),
        (NODES + ",,,,\n,5,,,\n", EDGES, r"line 6: the node has no name\n.*line 7: the node has no name$"),
        ("node,age,label\n", EDGES, "it has no nodes: no line follows"),
        ("", EDGES, "nodes.csv: it holds no table: its first line must have the names"),
        (NODES, "\n \n", "edges.csv: it holds no table"),
        (NODES.replace("width", "id"), EDGES, "node or id, which names the nodes"),
        (NODES.replace("2.5", "1e39"), EDGES, r"line 2: width is '1e39', beyond 3.4e\+38, the largest float32"),
        (NODES, "from,to,src,dst\na,b,a,b\n", "expected one of from and to; src and dst"),
    ],
)
def test_a_malformed_table_is_named(tmp_path, nodes: str, edges: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        node_folder(write(tmp_path, nodes, edges))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"labels": None}, "it lacks labels"),
        ({"x": None, "labels": np.array(1)}, r"labels must be whole numbers \[4\]"),
        ({"x": None, "labels": np.array([0, 1, 1])}, "edge_index: edge 2: sender 3 is out of range"),
        ({"x": np.array([[1.0, np.nan]] * 4)}, r"x\[0, 1\] is nan, not a finite number"),
        ({"x": np.diag([1.0, 1.0, 1e39, 1.0])}, r"x\[2, 2\] is 1e\+39, beyond 3.4e\+38, the largest float32"),
        ({"x": np.zeros((4, 0))}, "x must be numbers"),
        ({"x": np.array([[{}]] * 4)}, "not a .npz file"),  # objects would have to be unpickled
        ({"labels": np.full(4, np.inf)}, r"whole numbers \[4\]"),
        ({"labels": np.array([0.5, np.nan, 1, 2])}, "node 1 of the valid split has no label"),
        ({"labels": np.array([0, 1, -2, 1])}, "labels of node 2 are -2, and whole numbers are -1 where unknown: give"),
        ({"labels": np.zeros((4, 0))}, r"of several targets \[4, T\], not float64 \[4, 0\]"),
        ({"edge_index": np.array([[0], [4]])}, "edge_index"),
        ({"edge_index": np.array([[0.5], [1]])}, r"edge_index must be whole numbers \[2, E\], not float64 \[2, 1\]"),
        ({"edge_attr": np.ones(4)}, r"edge_attr must be numbers \[3, D\]"),
        ({"test": None}, "give all or none"),
        ({"test": np.array([4])}, r"test must be a mask \[4\] or nodes from 0 to 3"),
        ({"test": np.array([0, 0, 0, 1], dtype=np.uint8)}, "the test split lists node 0 3 times: if it is a"),
        ({"test": np.array([3, 0])}, "graph.npz: node 0 is in two splits, train and test"),
        ({"test": np.zeros(4, dtype=bool)}, "no node is in the test split"),
    ],
)
def test_a_malformed_array_is_named(tmp_path, changed: dict, told: str) -> None:
    with pytest.raises(DataError, match=told):
        node_folder(save(tmp_path, **changed))


def test_arrays_have_features_of_edges_and_a_column_for_each_target(tmp_path) -> None:
    labels = np.stack([np.arange(30) / 7, np.arange(30) % 2], 1)
    labels[3] = np.nan
    edges = np.stack([np.arange(30), (np.arange(30) + 1) % 30])
    more = {"edge_attr": np.arange(30.0), "spare": np.ones(1)}
    np.savez(tmp_path / "graph.npz", edge_index=edges, x=np.ones((30, 2)), labels=labels, **more)
    task = node_folder(str(tmp_path), undirected=False)
    assert [(one.name, one.kind) for one in task.fitted.targets] == [("labels 0", "number"), ("labels 1", "class")]
    assert sum(map(len, task.splits.values())) == 29 and sorted(task.nodes.e[:, 0].tolist()) == list(range(30))
    assert "not read: the arrays spare" in task.summary


def test_a_missing_folder_or_damaged_file_is_named(tmp_path) -> None:
    (tmp_path / "file").touch()
    for place, what in (("elsewhere", "no such folder"), ("file", "not a folder")):
        with pytest.raises(DataError, match=f"{place}: {what}: give --task.folder"):
            node_folder(str(tmp_path / place))
    with pytest.raises(DataError, match=r"lacks nodes\.csv, edges\.csv"):
        node_folder(str(tmp_path))
    (tmp_path / "graph.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match=r"graph\.npz"):
        node_folder(str(tmp_path))
    write(tmp_path)
    with pytest.raises(DataError, match=r"it has graph\.npz and nodes\.csv, edges\.csv: which is meant"):
        node_folder(str(tmp_path))
    (tmp_path / "graph.npz").unlink()
    (tmp_path / "nodes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not a text in a known encoding"):
        node_folder(str(tmp_path))


def timed(place: Path, dates: bool = True) -> Path:
    """A ring of 40 nodes in which each link is there twice, in random order; nodes have a year."""
    draw = random.Random(0)
    nodes = "".join(f"n{n},{n % 7},{2000 + draw.randrange(20)},{'uv'[n % 2]}\n" for n in range(40))
    rows = []
    for n in range(40):
        for step in (1, 2):
            day, month = draw.randrange(1, 29), draw.randrange(1, 13)
            first, later = (f"2020-{month:02}-{day:02}", f"2021-{month:02}-{day:02}") if dates else (month * day, 999)
            rows += [f"n{n},n{(n + step) % 40},{first}", f"n{(n + step) % 40},n{n},{later}"]
    draw.shuffle(rows)
    return Path(write(place, "id,size,year,label\n" + nodes, "source,target,seen\n" + "\n".join(rows) + "\n"))


@pytest.mark.parametrize("dates", [True, False])
def test_the_earliest_links_train_and_the_latest_test(tmp_path, dates: bool) -> None:
    place = timed(tmp_path, dates)
    task = link_folder(str(place), time="seen", ignore="label")
    first: dict[tuple[int, ...], object] = {}
    for line in (place / "edges.csv").read_text(encoding="utf-8").splitlines()[1:]:
        a, b, when = line.split(",")
        pair = tuple(sorted((int(a[1:]), int(b[1:]))))
        value = when if dates else float(when)
        first[pair] = min(first.get(pair, value), value)
    times = {split: [first[tuple(pair)] for pair in pairs.tolist()] for split, pairs in task.splits.items()}
    assert sum(map(len, times.values())) == len(first) == 80 and len(times["test"]) >= 4
    assert max(times["train"]) < min(times["valid"]) and max(times["valid"]) < min(times["test"])
    shown = min(times["train"]) if dates else f"{min(times['train']):g}"
    assert task.summary[-1].startswith(f"links by seen: train {shown} to ")
    assert [line for line in task.summary if "seen" in line] == [task.summary[-1]]  # it is no feature


def test_nodes_by_their_own_time_or_by_their_first_edge_either_way(tmp_path) -> None:
    place = timed(tmp_path / "ring")
    task = node_folder(str(place), time="year", ignore="seen")
    years = [int(line.split(",")[2]) for line in (place / "nodes.csv").read_text(encoding="utf-8").splitlines()[1:]]
    # The first edge of n comes from n - 1, which is earlier than all that n sends.
    rows = [f"{n},{n + 1},{n}" for n in range(40)] + [f"{n},{n + 2},{500 - n}" for n in range(39)]
    nodes = "id,size,label\n" + "".join(f"{n},{n % 5},{'uv'[n % 2]}\n" for n in range(41))
    by_edge = node_folder(write(tmp_path / "edges", nodes, "source,target,seen\n" + "\n".join(rows)), time="seen")
    for one, times in ((task, years), (by_edge, [max(n - 1, 0) for n in range(41)])):
        parts = {split: [times[node] for node in rows] for split, rows in splits_of(one).items()}
        assert max(parts["train"]) < min(parts["valid"]) and max(parts["valid"]) < min(parts["test"])
        assert one.nodes.x.shape[1] == 1 and one.nodes.e is None  # the time is no feature
        assert len([line for line in one.summary if " by " in line]) == 1


@pytest.mark.parametrize(
    ("column", "change", "told"),
    [
        ("when", lambda text: text, "no column of edges that is read is called 'when'; they have seen"),
        ("seen", lambda text: text.replace("2020-0", "early-"), "seen"),
        ("seen", lambda text: text[:-11] + "\n", "seen is missing in 1 rows of edges: each needs its time"),
        (
            "seen",
            lambda text: "".join(
                f"{line.rpartition(',')[0]},{'seen' * (not n) or '2020-01-01'}\n"
                for n, line in enumerate(text.splitlines())
            ),
            "1 different times of 80 examples do not make three parts",
        ),
    ],
    ids=["none", "no dates", "a gap", "one"],
)
def test_times_that_are_none_are_named(tmp_path, column: str, change, told: str) -> None:
    place = timed(tmp_path)
    text = (place / "edges.csv").read_text(encoding="utf-8")
    (place / "edges.csv").write_text(change(text), encoding="utf-8")
    with pytest.raises(DataError, match=told):
        link_folder(str(place), time=column, ignore="label")


def test_parts_that_a_column_names_are_not_cut_by_time_too(tmp_path) -> None:
    parts = ("train", "valid", "test")
    nodes = "".join(f"{n},{n % 5},{2000 + n},{'uv'[n % 2]},{parts[n % 3]}\n" for n in range(40))
    edges = "".join(f"{n},{n + 1}\n" for n in range(39))
    write(tmp_path, "id,size,year,label,split\n" + nodes, "source,target\n" + edges)
    with pytest.raises(DataError, match=r"give --task\.ignore split, or leave out --task\.time"):
        node_folder(str(tmp_path), time="year")
    assert node_folder(str(tmp_path), time="year", ignore="split").splits["train"].tolist() == list(range(24))


@pytest.mark.parametrize("time", ["year", "seen"])
def test_training_reads_no_edge_that_is_later_than_the_nodes_that_train(tmp_path, time: str) -> None:
    nodes = "".join(f"n{n},{n % 5},{2000 + n},{'uv'[n % 2]}\n" for n in range(40))
    edges = "".join(f"n{n},n{(3 * n + 1) % 40},20{10 + n}-01-01,{n}\n" for n in range(40))
    place = write(tmp_path / "mine", "id,size,year,label\n" + nodes, "source,target,seen,weight\n" + edges)
    ignore = "year" if time == "seen" else "seen"
    task = node_folder(place, cut="time", time=time, ignore=ignore, undirected=False)
    when = task.given.when if time == "seen" else np.maximum(*(2000 + task.given.edges))
    run = tmp_path / "run"
    run.mkdir()
    task.keep(run)
    again = node_folder(place, cut="time", time=time, ignore=ignore, undirected=False, like=str(run))
    for one, split in itertools.product((task, again), ("train", "valid", "test")):
        batch = one.train_batch(1, torch.Generator()) if split == "train" else one.batch(split, None)
        last = one.given.times.values[one.splits[split].numpy()].max()
        early = when <= last if split != "test" else np.ones(40, dtype=bool)
        expected = {*map(tuple, task.given.edges[:, early].T.tolist())}
        assert {*map(tuple, batch.graph.edge_index().T.tolist())} == expected and len(expected) > 0
        assert batch.e is not None and len(batch.e) == int(early.sum()) and one.nodes.e.shape[1] == 1
        assert one.nodes.x.shape[1] == task.nodes.x.shape[1] and (split != "train" or len(expected) < 40)
