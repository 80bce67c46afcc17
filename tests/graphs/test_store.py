"""A store that was cut short, changed or written by somebody else is an error that names the file."""

import copy
import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise import Graph, aggregate, native
from edgewise.data import build_store
from edgewise.errors import DataError, GraphError
from edgewise.graphs import Store
from edgewise.graphs import store as stored_graphs
from edgewise.graphs.layout import START, check_store
from edgewise.graphs.make.links import edges_between
from edgewise.graphs.store import StoredRows
from graphs.stores import EDGES, NODES, edge_list, in_memory, labelled, written


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return labelled(tmp_path / "store")


def changed(path: Path, place: int, content: bytes) -> None:
    before = path.read_bytes()
    path.write_bytes(before[:place] + content + before[place + len(content) :])


def test_a_graph_is_mapped_and_pickled_by_its_path(store: Path) -> None:
    graph = Graph.open(store)
    assert graph == in_memory()
    state = pickle.dumps(Graph.open(store))
    assert len(state) < 1000
    assert pickle.loads(state) == graph  # noqa: S301 - our own
    assert graph.rows(3, 8) == in_memory().rows(3, 8)
    assert copy.deepcopy(Graph.open(store).to("meta")).device.type == "meta"
    with torch.inference_mode():
        opened = Graph.open(store)
    assert not any(part.is_inference() for part in opened._compact)


def test_a_store_that_was_opened_by_a_relative_path_is_found_from_elsewhere(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    state = pickle.dumps(Graph.open(store.name))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(state) == in_memory()  # noqa: S301 - our own


def test_what_lists_all_edges_of_a_huge_graph_says_so(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewise.memory.machine", lambda: 100_000)
    for verb in (Graph.edge_index, Graph.symmetrise, Graph.transpose, Graph.dense_mask, Graph.out_degrees):
        graph = Graph.open(store)
        with pytest.raises(GraphError, match=r"3,000 edges of a store|a mask of"):
            verb(graph)
    assert Graph.open(store).rows(0, 2).num_edges > 0
    assert int(Graph.open(store).in_degrees().sum()) == 3000


def test_a_write_is_noticed_and_stays_in_this_process(store: Path) -> None:
    graph = Graph.open(store)
    graph.offsets[3] += 1
    with pytest.raises(GraphError, match="written in place"):
        graph.check_unwritten()
    check_store(store)


def test_what_is_damaged_is_named(store: Path) -> None:
    path = store / "senders.safetensors"
    content = path.read_bytes()
    for broken, message in {
        content[:-4]: r"senders\.safetensors: .* bytes instead of",
        content[:100]: "its header is not what the manifest says",
        b"\0" * len(content): "its header is not what the manifest says",
    }.items():
        path.write_bytes(broken)
        with pytest.raises(DataError, match=message):
            Graph.open(store)
    path.write_bytes(content)
    changed(path, START + 8, b"\x01")
    Graph.open(store)  # only `check` reads it all
    with pytest.raises(DataError, match=r"senders\.safetensors is damaged"):
        check_store(store)
    changed(path, START + 8, (500).to_bytes(4, "little"))
    with pytest.raises(DataError, match="a sender that is none of 500 nodes"):
        check_store(store)
    path.write_bytes(content)
    changed(store / "offsets.safetensors", START + 8, (2999).to_bytes(8, "little"))
    with pytest.raises(DataError, match="offsets that fall"):
        check_store(store)
    changed(store / "offsets.safetensors", START, (1).to_bytes(8, "little"))
    with pytest.raises(DataError, match="lead from 1 to 3000"):
        Graph.open(store)
    path.unlink()
    with pytest.raises(DataError, match=r"senders\.safetensors: cannot be read \(No such file"):
        Graph.open(store)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout": 9}, "its layout is 9, and this version reads 1"),
        ({"format": "other"}, "this version reads"),
        ({"nodes": 3}, "its offsets do not fit 3 nodes"),
        ({"edges": "many"}, "invalid literal"),
        ({"arrays": {}}, "its offsets do not fit"),
        ({"arrays": {"../x": {"dtype": "I64", "shape": [1], "sha256": ""}}}, "an array '../x'"),
        ({"arrays": {"x": {"dtype": "I64", "shape": [-1], "sha256": ""}}}, "an array 'x' of shape"),
        ({"arrays": {"x": {"dtype": "I65", "shape": [1], "sha256": ""}}}, "I65"),
    ],
)
def test_a_manifest_of_somebody_else(store: Path, change: dict[str, object], message: str) -> None:
    path = store / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=message):
        Graph.open(store)


ROWS, SENDERS = torch.tensor([0, 0, 1]), torch.zeros(1, dtype=torch.int32)  # of two nodes and one edge


@pytest.mark.parametrize(
    ("nodes", "change", "message"),
    [
        (-1, {"offsets": torch.empty(0, dtype=torch.int64)}, "it has -1 nodes and 1 edges"),
        (2, {"offsets": ROWS.int()}, r"its offsets are I32 \[3\], and must be I64 with one axis"),
        (2, {"offsets": ROWS.double()}, r"its offsets are F64 \[3\], and must be I64"),
        (2, {"offsets": ROWS[:, None].expand(3, 2)}, r"its offsets are I64 \[3, 2\], and must be I64 with one axis"),
        (2, {"senders": torch.tensor([0.7])}, r"its senders are F32 \[1\], and must be I32 or I64 with one axis"),
        (2, {"names": SENDERS, "name_ends": ROWS[:2]}, r"its names are I32 \[1\], and must be U8"),
        (2, {"name_ends": ROWS}, "its name_ends do not fit 2 nodes"),
        (2, {"train": ROWS.float()}, r"its train are F32 \[3\], and must be I64"),
    ],
)
def test_arrays_that_would_be_misread_are_refused(
    tmp_path: Path, nodes: int, change: dict[str, torch.Tensor], message: str
) -> None:
    """Their bytes were read as those of other numbers, some of them behind their end."""
    store = written(tmp_path / "store", nodes, 1, **({"offsets": ROWS, "senders": SENDERS} | change))
    for read in (Graph.open, check_store):
        with pytest.raises(DataError, match=message):
            read(store)


def test_offsets_whose_differences_wrap_are_named(tmp_path: Path) -> None:
    """`check_store` passed them, and `aggregate` ended the process."""
    wraps = torch.tensor([0, 2**63 - 1, -5, 3])
    store = written(tmp_path / "store", 3, 3, offsets=wraps, senders=torch.zeros(3, dtype=torch.int32))
    with pytest.raises(DataError, match=r"offsets\.safetensors: offsets that fall"):
        check_store(store)
    with pytest.raises(DataError, match="a row's offsets or senders are out of range"):
        aggregate(Graph.open(store), torch.ones(3, 4))
    late = written(tmp_path / "late", 2, 1, offsets=torch.tensor([1, 1, 1]), senders=SENDERS)
    with pytest.raises(DataError, match=r"offsets\.safetensors: it starts with 1, not with 0"):
        check_store(late)


@pytest.mark.parametrize(
    ("ends", "node", "message"),
    [
        ([10**15, 10**15], 0, "it ends with 1,000,000,000,000,000, not with 3"),
        ([-5, 3], 0, "name_ends that fall"),
        ([3, 2], 1, "name_ends that fall"),
    ],
)
def test_names_that_end_elsewhere_are_named(tmp_path: Path, ends: list[int], node: int, message: str) -> None:
    names = {"name_ends": torch.tensor(ends), "names": torch.tensor([*b"abc"], dtype=torch.uint8)}
    store = written(tmp_path / "store", 2, 1, offsets=ROWS, senders=SENDERS, **names)
    with pytest.raises(DataError, match=f"the name of node {node} would go from .* of 3 bytes"):
        Store.open(store).name(node)
    with pytest.raises(DataError, match=message):
        check_store(store)


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


def test_a_store_of_more_nodes_than_fit_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_store(tmp_path / "store", [([0], [1], None)], nodes=1_000_000)
    graph = Graph.open(tmp_path / "store")
    monkeypatch.setattr("edgewise.memory.machine", lambda: 40_000_000)
    with pytest.raises(GraphError, match=r"listing 1 edges of a store of 1,000,000 nodes, .* takes 24\.0 MB"):
        graph.edge_index()


@pytest.mark.parametrize("backend", [None, "segment"])
@pytest.mark.parametrize("sender", [2_000_000_000, 3_000, -1])
def test_edges_that_lead_out_of_a_store_are_followed_by_no_verb(
    tmp_path: Path, sender: int, backend: str | None
) -> None:
    """Kernels read memory that was not the features', or ended the process."""
    i = torch.arange(1000)
    build_store(tmp_path / "ring", [(i, (i + 1) % 1000, None)])
    path = tmp_path / "ring" / "senders.safetensors"
    content = bytearray(path.read_bytes())
    content[-4 * 10 : -4 * 9] = sender.to_bytes(4, "little", signed=True)
    path.write_bytes(content)
    with pytest.raises(DataError, match="ring: a row's offsets or senders are out of range"):
        aggregate(Graph.open(tmp_path / "ring"), torch.ones(1000, 8), backend=backend)


@pytest.mark.parametrize(("name", "number", "size"), [("senders", 2_000_000_000, 4), ("offsets", 2**40, 8)])
def test_rows_that_lead_out_of_a_store_are_refused_and_others_read(
    tmp_path: Path, name: str, number: int, size: int
) -> None:
    """`aggregate` on such rows ended the process."""
    i = torch.arange(1000)
    build_store(tmp_path / "ring", [(i, (i + 1) % 1000, None)])
    path = tmp_path / "ring" / f"{name}.safetensors"
    content = bytearray(path.read_bytes())
    content[-size * 10 : -size * 9] = number.to_bytes(size, "little")
    path.write_bytes(content)
    graph = Graph.open(tmp_path / "ring")
    with pytest.raises(DataError, match="ring: a row's offsets or senders are out of range"):
        graph.rows(900, 1000)
    if name == "offsets":
        for read in (
            Graph.in_degrees,
            lambda graph: graph.receivers,
            lambda graph: edges_between(graph, torch.tensor([991]), torch.tensor([0])),
            lambda graph: edges_between(graph, torch.tensor([990]), torch.tensor([0])),
        ):
            with pytest.raises(DataError, match="ring: a row's offsets or senders are out of range"):
                read(graph)
    found = edges_between(graph, torch.tensor([5]), torch.tensor([4]))
    assert [int(bound) for bound in found] == [5, 6]
    assert (aggregate(graph.rows(0, 900), torch.ones(1000, 1)) == 1).all()
    assert graph.rows(1000, 1000).num_edges == 0


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


@pytest.mark.parametrize("room", [37, 700, EDGES, 2 * EDGES])
@pytest.mark.parametrize("width", [0, 2])
def test_runs_on_disk_give_the_order_of_a_sort_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, width: int
) -> None:
    monkeypatch.setattr(stored_graphs, "LEAST", room)
    monkeypatch.setattr(stored_graphs, "SPARSE", 16)
    senders, receivers, e = edge_list()
    receivers = np.where(receivers < 20, 0, receivers)  # of one row there are more edges than fit in a run
    sorter = stored_graphs.EdgeSorter(tmp_path, 0, width)
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
    assert list(stored_graphs.EdgeSorter(tmp_path, 0).pieces()) == []
