"""Damaged, hostile and unfitting data files: each one is a DataError that names the file."""

import gzip
import io
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.sparse import csr_matrix

from edgewise.errors import DataError
from edgewise.tasks import citation, mnist, text
from edgewise.tasks.images.classification import read_image
from tasks.miniature import (
    NODES,
    PAPERS,
    TEST,
    TRAIN,
    WORDS,
    idx,
    mnist_parts,
    planetoid_parts,
    python2,
    write_mnist,
    write_planetoid,
)

PARTS = planetoid_parts()


def values(name: str) -> np.ndarray[Any, Any]:
    """A copy of a miniature's array, dense."""
    part = PARTS[name]
    return part.toarray() if isinstance(part, csr_matrix) else part.copy()


def changed(name: str, at: object, value: float) -> np.ndarray[Any, Any]:
    array = values(name)
    array[at] = value
    return array


def sparse(**state: object) -> bytes:
    """The miniature's allx with some of its state replaced, whether or not it fits."""
    matrix = PARTS["allx"].copy()
    matrix.__dict__.update(state)
    return python2(matrix)


def cites(**lists: object) -> dict[object, object]:
    return PARTS["graph"] | {int(paper[1:]): others for paper, others in lists.items()}


class Touch:
    """Pickled, this is the call os.system("touch NAME")."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.name}",)


def lines(numbers: list[int]) -> bytes:
    return "\n".join(map(str, numbers)).encode()


# what is wrong: (the file that the message must name, the changed parts, what the message must say)
CITATION: dict[str, tuple[str, dict[str, object], str]] = {
    "truncated": ("allx", {"allx": python2(PARTS["allx"])[:-99]}, "not a pickle"),
    "os.system": ("graph", {"graph": Touch("marker")}, f"the global {os.name}.system is refused"),
    "objects": ("ally", {"ally": np.array([[1, "a"]], dtype=object)}, "dtype object"),
    "dense words": ("x", {"x": values("x")}, "a sparse matrix was expected, not ndarray"),
    "negative words": ("x", {"x": csr_matrix(changed("x", (1, 2), -1))}, "negative"),
    "no arrays": ("allx", {"allx": sparse(indices=None)}, "not a pickle of numbers"),
    "column out of range": ("allx", {"allx": sparse(_shape=(PAPERS, 2))}, "indices must be < 2"),
    "other columns in x": ("x", {"x": csr_matrix(values("x")[:, :3])}, "3 columns, expected the 5 of ind.cora.allx"),
    "no training papers": ("x", {"x": csr_matrix((0, WORDS)), "y": values("y")[:0]}, "has 0 rows; expected 1 to 10"),
    "NaN as label": ("ty", {"ty": values("ty") * np.nan}, "a single 1"),
    "more labels than papers": ("y", {"y": values("ally")[: TRAIN + 1]}, "has 7 rows, expected the 6 of ind.cora.x"),
    "a graph as a list": ("graph", {"graph": [[1], [0]]}, "a dictionary of lists was expected, not list"),
    "an empty graph": ("test.index", {"graph": {}}, "expected a number from 510 to -1"),
    "a citation out of range": ("graph", {"graph": cites(n4=[NODES])}, "paper 4 or one that it cites is outside"),
    "papers that no file describes": ("graph", {"graph": cites(n517=[1])}, "papers up to 517, expected 516"),
    "words for test papers": ("test.index", {"test_index": b"510\nfive\n"}, "line 2 is 'five', expected a number"),
    "a training paper to test": ("test.index", {"test_index": lines([3, *TEST[1:]])}, "line 1 is '3'.* 510 to 516"),
    "a test paper twice": ("test.index", {"test_index": lines([510, 510, 516, 511, 514])}, "lists a paper twice"),
    "too few test papers": ("test.index", {"test_index": lines([510, 516])}, "2 rows, expected the 5 of ind.cora.tx"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", CITATION)
def test_citation_files(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ending, parts, message = CITATION[wrong]
    folder = write_planetoid(tmp_path / "planetoid", **parts)
    with pytest.raises(DataError, match=re.escape(str(folder / f"ind.cora.{ending}")) + ": .*" + message):
        citation(folder=str(folder))
    assert [file.name for file in tmp_path.iterdir()] == ["planetoid"], "nothing ran, nothing was left behind"


@pytest.mark.parametrize("ending", list(PARTS))
def test_a_citation_file_that_is_missing_or_a_folder(ending: str, tmp_path: Path) -> None:
    file = write_planetoid(tmp_path) / f"ind.cora.{ending}"
    file.unlink()
    with pytest.raises(DataError, match=f"{tmp_path} lacks ind.cora.{ending}"):
        citation(folder=str(tmp_path))
    file.mkdir()
    with pytest.raises(DataError, match=re.escape(f"{file}: cannot be read")):
        citation(folder=str(tmp_path))


def test_a_citation_file_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewise.tasks.nodes.citation.MAX_BYTES", 1000)
    with pytest.raises(DataError, match=r"ind\.cora\.allx: longer than the 1,000 bytes"):
        citation(folder=str(write_planetoid(tmp_path)))


MNIST = mnist_parts()
IMAGES, LABELS = MNIST["train-images-idx3-ubyte"], MNIST["t10k-labels-idx1-ubyte"]
ZIPPED = gzip.compress(idx(IMAGES))
# what is wrong: (the file, its bytes, what the message must say)
IDX: dict[str, tuple[str, bytes, str]] = {
    "empty": ("train-images", b"", "truncated; an IDX header of 16 bytes was expected, it has 0"),
    "labels for images": ("train-images", idx(LABELS) * 3, "starts with 00000801, expected 00000803"),
    "another format": ("train-images", b"\x89PNG\r\n\x1a\n" + bytes(99), "starts with 89504e47"),
    "truncated": (
        "train-images",
        idx(IMAGES)[:-1],
        "truncated; .* 8 x 28 x 28 = 6272 bytes, 6271 follow",
    ),
    "trailing bytes": ("t10k-labels", idx(LABELS) + b"\0", "trailing bytes; its header promises 4 = 4 bytes, 5 follow"),
    "a huge promise": ("train-images", b"\0\0\x08\3" + b"\xff" * 12 + bytes(99), "truncated; its header promises"),
    "truncated gzip": ("train-images", ZIPPED[:-20], "not an intact gzip file"),
    "gzip with a wrong sum": ("train-images", ZIPPED[:-8] + b"\0" * 8, "not an intact gzip file"),
    "fewer images": ("train-images", idx(IMAGES[1:]), "8 x 28 x 28 values were expected, it has 7 x 28 x 28"),
    "more labels": ("t10k-labels", idx(np.arange(5)), "4 labels were expected, it has 5"),
    "a label of ten": ("t10k-labels", idx(np.array([1, 2, 10, 3])), "label 2 is 10, expected a digit 0 to 9"),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("wrong", IDX)
def test_mnist_files(wrong: str, tmp_path: Path) -> None:
    start, content, message = IDX[wrong]
    write_mnist(tmp_path, **{start.replace("-", "_"): content})
    with pytest.raises(DataError, match=re.escape(str(tmp_path / start)) + r"-idx\d-ubyte: .*" + message):
        mnist(folder=str(tmp_path))


@pytest.mark.usefixtures("small")
def test_a_gzip_bomb_stops_at_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewise.tasks.images.digits.MAX_BYTES", 10_000)
    write_mnist(tmp_path, train_images=gzip.compress(bytes(1 << 22)))
    with pytest.raises(DataError, match="train-images-idx3-ubyte: unpacks to more than the 10,000 bytes"):
        mnist(folder=str(tmp_path))


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def png(mode: str, size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, format="png")
    return file.getvalue()


PICTURES: dict[str, tuple[str, bytes, str]] = {
    "npy: truncated": ("npy", npy(np.zeros((8, 8)))[:-1], "not a numpy array"),
    "npy: header of code": ("npy", npy(np.zeros((8, 8))).replace(b"(8, 8)", b"exit()"), "not a numpy array"),
    "npy: huge promise": ("npy", npy(np.zeros((8, 8))).replace(b"(8, 8), ", b"(9**9,),"), "not a numpy array"),
    "npy: objects": ("npy", npy(np.array([Touch("marker")], dtype=object)), "not a numpy array"),
    "npy: a pickle": ("npy", pickle.dumps(Touch("marker")), "not a numpy array"),
    "npy: NaN": ("npy", npy(np.full((8, 8), np.nan)), "not a finite number"),
    "png: truncated": ("png", png("L", (8, 8))[:40], "not a readable picture"),
    "png: another size": ("png", png("RGB", (8, 9)), "8 x 8 pixels was expected, this one is 9 x 8"),
    "another ending": ("txt", b"BM", "give a .npy file, a picture"),
}


@pytest.mark.parametrize("wrong", PICTURES)
def test_pictures(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ending, content, message = PICTURES[wrong]
    file = tmp_path / f"picture.{ending}"
    file.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(f"{file}: ") + ".*" + message):
        read_image(file, 8, 8)
    assert list(tmp_path.iterdir()) == [file]


TEXTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the text is empty"),
    "too short": (b"abcd" * 10, "too short: 36 for training, 4 for validation; each must be more than context="),
    "UTF-16 without a mark": ("words ".encode("utf-16-le") * 100, "a binary file: character 1 is zero"),
    "UTF-16 that is cut": ("words ".encode("utf-16") * 100 + b"a", "not a text in a known encoding"),
    "binary": (bytes(range(256)) * 10, "not a text in a known encoding"),
}


@pytest.mark.parametrize("wrong", TEXTS)
def test_texts(wrong: str, tmp_path: Path) -> None:
    content, message = TEXTS[wrong]
    file = tmp_path / "own.txt"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"own\.txt: .*" + message):
        text(file=str(file), context=8)


def test_texts_that_are_missing_folders_or_endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.txt"
    with pytest.raises(DataError, match=f"{file}: no such file: give --task.file"):
        text(file=str(file))
    with pytest.raises(DataError, match=f"{tmp_path}: cannot be read"):
        text(file=str(tmp_path))
    file.write_bytes(b"word " * 9999)
    monkeypatch.setitem(text.__globals__, "MAX_BYTES", 1000)
    with pytest.raises(DataError, match=f"{file}: longer than the 1,000 bytes"):
        text(file=str(file))
    with pytest.raises(DataError, match=r"lacks input\.txt"):
        text(source="shakespeare", folder=str(tmp_path))
