import networkx
import pytest
import torch

from edgewise import ConfigError
from edgewise.tasks import skip_links
from edgewise.tasks.graphs.skip_links import NODES, SKIPS, ring_with_chords


@pytest.mark.parametrize("skip", SKIPS)
def test_a_ring_with_chords_is_a_circulant_graph(skip):
    graph = ring_with_chords(NODES, skip)
    expected = torch.from_numpy(networkx.to_numpy_array(networkx.circulant_graph(NODES, [1, skip]))).bool()
    assert torch.equal(graph.dense_mask(), expected)
    assert graph.in_degrees().tolist() == [4] * NODES


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


def test_too_few_copies_are_refused():
    with pytest.raises(ConfigError, match="at least 5"):
        skip_links(copies=4)
