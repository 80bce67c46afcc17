"""Nodes of many graphs in one table, and edges within them."""

import numpy as np
import pytest

from edgewise.data.edges import Edges, columns_of, ends_within, graphs_of
from edgewise.data.examples import Asked, read_members
from edgewise.data.table import Problems
from edgewise.errors import DataError

ASKED = Asked("graphs")


def test_rows_come_by_example_and_twice_is_once(tmp_path) -> None:
    table = tmp_path / "nodes.csv"
    table.write_text("graph,id,size\nb,x,1\na,y,2\nb,x,1\na,z,3\nb,y,4\n", encoding="utf-8")
    problems: list[str] = []
    members = read_members(table, ["a", "b"], "graph", "", ASKED, problems)
    assert problems == [] and members.names == ["y", "z", "x", "y"] and members.groups == ["a", "a", "b", "b"]
    assert members.sizes.tolist() == [2, 2] and members.columns[0].values.tolist() == [2, 3, 1, 4]
    assert "nodes.csv: 1 repeated row, read once" in members.notes
    table.write_text("graph,id,size\nb,x,1\na,y,2\nb,x,9\n", encoding="utf-8")
    read_members(table, ["a", "b"], "graph", "", ASKED, problems)
    assert problems == [f"{table}: line 4: 'x' of 'b' is there twice, with other cells in line 2"]
    for first, later in (("7", ""), ("", "7")):  # the one of the two was read, and the other refused
        table.write_text(f"graph,id,size\nb,x,{first}\na,y,2\nb,x,{later}\n", encoding="utf-8")
        problems.clear()
        read_members(table, ["a", "b"], "graph", "", ASKED, problems)
        assert problems == [f"{table}: line 4: 'x' of 'b' is there twice, with other cells in line 2"]
    table.write_text(",graph,id,size,note\n0,b,x,,u\n1,a,y,2,v\n2,b,x,,w\n", encoding="utf-8")
    problems.clear()
    assert read_members(
        table, ["a", "b"], "graph", "", Asked("graphs", ignore=frozenset(["note"])), problems
    ).sizes.tolist() == [1, 1]
    assert problems == []
    table.write_text("graph,id,size\nb,x,1\na,,2\na,,3\n", encoding="utf-8")
    problems.clear()
    read_members(table, ["a", "b"], "graph", "", ASKED, problems)
    assert problems == [f"{table}: line {line}: the row has no name" for line in (3, 4)]
    table.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"none is called graph\. Give --task\.graph NAME"):
        read_members(table, ["a"], "graph", "", ASKED, [])


def test_edges_name_nodes_within_their_example(tmp_path) -> None:
    (tmp_path / "nodes.csv").write_text("graph,id,size\na,x,1\na,y,2\nb,x,3\nb,y,4\n", encoding="utf-8")
    (tmp_path / "edges.csv").write_text("graph,from,to\nb,x,y\na,y,x\nb,x,q\n", encoding="utf-8")
    problems: list[str] = []
    members = read_members(tmp_path / "nodes.csv", ["a", "b"], "graph", "", ASKED, problems)
    links, wrong = [Edges(tmp_path / "edges.csv", (), "graph")], Problems()
    ends = ends_within(links, members, ASKED, wrong)
    assert ends.tolist() == [[2, 1, 2], [3, 0, -1]] and columns_of(links, ASKED) == ([], [])
    assert [*wrong.sentences()] == [f"{tmp_path / 'edges.csv'}: line 4: there is no node 'b / q'"]


def test_each_graph_s_edges_keep_their_features() -> None:
    edges = np.array([[4, 0, 2, 1], [3, 1, 3, 0]])
    e = np.arange(4.0)[:, None]
    members, known = graphs_of(edges, np.array([2, 3]), e, undirected=False)
    assert known is not None
    pairs = [tuple(pair) for one in members for pair in one.edge_index().T.tolist()]
    first = [0] * members[0].num_edges + [2] * members[1].num_edges
    whole = {(a + n, b + n): value for (a, b), n, value in zip(pairs, first, known[:, 0].tolist(), strict=True)}
    assert whole == {(4, 3): 0.0, (0, 1): 1.0, (2, 3): 2.0, (1, 0): 3.0}
    both, none = graphs_of(edges, np.array([2, 3]), None, undirected=True)
    assert none is None and both[1].num_edges == 4
