"""Citation graphs: papers, their words, who cites whom, and the subject of a few."""

import codecs
import io
import pickle
import pickletools
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy
import torch

from edgewise.data.splits import SPLITS, Splits
from edgewise.errors import ConfigError, DataError
from edgewise.files import read_bytes, reading
from edgewise.graphs import Graph
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.tasks.core.source import Remote, find_folder
from edgewise.tasks.nodes.classification import NodeClassification, Nodes, SampledNodes

_ADDRESS = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/"
# In the order of PARTS. The tests compare Cora's hashes with its files; the other two data sets' are published ones.
_SHA256 = {
    "cora": (
        "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    ),
    "citeseer": (
        "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    ),
    "pubmed": (
        "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    ),
}
CLASSES = {
    "cora": ("theory", "reinforcement learning", "genetic algorithms", "neural networks", "probabilistic methods",
             "case based", "rule learning"),
}  # fmt: skip


def remotes(dataset: str) -> list[Remote]:
    """The eight files of a data set, in the order of PARTS."""
    names = [f"ind.{dataset}.{part}" for part in PARTS]
    hashes = _SHA256[dataset]
    return [Remote(name, _ADDRESS + name, sha256, 1 << 25) for name, sha256 in zip(names, hashes, strict=True)]


def citation(
    dataset: Literal["cora", "citeseer", "pubmed"] = "cora",
    folder: str | None = None,
    download: bool = False,
    normalise: bool = True,
    fanouts: tuple[int, ...] = (),
) -> NodeClassification:
    """Guess a paper's subject from its words and from whom it cites, knowing 20 papers of each subject.

    The public split of Planetoid: 20 papers of each class train (140 for Cora), 500 validate, 1,000 test. Citations
    count in both directions, each once, without self-loops (layers that want them add them). The bags of words stay
    sparse. Cora has 2,708 papers of 1,433 words and 10,556 directed edges.

    Reference   Sen et al. 2008; Yang, Cohen and Salakhutdinov 2016

    Args:
        dataset: "cora", "citeseer" or "pubmed". The project's tests read Cora's real files, and CiteSeer's where they
            are there; of PubMed only generated miniatures and published hashes.
        folder: Where the files ind.NAME.x etc. lie (default: planetoid in $EDGEWISE_DATA, then the cache).
        download: Fetch what is missing from the planetoid repository, over TLS and verified by its hash.
        normalise: Divide each paper's words by their sum, as the GCN paper does.
        fanouts: Neighbours to draw in each hop of training, one number per layer. Empty: the whole graph at once.

    Errors      a file that is missing, damaged, or whose pickle holds more than arrays is a `DataError` that names
                it.
    """
    if dataset not in _SHA256:
        raise ConfigError(f"unknown citation data set {dataset!r}; known are {', '.join(_SHA256)}")
    data = read_planetoid(find_folder("planetoid", remotes(dataset), folder, download), dataset)
    words = data.features
    if normalise:
        totals = np.asarray(words.sum(1)).ravel()
        words = scipy.sparse.diags(np.divide(1, totals, out=np.zeros_like(totals), where=totals > 0)) @ words
    graph = Graph.from_edge_index(torch.from_numpy(data.edges), len(data.labels))
    classes = CLASSES.get(dataset, tuple(f"class {c}" for c in range(data.classes)))
    splits: Splits = {split: torch.from_numpy(getattr(data, split)) for split in SPLITS}
    labels = torch.from_numpy(data.labels)
    nodes = Nodes(graph, SparseFeatures.from_scipy(words), labels, classes, splits)
    return SampledNodes(dataset, nodes, fanouts, inductive=False)


PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
MAX_BYTES = 1 << 25  # the largest, of PubMed, has 12 MB
VALID = 500
MAX_BUILT = 24  # calls and states of a pickle: a sparse matrix needs 17, and each can copy the whole file
MAX_TUPLES = 1000  # hashing a deep tuple exhausts the C stack
MAX_INSTRUCTIONS = 1 << 22  # "{}" is one byte of a pickle and 64 in memory

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Planetoid:
    """A citation graph: bags of words [N, C] and classes [N] of its papers, -1 for one that the files do not describe.

    Citations [2, E] are in both directions, each once, without self-loops. The papers of x train, the 500 after them
    validate, and those of test.index test, in the file's order."""

    features: "scipy.sparse.csr_matrix"  # in quotes: scipy.sparse loads on first use
    labels: Ints
    classes: int
    edges: Ints
    train: Ints
    valid: Ints
    test: Ints


def read_planetoid(folder: Path, name: str) -> Planetoid:
    """Read ind.NAME.{x, tx, allx, y, ty, ally, graph, test.index} from a folder.

    The first papers are those of allx and ally, of which the first are x and y; paper test.index[k] is row k of tx and
    ty. A number that test.index skips (CiteSeer has 15 such papers) is a paper without words and without class.

    Errors      DataError names the file: missing, not what it should be, or not fitting the others
    Differs     where Planetoid's users put class 0 for a paper without one, this puts -1; no split reads it
    Reference   Yang, Cohen and Salakhutdinov 2016; the reading follows Kipf and Welling 2017
    """
    files = {part: folder / f"ind.{name}.{part}" for part in PARTS}
    x, tx, allx = (_features(files[part]) for part in ("x", "tx", "allx"))
    y, ty, ally = (_classes(files[part]) for part in ("y", "ty", "ally"))
    _same(files["x"], x.shape[1], files["allx"], allx.shape[1], "columns")
    _same(files["tx"], tx.shape[1], files["allx"], allx.shape[1], "columns")
    for ending, features, labels in (("x", x, y), ("tx", tx, ty), ("allx", allx, ally)):
        label_file = files[ending.replace("x", "y")]
        _same(label_file, len(labels), files[ending], features.shape[0], "rows")
        _same(label_file, labels.shape[1], files["ally"], ally.shape[1], "columns")
    papers, train = allx.shape[0], x.shape[0]
    if not 0 < train <= papers - VALID:
        room = f"expected 1 to {papers - VALID}, for the last {VALID} of allx's {papers} rows are for validation"
        raise DataError(f"{files['x']}: has {train} rows; {room}")
    pairs = _pairs(files["graph"])
    count = int(pairs.max()) + 1 if pairs.size else 0
    test = _test_index(files["test.index"], papers, count)
    _same(files["test.index"], len(test), files["tx"], tx.shape[0], "rows")
    if count != test.max() + 1:
        raise DataError(f"{files['graph']}: names papers up to {count - 1}, expected {test.max()} as in test.index")

    described = scipy.sparse.csr_matrix(scipy.sparse.vstack([allx, tx]))
    row = np.full(count, described.shape[0])
    row[:papers], row[test] = np.arange(papers), papers + np.arange(len(test))
    nothing = scipy.sparse.csr_matrix((1, allx.shape[1]), dtype=allx.dtype)
    hot = np.concatenate([ally, ty, np.zeros((1, ally.shape[1]), ally.dtype)])[row]
    labels = np.where(hot.any(1), hot.argmax(1), -1)
    valid = np.arange(train, train + VALID)
    for ending, papers_read in (("y", np.arange(train)), ("ally", valid), ("ty", test)):
        if (labels[papers_read] < 0).any():
            raise DataError(f"{files[ending]}: a paper of the public split has no class")
    features = scipy.sparse.csr_matrix(scipy.sparse.vstack([described, nothing]))[row]
    return Planetoid(features, labels, ally.shape[1], _undirected(pairs, count), np.arange(train), valid, test)


class _Part:
    """What stands for a class or a function that makes arrays: it records what it is given, and runs nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def array(self) -> np.ndarray[Any, Any]:
        """The array that this stands for."""
        _, shape, dtype, columns, content = self.state
        kind = np.dtype(dtype.arguments[0]).newbyteorder(dtype.state[1])
        if kind.kind not in "fiub":
            raise TypeError(f"an array of dtype {kind}")
        data = content.encode("latin1") if isinstance(content, str) else content
        values = np.frombuffer(data, kind).reshape(shape, order="F" if columns else "C")
        return values.astype(kind.newbyteorder("="))


class _Numbers(pickle.Unpickler):
    """An unpickler that knows what arrays, sparse matrices and dictionaries of lists are made of, and nothing else."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")
        self.made: type[_Part] = type("Array", (_Part,), {})  # anew for each file, which can change its own alone
        self.matrix: type[_Part] = type("Matrix", (_Part,), {})
        self.known: dict[str, Any] = {"numpy.dtype": type("Dtype", (_Part,), {}), "numpy.ndarray": _Part(1)}
        self.known |= {"__builtin__.bytes": lambda: b"", "__builtin__.list": list, "_codecs.encode": codecs.encode}
        self.known |= {f"{module}.multiarray._reconstruct": self.made for module in ("numpy.core", "numpy._core")}
        self.known |= {f"scipy.sparse.{module}.csr_matrix": self.matrix for module in ("csr", "_csr")}
        self.known["collections.defaultdict"] = defaultdict

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in self.known:
            raise pickle.UnpicklingError(f"the global {module}.{name} is refused")
        return self.known[f"{module}.{name}"]


def read_pickle(content: bytes, name: str) -> Any:
    """The array, sparse matrix or dictionary of a pickle.

    Symbols     name = the file, for error messages
    Errors      DataError for a damaged file, or one with a global (it is named) that no data set needs
    Cost        time and memory linear in the file's length
    """
    with reading(name, "a pickle of numbers"):
        counts, end = Counter[str](), -1
        for instruction, argument, place in pickletools.genops(content):
            counts[instruction.name] += 1
            end = place or 0
            if instruction.name == "LONG_BINPUT" and int(argument or 0) > len(content):
                raise pickle.UnpicklingError(f"the memo {argument} is out of bounds")  # a table of that length
        built = sum(counts[kind] for kind in ("REDUCE", "NEWOBJ", "OBJ", "INST", "BUILD"))
        tuples = sum(counts[kind] for kind in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"))
        if built > MAX_BUILT or tuples > MAX_TUPLES or counts.total() > MAX_INSTRUCTIONS:
            raise pickle.UnpicklingError(f"{built} objects, {tuples} tuples and {counts.total():,} instructions")
        if end != len(content) - 1:
            raise pickle.UnpicklingError("bytes after the end")
        reader = _Numbers(content)
        value = reader.load()
        if isinstance(value, reader.matrix):
            parts = [value.state[part].array() for part in ("data", "indices", "indptr")]
            matrix: scipy.sparse.csr_matrix = scipy.sparse.csr_matrix(tuple(parts), value.state["_shape"])
            matrix.check_format()
            return matrix
        return value.array() if isinstance(value, reader.made) else value


def _features(path: Path) -> "scipy.sparse.csr_matrix":
    matrix = read_pickle(read_bytes(path, MAX_BYTES), str(path))
    if not isinstance(matrix, scipy.sparse.csr_matrix):
        raise DataError(f"{path}: a sparse matrix was expected, not {type(matrix).__name__}")
    if not np.isfinite(matrix.data).all() or (matrix.data < 0).any():
        raise DataError(f"{path}: a word count is negative or no finite number")
    return matrix.astype(np.float32)


def _classes(path: Path) -> np.ndarray[Any, Any]:
    hot = read_pickle(read_bytes(path, MAX_BYTES), str(path))
    if not isinstance(hot, np.ndarray) or hot.ndim != 2:
        raise DataError(f"{path}: an array [papers, classes] was expected")
    if not np.isin(hot, (0, 1)).all() or (hot.sum(1) > 1).any():
        raise DataError(f"{path}: each row must hold a single 1, at its paper's class, and zeros")
    return hot.astype(np.int8)


def _pairs(path: Path) -> Ints:
    """[2, E] the citations as the file lists them, with the papers that cite none as pairs with themselves."""
    cited = read_pickle(read_bytes(path, MAX_BYTES), str(path))
    if not isinstance(cited, Mapping):
        raise DataError(f"{path}: a dictionary of lists was expected, not {type(cited).__name__}")
    pairs: list[tuple[int, int]] = []
    for paper, others in cited.items():
        if type(paper) is not int or not isinstance(others, list) or not {*map(type, others)} <= {int}:
            raise DataError(f"{path}: paper {paper!r} must be a number with a list of numbers")
        if not 0 <= min((paper, *others)) <= max((paper, *others)) < len(cited):
            raise DataError(f"{path}: paper {paper} or one that it cites is outside 0 to {len(cited) - 1}")
        pairs.append((paper, paper))
        pairs.extend((paper, other) for other in others)
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def _undirected(pairs: Ints, count: int) -> Ints:
    both = np.concatenate([pairs, pairs[::-1]], axis=1)
    both = both[:, both[0] != both[1]]
    return np.stack(np.divmod(np.unique(both[0] * count + both[1]), count))


def _test_index(path: Path, papers: int, count: int) -> Ints:
    lines = read_bytes(path, MAX_BYTES).split()
    if not lines:
        raise DataError(f"{path}: empty; expected one paper's number per line")
    for number, line in enumerate(lines, 1):
        if not line.isdigit() or len(line) > 18 or not papers <= int(line) < count:
            shown = line[:20].decode("latin1")
            raise DataError(f"{path}: line {number} is {shown!r}, expected a number from {papers} to {count - 1}")
    test = np.array([int(line) for line in lines], dtype=np.int64)
    if len(np.unique(test)) < len(test):
        raise DataError(f"{path}: lists a paper twice")
    return test


def _same(file: Path, actual: int, other: Path, expected: int, what: str) -> None:
    if actual != expected:
        raise DataError(f"{file}: has {actual} {what}, expected the {expected} of {other.name}")
