import networkx
import pytest
import torch

from edgewise import DataError
from edgewise.graphs.refinement import refinement_classes
from edgewise.tasks import isomorphism, skip_links
from edgewise.tasks.graphs.isomorphism import FAMILIES, read_pairs


def test_classes_differ_and_copies_do_not():
    """By their spectra, which no numbering of the nodes changes."""
    task = skip_links(copies=5)
    spectra = torch.stack([torch.linalg.eigvalsh(graph.dense_mask().double()) for graph in task.graphs.members])
    same = torch.cdist(spectra, spectra) < 1e-6
    assert torch.equal(same, task.graphs.targets[:, None] == task.graphs.targets)
    assert len({tuple(graph.senders.tolist()) for graph in task.graphs.members[:5]}) == 5


def test_splits_hold_every_class_and_share_no_graph():
    task = skip_links()
    splits = task.graphs.splits
    assert {name: len(part) for name, part in splits.items()} == {"train": 90, "valid": 30, "test": 30}
    assert torch.cat(list(splits.values())).sort().values.tolist() == list(range(150))
    assert all(task.graphs.targets[part].bincount().unique().numel() == 1 for part in splits.values())


def test_a_copy_is_its_graph_with_its_nodes_and_their_colours_renumbered():
    task = isomorphism("multisets", copies=5, seed=1)
    x = task.graphs.x.split([graph.num_receivers for graph in task.graphs.members])
    for number, (graph, features) in enumerate(zip(task.graphs.members, x, strict=True)):
        family = FAMILIES["multisets"]()
        label = number // 5
        assert task.graphs.targets[number] == label
        pair = [graph, family.graphs[label]]
        colors = [features[:, 0].long(), family.features(label)[:, 0].long()]
        assert len(refinement_classes(pair, 1, colors).unique()) == 1
    assert len({tuple(features.flatten().tolist()) for features in x}) > 5


TOLD = {
    # pairs, told apart by 1-WL, by 2-WL
    "multisets": (66, 66, 66),
    "trees": (45, 45, 45),
    "random": (45, 45, 45),
    "hexagon": (1, 0, 1),
    "decalin": (1, 0, 1),
    "skip-links": (45, 0, 45),
    "regular": (45, 0, 45),
    "lifts": (45, 0, 45),
    "cfi-2": (9, 0, 9),
    "shrikhande": (1, 0, 0),
    "sr251256": (105, 0, 0),
    "chang": (6, 0, 0),
    "biplanes": (1, 0, 0),
    "quadrangles": (1, 0, 0),
    "cfi-3": (4, 0, 0),
    "cfi-4": (3, 0, 0),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_weisfeiler_and_leman_tell_apart(name):
    family = FAMILIES[name]()
    told = []
    for order in (1, 2):
        classes = refinement_classes(family.graphs, order, family.colors or None)
        told.append(sum(int(classes[a] != classes[b]) for a, b in family.pairs))
    assert (len(family.pairs), *told) == TOLD[name]
    assert all((graph.edge_index().flip(0).T.unsqueeze(1) == graph.edge_index().T).all(-1).any(1).all()
               for graph in family.graphs if name != "multisets")  # fmt: skip


def lines(*graphs):
    return b"".join(networkx.to_graph6_bytes(graph, header=False) for graph in graphs)


def test_pairs_are_two_lines_each(tmp_path):
    path = tmp_path / "pairs.g6"
    rings = [networkx.cycle_graph(n) for n in (3, 4, 5, 6)]
    path.write_bytes(b">>graph6<<" + lines(*rings[:2]) + b"\n" + lines(*rings[2:]))
    family = read_pairs(path)
    assert (family.name, family.pairs) == ("pairs.g6", [(0, 1), (2, 3)])
    assert [graph.in_degrees().tolist() for graph in family.graphs] == [[2] * n for n in (3, 4, 5, 6)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 graphs, where each pair needs two lines"),
        (lines(networkx.path_graph(3)), "1 graphs, where each pair needs two lines"),
        (lines(networkx.path_graph(3)) + b"Bw!\n", "line 2: 'Bw!' is no graph6"),
        (b"Dhcx\n", "line 1: 'Dhcx' is no graph6"),
        (lines(networkx.empty_graph(257)), "line 1: a graph of 257 nodes; at most 256"),
        (b"\xff\n", "UTF-8"),
    ],
)
def test_a_file_that_holds_no_pairs_is_refused(tmp_path, content, message):
    path = tmp_path / "pairs.g6"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"pairs\.g6") as refused:
        read_pairs(path)
    assert message in str(refused.value)
