"""Stores built from every kind of file against graphs in memory; what is refused; a build that is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from edgewise import Graph
from edgewise.data import build_store
from edgewise.data.building import arrays_of, edges_of
from edgewise.errors import DataError
from edgewise.graphs import Store, store
from edgewise.graphs.layout import check_store
from graphs.stores import EDGES, NODES, edge_list, in_memory


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges go through the disk, a few hundred at a time."""

    class Small(store.EdgeSorter):
        def __init__(self, folder: Path, memory: int, width: int = 0) -> None:
            super().__init__(folder, 0, width)

    monkeypatch.setattr(store, "LEAST", 400)
    monkeypatch.setattr("edgewise.data.building.EdgeSorter", Small)


def written(folder: Path, kind: str) -> list[Path]:
    """The edges in two files of a kind."""
    senders, receivers, e = edge_list()
    paths = []
    for number, part in enumerate((slice(0, 1000), slice(1000, None))):
        path = folder / f"edges-{number}.{kind.removeprefix('columns-')}"
        paths.append(path)
        index = np.stack([senders[part], receivers[part]])
        if kind == "npy":
            np.save(path, index)
        elif kind == "columns-npy":
            np.save(path, np.ascontiguousarray(index.T, np.int32))
        elif kind == "safetensors":
            save_file({"edge_index": torch.tensor(index), "edge_attr": torch.tensor(e[part])}, path)
        elif kind == "csv":
            rows = zip(*index.tolist(), *e[part].T.tolist(), strict=True)
            path.write_text("sender,receiver,a,b\n" + "".join(f"{s},{r},{a!r},{b!r}\n" for s, r, a, b in rows))
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            columns = {"sender": index[0], "receiver": index[1], "a": e[part, 0], "b": e[part, 1]}
            pq.write_table(pa.table(columns), path, row_group_size=300)
    return paths


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("kind", ["npy", "columns-npy", "safetensors", "csv", "parquet"])
def test_edges_of_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    manifest = build_store(tmp_path / "store", written(tmp_path, kind), NODES)
    assert manifest == check_store(tmp_path / "store")
    store, expected = Store.open(tmp_path / "store"), in_memory()
    assert store.graph == expected
    assert ("e" in manifest.arrays) == (kind not in ("npy", "columns-npy"))
    if store.e is not None:
        torch.testing.assert_close(store.e.rows(0, EDGES), expected.sort_edges(torch.tensor(edge_list()[2])))
    assert not list(tmp_path.glob(".writing*")) and not list((tmp_path / "store").glob("*.part"))


@pytest.mark.usefixtures("small_runs")
def test_both_ways_each_once(tmp_path: Path) -> None:
    senders, receivers, _ = edge_list()
    build_store(tmp_path / "store", [(senders, receivers, None)], NODES + 9, undirected=True)
    expected = Graph.from_edge_index(np.stack([senders, receivers]), NODES + 9).symmetrise()
    assert Graph.open(tmp_path / "store") == expected


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("step", [1, 700, EDGES])
def test_an_edge_that_is_listed_has_its_own_attributes_both_ways(tmp_path: Path, step: int) -> None:
    """They were those of the one turned around, where that came in an earlier piece."""
    senders, receivers, e = edge_list()
    pairs = [*zip(senders.tolist(), receivers.tolist(), strict=True)]
    expected = {pair[::-1]: row for pair, row in zip(pairs[::-1], e.tolist()[::-1], strict=True)}
    expected |= dict(zip(pairs[::-1], e.tolist()[::-1], strict=True))
    pieces = [slice(n, n + step) for n in range(0, EDGES, step)]
    build_store(tmp_path / "store", [(senders[p], receivers[p], e[p]) for p in pieces], NODES, undirected=True)
    store = Store.open(tmp_path / "store")
    assert store.e is not None
    found = zip(store.graph.edge_index().T.tolist(), store.e.rows(0, store.graph.num_edges).tolist(), strict=True)
    assert {tuple(pair): row for pair, row in found} == expected


def test_the_arrays_are_plain_safetensors(tmp_path: Path) -> None:
    senders, receivers, _ = edge_list()
    build_store(tmp_path / "store", [(senders, receivers, None)])
    offsets = load_file(tmp_path / "store" / "offsets.safetensors")["offsets"]
    assert offsets.equal(Graph.from_edge_index(np.stack([senders, receivers]), len(offsets) - 1).offsets)


def test_nodes_with_names_labels_parts_and_features(tmp_path: Path) -> None:
    (tmp_path / "n1.csv").write_text("node,label,split,size,age\nzoë,b,train,1,2\n7,NA,,3,4\n")
    (tmp_path / "n2.csv").write_text('node,label,split,size,age\n"a, b",a,test,5,6\n')
    (tmp_path / "e.csv").write_text('sender,receiver\n"a, b",7\nzoë,7\n7,zoë\n')
    build_store(tmp_path / "store", [tmp_path / "e.csv"], [tmp_path / "n1.csv", tmp_path / "n2.csv"])
    store = Store.open(tmp_path / "store")
    assert store.graph.edge_index().tolist() == [[1, 0, 2], [0, 1, 1]]
    assert store.x is not None and store.x.rows(1, 3).tolist() == [[3, 4], [5, 6]]
    labels, test = store.labels(), store.nodes_of("test")
    assert labels is not None and labels.tolist() == [1, -1, 0]
    assert test is not None and test.tolist() == [2]
    assert (store.manifest.classes, store.manifest.features) == (("a", "b"), ("size", "age"))
    assert [store.name(node) for node in range(3)] == ["zoë", "7", "a, b"]


@pytest.mark.parametrize(
    ("columns", "ends"), [("Source,target", ()), ("src,dst", ()), ("von,nach", ("von", "nach")), ("a,b", ("b", "a"))]
)
def test_ends_of_edges_and_names_of_nodes_are_called_as_in_a_folder_of_ones_own(
    tmp_path: Path, columns: str, ends: tuple[str, ...]
) -> None:
    (tmp_path / "e.csv").write_text(f"{columns},hours\n30,10,1\n20,30,2\n")
    (tmp_path / "n.csv").write_text("ID,Label,size\n10,u,1\n30,v,3\n20,u,2\n")
    build_store(tmp_path / "store", [tmp_path / "e.csv"], [tmp_path / "n.csv"], ends=ends)
    store = Store.open(tmp_path / "store")
    turned = ends == ("b", "a")
    assert sorted(store.graph.edge_index().T.tolist()) == ([[0, 1], [1, 2]] if turned else [[1, 0], [2, 1]])
    assert [store.name(node) for node in range(3)] == ["10", "30", "20"]
    assert store.manifest.features == ("size",) and store.manifest.classes == ("u", "v")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8])
def test_features_in_every_type(tmp_path: Path, dtype: torch.dtype) -> None:
    x = torch.randint(-99, 99, (40, 3), generator=torch.Generator().manual_seed(0)).float()
    save_file({"x": x, "labels": torch.arange(40)}, tmp_path / "nodes.safetensors")
    build_store(tmp_path / "store", [([0], [1], None)], [tmp_path / "nodes.safetensors"], features=dtype)
    store = Store.open(tmp_path / "store")
    assert store.x is not None and store.x.dtype == dtype
    assert store.x.rows(0, 40).equal(x.to(dtype))
    assert store.x.mapped().equal(x.to(dtype))
    assert store.manifest.classes[-1] == "class 39"


WRONG: list[tuple[dict[str, str], str]] = [
    ({"e.csv": "sender,receiver\n0,9\n"}, "edge 0: receiver 9 is out of range: there are 3 nodes"),
    ({"e.csv": "sender,receiver\n0,1\n0.5,1\n"}, "e.csv: line 3: sender is 0.5; no column 'node' or 'id' of --nodes"),
    (
        {"e.csv": "sender,receiver\nann,ben\n"},
        "line 2: sender is 'ann', not a finite number; no column 'node' or 'id' of --nodes",
    ),
    (
        {"e.csv": "sender\n0\n"},
        "e.csv: its columns are sender; expected sender and receiver, source and target, from and",
    ),
    ({"e.csv": "u,v,src,dst\n0,1,0,1\n"}, "expected one of src and dst; u and v: give --ends"),
    ({"e.csv": "sender,receiver\n0,1\n", "f.csv": "sender,receiver,w\n0,1,2\n"}, "edge 1: 1 attributes, and 0 before"),
    ({"n.csv": "size\n1\nx\n3\n"}, "n.csv: line 3: size is 'x', not a finite number"),
    ({"n.csv": "size\n1\n2\n3\n", "o.csv": "size,age\n1,2\n"}, "o.csv: its features are size, age; before: size"),
    ({"n.csv": "size\n"}, "edge 0: sender 0 is out of range: there are 0 nodes"),
    ({"n.csv": "node\na\nb\nc\n"}, "e.csv: line 2: there is no node '0'"),
    ({"n.csv": "node\na\nb\na\n"}, "node 2: its name is that of a node before"),
    ({"n.csv": "node,size\na,1\n,2\n,3\n"}, "n.csv: line 4: the node has no name"),
    ({"n.csv": "label,split\nu,train\nv,trian\nw,\n"}, "n.csv: line 3: the split 'trian' is none of"),
    ({"e.txt": ""}, "e.txt: files end in .csv, .parquet, .npy or .safetensors"),
    ({"missing": "e.npy"}, "e.npy: cannot be read (No such file or directory)"),
]


@pytest.mark.parametrize(("files", "message"), WRONG, ids=[message[:30] for _, message in WRONG])
def test_what_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    absent = files.get("missing")
    files = {"e.csv": "sender,receiver\n0,1\n", "n.csv": "size\n1\n2\n3\n"} | files
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    edges = [tmp_path / name for name in ("e.csv", "f.csv", "e.txt") if name in files]
    nodes = [tmp_path / name for name in ("n.csv", "o.csv") if name in files]
    with pytest.raises(DataError) as caught:
        build_store(tmp_path / "store", edges if absent is None else [tmp_path / absent], nodes)
    assert message in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {*files}  # nothing is left behind


def test_a_store_is_not_overwritten_and_features_must_fit_their_type(tmp_path: Path) -> None:
    build_store(tmp_path / "store", [([0], [1], None)])
    with pytest.raises(DataError, match="is there already"):
        build_store(tmp_path / "store", [([0], [1], None)])
    nodes = [{"x": torch.tensor([[1.0], [1e6]])}]
    with pytest.raises(DataError, match=r"nodes\[0\]: node 1, feature 0 is 1e\+06: no float16"):
        build_store(tmp_path / "other", [([0], [1], None)], nodes, features=torch.float16)
    with pytest.raises(DataError, match="no int8"):
        build_store(tmp_path / "other", [([0], [1], None)], [{"x": torch.tensor([[0.5]] * 2)}], features=torch.int8)
    fractions = {"x": torch.ones(2, 1), "labels": torch.tensor([0.2, 1.7])}
    with pytest.raises(DataError, match=r"labels of nodes\[0\] must be whole numbers \[N\], not float32"):
        build_store(tmp_path / "other", [([0], [1], None)], [fractions])
    with pytest.raises(DataError, match="64 MB or more"):
        build_store(tmp_path / "other", [([0], [1], None)], memory=1000)


def test_features_in_memory_may_learn_and_labels_are_few(tmp_path: Path) -> None:
    """A weight's features ended in an error of PyTorch's, and 2³² + 1 was the class 1."""
    x = torch.nn.Embedding(3, 2).weight
    for dtype in (torch.uint8, torch.bool, torch.int64):
        place = tmp_path / str(dtype)
        build_store(place, [([0], [1], None)], [{"x": x, "labels": torch.tensor([1, 0, 1]).to(dtype)}])
        store = Store.open(place)
        assert store.x is not None and store.x.rows(0, 3).equal(x.detach())
        labels = store.labels()
        assert labels is not None and labels.tolist() == [1, 0, 1]
    large = {"x": x, "labels": torch.tensor([0, 1, 2**32 + 1])}
    with pytest.raises(DataError, match=r"labels of nodes\[0\] must be .* classes below 65,536, not 4,294,967,297"):
        build_store(tmp_path / "store", [([0], [1], None)], [large])


@pytest.mark.parametrize("number", [float("nan"), float("-inf"), 1e300])
def test_attributes_that_are_not_finite_are_named(tmp_path: Path, number: float) -> None:
    e = np.zeros((3, 2))
    e[1, 1] = number
    save_file({"edge_index": torch.arange(6).view(2, 3), "edge_attr": torch.tensor(e)}, tmp_path / "e.safetensors")
    for edges in ([tmp_path / "e.safetensors"], [([0], [1], e[:1]), ([1, 2], [0, 0], e[1:])]):
        shown = "nan" if np.isnan(number) else "inf"
        with pytest.raises(DataError, match=f"edge 1: attribute 1 is -?{shown}: no float32"):
            build_store(tmp_path / "store", edges)


def test_attributes_that_are_a_single_number_are_named(tmp_path: Path) -> None:
    save_file(
        {"edge_index": torch.tensor([[0, 1], [1, 0]]), "edge_attr": torch.tensor(1.0)}, tmp_path / "e.safetensors"
    )
    with pytest.raises(DataError, match=r"e\.safetensors: edge_attr has 0 rows for 2 edges"):
        build_store(tmp_path / "store", [tmp_path / "e.safetensors"])


def test_a_full_disk_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("edgewise.graphs.layout.Writer.finish", full)
    with pytest.raises(DataError, match=r"cannot write the store .*: No space left on device"):
        build_store(tmp_path / "store", [([0], [1], None)])
    assert list(tmp_path.iterdir()) == []


KILLED = """
import sys, numpy as np
from edgewise.data import build_store
def edges():
    for number in range(40):
        yield np.arange(20000) % 997, np.arange(20000) * 31 % 1000, None
print("ready", flush=True)
build_store(sys.argv[1], edges(), 1000, memory=64 << 20)
"""


def kill_builds(folder: Path, times: int, seed: int) -> set[bool]:
    """Kill a build at random moments; each leaves no store or a whole one. Which of the two there were."""
    draw, found = np.random.default_rng(seed), set()
    for number in range(times):
        store = folder / f"store-{number}"
        process = subprocess.Popen([sys.executable, "-c", KILLED, store], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(draw.uniform(0, 0.25))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found.add(store.exists())
        if store.exists():
            assert check_store(store).edges == 800_000
        else:
            build_store(store, [([0], [1], None)])  # what was left half does not stand in the way
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_build_that_is_killed_leaves_no_store_or_a_whole_one(tmp_path: Path) -> None:
    kill_builds(tmp_path, 1, seed=0)


@pytest.mark.endurance
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_twenty_builds_that_are_killed(tmp_path: Path) -> None:
    assert kill_builds(tmp_path, 20, seed=1)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
def test_a_second_build_of_one_store_is_refused_and_leaves_the_first_alone(tmp_path):
    """Both wrote the same files, and one of them said that its store was whole."""

    def edges():
        yield [0], [1], None
        with pytest.raises(DataError, match=r"another process is writing .*store: wait for it or stop it"):
            build_store(tmp_path / "store", [([1], [0], None)])
        yield [1], [2], None

    x = torch.arange(6.0).view(3, 2)
    assert build_store(tmp_path / "store", edges(), [{"x": x}]) == check_store(tmp_path / "store")
    assert load_file(tmp_path / "store" / "x.safetensors")["x"].equal(x)
    assert list(tmp_path.iterdir()) == [tmp_path / "store"]


def test_what_a_killed_build_has_left_is_no_part_of_the_next(tmp_path):
    (tmp_path / ".writing-store").mkdir()
    for name in ("x.safetensors", "keys.part"):
        (tmp_path / ".writing-store" / name).write_bytes(bytes(1000))
    assert not build_store(tmp_path / "store", [([0], [1], None)]).arrays.keys() & {"x"}
    assert {path.stem for path in (tmp_path / "store").iterdir()} == {"manifest", "offsets", "senders"}


def test_a_large_number_does_not_make_a_file_of_gigabytes(tmp_path):
    with pytest.raises(DataError, match="3 edges name node 1,050,000,000, so there would be 1,050,000,001 nodes"):
        build_store(tmp_path / "store", [([0, 1, 1_050_000_000], [1, 2, 0], None)])
    assert list(tmp_path.iterdir()) == []
    assert build_store(tmp_path / "store", [([0, 1, 100_000], [1, 2, 0], None)]).nodes == 100_001


@pytest.mark.parametrize("place", [".", "", "/"])
def test_a_store_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="a store gets a folder of its own"):
        build_store(place, [([0], [0], None)])


def test_a_node_in_two_parts_is_named(tmp_path: Path) -> None:
    """It was in the last of them alone."""
    train = {
        "x": torch.ones(2, 1),
        **{part: torch.tensor([part == "train", False]) for part in ("train", "valid", "test")},
    }
    both = {
        "x": torch.ones(2, 1),
        **{part: torch.tensor([False, part != "train"]) for part in ("train", "valid", "test")},
    }
    with pytest.raises(DataError, match=r"nodes\[1\]: node 3 is in valid and in test: a node is in one of them"):
        build_store(tmp_path / "store", [([0], [0], None)], [train, both])


def test_rows_of_any_width_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 5_000_000), np.int8))
    assert build_store(tmp_path / "store", [([0], [0], None)], [tmp_path / "x.npy"]).arrays["x"].shape == (1, 5_000_000)


def test_arrays_are_read_where_they_lie(tmp_path: Path) -> None:
    x = torch.arange(24).view(6, 4)
    save_file({"a": x.to(torch.bfloat16), "b": x}, tmp_path / "x.safetensors")
    np.save(tmp_path / "x.npy", x.numpy())
    found = arrays_of(tmp_path / "x.safetensors") | arrays_of(tmp_path / "x.npy")
    assert found["a"].rows(1, 3).equal(x[1:3].to(torch.bfloat16))
    assert found["b"].rows(5, 6).equal(x[5:6])
    assert found[""].rows(0, 6).equal(x)
    assert [len(part) for part in found[""].pieces(4)] == [4, 2]


def test_an_array_that_promises_more_than_it_holds(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(100))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-8])
    with pytest.raises(DataError, match=r"x\.npy: .*promises \[100\]"):
        arrays_of(tmp_path / "x.npy")
    np.save(tmp_path / "f.npy", np.asfortranarray(np.zeros((3, 2))))
    with pytest.raises(DataError, match="write it in C order"):
        arrays_of(tmp_path / "f.npy")
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match=r"o\.npy: not a"):
        arrays_of(tmp_path / "o.npy")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[0, 1], [1, 0]], dtype=bool), r"edges must be integers \[2, E\] or \[E, 2\]"),
        (np.array([[0, 1], [1, 0]], dtype=">i4"), "its numbers are in the other order of bytes: write it in that of"),
    ],
)
def test_arrays_of_other_numbers_than_whole_ones_of_this_machine_are_refused(tmp_path, array, message: str) -> None:
    np.save(tmp_path / "e.npy", array)
    with pytest.raises(DataError, match=message):
        list(edges_of(tmp_path / "e.npy", None))


def test_a_column_without_a_name_is_neither_a_feature_nor_an_attribute(tmp_path) -> None:
    (tmp_path / "e.csv").write_text(",sender,receiver\n0,1,0\n1,0,1\n")
    (tmp_path / "n.csv").write_text(",size\n0,5\n1,7\n")
    assert [e for _, _, e in edges_of(tmp_path / "e.csv", None)] == [None]
    build_store(tmp_path / "s", [tmp_path / "e.csv"], [tmp_path / "n.csv"])
    assert Store.open(tmp_path / "s").x.rows(0, 2).tolist() == [[5], [7]]
