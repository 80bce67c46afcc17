"""Training on a store: the bits of training from memory; exact evaluation; what is refused."""

import json
from pathlib import Path

import pytest
import torch

from edgewise import native, training
from edgewise.apps import options, recipes
from edgewise.data import build_store
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph, Neighborhood, Store
from edgewise.models import GNN, Features, GNNSettings
from edgewise.tasks import SampledNodes, node_store, planted
from edgewise.tasks.nodes.classification import Nodes
from edgewise.training import evaluate
from training.tiny import losses, weights

compiled = pytest.mark.skipif(native.library is None, reason="edgewise was installed without its C++ kernels")
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


def test_weights_trained_from_disk_have_the_bits_of_those_from_memory(store: Path) -> None:
    memory = SampledNodes("planted", planted(**SMALL).nodes, (4, 3), inductive=False)

    def trained(task: SampledNodes) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = GNN(GNNSettings("sage-mean", 8, 2), task.signature)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for step in range(10):
            batch = task.train_batch(50, torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            task.loss(model(*batch.inputs), batch).backward()
            optimizer.step()
        return model.state_dict()

    expected = trained(memory)
    for cache in ("0", "5kB"):
        found = trained(node_store(str(store), (4, 3), cache))
        assert all(found[name].equal(value) for name, value in expected.items())


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


def test_a_convolution_reads_degrees_without_the_edges_that_are_missing() -> None:
    looped = Graph.from_edge_index([[0, 1, 2, 2, 3, 4, 4], [1, 1, 1, 3, 4, 0, 2]], num_nodes=5)
    x, nodes, missing = torch.randn(5, 3), torch.tensor([4, 1]), torch.tensor([0, 5])
    model = GNN(GNNSettings("gcn", 4, 2), Features(3, 2)).eval()
    kept = torch.ones(looped.num_edges, dtype=torch.bool).index_fill(0, missing, False)
    rest = Graph.from_edge_index(looped.edge_index()[:, kept], num_nodes=5)
    found = model(Neighborhood(looped, nodes, chunk=1, missing=missing), x)
    torch.testing.assert_close(found, model(rest, x)[nodes])


def test_features_wait_in_the_type_of_the_store(tmp_path: Path) -> None:
    x = torch.randn(50, 4).half()
    build_store(tmp_path / "store", [([0, 1], [1, 0], None)], [{"x": x, "labels": torch.arange(50) % 3}])
    task = node_store(str(tmp_path / "store"))
    batch = task.train_batch(20, torch.Generator().manual_seed(0))
    assert batch.x.dtype == torch.float16 and batch.inputs[1].dtype == torch.float32
    assert batch.inputs[1].equal(x[batch.graph.nodes].float())
    model = GNN(GNNSettings("sage-mean", 8, 2), task.signature)
    assert model(*batch.inputs).dtype == torch.float32
    assert model(*next(task.batches("test", 5)).inputs).shape == (5, 3)


def test_what_is_large_on_the_way_is_in_a_file(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = node_store(str(store))
    model = GNN(GNNSettings("sage-mean", 8, 2), task.signature).eval()
    (batch,) = task.batches("valid", 1000)
    expected = model(*batch.inputs)
    monkeypatch.setattr("edgewise.graphs.layout.IN_MEMORY", 100)
    assert model(*batch.inputs).equal(expected)


@compiled
def test_the_recipe_trains_from_disk_as_from_memory(store: Path, tmp_path: Path) -> None:
    small = [("train.steps", "6"), ("train.log.every", "1"), ("train.batch", "64"), ("machine.threads", "1")]
    chosen = [
        ("task.store", str(store)),
        ("task.cache", "10kB"),
        ("task.fanouts", "[3, 3, 3]"),
        ("evaluation.every", "3"),
    ]
    config = options.configure(recipes.read("store-sage"), [*small, *chosen])
    result = training.train(config, tmp_path / "run", progress=False)
    assert result.test is not None and 0.2 < result.test <= 1
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(0 <= line["cache_hits"] <= 1 and line["bytes_read"] >= 0 for line in lines if "loss" in line)
    without = options.configure(
        recipes.read("store-sage"), [*small, *chosen, ("task.cache", "0"), ("task.workers", "0")]
    )
    training.train(without, tmp_path / "plain", progress=False)
    assert losses(tmp_path / "run") == losses(tmp_path / "plain")
    assert all(one.equal(weights(tmp_path / "plain")[name]) for name, one in weights(tmp_path / "run").items())
    loaded = training.load_run(tmp_path / "run")
    predicted = loaded.task.predict(loaded.model, None, "3, 9", "cpu")["nodes"]
    assert [node["node"] for node in predicted] == [3, 9]
    with pytest.raises(DataError, match="is explained on a graph in memory"):
        loaded.task.subject(loaded.model, None, "3")


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
