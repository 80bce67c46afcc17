"""Node classification, on the karate club."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgewise import fit
from edgewise.data.splits import SPLITS
from edgewise.errors import ConfigError, DataError, GraphError
from edgewise.graphs import Graph, causal, complete, window
from edgewise.layers import GCN
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import NodeClassification, NodeRegression, Nodes, PatternChoice, karate
from edgewise.tasks.nodes.classification import AROUND, WHOLE

EVERYONE = PatternChoice("complete")


@pytest.fixture
def task() -> NodeClassification:
    return karate()


def test_batches_read_their_split_only(task: NodeClassification) -> None:
    for split in ("train", "valid", "test"):
        (batch,) = task.batches(split, 7)
        assert torch.equal(batch.rows, task.nodes.splits[split])
        assert torch.equal(batch.target, task.nodes.labels[batch.rows])
        assert batch.x is task.nodes.x
        assert batch.graph is task.graph()


def test_pattern_replaces_the_data_graph(task: NodeClassification) -> None:
    assert task.graph(PatternChoice()) is task.graph()
    assert task.graph(EVERYONE).is_complete
    assert task.graph(complete).num_receivers == 34
    with pytest.raises(ConfigError, match=r"grid\(\) does not fit 34 positions"):
        task.graph(PatternChoice("grid"))
    with pytest.raises(GraphError, match="34 positions"):
        task.graph(lambda n: complete(3))


def test_loss_and_score_are_those_of_the_rows(task: NodeClassification) -> None:
    outputs = torch.randn(34, 2, dtype=torch.float64)
    (batch,) = task.batches("valid", 1)
    chosen, labels = outputs[2::2], task.nodes.labels[2::2]
    score = task.score(outputs, batch)
    assert task.loss(outputs, batch).item() == pytest.approx(functional.cross_entropy(chosen, labels).item())
    assert score["count"].item() == 16
    assert score["accuracy"].item() == (chosen.argmax(1) == labels).sum().item()
    assert score["loss"].item() == pytest.approx(16 * functional.cross_entropy(chosen, labels).item())
    assert all(value.is_floating_point() for value in score.values())


def test_predict_all_and_some(task: NodeClassification, echo) -> None:
    model = echo(34, 2)
    everyone = task.predict(model, None, "all", "cpu")["nodes"]
    assert [answer["node"] for answer in everyone] == list(range(34))
    some = task.predict(model, EVERYONE, " 33, 0 ", "cpu")["nodes"]
    assert some == [everyone[33], everyone[0]]
    assert everyone[33]["class"] == model.weight[33].argmax().item() * "Officer"
    assert everyone[33]["label"] == "Officer"
    probabilities = everyone[5]["probabilities"]
    assert list(probabilities.values()) == sorted(probabilities.values(), reverse=True)
    assert sum(probabilities.values()) == pytest.approx(1)
    json.dumps(everyone)


@pytest.mark.parametrize("request_", ["", "34", "-1", "a", "1,,2", "1 2", "0.5", "٣", "9" * 30, "ALL"])
def test_predict_names_a_node_that_is_not_there(task: NodeClassification, echo, request_: str) -> None:
    with pytest.raises(DataError, match="in karate: give 'all' or numbers 0 to 33"):
        task.predict(echo(34, 2), None, request_, "cpu")


def test_karate_is_the_real_club(task: NodeClassification) -> None:
    graph = task.graph()
    assert (graph.num_receivers, graph.num_edges) == (34, 2 * 78)
    assert torch.equal(graph.dense_mask(), graph.dense_mask().T)
    assert not graph.dense_mask().diagonal().any()
    assert graph.in_degrees()[[0, 33]].tolist() == [16, 17]
    assert task.nodes.labels.bincount().tolist() == [17, 17]
    assert task.nodes.labels[[0, 33]].tolist() == [0, 1]
    assert sorted(torch.cat(list(task.nodes.splits.values())).tolist()) == list(range(34))
    assert task.signature.inputs == 34
    assert task.signature.outputs == 2
    assert not task.signature.whole_graph


@pytest.mark.parametrize("layer", ["gat", "gcn"])
def test_a_large_graph_is_drawn_around_one_of_its_nodes(layer: str) -> None:
    count = WHOLE + 50
    ring = torch.arange(count)
    edges = torch.stack([torch.cat([ring, ring]), torch.cat([(ring + 1) % count, (ring + 7) % count])])
    graph = Graph.from_edge_index(edges, count).symmetrise()
    rows = torch.arange(count)
    nodes = Nodes(
        graph,
        torch.randn(count, 4),
        rows % 3,
        ("a", "b", "c"),
        {"train": rows[:1], "valid": rows[1:2], "test": rows[2:]},
    )
    task = NodeClassification("ring", nodes)
    drawn = task.attention(GNN(GNNSettings(layer), task.signature).eval(), None)
    network = drawn.figure
    assert f"and {AROUND - 1} of the nodes around it" in drawn.caption
    assert drawn.name == ("attention" if layer == "gat" else "graph")
    assert network.graph.num_receivers == len(network.classes) == AROUND
    assert network.centre is not None and network.names == ()
    if layer == "gat":  # the weights of nodes whose neighbours are all shown add up to one
        assert network.weights.shape == (network.graph.num_edges,)
        whole = np.bincount(network.graph.receivers, weights=network.weights)[network.graph.in_degrees() == 5]
        assert whole == pytest.approx(1)


def test_the_confusion_matrix_counts_test_nodes(task: NodeClassification) -> None:
    model = GNN(GNNSettings("gcn"), task.signature).eval()
    attention, confusion = task.draw(model, None, {})
    ((drawn,),) = [confusion.make()]
    predicted, rows = model(task.graph(), task.nodes.x).argmax(1), task.nodes.splits["test"]
    for truth in range(2):
        for guess in range(2):
            both = (task.nodes.labels[rows] == truth) & (predicted[rows] == guess)
            assert drawn.figure.counts[truth, guess] == both.sum()
    correct = int((predicted[rows] == task.nodes.labels[rows]).sum())
    assert drawn.caption == f"{correct} of 16 test examples are classified correctly (diagonal)."
    assert attention.title == "Attention"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"x": torch.eye(2)}, "x has 2 rows, and the graph 3 nodes"),
        ({"labels": torch.tensor([0])}, "labels has 1 rows, and the graph 3 nodes"),
        ({"labels": torch.tensor([0, 2, 1])}, "labels must be whole numbers below 2"),
        ({"labels": torch.rand(3)}, "labels must be whole numbers below 2"),
        ({"splits": {"train": torch.tensor([0])}}, "splits have no 'valid': each of train, valid, test"),
        ({"labels": torch.tensor([0, -1, 1])}, "node 1 of the valid split has no label"),
        ({"labels": torch.tensor([0, 1, torch.nan]), "classes": ()}, "node 2 of the test split has no label"),
        ({"splits": {split: torch.arange(split == "test") for split in SPLITS}}, "no node is in the train"),
        ({"splits": {"train": torch.tensor([3])}}, "the train split has nodes 3 to 3, of 0 to 2"),
        ({"splits": {"train": torch.tensor([True, False, True])}}, "the train split is a mask: mask"),
        (
            {"splits": dict.fromkeys(SPLITS, torch.tensor([1, 0, 0]))},
            "the train split lists node 0 2 times: .* it must be bool",
        ),
        ({"splits": dict.fromkeys(SPLITS, torch.tensor([2]))}, "node 2 is in two splits, train and valid"),
        ({"graph": torch.tensor([[0], [1]])}, "must be a Graph, not Tensor"),
    ],
)
def test_data_that_do_not_fit_each_other_are_named(wrong: dict[str, Any], told: str) -> None:
    splits = {split: torch.tensor([number]) for number, split in enumerate(("train", "valid", "test"))}
    fine = {"graph": causal(3), "x": torch.eye(3), "labels": torch.tensor([0, 1, 1]), "splits": splits}
    with pytest.raises((DataError, GraphError), match=told):
        Nodes(**{**fine, "classes": ("a", "b"), **wrong})
    assert Nodes(**fine, classes=("a", "b")).splits == splits
    for kind in (torch.int16, torch.int32, torch.uint8):
        assert Nodes(**{**fine, "labels": fine["labels"].to(kind)}, classes=("a", "b")).labels.dtype == torch.int64
    below = Nodes(**{**fine, "labels": torch.tensor([-3, -1, 2])}, classes=())  # numbers
    assert below.labels.tolist() == [-3, -1, 2]


@pytest.mark.parametrize(("kind", "classes"), [(NodeClassification, ("a", "b")), (NodeRegression, ())])
def test_without_nodes_to_test_a_run_ends_with_its_validation(kind: Any, classes: tuple[str, ...]) -> None:
    nodes = torch.arange(12)
    splits = {"train": nodes[:8], "valid": nodes[8:], "test": nodes[:0]}
    labels = nodes % 2 if classes else nodes.float()
    task = kind("mine", Nodes(window(12, 1), torch.eye(12), labels, classes, splits))
    done = fit(task, GCN(12, len(classes) or 1), steps=3, learning_rate=0.1)
    assert not task.has_test and done.test is None and done.valid is not None
    assert "Predicted and measured" not in [section.title for section in task.draw(GCN(12, 1), None, {})]
