"""Rows read from disk through a cache of any size against the array itself."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from edgewise import native
from edgewise.errors import DataError, GraphError
from edgewise.graphs import Store
from edgewise.graphs.store import StoredRows
from graphs.store.stores import NODES, labelled

compiled = pytest.mark.skipif(native.library is None, reason="edgewise was installed without its C++ kernels")


@pytest.mark.parametrize(("dtype", "cache"), [(torch.float32, 0), (torch.float16, 100), (torch.bfloat16, 3000)])
@pytest.mark.parametrize("library", [pytest.param(True, marks=compiled), False])
def test_the_same_rows_whatever_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, cache: int, library: bool
) -> None:
    if not library:
        monkeypatch.setattr(native, "library", None)
    stored = Store.open(labelled(tmp_path / "store", dtype)).x
    assert stored is not None
    rows, draw = StoredRows(stored, cache), torch.Generator().manual_seed(0)
    expected = stored.rows(0, NODES).float()
    for _ in range(30):
        wanted = (torch.rand(200, generator=draw) ** 4 * NODES).long()
        assert rows[wanted].equal(expected[wanted])
    assert rows.hits + rows.reads == 6000
    assert rows[torch.empty(0, dtype=torch.int64)].shape == (0, 6)


@compiled
def test_what_is_read_often_stays(tmp_path: Path) -> None:
    stored = Store.open(labelled(tmp_path / "store")).x
    assert stored is not None
    rows = StoredRows(stored, cache=20 * stored.row_bytes)
    hot = torch.arange(10)
    for start in range(20, 400, 5):
        rows[hot]
        rows[torch.arange(start, start + 5)]
    before = rows.hits
    rows[hot]
    assert rows.hits == before + 10
    everything = StoredRows(stored, cache=10**9)
    everything[torch.arange(NODES)]
    everything[torch.arange(NODES)]
    assert (everything.hits, everything.reads) == (NODES, NODES)
    assert everything.measured() == {"cache_hits": 0.5, "bytes_read": NODES * stored.row_bytes}
    assert everything.measured() == {"cache_hits": 0.0, "bytes_read": 0}


@compiled
def test_threads_and_forks_share_a_cache(tmp_path: Path) -> None:
    stored = Store.open(labelled(tmp_path / "store")).x
    assert stored is not None
    rows, expected = StoredRows(stored, cache=50 * stored.row_bytes), stored.rows(0, NODES)
    draws = [torch.randint(NODES, (300,), generator=torch.Generator().manual_seed(n)) for n in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda wanted: rows[wanted], draws))
    assert all(one.equal(expected[wanted]) for one, wanted in zip(found, draws, strict=True))
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            os._exit(0 if all(rows[wanted].equal(expected[wanted]) for wanted in draws) else 1)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("number", [500, -1])
@pytest.mark.parametrize("library", [pytest.param(True, marks=compiled), False])
def test_a_row_that_is_out_of_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: bool, number: int
) -> None:
    """Without the C++, -1 was the last one."""
    if not library:
        monkeypatch.setattr(native, "library", None)
    stored = Store.open(labelled(tmp_path / "store")).x
    assert stored is not None
    with pytest.raises(DataError, match=f"there is no row {number} of 500"):
        StoredRows(stored)[torch.tensor([3, number])]


@pytest.mark.parametrize("library", [pytest.param(True, marks=compiled), False])
def test_numbers_may_be_integers_of_any_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: bool) -> None:
    """Those of 32 bits were read as half as many of 64."""
    if not library:
        monkeypatch.setattr(native, "library", None)
    stored = Store.open(labelled(tmp_path / "store")).x
    assert stored is not None
    rows, expected = StoredRows(stored), stored.rows(0, NODES)
    for wanted in (torch.tensor([3, 7, 1], dtype=torch.int32), torch.tensor([3, 7, 1], dtype=torch.uint8)):
        assert rows[wanted].equal(expected[[3, 7, 1]])
    with pytest.raises(GraphError, match="numbers must hold integers"):
        rows[torch.tensor([1.0])]
