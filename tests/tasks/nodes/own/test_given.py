"""What a folder says of a graph."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgewise.data.graph import DEGREE, OneGraph


def given(names: list[str] | None) -> OneGraph:
    return OneGraph(Path(), (), "nodes", 3, names, ("y",), [["u", "", "v"]], x=np.zeros((3, 5)))


def test_nodes_are_known_by_name_or_by_row() -> None:
    assert [given(["a", "b", "7"]).name(node) for node in range(3)] == ["a", "b", "7"]
    assert given(["a", "b", "7"]).number_of == {"a": 0, "b": 1, "7": 2}
    assert given(None).name(2) == "2" and given(None).number_of == {"0": 0, "1": 1, "2": 2}
    once = given(["a", "b", "7"])
    assert once.number_of is once.number_of
    assert len(given(None)) == 3


def test_where_nothing_is_known_of_nodes_their_degrees_are() -> None:
    edges = np.array([[0, 0, 1], [1, 2, 1]])
    bare = replace(given(None), x=[])
    (column,) = bare.described(edges).x
    assert (column.name, str(column)) == (DEGREE, "log(1 + degree) (a number)")
    assert np.expm1(column.values) == pytest.approx([2, 3, 1])
    assert bare.described(edges).notes == ("each node has log(1 + degree): nothing else is known of it",)
    (alone,) = bare.described(edges[:, :0]).x
    assert alone.values.tolist() == [0, 0, 0]
    known = given(None)
    assert known.described(edges) is known
