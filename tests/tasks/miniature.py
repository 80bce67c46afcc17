"""Small files in the formats that the tasks read, written by the tests themselves."""

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

PAPERS, TRAIN, WORDS, CLASSES = 510, 6, 5, 3
TEST = [512, 510, 516, 511, 514]  # not sorted, and 513 and 515 are missing: two papers without words, as in CiteSeer
NODES = 517


def planetoid_parts() -> dict[str, Any]:
    """The eight contents of a citation data set with 517 papers, before they are pickled."""
    random = np.random.default_rng(0)
    allx = (random.random((PAPERS, WORDS)) < 0.4).astype(np.float32)
    allx[0] = 0  # a paper without words
    tx = (random.random((len(TEST), WORDS)) < 0.4).astype(np.float32)
    ally = np.eye(CLASSES, dtype=np.int32)[random.integers(0, CLASSES, PAPERS)]
    ty = np.eye(CLASSES, dtype=np.int32)[random.integers(0, CLASSES, len(TEST))]
    cites = {node: [(node + 1) % NODES, (node + 7) % NODES] for node in range(NODES)}
    cites[3] = [3, 4, 4, 5]  # itself, and one twice
    cites[513] = []
    return {
        "x": csr_matrix(allx[:TRAIN]),
        "tx": csr_matrix(tx),
        "allx": csr_matrix(allx),
        "y": ally[:TRAIN],
        "ty": ty,
        "ally": ally,
        "graph": cites,
        "test.index": "".join(f"{node}\n" for node in TEST).encode(),
    }


def python2(content: object) -> bytes:
    """Pickled as Python 2, numpy 1 and an old scipy name things."""
    pickled = pickle.dumps(content, protocol=2)
    for new, old in ((b"numpy._core.", b"numpy.core."), (b"scipy.sparse._csr\n", b"scipy.sparse.csr\n")):
        pickled = pickled.replace(new, old)
    return pickled


def write_planetoid(folder: Path, name: str = "cora", **changed: Any) -> Path:
    """Write ind.NAME.x etc. into a folder; a changed part is given as bytes or as what is to be pickled."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, content in (planetoid_parts() | {key.replace("_", "."): value for key, value in changed.items()}).items():
        pickled = content if isinstance(content, bytes) else python2(content)
        (folder / f"ind.{name}.{part}").write_bytes(pickled)
    return folder


def idx(values: np.ndarray[Any, Any], magic: bytes | None = None) -> bytes:
    """An IDX file of unsigned bytes."""
    header = magic or bytes([0, 0, 8, values.ndim])
    return header + struct.pack(f">{values.ndim}I", *values.shape) + values.astype(np.uint8).tobytes()


SIZES = {"TRAIN": 6, "VALID": 2, "TEST": 4}


def mnist_parts() -> dict[str, np.ndarray[Any, Any]]:
    """The four arrays of an MNIST with 8 + 4 images."""
    random = np.random.default_rng(0)
    count = {"train": SIZES["TRAIN"] + SIZES["VALID"], "t10k": SIZES["TEST"]}
    images = {f"{part}-images-idx3-ubyte": random.integers(0, 256, (n, 28, 28)) for part, n in count.items()}
    return images | {f"{part}-labels-idx1-ubyte": random.integers(0, 10, n) for part, n in count.items()}


def write_mnist(folder: Path, **changed: bytes) -> Path:
    """Write the four IDX files; a changed one is given by its first two words as one, e.g. train_images, in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in mnist_parts().items():
        key = "_".join(name.split("-")[:2])
        (folder / name).write_bytes(changed.get(key, idx(values)))
    return folder


PAIRS = {
    "train": (
        ["ein Hund", "eine Katze läuft", "zwei Hunde", "ein Mann", ""],
        ["a Dog", "a cat runs", "two dogs", "a man", "x"],
    ),
    "valid": (["ein Hund läuft", "zwei Männer"], ["a dog runs", "two men"]),
    "test": (["eine Katze", "zwei Hunde", "ein Mann läuft"], ["a cat", "two dogs", "a man runs"]),
}
NAMES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}


def write_multi30k(folder: Path) -> Path:
    """Write the six packed texts of a Multi30k with a few pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, sides in PAIRS.items():
        for language, lines in zip(("de", "en"), sides, strict=True):
            text = "".join(f"{line}\n" for line in lines).encode()
            (folder / f"{NAMES[split]}.{language}.gz").write_bytes(gzip.compress(text))
    return folder
