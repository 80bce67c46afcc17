"""What the files of a folder hold of a graph."""

import pytest

from edgewise.errors import DataError
from edgewise.tasks import node_folder
from tasks.nodes.own.test_folder import write


def test_a_graph_without_edges_is_legal(tmp_path) -> None:
    assert node_folder(write(tmp_path, edges="sender,receiver\n")).graph().num_edges == 0


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
    (tmp_path / "graph.npz").unlink()
    write(tmp_path)
    (tmp_path / "nodes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not a text in a known encoding"):
        node_folder(str(tmp_path))
