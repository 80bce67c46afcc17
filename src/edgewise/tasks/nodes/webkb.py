"""WebKB: the pages of a university, their words and their links; neighbours are mostly of other classes."""

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy
import torch
from torch import Tensor

from edgewise.data.graph import read_arrays
from edgewise.data.splits import FOLDS, Split, Splits
from edgewise.errors import ConfigError, DataError
from edgewise.files import read_bytes, reading
from edgewise.graphs import Graph
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.tasks.core.source import Remote, find_folder
from edgewise.tasks.core.task import check_range
from edgewise.tasks.nodes.classification import NodeClassification, Nodes

MAX_BYTES = 1 << 23
CLASSES = 5
MASKS: dict[Split, str] = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}

_ADDRESS = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/"
# Of each: the words, the links, and the ten cuts. The tests compare Texas' with its files.
_SHA256 = {
    "texas": (
        "cf5a3ca346cdd1210b8342e22517fcbbdae658065b7a3145f59350e50e6236a3",
        "0fe85183243a78cbee9b85a684f8240963d04d1020d10e9cd2b8cfb25e33b476",
        "7ba77bf7a8856fcc0ab15623a611b8cdce994e820f577da914123fb4f45272b0",
        "21cc244a96e3c51ad7993afb4dd227f90e467d82b964bb42d7d9fc500a6ef87f",
        "b9e96a699ccf3a4c31ffbd03e52b25570889833425d20fa44e06c37b327cf61e",
        "1a7deeb1285009789d5e6045d7e39f7d019c9223d9a75a2b7ce5e26d33b51f63",
        "b5419ff3fe31adcae66fdb085d4f47d0b188e9436ab59f438632af969aafc674",
        "68405fd1b9ff6105d99717220ecbd198785e338bf4a73abee722bbc9703d2667",
        "8ad78b973164e70e5ac0d282e79adcbc6006e373909fbdfd72a13131e09040b8",
        "a84bcbf997365bddf5fdf72ed49dc7e435e475f8c6210f8cdee7c8581a2bd6df",
        "65ba65f296f91d40d2d7d3c9369b67415094a7e254c6eee48cd6d6531c586fdf",
        "4306981d654ad8835c000c1f73fb6c1e60dfe99e26c13a6073f3b0f4cc3ce6ee",
    ),
    "wisconsin": (
        "a32b0aa38d42f0d36841e8a8cb646d197f0ff33a182ac75a2b4476aeed3c7e4b",
        "ebd213511c88fce1eda450c2f920600c4b8cbb38f02384856bcc47c6ec1807ae",
        "f66f641e191d35d491cd3b63d6c2cd93c4b436da398984b44c19a8d4d7e7b1a5",
        "534aeb97266bd5a85a8587adf8eebad3f2e001c1240610f24b62c0ad0c2466ee",
        "047a5b641778ec3a4c76055fd7f18ecb2424c0952f20dfff7e1b17749d8acbdd",
        "706c27b4c51d046c0316f1e915f093e4a1fff48b3436b3e7c421eab596a99e77",
        "7ee813605eec086457aaff022cf3837f2f893fcf8bd37e3a8d2ff0c80e4c4f87",
        "8094ac2bdaf2cbea8f7a48df66a0800c809b2fd5942740e6b0441b660d3a0dd5",
        "c423a8deea9b18f9ecb6cfd703578e2159df167de01fe7e6195b88995010252d",
        "57ad808c8d4dd94dc4404124370bbcebb3dcc597c2bea6457bf05f220adf1527",
        "27d4d62a2a6aea2cdc399302237512ab0d64fb0c84e648112f97c5896274e42f",
        "3c149cd124a19021031609e0d7743a7be59aae4f88c8d38410138e8f06f5daaf",
    ),
    "cornell": (
        "cf5a3ca346cdd1210b8342e22517fcbbdae658065b7a3145f59350e50e6236a3",
        "c4522a00cc40873c8a04a3a07c49e24a48a507eb284ac9c9f2d3e0590351bbb7",
        "14022a1e19ec7fc0a07a2c06a785a2f9dc52809dbcd1c14fc318f7800675d73f",
        "5568fa27e968a724c92211bf97026a36a08893cf94b218043e49b4c973c35cfb",
        "763fc1f423395e4172617fa5b6bc0d7adad2241e5fedd1a4f0a098a67f9dc8e9",
        "4334321cd9ec42de9d51107fb9a6dc310512e0921bc1cff0f390301ee37315fa",
        "2b6b3ef396f4dc7fcdc276fb16b88bb87409b25879dd672b3a506eca844dd8d7",
        "1a40ef8b20aa9e1aa850e1abdaba3efac1f66c98ef2c6a59eadefa21136ece6b",
        "bcddf4ab59eae4c7d47b8a6cec9025a54ec0e6d3f3bdcd7678e201f25ace4642",
        "2b497e12dfc123d7e7c9bb4fc4a82b5bee18409e109a3e3a04da439cacec964d",
        "5c4e110d252d7ad156b2e4cd34b6dbd1cecbcc1755f8d72e932cc2a54f2b643c",
        "80f1531807194d301affbf6f879a4ab4f56a19bdccb62d192e3ecd1b5275f052",
    ),
}

Array = np.ndarray[Any, np.dtype[Any]]


def remotes(dataset: str, fold: int) -> list[Remote]:
    """The words, the links and one cut of a university's pages."""
    hashes, cut = _SHA256[dataset], f"{dataset}_split_0.6_0.2_{fold}.npz"
    words, links = "out1_node_feature_label.txt", "out1_graph_edges.txt"
    return [
        Remote(f"{dataset}_{words}", f"{_ADDRESS}new_data/{dataset}/{words}", hashes[0], 1 << 22),
        Remote(f"{dataset}_{links}", f"{_ADDRESS}new_data/{dataset}/{links}", hashes[1], 1 << 16),
        Remote(cut, f"{_ADDRESS}splits/{cut}", hashes[2 + fold], 1 << 16),
    ]


def webkb(
    dataset: Literal["texas", "wisconsin", "cornell"] = "texas",
    fold: int = 0,
    undirected: bool = True,
    folder: str | None = None,
    download: bool = False,
) -> NodeClassification:
    """Guess what kind of page it is (student, project, course, staff, faculty) from its words and links.

    The ten published cuts hold out 20 % to choose the weights by and 20 % to test. Texas has 183 pages of 1,703 words
    (each there or not, divided by their number) and 325 links, of which only about one in ten joins pages of one class.
    The words and classes that are published there for Cornell are those of Texas, byte for byte; its links and cuts are
    its own.

    Reference   Craven et al. 1998; Pei et al. 2020, "Geom-GCN" (the cuts)

    Args:
        dataset: "texas", "wisconsin" or "cornell": the files' first word.
        fold: Which of the ten cuts, from 0 to 9.
        undirected: Let pages also attend to those that link to them. False: only to those that they are linked from.
        folder: Where the files NAME_out1_graph_edges.txt etc. lie (default: webkb in $EDGEWISE_DATA, then the cache).
        download: Fetch what is missing from the repository of its cuts, over TLS and verified by its hash.

    Errors      a file that is missing, malformed or does not fit the others is a `DataError` that names it.
    """
    check_range(0, FOLDS - 1, fold=fold)
    if dataset not in _SHA256:
        raise ConfigError(f"unknown WebKB data set {dataset!r}; known are {', '.join(_SHA256)}")
    files = remotes(dataset, fold)
    place = find_folder("webkb", files, folder, download)
    pages, links, cut = (place / file.name for file in files)
    words, labels = _pages(pages)
    edges = _links(links, len(labels))
    graph = Graph.from_edge_index(edges, len(labels)).remove_self_loops()
    graph = (graph.symmetrise() if undirected else graph).coalesce()
    totals = np.maximum(words.sum(1, keepdims=True), 1)
    x = SparseFeatures.from_scipy(scipy.sparse.csr_matrix((words / totals).astype(np.float32)))
    classes = tuple(f"class {c}" for c in range(CLASSES))
    return NodeClassification(dataset, Nodes(graph, x, labels, classes, _cut(cut, len(labels))))


def _pages(path: Path) -> tuple[Array, Tensor]:
    """Words [N, C] and classes [N], by the pages' numbers."""
    lines = read_bytes(path, MAX_BYTES).splitlines()[1:]
    rows: dict[int, tuple[list[int], int]] = {}
    for number, line in enumerate(lines, start=2):
        try:
            node, words, label = line.split(b"\t")
            rows[int(node)] = [int(word) for word in words.split(b",")], int(label)
        except ValueError as error:
            raise DataError(f"{path}: line {number} is not 'page, words, class' ({error})") from error
    lengths = {len(words) for words, _ in rows.values()}
    if len(rows) != len(lines) or sorted(rows) != list(range(len(rows))) or len(lengths) != 1:
        raise DataError(f"{path}: it does not list each page 0, 1, ... once, all with as many words")
    labels = [rows[node][1] for node in range(len(rows))]
    if not all(0 <= label < CLASSES for label in labels):
        raise DataError(f"{path}: a class is not one of 0 to {CLASSES - 1}")
    return np.array([rows[node][0] for node in range(len(rows))]), torch.tensor(labels)


def _links(path: Path, pages: int) -> Tensor:
    """Senders and receivers [2, E]."""
    content = read_bytes(path, MAX_BYTES)
    with reading(path, "a table of pages' numbers"):
        table = np.loadtxt(io.BytesIO(content), dtype=np.int64, skiprows=1, ndmin=2)
    if table.shape[1] != 2 or not len(table) or table.min() < 0 or table.max() >= pages:
        raise DataError(f"{path}: each line must name two of the pages 0 to {pages - 1}")
    return torch.from_numpy(table.T.copy())


def _cut(path: Path, pages: int) -> Splits:
    arrays = read_arrays(path, MASKS.values())
    if any(mask.shape != (pages,) for mask in arrays.values()):
        raise DataError(f"{path}: its masks are not for {pages} pages")
    splits = {split: torch.from_numpy(np.flatnonzero(arrays[name])) for split, name in MASKS.items()}
    if not all(map(len, splits.values())):
        raise DataError(f"{path}: a mask is empty")
    return splits
