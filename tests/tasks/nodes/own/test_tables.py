"""A graph from two tables."""

from pathlib import Path

import pytest

from edgewise.data.examples import Asked
from edgewise.data.graph import read_tables
from edgewise.errors import DataError
from edgewise.tasks import NodeRegression, node_folder
from tasks.nodes.own.test_folder import EDGES, NODES, write

PARTS = ("train", "train", "valid", "test")


@pytest.mark.parametrize(
    ("nodes", "edges", "told"),
    [
        (NODES.replace("label", "class"), EDGES, "expected label"),
        (NODES.replace("width", "height"), EDGES, "more than one column is called 'height'"),
        (NODES.replace("2.5", "wide"), EDGES, "line 2: width is 'wide', not a finite number"),
        (NODES.replace("2.5", "inf"), EDGES, "line 2: width"),
        (NODES.replace("b,2", "a,2"), EDGES, "the node 'a' is there twice"),
        (NODES.replace(",test", ",exam"), EDGES, "line 5: the split 'exam'"),
        (NODES.replace(",test", ","), EDGES, "no node is in the test split"),
        (NODES.replace("red,test", ",test"), EDGES, "node [3d] of the test split has no label"),
        (NODES.replace("red", "").replace("blue", ""), EDGES, "no node has a label"),
        (NODES.replace("width", "Label"), EDGES, "it has the columns Label and label, and which is meant is a guess"),
        (NODES + ",5,1,red,train\n", EDGES.replace("a\n", "\n"), r"line 6: the node has no name$"),
        (NODES + ",,,,\n,5,,,\n", EDGES, r"line 6: the node has no name\n.*line 7: the node has no name$"),
        (NODES.replace("c,3", "c,3,3"), EDGES, "line 4 does not have 5 columns"),
        ("node,age,label\n", EDGES, "it has no nodes: no line follows"),
        ("", EDGES, "nodes.csv: it holds no table: its first line must have the names"),
        (NODES, "\n \n", "edges.csv: it holds no table"),
        (
            NODES.replace("2.5", "wide").replace("a,1", "a,inf"),
            EDGES,
            r"line 2: height is 'inf'.*\n.*line 2: width is 'w",
        ),
        (NODES.replace("width", "id"), EDGES, "node or id, which names the nodes"),
        (NODES.replace("2.5", "1e39"), EDGES, r"line 2: width is '1e39', beyond 3.4e\+38, the largest float32"),
        (NODES, EDGES.replace("b,c", "b,z"), "line 3: there is no node 'z'"),
        (
            NODES.replace("node,", "name,")
            .replace("a,", "1,")
            .replace("b,", "2,")
            .replace("c,", "3,")
            .replace("d,", "4,"),
            "sender,receiver\n0,3\n1,4\n",
            "line 3: there is no node '4'",
        ),
        (NODES, "from,kind\na,x\n", "its columns are from, kind; expected sender and receiver"),
        (NODES, "from,to,src,dst\na,b,a,b\n", "expected one of from and to; src and dst"),
    ],
)
def test_a_malformed_table_is_named(tmp_path, nodes: str, edges: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        node_folder(write(tmp_path, nodes, edges))


def test_labels_with_decimal_commas_are_a_quantity(tmp_path) -> None:
    """They used to be classes called 0,5 and 1,5."""
    nodes = "id;h;label\n" + "".join(f"n{n};{n};{n % 7},5\n" for n in range(30))
    task = node_folder(write(tmp_path, nodes, "a;b\nn0;n1\n"))
    assert isinstance(task, NodeRegression) and task.nodes.labels[:3].tolist() == [0.5, 1.5, 2.5]
    with pytest.raises(DataError, match=r"label holds numbers with fractions, and 'about 3': empty such cells"):
        node_folder(write(tmp_path, nodes + "n30;1;about 3\n", "a;b\nn0;n1\n"))


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
    ("name", "ignore", "known"),
    [("", (), None), ("note", ("note",), None), ("note", (), ({"h": "number"}, {}))],
    ids=["an index of pandas", "ignored", "new"],
)
def test_a_node_is_there_twice_whatever_is_in_columns_that_are_not_read(
    tmp_path, name: str, ignore: tuple[str, ...], known
) -> None:
    rows = [(f"p{n},{n % 5},{'uv'[n % 2]}") for n in (0, 1, 2, 3, 1)]
    nodes = f"{name},id,h,label\n" + "".join(f"{number},{row}\n" for number, row in enumerate(rows))
    write(tmp_path, nodes, "from,to\np0,p1\n")
    how = Asked("nodes", label=("label",), ignore=frozenset(ignore), known=known)
    given = read_tables(tmp_path / "nodes.csv", [tmp_path / "edges.csv"], how)
    assert given.names == ["p0", "p1", "p2", "p3"] and "nodes.csv: 1 repeated row, read once" in given.notes


def test_a_column_that_training_read_as_a_feature_names_no_nodes(tmp_path) -> None:
    place = Path(write(tmp_path, "who,size\nA,10\nA,11\nB,12\nB,13\n", "from,to\n10,11\n12,10\n"))
    nodes, edges = place / "nodes.csv", [place / "edges.csv"]
    assert read_tables(nodes, edges, Asked("nodes")).names == ["10", "11", "12", "13"]  # guessed
    with pytest.raises(DataError, match="there is no node '10'"):
        read_tables(nodes, edges, Asked("nodes", known=({"size": "number"}, {})))


def test_columns_that_a_run_found_are_not_looked_for_in_another_order(tmp_path) -> None:
    """The ends were swapped, and with another column of names it would have been a guess which one names the nodes."""
    nodes = "who,size,label,split\n" + "".join(f"n{n},{n},{'uv'[n % 2]},{part}\n" for n, part in enumerate(PARTS))
    task = node_folder(write(tmp_path / "mine", nodes, "a,b\nn0,n1\nn2,n3\n"), undirected=False)
    assert task.fitted.names == {"node": "who", "sender": "a", "receiver": "b"}
    more = "twin,size,who\n" + "".join(f"n{3 - n},{n},n{n}\n" for n in range(4))
    new = task.elsewhere(Path(write(tmp_path / "new", more, "b,a\nn1,n0\nn3,n2\n")))
    assert new.given.names == ["n0", "n1", "n2", "n3"] == task.given.names
    assert new.graph().edge_index().tolist() == task.graph().edge_index().tolist() == [[0, 2], [1, 3]]
    renamed = task.elsewhere(Path(write(tmp_path / "renamed", nodes.replace("who", "name"), "to,from\nn1,n0\n")))
    assert renamed.given.names == task.given.names  # found anew
