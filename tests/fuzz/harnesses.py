"""What a fuzzer feeds: each reader of files with bytes of its own, and small valid files to begin with.

A reader, or an operator of the kernels, may return or raise an `EdgewiseError`; anything else is a finding."""

import gzip
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from edgewise.configuration import read_yaml
from edgewise.data import build_store
from edgewise.data.examples import Asked
from edgewise.data.table import object_in, pieces, read_table
from edgewise.graphs.layout import check_store
from edgewise.models.hub.pretrained import from_hugging_face
from edgewise.tasks.graphs.molecules import molecule
from edgewise.tasks.graphs.molecules import read_table as read_molecules
from edgewise.tasks.graphs.musk import read_bags
from edgewise.tasks.graphs.tudataset import tudataset
from edgewise.tasks.images.classification import read_image
from edgewise.tasks.images.digits import read_idx
from edgewise.tasks.nodes.citation import read_pickle, read_planetoid
from edgewise.tasks.nodes.webkb import _cut, _links, _pages
from edgewise.tasks.own.frames import read_xyz
from edgewise.tasks.own.graphs import graph_folder
from edgewise.tasks.own.images import read_picture
from edgewise.tasks.own.nodes import link_folder, node_folder
from edgewise.tasks.own.trajectories import TrajectoryFiles
from edgewise.tasks.slides.classification import read_folder
from edgewise.tasks.slides.reader import Tiling, lay_out
from edgewise.tasks.text.language import read_text
from edgewise.tasks.text.tokenization import read_tokenizer, tokenizer_from_json
from edgewise.tasks.text.translation import read_lines
from fuzz import seeds
from fuzz.operators import call_operator

CORPUS = Path(__file__).parent / "corpus"
SHARED = next((path for path in ["/dev/shm"] if Path(path).is_dir()), None)  # noqa: S108 (files in memory)


@dataclass(frozen=True)
class Harness:
    """`read` is given an empty folder and the fuzzer's bytes; `seeds` are those that it begins with."""

    read: Callable[[Path, bytes], Any]
    seeds: Callable[[], list[bytes]]
    fixed: Callable[[Path], None] = lambda folder: None

    def __call__(self, content: bytes) -> None:
        with tempfile.TemporaryDirectory(dir=SHARED) as name:
            self.fixed(Path(name))
            self.read(Path(name), content)


def file(name: str, read: Callable[[Path], Any]) -> Callable[[Path, bytes], Any]:
    """A reader of one file."""

    def write_and_read(folder: Path, content: bytes) -> Any:
        path = folder / name
        path.write_bytes(content)
        return read(path)

    return write_and_read


def folder_of(names: tuple[str, ...], read: Callable[[Path], Any]) -> Callable[[Path, bytes], Any]:
    """A reader of a folder: the bytes are its files, a line of ~ between two of them; an absent last one is absent."""

    def write_and_read(folder: Path, content: bytes) -> Any:
        for name, part in zip(names, content.split(b"~\n"), strict=False):
            (folder / name).write_bytes(part)
        return read(folder)

    return write_and_read


def graph_npz(folder: Path, content: bytes) -> Any:
    """A graph.npz with the fuzzer's bytes as the array x, unpacked."""
    with zipfile.ZipFile(folder / "graph.npz", "w") as archive:
        archive.writestr("edge_index.npy", seeds.npy([[0, 1, 2], [1, 2, 0]]))
        archive.writestr("labels.npy", seeds.npy([0, 1, 0]))
        archive.writestr("x.npy", content)
        for node, split in enumerate(("train", "valid", "test")):
            archive.writestr(f"{split}.npy", seeds.npy([node]))
    return node_folder(str(folder))


def read_columns(path: Path) -> None:
    table = read_table(path, ["size"])
    table.numbers("size")
    for name in table.columns:
        table.texts(name)


def read_pieces(path: Path) -> None:
    for table in pieces(path, ["size"], rows=2):
        table.numbers("size")


def read_films(path: Path) -> None:
    TrajectoryFiles(Asked("films"), history=2).read(path, None)


def read_row(text: str) -> None:
    """A film of a request, where it is an object of JSON."""
    if (row := object_in(text)) is not None:
        files = TrajectoryFiles(Asked("films"), history=2)
        files.checked([files.made(row, "film", "the film")])


def read_store(path: Path) -> None:
    """A store of the file's edges, or with the file as one of its own."""
    build_store(path.parent / "store", [path])


def open_store(name: str) -> Callable[[Path, bytes], Any]:
    def write_and_open(folder: Path, content: bytes) -> Any:
        (folder / "store" / name).write_bytes(content)
        return check_store(folder / "store")

    return write_and_open


def hub_with(*names: str, shard: str = "model.safetensors") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name in names:
            (folder / (shard if name == "model.safetensors" else name)).write_bytes(seeds.hub()[name])

    return write


def planetoid(folder: Path, content: bytes) -> Any:
    (folder / "ind.cora.graph").write_bytes(content)
    return read_planetoid(folder, "cora")


def citations(folder: Path) -> None:
    from tasks.miniature import write_planetoid

    write_planetoid(folder)


def write_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"vocab_size": 5, "bos_token_id": 0, "eos_token_id": 1}', encoding="utf-8")


def slides_of(folder: Path) -> None:
    for name in ("a.tiff", "b.tiff"):
        (folder / name).write_bytes(b"")


def pages(folder: Path) -> None:
    _, labels = _pages(folder / "pages.txt")
    _links(folder / "links.txt", len(labels))


def like_a_run(run: Path) -> None:
    """Nodes as in `NODES`, and what a run is said to have kept of them (edgewise.data.record)."""
    nodes, edges = seeds.NODES.split(b"~\n")
    (run / "nodes.csv").write_bytes(nodes)
    (run / "edges.csv").write_bytes(edges)
    node_folder(str(run), like=str(run))


def like_a_run_of_links(run: Path) -> None:
    """Nodes with links, and what a run is said to have kept of those (edgewise.data.record)."""
    (run / "nodes.csv").write_bytes(b"node,size\na,1\nb,2.5\nc,2\nd,3\n")
    (run / "edges.csv").write_bytes(b"sender,receiver\na,b\nb,c\nc,d\n")
    link_folder(str(run), like=str(run))


def three_tables(folder: Path) -> None:
    """A table of graphs, one of their nodes and one of their edges."""
    parts = (folder / "a").read_bytes().split(b"~\n")
    for name, part in zip(("graphs", "nodes", "edges"), [*parts, b"", b""], strict=False):
        (folder / f"{name}.csv").write_bytes(part)
    graph_folder(str(folder))


TU = ("D_A.txt", "D_graph_indicator.txt", "D_graph_labels.txt", "D_node_labels.txt", "D_splits.json")
HARNESSES = {
    "picture": Harness(
        file("a.png", lambda path: read_picture(path, "rgb", 4)),
        lambda: [
            seeds.png("RGBA"),
            seeds.png("RGB", "JPEG"),
            seeds.png("P", "GIF"),
            seeds.png("RGB", "BMP"),
            seeds.png("RGB", "TIFF"),
            seeds.png("I;16"),
        ],
    ),
    "graph-tables": Harness(file("a", lambda path: three_tables(path.parent)), lambda: [seeds.TABLES]),
    "npy": Harness(
        file("a.npy", lambda path: read_image(path, 8, 8)),
        lambda: [seeds.npy(np.zeros((8, 8))), seeds.npy([[1]], (2, 0))],
    ),
    "png": Harness(file("a.png", lambda path: read_image(path, 8, 8)), lambda: [seeds.png()]),
    "npz": Harness(
        file("graph.npz", lambda path: node_folder(str(path.parent))),
        lambda: [seeds.npz(edge_index=[[0, 1], [1, 0]], x=np.ones((9, 2)), labels=[0, 1] * 4 + [1])],
    ),
    "array": Harness(graph_npz, lambda: [seeds.npy(np.ones((3, 2), np.float32)), seeds.npy([[1], [2], [3]], (3, 0))]),
    "cut": Harness(
        file("a.npz", lambda path: _cut(path, 3)),
        lambda: [
            seeds.npz(train_mask=[True, False, False], val_mask=[False, True, False], test_mask=[False, False, True])
        ],
    ),
    "idx": Harness(
        file("a", lambda path: read_idx(path, 3)), lambda: [seeds.idx(), gzip.compress(seeds.idx(), mtime=0)]
    ),
    "csv": Harness(file("a.csv", read_columns), lambda: [b'node,size\n"a, b",1\n\n c ,2.5\n']),
    "parquet": Harness(
        file("a.parquet", read_columns),
        lambda: [seeds.parquet(kind, size=[1.0, 2.0], node=["a", None]) for kind in ("none", "snappy", "gzip", "zstd")],
    ),
    "pieces-csv": Harness(file("a.csv", read_pieces), lambda: [b'node,size\n"a, b",1\n\n c ,2.5\n"d",3\n']),
    "pieces-parquet": Harness(
        file("a.parquet", read_pieces),
        lambda: [seeds.parquet(kind, size=[1.0, 2.0, 3.0], node=["a", None, "b"]) for kind in ("none", "snappy")],
    ),
    "edges-npy": Harness(file("a.npy", read_store), lambda: [seeds.npy(np.array([[0, 1, 2], [1, 2, 0]]))]),
    "edges-safetensors": Harness(
        file("a.safetensors", read_store),
        lambda: [save({"edge_index": torch.tensor([[0, 1], [1, 0]]), "edge_attr": torch.ones(2, 3)})],
    ),
    "store-manifest": Harness(open_store("manifest.json"), lambda: [seeds.stored("manifest.json")], seeds.store_files),
    "store-array": Harness(
        open_store("senders.safetensors"), lambda: [seeds.stored("senders.safetensors")], seeds.store_files
    ),
    "nodes": Harness(
        folder_of(("nodes.csv", "edges.csv"), lambda folder: node_folder(str(folder))), lambda: [seeds.NODES]
    ),
    "record": Harness(folder_of(("data.json", "split.csv"), like_a_run), lambda: [seeds.RECORD]),
    "links": Harness(folder_of(("data.json", "split.csv"), like_a_run_of_links), lambda: [seeds.CUT]),
    "pickle": Harness(lambda _, content: read_pickle(content, "a.pickle"), seeds.pickles),
    "planetoid": Harness(planetoid, seeds.graph_pickle, citations),
    "tudataset": Harness(
        folder_of(TU, lambda folder: tudataset("D", folder=str(folder))),
        lambda: [seeds.GRAPHS, seeds.GRAPHS + b"~\n" + seeds.FOLDS],
    ),
    "musk": Harness(file("a.mat", read_bags), seeds.matlab),
    "webkb": Harness(folder_of(("pages.txt", "links.txt"), pages), lambda: [seeds.PAGES]),
    "molecules": Harness(
        file("a.csv", lambda path: read_molecules(path, "smiles", "value")), lambda: [seeds.MOLECULES]
    ),
    "smiles": Harness(
        lambda _, content: molecule(content.decode("utf-8", "replace"), crippen=True),
        lambda: [b"CC(=O)Oc1ccccc1C(=O)O", b"[Na+].[Cl-]", rb"F/C=C\F", b"C[C@H](N)C(=O)O"],
    ),
    "frames": Harness(file("a.xyz", lambda path: [*read_xyz(path)]), lambda: [seeds.FRAMES]),
    "film": Harness(
        file("a.npz", read_films),
        lambda: [
            seeds.npz(positions=np.ones((4, 2, 2)), kinds=np.array(["a", "b"]), box=[2.0, np.inf], periodic=[1, 0])
        ],
    ),
    "film-table": Harness(file("a.csv", read_films), lambda: [seeds.FILM]),
    "film-row": Harness(lambda _, content: read_row(content.decode("utf-8", "replace")), lambda: [seeds.FILM_ROW]),
    "slide": Harness(file("a.tiff", lambda path: lay_out(path, Tiling(workers=0))), seeds.slide),
    "labels": Harness(file("labels.csv", lambda path: read_folder(path.parent, 0)), lambda: [seeds.LABELS], slides_of),
    "text": Harness(file("a.txt", read_text), lambda: ["a text, äöü\n".encode()]),
    "lines": Harness(
        file("a.gz", read_lines), lambda: [gzip.compress(b"one\ntwo\n", mtime=0), gzip.compress(b"", mtime=0)]
    ),
    "tokenizer": Harness(
        lambda _, content: tokenizer_from_json(content.decode("utf-8", "replace"), "tokenizer.json"), seeds.tokenizers
    ),
    "pretrained-tokenizer": Harness(file("tokenizer.json", read_tokenizer), seeds.pretrained_tokenizers, write_config),
    "yaml": Harness(file("a.yaml", read_yaml), lambda: [seeds.RECIPE]),
    "hub-config": Harness(
        file("config.json", lambda path: from_hugging_face(path.parent)),
        lambda: [seeds.hub()["config.json"]],
        hub_with("model.safetensors"),
    ),
    "hub-index": Harness(
        file("model.safetensors.index.json", lambda path: from_hugging_face(path.parent)),
        lambda: [seeds.index()],
        hub_with("config.json", "model.safetensors", shard="shard.safetensors"),
    ),
    "operators": Harness(lambda _, content: call_operator(content), lambda: [bytes([number]) for number in range(12)]),
    "hub-weights": Harness(
        file("model.safetensors", lambda path: from_hugging_face(path.parent)),
        lambda: [seeds.hub()["model.safetensors"]],
        hub_with("config.json"),
    ),
}


def corpus(name: str) -> Iterator[bytes]:
    """The seeds of a harness, and what was found to break its reader once."""
    yield from HARNESSES[name].seeds()
    for path in sorted((CORPUS / name).glob("*")):
        yield path.read_bytes()
