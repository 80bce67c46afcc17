"""WebKB's files: what is read, the published cuts, and what is refused."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.tasks import webkb
from edgewise.tasks.nodes.webkb import remotes

PAGES, WORDS = 12, 4


def write(folder: Path, pages: str | None = None, links: str | None = None, **masks: np.ndarray) -> str:
    """Twelve pages, not in order, in a ring with one link both ways and one to itself."""
    lines = [f"{n}\t{n % 2},1,0,{int(n > 5)}\t{n % 5}" for n in reversed(range(PAGES))]
    ring = [f"{n}\t{(n + 1) % PAGES}" for n in range(PAGES)] + ["1\t0", "3\t3"]
    (folder / "texas_out1_node_feature_label.txt").write_text(pages or "\n".join(["node_id\tfeature\tlabel", *lines]))
    (folder / "texas_out1_graph_edges.txt").write_text(links or "\n".join(["node_id\tnode_id", *ring]))
    part = np.arange(PAGES) % 3
    cut = {f"{name}_mask": (part == k).astype(np.uint8) for k, name in enumerate(("train", "val", "test"))} | masks
    np.savez(folder / "texas_split_0.6_0.2_0.npz", **cut)
    return str(folder)


def test_pages_are_read_by_their_numbers(tmp_path) -> None:
    task = webkb(folder=write(tmp_path))
    nodes = task.nodes
    assert nodes.labels.tolist() == [n % 5 for n in range(PAGES)]
    assert nodes.x.to_dense()[7].tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])
    assert nodes.splits["valid"].tolist() == [1, 4, 7, 10]
    assert task.graph().num_edges == 2 * PAGES
    assert not task.graph().has_self_loops and not task.graph().has_duplicates
    alone = webkb(folder=str(tmp_path), undirected=False).graph()
    assert alone.num_edges == PAGES + 1
    assert alone.senders[alone.offsets[5] : alone.offsets[6]].tolist() == [4]


HEAD = "node_id\tfeature\tlabel\n"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"pages": HEAD + "0\t1,0\t1\n0\t1,1\t2"}, "each page 0, 1, ... once"),
        ({"pages": HEAD + "0\t1,0\t1\n1\t1\t2"}, "all with as many words"),
        ({"pages": HEAD + "0\t1,x\t1"}, "line 2 is not"),
        ({"pages": HEAD + "0\t1"}, "line 2 is not"),
        ({"pages": HEAD + "0\t1\t9"}, "a class is not one of 0 to 4"),
        ({"links": "a\tb\n0\tx"}, "not a table"),
        ({"links": "a\tb\n0\t12"}, "two of the pages 0 to 11"),
        ({"links": "a\tb\n0\t1\t2"}, "two of the pages"),
        ({"links": "a\n0\n1"}, "two of the pages"),
        ({"train_mask": np.ones(3)}, "not for 12 pages"),
        ({"test_mask": np.zeros(PAGES)}, "a mask is empty"),
        ({"val_mask": np.array([None] * PAGES)}, "not a .npz file"),  # an object array would have to be unpickled
    ],
)
def test_a_malformed_file_is_named(tmp_path, changed: dict, told: str) -> None:
    with pytest.raises(DataError, match=told):
        webkb(folder=write(tmp_path, **changed))


def test_a_cut_that_is_missing_or_damaged_is_named(tmp_path) -> None:
    folder = write(tmp_path)
    with pytest.raises(DataError, match=r"lacks texas_split_0\.6_0\.2_1\.npz"):
        webkb(fold=1, folder=folder)
    for content in (b"", b"PK\x03\x04 damaged", b"text"):
        (tmp_path / "texas_split_0.6_0.2_0.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"texas_split_0\.6_0\.2_0\.npz"):
            webkb(folder=folder)
    for fold in (-1, 10):
        with pytest.raises(ConfigError, match="fold"):
            webkb(fold=fold, folder=folder)
    with pytest.raises(ConfigError, match="known are texas"):
        webkb("../texas", folder=folder)


def test_texas_is_what_its_paper_says(data) -> None:
    data("webkb")
    task = webkb()
    nodes = task.nodes
    assert (task.graph().num_receivers, task.signature.inputs) == (183, 1703)
    assert torch.bincount(nodes.labels).tolist() == [33, 1, 18, 101, 30]
    for fold in range(10):
        splits = webkb(fold=fold).nodes.splits
        assert [len(splits[split]) for split in ("train", "valid", "test")] == [87, 59, 37]
        assert torch.cat(list(splits.values())).sort().values.tolist() == list(range(183))
    graph = task.graph()
    homophily = (nodes.labels[graph.senders] == nodes.labels[graph.receivers]).double().mean().item()
    assert homophily < 0.12


def test_texas_hashes_are_those_of_its_files(data) -> None:
    for fold in range(10):
        for file in remotes("texas", fold):
            content = (data("webkb") / file.name).read_bytes()
            assert hashlib.sha256(content).hexdigest() == file.sha256
            assert len(content) <= file.max_bytes
