"""The TU Dortmund folder format: what is read, how it is cut into folds, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.tasks import GraphRegression, tudataset

COUNT = 40


def write(folder: Path, **changed: str | None) -> Path:
    """Forty paths of two or three nodes, in two classes; a changed file is given by its last words."""
    sizes = [2 + number % 2 for number in range(COUNT)]
    first = np.cumsum([1, *sizes])[:-1]
    edges = [
        f"{a + k + d}, {a + k + 1 - d}" for a, n in zip(first, sizes, strict=True) for k in range(n - 1) for d in (0, 1)
    ]
    files: dict[str, str | None] = {
        "A": "\n".join(edges),
        "graph_indicator": "\n".join(str(g + 1) for g, n in enumerate(sizes) for _ in range(n)),
        "graph_labels": "\n".join("-1" if g % 2 else "1" for g in range(COUNT)),
        "node_labels": "\n".join(str(3 + k % 2) for k in range(sum(sizes))),
        "node_attributes": "\n".join(f"{k}.5, {-k}" for k in range(sum(sizes))),
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    for name, content in (files | changed).items():
        if content is not None:
            (folder / f"MINE_{name}.txt").write_text(content + "\n")
    return folder


def mine(tmp_path: Path, **chosen: object):
    return tudataset("MINE", folder=str(tmp_path), **chosen)


def test_graphs_are_read_one_by_one(tmp_path) -> None:
    task = mine(write(tmp_path))
    graphs = task.graphs
    assert [m.num_receivers for m in graphs.members] == [2, 3] * 20
    assert graphs.members[1].edge_index().tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert graphs.classes == ("class -1", "class 1")
    assert graphs.targets.tolist() == [1, 0] * 20
    assert graphs.x.shape == (100, 4)
    assert graphs.x[:3, :2].tolist() == [[1, 0], [0, 1], [1, 0]]


def test_attributes_are_scaled_by_the_training_graphs_alone(tmp_path) -> None:
    task = mine(write(tmp_path))
    owner = torch.repeat_interleave(torch.tensor([2, 3] * 20))
    seen = task.graphs.x[torch.isin(owner, task.graphs.splits["train"])][:, 2:]
    torch.testing.assert_close(seen.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.std(0, correction=0), torch.ones(2), atol=1e-5, rtol=0)
    assert abs(task.graphs.x[:, 2].mean()) > 1e-3  # the others are not
    assert mine(tmp_path, attributes=False).signature.inputs == 2


def test_ten_folds_cover_every_graph_once(tmp_path) -> None:
    write(tmp_path)
    tested = []
    for fold in range(10):
        splits = mine(tmp_path, fold=fold).graphs.splits
        together = torch.cat([splits["train"], splits["valid"], splits["test"]])
        assert together.sort().values.tolist() == list(range(COUNT))
        assert len(splits["test"]) == 4
        labels = mine(tmp_path, fold=fold).graphs.targets[splits["test"]]
        assert labels.tolist().count(0) == 2  # stratified
        tested += splits["test"].tolist()
    assert sorted(tested) == list(range(COUNT))


def test_published_folds_are_taken(tmp_path) -> None:
    write(tmp_path)
    held = [{"test": [0, 1], "model_selection": [{"train": list(range(5, 40)), "validation": [2, 3]}]}]
    (tmp_path / "MINE_splits.json").write_text(json.dumps(held))
    splits = mine(tmp_path).graphs.splits
    assert splits["test"].tolist() == [0, 1]
    assert splits["valid"].tolist() == [2, 3]
    assert len(splits["train"]) == 35
    with pytest.raises(ConfigError, match="fold"):
        mine(tmp_path, fold=1)


@pytest.mark.parametrize(
    "content",
    [
        "{}", "[", "[[]]", '[{"test": [0]}]', "3", '"text"', '[{"test": ["a"], "model_selection": [[]]}]',
        '[{"test": [0], "model_selection": [{"train": [0], "validation": [1]}]}]',
        '[{"test": [40], "model_selection": [{"train": [0], "validation": [1]}]}]',
        '[{"test": [99999999999999999999], "model_selection": [{"train": [0], "validation": [1]}]}]',
    ],
)  # fmt: skip
def test_damaged_folds_are_refused(tmp_path, content: str) -> None:
    write(tmp_path)
    (tmp_path / "MINE_splits.json").write_text(content)
    with pytest.raises((DataError, ConfigError)):
        mine(tmp_path)


def test_graph_attributes_are_values_to_regress(tmp_path) -> None:
    heights = "\n".join(str(g / 2) for g in range(COUNT))
    task = mine(write(tmp_path, graph_labels=None, graph_attributes=heights))
    assert isinstance(task, GraphRegression)
    assert task.graphs.targets[:3].tolist() == [0, 0.5, 1]
    assert task.signature.outputs == 1
    dates = "\n".join(f"2451545.00{g:03}" for g in range(COUNT))  # which float32 rounds to quarters of a day
    dated = mine(write(tmp_path, graph_labels=None, graph_attributes=dates))
    assert dated.graphs.targets[-1].item() == float(dates.splitlines()[-1])


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("A", "1, 2\n\n1, x", "A.txt: not a table of numbers .*string ' x' to float64"),
        ("A", "1, 2, 3", "2 numbers per line"),
        ("A", "1, 2\n\n1, 2, 3", "the number of columns changed from 2 to 3"),
        ("A", "\n1, 2\n \n0, 1", "edge 2 names a node outside 1 to 100"),
        ("A", "1, 2\n\n2, 3", "edge 2 joins nodes of two graphs"),
        ("graph_labels", "\n".join(["1"] * 39 + ["1.5"]), "row 40 is not a whole number below 2⁵³: 1.5"),
        ("graph_labels", "\n".join(["1 %"] * 40), "not a table of numbers with commas between them"),
        ("graph_labels", "1, 2\n2, 1", "1 number per line was expected, not 2"),
        ("graph_indicator", "1\n3", "must rise"),
        ("graph_labels", "1\n2", "40 lines were expected, not 2"),
        ("node_labels", "1", "100 lines were expected"),
        ("node_attributes", "\n\n".join(["1"] * 99 + ["nan"]), "row 100 is not finite"),
        ("node_attributes", "\n".join(["1"] * 99 + ["1e999"]), "row 100 is not finite: inf"),
        ("graph_labels", "99999999999999999999", "graph_labels.txt"),
    ],
)
def test_a_malformed_file_is_named(tmp_path, file: str, content: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        mine(write(tmp_path, **{file: content}))


def test_a_missing_folder_or_a_name_that_is_a_path_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match=r"lacks MINE_A\.txt"):
        mine(tmp_path)
    for name in ("../MINE", "a/b", "", "."):
        with pytest.raises(ConfigError, match="name of a TU data set"):
            tudataset(name, folder=str(tmp_path))


def test_enzymes_and_mutag_are_what_their_papers_say(data) -> None:
    data("tudataset")
    enzymes, mutag = tudataset("ENZYMES"), tudataset("MUTAG")
    assert len(enzymes.graphs.members) == 600
    assert enzymes.signature.inputs == 3 + 18
    assert torch.bincount(enzymes.graphs.targets).tolist() == [100] * 6
    assert [len(enzymes.graphs.splits[split]) for split in ("train", "valid", "test")] == [486, 54, 60]
    assert len(mutag.graphs.members) == 188
    assert mutag.signature.inputs == 7
    assert torch.bincount(mutag.graphs.targets).tolist() == [63, 125]
    assert sum(member.num_edges for member in mutag.graphs.members) == 7442


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # PyTorch Geometric's
def test_the_peer_reads_the_same_graphs(data, tmp_path) -> None:
    """PyTorch Geometric's reader on the same files: edges, features and classes."""
    from torch_geometric.io import read_tu_data

    folder = data("tudataset") / "MUTAG"
    theirs, slices, _ = read_tu_data(str(folder), "MUTAG")
    ours = tudataset("MUTAG").graphs
    assert torch.equal(ours.targets, theirs.y)
    assert torch.equal(ours.x, theirs.x)
    for number in (0, 7, 187):
        begin, end = slices["edge_index"][number : number + 2].tolist()
        edges = theirs.edge_index[:, begin:end]
        assert set(map(tuple, edges.T.tolist())) == set(map(tuple, ours.members[number].edge_index().T.tolist()))


def test_edge_labels_and_attributes_follow_their_edges(tmp_path) -> None:
    """The file lists the edges of a path backwards; each says its own ends."""
    write(tmp_path)
    path = tmp_path / "MINE_A.txt"
    edges = path.read_text().split("\n")[:-1][::-1]
    path.write_text("\n".join(edges) + "\n")
    (tmp_path / "MINE_edge_labels.txt").write_text("\n".join("7" if k % 3 else "5" for k in range(len(edges))) + "\n")
    (tmp_path / "MINE_edge_attributes.txt").write_text("\n".join(edge.replace(", ", ",") for edge in edges) + "\n")
    assert mine(tmp_path).graphs.e is None
    graphs = mine(tmp_path, edges=True).graphs
    assert graphs.e is not None and graphs.e.shape == (len(edges), 4)
    named = {edge: [1.0, 0.0] if k % 3 == 0 else [0.0, 1.0] for k, edge in enumerate(edges)}
    first, place = 1, 0
    ends = []
    for member in graphs.members:
        for sender, receiver in member.edge_index().T.tolist():
            ends.append([first + sender, first + receiver])
            assert graphs.e[place, :2].tolist() == named[f"{first + sender}, {first + receiver}"]
            place += 1
        first += member.num_receivers
    scaled, raw = graphs.e[:, 2:], torch.tensor(ends, dtype=torch.float32)
    slope = (scaled[-1] - scaled[0]) / (raw[-1] - raw[0])
    torch.testing.assert_close(scaled - scaled[:1], (raw - raw[:1]) * slope, atol=1e-4, rtol=1e-4)
    seen = torch.isin(torch.repeat_interleave(torch.tensor([2, 4] * 20)), graphs.splits["train"])
    torch.testing.assert_close(scaled[seen].mean(0), torch.zeros(2), atol=1e-4, rtol=0)
