"""WebKB: the pages of a university, their words and their links; neighbours are mostly of other classes."""

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from edgewise.errors import ConfigError, DataError
from edgewise.files import read_bytes, reading
from edgewise.graphs import Graph
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.tasks.core.source import Remote, find_folder, local_folder
from edgewise.tasks.core.splits import FOLDS, Split, Splits
from edgewise.tasks.core.task import check_range
from edgewise.tasks.nodes.classification import NodeClassification, Nodes, read_arrays

MAX_BYTES = 1 << 23
CLASSES = 5
MASKS: dict[Split, str] = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}

_ADDRESS = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/"
# The tests compare them with the files: the words, the links, and the ten cuts.
_TEXAS = (
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
)

Array = np.ndarray[Any, np.dtype[Any]]


def remotes(dataset: str, fold: int) -> list[Remote]:
    """The words, the links and one cut of Texas; of the other two no hash is known here, so they are refused."""
    if dataset != "texas":
        raise ConfigError(f"WebKB's {dataset} is not downloaded, for its hashes are not known here: give task.folder")
    cut = f"texas_split_0.6_0.2_{fold}.npz"
    words, links = "out1_node_feature_label.txt", "out1_graph_edges.txt"
    return [
        Remote(f"texas_{words}", f"{_ADDRESS}new_data/texas/{words}", _TEXAS[0], 1 << 22),
        Remote(f"texas_{links}", f"{_ADDRESS}new_data/texas/{links}", _TEXAS[1], 1 << 16),
        Remote(cut, f"{_ADDRESS}splits/{cut}", _TEXAS[2 + fold], 1 << 16),
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

    Reference   Craven et al. 1998; Pei et al. 2020, "Geom-GCN" (the cuts)

    Args:
        dataset: "texas", "wisconsin" or "cornell": the files' first word. The project's tests read Texas alone.
        fold: Which of the ten cuts, from 0 to 9.
        undirected: Let pages also attend to those that link to them. False: only to those that they are linked from.
        folder: Where the files NAME_out1_graph_edges.txt etc. lie (default: webkb in $EDGEWISE_DATA, then the cache).
        download: Fetch what is missing of Texas from the repository of its cuts, over TLS and verified by its hash.

    Errors      a file that is missing, malformed or does not fit the others is a `DataError` that names it.
    """
    check_range(0, FOLDS - 1, fold=fold)
    if dataset not in ("texas", "wisconsin", "cornell"):
        raise ConfigError(f"unknown WebKB data set {dataset!r}; known are texas, wisconsin, cornell")
    cut = f"{dataset}_split_0.6_0.2_{fold}.npz"
    pages, links = f"{dataset}_out1_node_feature_label.txt", f"{dataset}_out1_graph_edges.txt"
    if download:
        place = find_folder("webkb", remotes(dataset, fold), folder, download)
    else:
        place = local_folder("webkb", [pages, links, cut], folder)
    words, labels = _pages(place / pages)
    edges = _links(place / links, len(labels))
    graph = Graph.from_edge_index(edges, len(labels)).remove_self_loops()
    graph = (graph.symmetrise() if undirected else graph).coalesce()
    totals = np.maximum(words.sum(1, keepdims=True), 1)
    x = SparseFeatures.from_scipy(csr_matrix((words / totals).astype(np.float32)))
    classes = tuple(f"class {c}" for c in range(CLASSES))
    return NodeClassification(dataset, Nodes(graph, x, labels, classes, _cut(place / cut, len(labels))))


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
