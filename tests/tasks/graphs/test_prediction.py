"""Tasks on whole graphs: disjoint batches, their loss and scores, and what they answer."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from edgewise.data.splits import SPLITS
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph
from edgewise.layers import GIN, MLP, SumReadout
from edgewise.models import GNN, GNNSettings, MinCutSettings, PooledTransformer, PooledTransformerSettings
from edgewise.tasks import GraphClassification, GraphRegression, Graphs, PatternChoice, skip_links
from edgewise.tasks.core.batch import Batch
from edgewise.training import evaluate

SIZES = [3, 1, 4, 2, 5, 3]


def graphs(targets: torch.Tensor, classes: tuple[str, ...] = ()) -> Graphs:
    """Six paths, their nodes' features at random."""
    generator = torch.Generator().manual_seed(0)
    members = []
    for size in SIZES:
        ends = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
        members.append(Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), size))
    x = torch.randn(sum(SIZES), 2, generator=generator, dtype=torch.float64)
    splits = {"train": torch.tensor([0, 2, 4]), "valid": torch.tensor([1, 3]), "test": torch.tensor([5])}
    return Graphs(tuple(members), x, targets, splits, classes)


@pytest.fixture
def classes() -> GraphClassification:
    return GraphClassification("six", graphs(torch.tensor([0, 1, 2, 0, 1, 2]), ("a", "b", "c")))


@pytest.fixture
def values() -> GraphRegression:
    return GraphRegression("six", graphs(torch.tensor([1.0, 5.0, 2.0, -1.0, 6.0, 3.0])))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"x": torch.zeros(17, 2)}, "x has 17 rows, and there are 18 nodes"),
        ({"targets": torch.zeros(5)}, "targets has 5 rows, and there are 6 graphs"),
        ({"e": torch.zeros(5, 1)}, "e has 5 rows, and there are 24 edges"),
        ({"u": torch.zeros(5, 1)}, "u has 5 rows, and there are 6 graphs"),
        ({"splits": {"train": torch.tensor([0])}}, "splits have no 'valid'"),
        ({"splits": dict.fromkeys(SPLITS, torch.tensor([-1, 2]))}, "the train split has graphs -1 to 2, of 0 to 5"),
        ({"splits": dict.fromkeys(SPLITS, torch.ones(6) > 0)}, "the train split is a mask"),
    ],
)
def test_data_that_do_not_fit_the_graphs_are_named(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(DataError, match=told):
        GraphRegression("six", replace(graphs(torch.arange(6.0)), **wrong))


class GraphNetwork(nn.Module):
    """One GIN layer and a sum per graph, in float64."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layer, self.readout = GIN(MLP([2, 4, outputs], "tanh")), SumReadout()
        self.double()

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return self.readout(graph, self.layer(graph, x))


@pytest.mark.parametrize(
    ("splits", "told"),
    [
        ({"train": [0, 1], "valid": [1, 2]}, "graph 1 is in two splits, train and valid"),
        ({"train": [0, 1], "valid": [2], "test": [4, 0]}, "graph 0 is in two splits, train and test"),
        ({"train": [0, 0], "valid": [2]}, "the train split lists graph 0 2 times"),
        (
            {"train": [0.0], "valid": [2]},
            r"train split must list its graphs by their numbers, \[M\] of int64, not \[1\]",
        ),
        ({"train": ["a"], "valid": [2]}, "train split must list its graphs by their numbers, not as a list"),
        ({"train": [True], "valid": [2]}, "the train split is a mask"),
    ],
)
def test_splits_list_each_graph_once(splits: dict[Any, Any], told: str) -> None:
    known = graphs(torch.tensor([0, 1, 2, 0, 1, 2]), ("a", "b", "c"))
    with pytest.raises(DataError, match=told):
        GraphClassification("six", replace(known, splits=splits))


def test_splits_may_be_lists_and_validation_that_of_training() -> None:
    known = graphs(torch.tensor([0, 1, 2, 0, 1, 2]), ("a", "b", "c"))
    task = GraphClassification("six", replace(known, splits={"train": [0, 2], "valid": range(3, 5), "test": []}))
    assert [split.tolist() for split in task.splits.values()] == [[0, 2], [3, 4], []]
    same = GraphClassification("six", replace(known, splits={"train": [0, 2], "valid": [0, 2], "test": [1]}))
    assert same.splits["valid"].tolist() == [0, 2]


@pytest.mark.parametrize("targets", [torch.zeros(6), torch.tensor([0, 1, 2, 3, 0, 1])])
def test_classes_are_whole_numbers_below_their_count(targets: torch.Tensor) -> None:
    with pytest.raises(DataError, match="targets must be whole numbers below 3, one for each class"):
        GraphClassification("six", graphs(targets, ("a", "b", "c")))


def test_a_batch_is_block_diagonal_and_answers_each_graph_as_if_alone(classes: GraphClassification) -> None:
    """(5.5): forward and gradient of a disjoint batch are those of its members one by one."""
    model = GraphNetwork(3)
    (batch,) = classes.batches("train", 10)
    assert batch.graph.sizes.tolist() == [3, 4, 5]
    blocks = [member.dense_mask() for member in batch.members]
    assert torch.equal(batch.graph.dense_mask(), torch.block_diag(*blocks).bool())
    outputs = model(batch.graph, batch.x)
    alone = torch.cat([model(m, x) for m, x in zip(batch.members, batch.x.split([3, 4, 5]), strict=True)])
    torch.testing.assert_close(outputs, alone, rtol=1e-12, atol=1e-12)
    loss = classes.loss(outputs, batch)
    whole = torch.autograd.grad(loss, model.parameters())
    one_by_one = torch.autograd.grad(functional.cross_entropy(alone, batch.target), model.parameters())
    for a, b in zip(whole, one_by_one, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_the_dense_equation_of_a_batch(classes: GraphClassification) -> None:
    """Readout(MLP((1 + ε) X + A X)) written out with matrices."""
    model = GraphNetwork(3)
    (batch,) = classes.batches("train", 10)
    A = torch.block_diag(*[member.dense_mask().double() for member in batch.members])
    pool = torch.block_diag(*[torch.ones(1, n, dtype=torch.float64) for n in (3, 4, 5)])
    expected = pool @ model.layer.mlp(batch.x + A @ batch.x)
    torch.testing.assert_close(model(batch.graph, batch.x), expected, rtol=1e-12, atol=1e-12)


def test_the_order_of_nodes_and_of_graphs_does_not_matter(classes: GraphClassification) -> None:
    model = GraphNetwork(3)
    (batch,) = classes.batches("train", 10)
    swapped = Graph.batch([batch.members[2], batch.members[0].permute([2, 0, 1]), batch.members[1]])
    first, second, third = batch.x.split([3, 4, 5])
    outputs = model(swapped, torch.cat([third, first[[2, 0, 1]], second]))
    torch.testing.assert_close(outputs, model(batch.graph, batch.x)[[2, 0, 1]])


def test_train_batch_draws_different_training_graphs(classes: GraphClassification) -> None:
    seen = set()
    for seed in range(20):
        batch = classes.train_batch(2, torch.Generator().manual_seed(seed))
        again = classes.train_batch(2, torch.Generator().manual_seed(seed))
        assert torch.equal(batch.x, again.x) and batch.graph == again.graph
        assert batch.graph.num_receivers == len(batch.x)
        seen.add(tuple(batch.graph.sizes.tolist()))
    assert seen == {(a, b) for a in (3, 4, 5) for b in (3, 4, 5) if a != b}
    assert classes.train_batch(99, torch.Generator()).size == 3


def test_every_graph_of_a_split_is_read_once_and_put_together_once(classes: GraphClassification) -> None:
    first, second = classes.batches("train", 2)
    assert torch.cat([first.target, second.target]).tolist() == [0, 2, 1]
    assert next(classes.batches("train", 2)) is first


@pytest.mark.parametrize("parts", [2, 3])
def test_a_batch_is_cut_between_graphs(classes: GraphClassification, parts: int) -> None:
    (batch,) = classes.batches("train", 10)
    model = GraphNetwork(3)
    pieces = batch.split(parts)
    assert [piece.size for piece in pieces] == {2: [1, 2], 3: [1, 1, 1]}[parts]
    weighted = sum(p.size / batch.size * classes.loss(model(p.graph, p.x), p) for p in pieces)
    torch.testing.assert_close(weighted, classes.loss(model(batch.graph, batch.x), batch))
    assert batch.split(4) == [batch] * 4


def test_what_is_known_of_edges_and_of_wholes_goes_with_its_graph() -> None:
    plain = graphs(torch.tensor([1.0, 5.0, 2.0, -1.0, 6.0, 3.0]))
    e = torch.arange(sum(member.num_edges for member in plain.members), dtype=torch.float64)[:, None]
    u = torch.arange(12, dtype=torch.float64).view(6, 2)
    task = GraphRegression("six", replace(plain, u=u))
    assert (task.signature.edges, task.signature.whole) == (0, 2)
    (batch,) = task.batches("train", 10)
    assert batch.inputs[2] is None and torch.equal(batch.inputs[3], u[[0, 2, 4]])
    (batch,) = GraphRegression("six", replace(plain, e=e, u=u)).batches("train", 10)
    assert torch.equal(batch.inputs[2], batch.e) and batch.inputs[3] is batch.u
    first, second = batch.split(2)
    assert torch.equal(torch.cat([first.u, second.u]), batch.u) and torch.equal(torch.cat([first.e, second.e]), batch.e)
    there = batch.to("meta")
    assert there.e is not None and there.u is not None and there.e.is_meta and there.u.is_meta


def test_a_pattern_replaces_every_graph(classes: GraphClassification) -> None:
    (batch,) = classes.batches("train", 10, PatternChoice("complete"))
    assert batch.graph.in_degrees().tolist() == [3] * 3 + [4] * 4 + [5] * 5
    (alone,) = classes.batches("train", 10, PatternChoice("window", {"radius": 0}))
    assert torch.equal(alone.graph.dense_mask(), torch.eye(12).bool())


def test_rmse_is_the_root_of_the_mean_over_the_whole_split(values: GraphRegression) -> None:
    model = GraphNetwork(1)
    errors = []
    for member, x, y in zip(values.graphs.members, values.graphs.x.split(SIZES), values.graphs.targets, strict=True):
        errors.append((3.0 + (14 / 3) ** 0.5 * model(member, x).item()) - y.item())  # of 1, 2, 6: mean 3, variance 14/3
    wanted = torch.tensor(errors, dtype=torch.float64)[values.graphs.splits["train"]]
    for size in (1, 2, 10):  # whatever the batches are
        scores = evaluate(model, values, "train", size)
        assert scores["rmse"] == pytest.approx(wanted.square().mean().sqrt().item(), rel=1e-6)
        assert scores["mae"] == pytest.approx(wanted.abs().mean().item(), rel=1e-6)
        assert scores["loss"] == pytest.approx(wanted.square().mean().item() * 3 / 14, rel=1e-6)
    (batch,) = values.batches("train", 10)
    assert values.loss(model(batch.graph, batch.x), batch).item() == pytest.approx(scores["loss"], rel=1e-6)


def test_the_loss_has_the_gradient_of_its_equation(values: GraphRegression) -> None:
    (batch,) = values.batches("train", 10)
    outputs = torch.randn(3, 1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: values.loss(y, batch), outputs)


def test_predict_answers_one_graph(classes: GraphClassification, values: GraphRegression) -> None:
    answer = classes.predict(GraphNetwork(3), None, "valid:1", "cpu")
    assert (answer["graph"], answer["label"]) == (3, "a")
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    told = values.predict(GraphNetwork(1), None, "test:0", "cpu")
    assert (told["graph"], told["measured"]) == (5, 3.0)
    for wrong in ("valid:2", "3", "train:", "all", "test:-1"):
        with pytest.raises(DataError):
            classes.predict(GraphNetwork(3), None, wrong, "cpu")


def test_a_split_without_graphs_is_refused() -> None:
    data = graphs(torch.zeros(6, dtype=torch.int64), ("a",))
    data.splits["valid"] = torch.tensor([], dtype=torch.int64)
    with pytest.raises(DataError, match="valid"):
        GraphClassification("six", data)


def test_any_readout_of_the_graph_network_fits(classes: GraphClassification) -> None:
    for readout in ("mean", "sum", "max", "attention"):
        model = GNN(GNNSettings("gin", 4, readout=readout), classes.signature).double()
        (batch,) = classes.batches("train", 10)
        assert model(batch.graph, batch.x).shape == (3, 3)


# Edges of which something is known


@pytest.fixture
def bonds() -> GraphRegression:
    """The same paths; an edge knows its two ends, each counted over all graphs."""
    data = graphs(torch.tensor([1.0, 5.0, 2.0, -1.0, 6.0, 3.0]))
    first = [sum(SIZES[:number]) for number in range(6)]
    e = torch.cat([member.edge_index().T + start for member, start in zip(data.members, first, strict=True)])
    return GraphRegression("six", replace(data, e=e.double()))


def test_edge_features_stay_with_their_edges_in_every_batch(bonds: GraphRegression) -> None:
    """`x` of each node in place of its number: in a batch, an edge's features are those of the nodes that it joins."""
    number = {tuple(row): k for k, row in enumerate(bonds.graphs.x.tolist())}

    def follow(batch: Batch) -> None:
        places = torch.tensor([number[tuple(row)] for row in batch.x.tolist()])
        assert torch.equal(places[batch.graph.edge_index().T], batch.e.long())

    (train,) = bonds.batches("train", 10)
    for batch in (train, *train.split(2), bonds.train_batch(2, torch.Generator().manual_seed(1)), train.to("cpu")):
        assert batch.inputs == (batch.graph, batch.x, batch.e)
        follow(batch)
    assert bonds.signature.edges == 2
    assert train.to("meta").e.device.type == "meta"


def test_a_pattern_cannot_have_the_features_of_other_edges(bonds: GraphRegression) -> None:
    with pytest.raises(ConfigError, match=r"the recipe's graph must be 'given'"):
        next(bonds.batches("train", 2, PatternChoice("complete")))


def test_targets_that_are_all_equal_are_standardised_by_one(bonds: GraphRegression) -> None:
    equal = replace(bonds.graphs, targets=torch.full_like(bonds.graphs.targets, 3.0))
    task = GraphRegression("equal", equal)
    assert (task.mean, task.deviation) == (3.0, 1.0)


def test_edge_features_reach_the_model_in_training_evaluation_and_prediction(bonds: GraphRegression) -> None:
    model = GNN(GNNSettings("gine", 4, dropout=0.0, readout="sum"), bonds.signature).double()
    answer = bonds.predict(model, None, "test:0", "cpu")
    batch = next(bonds.batches("test", 1))
    told = bonds.mean + bonds.deviation * model(batch.graph, batch.x, batch.e).item()
    assert answer["value"] == pytest.approx(told)
    assert evaluate(model, bonds, "test", 1)["rmse"] == pytest.approx(abs(told - 3.0))
    other = GraphRegression("six", replace(bonds.graphs, e=torch.zeros_like(bonds.graphs.e)))
    assert other.predict(model, None, "test:0", "cpu")["value"] != pytest.approx(told)


def test_every_node_of_some_test_graphs_has_the_label_of_its_cluster():
    task = skip_links(copies=5)
    model = PooledTransformer(
        PooledTransformerSettings(width=8, pooling=MinCutSettings(3), heads=2), task.signature
    ).eval()
    with torch.no_grad():
        model.assign.linear.weight.zero_()
        model.assign.linear.bias.copy_(torch.tensor([0.0, 9.0, 0.0]))
    clusters, confusion = task.draw(model, None, {})
    (drawing,) = clusters.make()
    assert [(graph.num_receivers, set(label.tolist())) for graph, label in drawing.figure.members] == [(41, {1})] * 6
    assert "1 of 3 clusters" in drawing.caption
    assert confusion.title == "Confusion matrix"


def test_without_pooling_there_are_no_clusters_to_draw(classes, values):
    for task, titles in ((classes, ["Confusion matrix"]), (values, [])):
        model = GNN(GNNSettings(readout="mean"), task.signature)
        assert [section.title for section in task.draw(model, None, {})] == titles
    assert classes.describe() == "six: 6 graphs of 18 nodes (3 train, 2 valid, 1 test)"


def test_a_rank_draws_its_graphs_alone() -> None:
    from edgewise.tasks import TASKS
    from edgewise.tasks.core.task import Parts

    task = TASKS["skip-links"](copies=5)
    whole = task.train_batch(11, torch.Generator().manual_seed(3))
    for ranks in (1, 2, 3, 4):
        drawn = [
            task.train_parts(11, torch.Generator().manual_seed(3), None, Parts(ranks, range(n, n + 1)))
            for n in range(ranks)
        ]
        parts = [part for _, (part,) in drawn]
        assert {terms for terms, _ in drawn} == {11}
        assert torch.cat([part.x for part in parts]).equal(whole.x)
        assert torch.cat([part.target for part in parts]).equal(whole.target)
        assert sum((part.members for part in parts), ()) == whole.members
