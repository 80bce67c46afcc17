"""What an open store says of its nodes."""

from pathlib import Path

import pytest

from edgewise.errors import DataError
from edgewise.graphs import Store
from graphs.store.stores import NODES, edge_list, in_memory, labelled


def test_an_open_store(tmp_path: Path) -> None:
    store = Store.open(labelled(tmp_path / "store"))
    labels, train = store.labels(), store.nodes_of("train")
    assert labels is not None and labels[:5].tolist() == [0, 1, 2, 0, 1]
    assert train is not None and train.tolist() == list(range(0, NODES, 4))
    assert store.e is not None and store.e.shape == (len(edge_list()[0]), 2)
    assert store.graph == in_memory()
    assert store.name(12) == "12"
    with pytest.raises(DataError, match="there is no node 500 of 500"):
        store.name(NODES)
