"""What a folder says of a graph."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgewise.data.reading import unread
from edgewise.tasks.nodes.own.given import DEGREE, Given
from edgewise.tasks.own.record import name


def given(names: list[str] | None) -> Given:
    return Given(Path(), (), 3, np.zeros((2, 0), dtype=np.int64), names, np.zeros((3, 5)), ("y",), [["u", "", "v"]], {})


def test_nodes_are_known_by_name_or_by_row() -> None:
    assert [name(given(["a", "b", "7"]), node) for node in range(3)] == ["a", "b", "7"]
    assert given(["a", "b", "7"]).number_of == {"a": 0, "b": 1, "7": 2}
    assert name(given(None), 2) == "2" and given(None).number_of == {"0": 0, "1": 1, "2": 2}
    once = given(["a", "b", "7"])
    assert once.number_of is once.number_of
    assert len(given(None)) == 3 and given(None).width == 5


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


def test_other_files_are_named_but_not_without_end(tmp_path) -> None:
    mine = tmp_path / "nodes.csv"
    mine.touch()
    assert unread(tmp_path, [mine]) == ()
    (tmp_path / "b.txt").touch()
    (tmp_path / "folder").mkdir()
    assert unread(tmp_path, [mine]) == ("not read: b.txt",)
    for number in range(20):
        (tmp_path / f"c{number:02}").touch()
    (line,) = unread(tmp_path, [mine])
    assert line.endswith("c08 and 11 more")
