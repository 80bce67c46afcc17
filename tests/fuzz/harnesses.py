"""What a fuzzer feeds: each reader of files with bytes of its own, and small valid files to begin with.

A reader, or an operator of the kernels, may return or raise an `EdgewiseError`; anything else is a finding."""

import gzip
import io
import json
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from edgewise.configuration import read_yaml
from edgewise.graphs import build_store
from edgewise.graphs.store.layout import check_store
from edgewise.models.hub.folder import from_hugging_face, to_hugging_face
from edgewise.tables.reading import pieces, read_table
from edgewise.tasks.graphs.molecules import molecule
from edgewise.tasks.graphs.molecules import read_table as read_molecules
from edgewise.tasks.graphs.musk import read_bags
from edgewise.tasks.graphs.tudataset import tudataset
from edgewise.tasks.images.classification import read_image
from edgewise.tasks.images.idx import read_idx
from edgewise.tasks.images.pictures import read_picture
from edgewise.tasks.links.folder import link_folder
from edgewise.tasks.nodes.own.folder import node_folder
from edgewise.tasks.nodes.pickles import read_pickle
from edgewise.tasks.nodes.planetoid import read_planetoid
from edgewise.tasks.nodes.webkb import _cut, _links, _pages
from edgewise.tasks.own.graphs import graph_folder
from edgewise.tasks.slides.classification import read_folder
from edgewise.tasks.slides.reader import Tiling, lay_out
from edgewise.tasks.text.language import read_text
from edgewise.tasks.text.pretrained import read_tokenizer
from edgewise.tasks.text.tokenization import BPETokenizer, CharacterTokenizer, tokenizer_from_json
from edgewise.tasks.text.translation import read_lines
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


def npy(array: Any, version: tuple[int, int] = (1, 0)) -> bytes:
    made = io.BytesIO()
    np.lib.format.write_array(made, np.asarray(array), version)
    return made.getvalue()


def npz(**arrays: Any) -> bytes:
    made = io.BytesIO()
    np.savez_compressed(made, **arrays)
    return made.getvalue()


def graph_npz(folder: Path, content: bytes) -> Any:
    """A graph.npz with the fuzzer's bytes as the array x, unpacked."""
    with zipfile.ZipFile(folder / "graph.npz", "w") as archive:
        archive.writestr("edge_index.npy", npy([[0, 1, 2], [1, 2, 0]]))
        archive.writestr("labels.npy", npy([0, 1, 0]))
        archive.writestr("x.npy", content)
        for split in ("train", "valid", "test"):
            archive.writestr(f"{split}.npy", npy([0]))
    return node_folder(str(folder))


def png(mode: str = "L", kind: str = "PNG") -> bytes:
    from PIL import Image

    made = io.BytesIO()
    Image.new(mode, (8, 8), 90).save(made, kind)
    return made.getvalue()


def parquet(compression: str, **columns: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = io.BytesIO()
    pq.write_table(pa.table(columns), made, compression=compression)
    return made.getvalue()


def read_columns(path: Path) -> None:
    table = read_table(path, ["size"], ["node"])
    table.numbers("size")
    for name in table.columns:
        table.texts(name)


def read_pieces(path: Path) -> None:
    for table in pieces(path, ["size"], ["node"], rows=2):
        table.numbers("size")


def read_store(path: Path) -> None:
    """A store of the file's edges, or with the file as one of its own."""
    build_store(path.parent / "store", [path])


def store_files(folder: Path) -> None:
    build_store(folder / "store", [([0, 1, 2], [1, 2, 0], None)])


def open_store(name: str) -> Callable[[Path, bytes], Any]:
    def write_and_open(folder: Path, content: bytes) -> Any:
        (folder / "store" / name).write_bytes(content)
        return check_store(folder / "store")

    return write_and_open


def stored(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        store_files(Path(folder))
        return (Path(folder) / "store" / name).read_bytes()


def matlab() -> list[bytes]:
    import scipy.io

    names = np.empty((1, 1), dtype=object)
    names[0, 0] = np.array(["no", "yes"])
    content = {"x": {"data": np.ones((3, 4)), "nlab": np.array([[1], [2], [1]]), "lablist": names}}
    content["x"]["ident"] = {"milbag": np.array(["a", "a", "b"])}
    made = []
    for packed in (False, True):
        written = io.BytesIO()
        scipy.io.savemat(written, content, do_compression=packed)
        made.append(written.getvalue())
    return made


def slide() -> list[bytes]:
    from edgewise.tasks.slides.simulator import Level, encoded, write_pyramid

    pixels = np.full((256, 256, 3), (150, 60, 160), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.tiff"
        write_pyramid(path, [Level(256, 256, encoded(pixels), 1)], 0.5)
        return [path.read_bytes()]


@cache
def hub() -> dict[str, bytes]:
    """The files of a tiny model in the layout of Hugging Face."""
    from edgewise.models import Tokens, Transformer, TransformerSettings

    settings = TransformerSettings(width=4, depth=1, heads=2, tied=True, feed_forward="gelu-tanh")
    with tempfile.TemporaryDirectory() as name:
        to_hugging_face(Transformer(settings, Tokens(5, 5, 3)), Path(name) / "model")
        return {path.name: path.read_bytes() for path in (Path(name) / "model").iterdir()}


def hub_with(*names: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name in names:
            (folder / name).write_bytes(hub()[name])

    return write


def index() -> bytes:
    return json.dumps({"weight_map": {"transformer.wte.weight": "model.safetensors"}}).encode()


def idx() -> bytes:
    return bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 3) + bytes(18)


def planetoid(folder: Path, content: bytes) -> Any:
    (folder / "ind.cora.graph").write_bytes(content)
    return read_planetoid(folder, "cora")


def citations(folder: Path) -> None:
    from tasks.miniature import write_planetoid

    write_planetoid(folder)


def pickles() -> list[bytes]:
    from tasks.miniature import planetoid_parts, python2

    parts = planetoid_parts()
    return [python2(parts["x"]), python2(parts["y"]), pickle.dumps(parts["y"], 2)]


def graph_pickle() -> list[bytes]:
    from tasks.miniature import planetoid_parts, python2

    return [python2(planetoid_parts()["graph"])]


def tokenizers() -> list[bytes]:
    learned = [BPETokenizer.learn(["low lower lowest"] * 9, 262), CharacterTokenizer("abc")]
    return [tokenizer.to_json().encode() for tokenizer in learned]


def pretrained_tokenizers() -> list[bytes]:
    """Words of another library's model, and the same as a run keeps it."""
    tokens = {"[CLS]": 0, "[SEP]": 1, "[MASK]": 2, "low": 3, "[UNK]": 4}
    made = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": tokens, "unk_token": "[UNK]"}}
    kept = {"level": "pretrained", "size": 5, "special": {"begin": 0, "end": 1}, "tokenizer": made}
    return [json.dumps(one).encode() for one in (made, kept)]


def write_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"vocab_size": 5, "bos_token_id": 0, "eos_token_id": 1}', encoding="utf-8")


NODES = b"node,label,split,size\na,u,train,1\nb,v,valid,2.5\nc,u,test,3\n~\nsender,receiver\na,b\nb,c\n"
CUT = (
    b'{"nodes": 4, "edges": 3, "named": true, "files": {"nodes.csv": {"bytes": 30, "sha256": "0"}}, "unit": "nodes", '
    b'"targets": [], "columns": [{"name": "size", "kind": "number", "fill": 2.0, "shift": 2.0, "deviation": 1.0}], '
    b'"edge_columns": [], "features": [1, 0]}'
    b"~\nnode,node,part\na,b,train\nb,c,valid\na,c,valid_none\nc,d,test\nb,d,test_none\n"
)
RECORD = (
    b'{"nodes": 3, "edges": 2, "named": true, "files": {"nodes.csv": {"bytes": 62, "sha256": "0"}}, '
    b'"unit": "nodes", '
    b'"targets": [{"name": "label", "kind": "class", "classes": ["u", "v"], "why": "x"}], '
    b'"columns": [{"name": "size", "kind": "number", '
    b'"fill": 2.0, "shift": 2.0, "deviation": 1.0}], "edge_columns": [], "features": [1, 0]}'
    b"~\nnode,part\na,train\nb,valid\nc,test\n"
)
TU = ("D_A.txt", "D_graph_indicator.txt", "D_graph_labels.txt", "D_node_labels.txt", "D_splits.json")
GRAPHS = b"~\n".join(
    [
        b"".join(b"%d, %d\n%d, %d\n" % (2 * g + 1, 2 * g + 2, 2 * g + 2, 2 * g + 1) for g in range(30)),
        b"".join(b"%d\n%d\n" % (g + 1, g + 1) for g in range(30)),
        b"".join(b"%d\n" % (g % 2) for g in range(30)),
        b"1\n2\n" * 30,
    ]
)
FOLDS = json.dumps([{"test": [0, 1], "model_selection": [{"train": [2, 3, 4], "validation": [5]}]}]).encode()
MOLECULES = b"smiles,value\n" + b"".join(b"%s,%d.5\n" % (b"C" * n, n) for n in range(1, 12))
PAGES = b"node_id\tfeature\tlabel\n0\t1,0,1\t2\n1\t0,0,1\t4\n~\nnode_id\tnode_id\n0\t1\n1\t0\n"
RECIPE = b"task: {name: karate}\nmodel:\n  name: gnn\n  width: 16\ntrain: {steps: 10, rate: 1.0e-2}\n"
LABELS = b"slide,label,split\na.tiff,u,train\nb.tiff,v,test\n"


def slides_of(folder: Path) -> None:
    for name in ("a.tiff", "b.tiff"):
        (folder / name).write_bytes(b"")


def pages(folder: Path) -> None:
    _, labels = _pages(folder / "pages.txt")
    _links(folder / "links.txt", len(labels))


def like_a_run(run: Path) -> None:
    """Nodes as in `NODES`, and what a run is said to have kept of them (edgewise.tasks.own.record)."""
    nodes, edges = NODES.split(b"~\n")
    (run / "nodes.csv").write_bytes(nodes)
    (run / "edges.csv").write_bytes(edges)
    node_folder(str(run), like=str(run))


def like_a_run_of_links(run: Path) -> None:
    """Nodes with links, and what a run is said to have kept of those (edgewise.tasks.links.kept)."""
    (run / "nodes.csv").write_bytes(b"node,size\na,1\nb,2.5\nc,2\nd,3\n")
    (run / "edges.csv").write_bytes(b"sender,receiver\na,b\nb,c\nc,d\n")
    link_folder(str(run), like=str(run))


def three_tables(folder: Path) -> None:
    """A table of graphs, one of their nodes and one of their edges."""
    parts = (folder / "a").read_bytes().split(b"~\n")
    for name, part in zip(("graphs", "nodes", "edges"), [*parts, b"", b""], strict=False):
        (folder / f"{name}.csv").write_bytes(part)
    graph_folder(str(folder))


TABLES = b"id,label\n" + b"".join(b"g%d,%s\n" % (n, b"uv"[n % 2 : n % 2 + 1]) for n in range(9))
TABLES += (
    b"~\ngraph,size\n" + b"".join(b"g%d,%d\ng%d,5\n" % (n, n, n) for n in range(9)) + b"~\nsource,target\n0,1\n3,2\n"
)


HARNESSES = {
    "picture": Harness(
        file("a.png", lambda path: read_picture(path, "rgb", 4)),
        lambda: [png("RGBA"), png("RGB", "JPEG"), png("P", "GIF"), png("RGB", "BMP"), png("RGB", "TIFF"), png("I;16")],
    ),
    "graph-tables": Harness(file("a", lambda path: three_tables(path.parent)), lambda: [TABLES]),
    "npy": Harness(
        file("a.npy", lambda path: read_image(path, 8, 8)), lambda: [npy(np.zeros((8, 8))), npy([[1]], (2, 0))]
    ),
    "png": Harness(file("a.png", lambda path: read_image(path, 8, 8)), lambda: [png()]),
    "npz": Harness(
        file("graph.npz", lambda path: node_folder(str(path.parent))),
        lambda: [npz(edge_index=[[0, 1], [1, 0]], x=np.ones((9, 2)), labels=[0, 1] * 4 + [1])],
    ),
    "array": Harness(graph_npz, lambda: [npy(np.ones((3, 2), np.float32)), npy([[1], [2], [3]], (3, 0))]),
    "cut": Harness(
        file("a.npz", lambda path: _cut(path, 3)),
        lambda: [npz(train_mask=[True, False, False], val_mask=[False, True, False], test_mask=[False, False, True])],
    ),
    "idx": Harness(file("a", lambda path: read_idx(path, 3)), lambda: [idx(), gzip.compress(idx(), mtime=0)]),
    "csv": Harness(file("a.csv", read_columns), lambda: [b'node,size\n"a, b",1\n\n c ,2.5\n']),
    "parquet": Harness(
        file("a.parquet", read_columns),
        lambda: [parquet(kind, size=[1.0, 2.0], node=["a", None]) for kind in ("none", "snappy", "gzip", "zstd")],
    ),
    "pieces-csv": Harness(file("a.csv", read_pieces), lambda: [b'node,size\n"a, b",1\n\n c ,2.5\n"d",3\n']),
    "pieces-parquet": Harness(
        file("a.parquet", read_pieces),
        lambda: [parquet(kind, size=[1.0, 2.0, 3.0], node=["a", None, "b"]) for kind in ("none", "snappy")],
    ),
    "edges-npy": Harness(file("a.npy", read_store), lambda: [npy(np.array([[0, 1, 2], [1, 2, 0]]))]),
    "edges-safetensors": Harness(
        file("a.safetensors", read_store),
        lambda: [save({"edge_index": torch.tensor([[0, 1], [1, 0]]), "edge_attr": torch.ones(2, 3)})],
    ),
    "store-manifest": Harness(open_store("manifest.json"), lambda: [stored("manifest.json")], store_files),
    "store-array": Harness(open_store("senders.safetensors"), lambda: [stored("senders.safetensors")], store_files),
    "nodes": Harness(folder_of(("nodes.csv", "edges.csv"), lambda folder: node_folder(str(folder))), lambda: [NODES]),
    "record": Harness(folder_of(("data.json", "split.csv"), like_a_run), lambda: [RECORD]),
    "links": Harness(folder_of(("data.json", "split.csv"), like_a_run_of_links), lambda: [CUT]),
    "pickle": Harness(lambda _, content: read_pickle(content, "a.pickle"), pickles),
    "planetoid": Harness(planetoid, graph_pickle, citations),
    "tudataset": Harness(
        folder_of(TU, lambda folder: tudataset("D", folder=str(folder))), lambda: [GRAPHS, GRAPHS + b"~\n" + FOLDS]
    ),
    "musk": Harness(file("a.mat", read_bags), matlab),
    "webkb": Harness(folder_of(("pages.txt", "links.txt"), pages), lambda: [PAGES]),
    "molecules": Harness(file("a.csv", lambda path: read_molecules(path, "smiles", "value")), lambda: [MOLECULES]),
    "smiles": Harness(
        lambda _, content: molecule(content.decode("utf-8", "replace"), crippen=True),
        lambda: [b"CC(=O)Oc1ccccc1C(=O)O", b"[Na+].[Cl-]", rb"F/C=C\F", b"C[C@H](N)C(=O)O"],
    ),
    "slide": Harness(file("a.tiff", lambda path: lay_out(path, Tiling(workers=0))), slide),
    "labels": Harness(file("labels.csv", lambda path: read_folder(path.parent, 0)), lambda: [LABELS], slides_of),
    "text": Harness(file("a.txt", read_text), lambda: ["a text, äöü\n".encode()]),
    "lines": Harness(
        file("a.gz", read_lines), lambda: [gzip.compress(b"one\ntwo\n", mtime=0), gzip.compress(b"", mtime=0)]
    ),
    "tokenizer": Harness(
        lambda _, content: tokenizer_from_json(content.decode("utf-8", "replace"), "tokenizer.json"), tokenizers
    ),
    "pretrained-tokenizer": Harness(file("tokenizer.json", read_tokenizer), pretrained_tokenizers, write_config),
    "yaml": Harness(file("a.yaml", read_yaml), lambda: [RECIPE]),
    "hub-config": Harness(
        file("config.json", lambda path: from_hugging_face(path.parent)),
        lambda: [hub()["config.json"]],
        hub_with("model.safetensors"),
    ),
    "hub-index": Harness(
        file("model.safetensors.index.json", lambda path: from_hugging_face(path.parent)),
        lambda: [index()],
        hub_with("config.json", "model.safetensors"),
    ),
    "operators": Harness(lambda _, content: call_operator(content), lambda: [bytes([number]) for number in range(12)]),
    "hub-weights": Harness(
        file("model.safetensors", lambda path: from_hugging_face(path.parent)),
        lambda: [hub()["model.safetensors"]],
        hub_with("config.json"),
    ),
}


def corpus(name: str) -> Iterator[bytes]:
    """The seeds of a harness, and what was found to break its reader once."""
    yield from HARNESSES[name].seeds()
    for path in sorted((CORPUS / name).glob("*")):
        yield path.read_bytes()
