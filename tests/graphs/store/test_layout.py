"""A store that was cut short, changed or written by somebody else is an error that names the file."""

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch

from edgewise import Graph, aggregate
from edgewise.errors import DataError, GraphError
from edgewise.graphs import Store
from edgewise.graphs.layout import START, check_store
from graphs.store.stores import in_memory, labelled, written


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
