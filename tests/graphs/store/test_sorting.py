"""Edges sorted through runs on the disk against a sort in memory."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from edgewise.graphs import store
from graphs.store.stores import EDGES, edge_list


@pytest.mark.parametrize("room", [37, 700, EDGES, 2 * EDGES])
@pytest.mark.parametrize("width", [0, 2])
def test_runs_on_disk_give_the_order_of_a_sort_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, width: int
) -> None:
    monkeypatch.setattr(store, "LEAST", room)
    monkeypatch.setattr(store, "SPARSE", 16)
    senders, receivers, e = edge_list()
    receivers = np.where(receivers < 20, 0, receivers)  # of one row there are more edges than fit in a run
    sorter = store.EdgeSorter(tmp_path, 0, width)
    for start in range(0, EDGES, 113):
        part = slice(start, start + 113)
        sorter.add(senders[part], receivers[part], e[part, :width] if width else None)
    pieces = list(sorter.pieces())
    keys = np.concatenate([keys for keys, _ in pieces])
    order = np.lexsort([senders, receivers])
    assert (keys == receivers[order].astype(np.uint64) << np.uint64(32) | senders[order].astype(np.uint64)).all()
    assert np.array_equal(np.concatenate([e for _, e in pieces]), e[order, :width])  # parallel edges in their order
    assert all(one[-1] < next_one[0] for (one, _), (next_one, _) in pairwise(pieces))
    assert len(sorter.runs) == (-(-EDGES // room) if room < EDGES else room == EDGES)
    if room == 700:
        assert max(len(keys) for keys, _ in pieces) < EDGES / 2


def test_nothing_is_sorted_to_nothing(tmp_path: Path) -> None:
    assert list(store.EdgeSorter(tmp_path, 0).pieces()) == []
