"""Small graphs on disk for tests: edges in any order, with hubs, parallel edges and nodes without any."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewise import Graph
from edgewise.data import build_store
from edgewise.graphs.layout import MANIFEST, Manifest, Writer

NODES, EDGES = 500, 3000


def edge_list(seed: int = 0) -> tuple[Any, Any, Any]:
    """senders, receivers, and two numbers for each edge."""
    draw = np.random.default_rng(seed)
    senders, receivers = draw.integers(0, NODES, EDGES), (draw.random(EDGES) ** 3 * NODES).astype(np.int64)
    return senders, receivers, draw.random((EDGES, 2), dtype=np.float32)


def in_memory(seed: int = 0) -> Graph:
    senders, receivers, _ = edge_list(seed)
    return Graph.from_edge_index(np.stack([senders, receivers]), NODES)


def labelled(folder: Path, dtype: torch.dtype | None = None) -> Path:
    """A store with features, labels, parts and attributes of edges."""
    senders, receivers, e = edge_list()
    draw = torch.Generator().manual_seed(1)
    nodes = {
        "x": torch.randn(NODES, 6, generator=draw),
        "labels": torch.arange(NODES) % 3,
        **{part: torch.arange(NODES) % 4 == n for n, part in enumerate(("train", "valid", "test"))},
    }
    build_store(folder, [(senders, receivers, e)], [nodes], features=dtype)
    return folder


def written(folder: Path, nodes: int, edges: int, **arrays: torch.Tensor) -> Path:
    """A store of any arrays, as somebody else may write it: files, hashes and manifest agree with each other."""
    folder.mkdir()
    stored = {}
    for name, array in arrays.items():
        writer = Writer(folder, name, array.dtype, tuple(array.shape[1:]))
        writer.write(array)
        stored[name] = writer.finish()
    (folder / MANIFEST).write_text(Manifest(nodes, edges, stored).to_json())
    return folder
