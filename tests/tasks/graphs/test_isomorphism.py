import torch

from edgewise.graphs.refinement import refinement_classes
from edgewise.tasks import isomorphism, skip_links
from edgewise.tasks.graphs.isomorphism import FAMILIES


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
