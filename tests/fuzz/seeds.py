"""Small valid files, from which a fuzzer begins."""

import io
import json
import pickle
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.data import build_store
from edgewise.models.hub.pretrained import to_hugging_face
from edgewise.tasks.text.tokenization import CharacterTokenizer, learn_byte_pairs


def npy(array: Any, version: tuple[int, int] = (1, 0)) -> bytes:
    made = io.BytesIO()
    np.lib.format.write_array(made, np.asarray(array), version)
    return made.getvalue()


def npz(**arrays: Any) -> bytes:
    made = io.BytesIO()
    np.savez_compressed(made, **arrays)
    return made.getvalue()


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


def store_files(folder: Path) -> None:
    build_store(folder / "store", [([0, 1, 2], [1, 2, 0], None)])


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


def index() -> bytes:
    return json.dumps({"weight_map": {"transformer.wte.weight": "shard.safetensors"}}).encode()


def idx() -> bytes:
    return bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 3) + bytes(18)


def pickles() -> list[bytes]:
    from tasks.miniature import planetoid_parts, python2

    parts = planetoid_parts()
    return [python2(parts["x"]), python2(parts["y"]), pickle.dumps(parts["y"], 2)]


def graph_pickle() -> list[bytes]:
    from tasks.miniature import planetoid_parts, python2

    return [python2(planetoid_parts()["graph"])]


def tokenizers() -> list[bytes]:
    learned = [learn_byte_pairs(["low lower lowest"] * 9, 262), CharacterTokenizer("abc")]
    return [tokenizer.to_json().encode() for tokenizer in learned]


def pretrained_tokenizers() -> list[bytes]:
    """Words of another library's model, and the same as a run keeps it."""
    tokens = {"[CLS]": 0, "[SEP]": 1, "[MASK]": 2, "low": 3, "[UNK]": 4}
    made = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": tokens, "unk_token": "[UNK]"}}
    kept = {"level": "pretrained", "size": 5, "special": {"begin": 0, "end": 1}, "tokenizer": made}
    return [json.dumps(one).encode() for one in (made, kept)]


NODES = b"node,label,split,size\na,u,train,1\nb,v,valid,2.5\nc,u,test,3\n~\nsender,receiver\na,b\nb,c\n"
CUT = (
    b'{"nodes": 4, "edges": 3, "named": true, "files": {"nodes.csv": {"bytes": 30, "sha256": "0"}}, "unit": "nodes", '
    b'"targets": [], "columns": [{"name": "size", "kind": "number", "fill": 2.0, "shift": 2.0, "deviation": 1.0}], '
    b'"edge_columns": [], "features": [1, 0]}'
    b"~\nsource,target,part\na,b,train\nb,c,valid\na,c,valid_none\nc,d,test\nb,d,test_none\n"
)
RECORD = (
    b'{"nodes": 3, "edges": 2, "named": true, "files": {"nodes.csv": {"bytes": 62, "sha256": "0"}}, '
    b'"unit": "nodes", '
    b'"targets": [{"name": "label", "kind": "class", "classes": ["u", "v"], "why": "x"}], '
    b'"columns": [{"name": "size", "kind": "number", '
    b'"fill": 2.0, "shift": 2.0, "deviation": 1.0}], "edge_columns": [], "features": [1, 0]}'
    b"~\nnode,part\na,train\nb,valid\nc,test\n"
)
GRAPHS = b"~\n".join(
    [
        b"".join(b"%d, %d\n%d, %d\n" % (2 * g + 1, 2 * g + 2, 2 * g + 2, 2 * g + 1) for g in range(30)),
        b"".join(b"%d\n%d\n" % (g + 1, g + 1) for g in range(30)),
        b"".join(b"%d\n" % (g % 2) for g in range(30)),
        b"1\n2\n" * 30,
    ]
)
FOLDS = json.dumps([{"test": [0, 1], "model_selection": [{"train": [2, 3, 4], "validation": [5]}]}]).encode()
FRAMES = b"""2
Lattice="4 0 0 1 4 0 0 0 4" Properties=species:S:1:pos:R:3:forces:R:3 energy=-1.5 pbc="T T F"
H 0 0 0 0.1 0 0
O 0 0 1 -0.1 0 0
"""
FILM = b"step,particle,kind,x,y\n" + b"".join(b"%d,p%d,a,%d.5,2\n" % (t, n, t) for t in range(4) for n in range(2))
FILM_ROW = (
    b'{"positions": [[[0, 1.5]], [[0, 1]], [[0.5, 1]], [[1, 2]]], "kinds": ["a"], "box": [9, null], "periodic": [1, 0]}'
)
MOLECULES = b"smiles,value\n" + b"".join(b"%s,%d.5\n" % (b"C" * n, n) for n in range(1, 12))
PAGES = b"node_id\tfeature\tlabel\n0\t1,0,1\t2\n1\t0,0,1\t4\n~\nnode_id\tnode_id\n0\t1\n1\t0\n"
RECIPE = b"task: {name: karate}\nmodel:\n  name: gnn\n  width: 16\ntrain: {steps: 10, rate: 1.0e-2}\n"
LABELS = b"slide,label,split\na.tiff,u,train\nb.tiff,v,test\n"


TABLES = b"id,label\n" + b"".join(b"g%d,%s\n" % (n, b"uv"[n % 2 : n % 2 + 1]) for n in range(9))
TABLES += (
    b"~\ngraph,size\n" + b"".join(b"g%d,%d\ng%d,5\n" % (n, n, n) for n in range(9)) + b"~\nsource,target\n0,1\n3,2\n"
)
