"""Training on a store: the bits of training from memory; exact evaluation; what is refused."""

from pathlib import Path

import pytest
import torch

from edgewise import native
from edgewise.data import build_store
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Neighborhood, Store
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import SampledNodes, node_store, planted
from edgewise.tasks.nodes.classification import Nodes
from edgewise.training import evaluate

SMALL = {"nodes": 600, "degree": 6, "classes": 4, "channels": 8}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The planted graph on disk."""
    task = planted(**SMALL)
    graph, nodes = task.graph(), task.nodes
    masks = {part: torch.zeros(600).index_fill(0, rows, 1) for part, rows in nodes.splits.items()}
    known = {"x": nodes.x, "labels": nodes.labels, **masks}
    build_store(tmp_path / "store", [(graph.senders.numpy(), graph.receivers.numpy(), None)], [known])
    return tmp_path / "store"


def test_a_step_from_disk_has_the_bits_of_one_from_memory(store: Path) -> None:
    memory = SampledNodes("planted", planted(**SMALL).nodes, (4, 3), inductive=False)
    for cache in ("0", "5kB", "1GB"):
        task = node_store(str(store), (4, 3), cache)
        for seed in range(5):
            mine, theirs = (one.train_batch(50, torch.Generator().manual_seed(seed)) for one in (task, memory))
            assert mine.x.equal(theirs.x) and mine.target.equal(theirs.target)
            assert mine.graph.graphs == theirs.graph.graphs
    if native.library is not None:
        measured = task.measured()
        assert 0 < measured["cache_hits"] < 1 and measured["bytes_read"] > 0
    assert task.measured()["bytes_read"] == 0


@pytest.mark.parametrize("layer", ["sage-mean", "sage-pool", "gin", "gcn", "fast-gcn", "acm"])
@pytest.mark.parametrize("connection", ["none", "residual", "concatenate"])
def test_an_evaluation_in_chunks_is_exact(store: Path, layer: str, connection: str) -> None:
    task = node_store(str(store), (4, 3, 2))
    model = GNN(GNNSettings(layer, 8, 3, connection, norm="batch"), task.signature)
    whole = planted(**SMALL)
    model(whole.graph(), whole.nodes.x)  # statistics for the norm
    expected = model.eval()(whole.graph(), whole.nodes.x)
    nodes = torch.tensor([7, 300, 2, 599])
    among = Neighborhood(task.nodes.graph, nodes, chunk=50)
    torch.testing.assert_close(model(among, task.nodes.x), expected[nodes], rtol=1e-5, atol=1e-5)
    assert evaluate(model, task, "test", 70) == pytest.approx(evaluate(model, whole, "test", 1), rel=1e-5)


@pytest.mark.parametrize("layer", ["monet", "sage-lstm"])
def test_layers_that_read_what_a_chunk_lacks_are_refused(store: Path, layer: str) -> None:
    task = node_store(str(store))
    among = Neighborhood(task.nodes.graph, torch.tensor([7]))
    with pytest.raises(ConfigError, match="choose sage-mean, sage-pool, gcn"):
        GNN(GNNSettings(layer, 8, 2), task.signature)(among, task.nodes.x)


def test_what_is_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a store is not read at once"):
        node_store(str(store), ())
    with pytest.raises(ConfigError, match="'much' is no size"):
        node_store(str(store), cache="much")
    build_store(tmp_path / "bare", [([0, 1], [1, 0], None)])
    with pytest.raises(DataError, match="it has no features or no labels"):
        node_store(str(tmp_path / "bare"))
    task = node_store(str(store))
    model = GNN(GNNSettings("sage-mean", 8, 2, norm="pair"), task.signature).eval()
    with pytest.raises(ConfigError, match="the norm 'pair' read all nodes of a graph at once"):
        model(Neighborhood(task.nodes.graph, torch.tensor([1])), task.nodes.x)


def test_nodes_without_parts_are_cut_at_random(tmp_path: Path) -> None:
    known = {"x": torch.randn(50, 2), "labels": torch.arange(50) % 3 - 1}
    build_store(tmp_path / "store", [([0, 1], [1, 0], None)], [known])
    task = node_store(str(tmp_path / "store"))
    sizes = {split: len(rows) for split, rows in task.splits.items()}
    assert sum(sizes.values()) == int((known["labels"] >= 0).sum())
    assert isinstance(Store.open(tmp_path / "store").labels(), torch.Tensor) and isinstance(task.nodes, Nodes)
