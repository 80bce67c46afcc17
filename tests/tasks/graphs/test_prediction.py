"""Tasks on whole graphs: disjoint batches, their loss and scores, and what they answer."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from edgewise.data.splits import SPLITS
from edgewise.errors import DataError
from edgewise.graphs import Graph
from edgewise.layers import GIN, MLP, SumReadout
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import GraphClassification, GraphRegression, Graphs
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
        ({"splits": {"train": [0, 1], "valid": [2], "test": [4, 0]}}, "graph 0 is in two splits, train and test"),
        ({"splits": {"train": [0, 0], "valid": [2]}}, "the train split lists graph 0 2 times"),
        ({"splits": {"train": [0.0], "valid": [2]}}, r"list its graphs by their numbers, \[M\] of int64, not \[1\]"),
        ({"splits": {"train": ["a"], "valid": [2]}}, "must list its graphs by their numbers, not as a list"),
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


def test_predict_answers_one_graph(classes: GraphClassification, values: GraphRegression) -> None:
    answer = classes.predict(GraphNetwork(3), None, "valid:1", "cpu")
    assert (answer["graph"], answer["label"]) == (3, "a")
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    told = values.predict(GraphNetwork(1), None, "test:0", "cpu")
    assert (told["graph"], told["measured"]) == (5, 3.0)
    for wrong in ("valid:2", "3", "train:", "all", "test:-1"):
        with pytest.raises(DataError):
            classes.predict(GraphNetwork(3), None, wrong, "cpu")


# Edges of which something is known


@pytest.fixture
def bonds() -> GraphRegression:
    """The same paths; an edge knows its two ends, each counted over all graphs."""
    data = graphs(torch.tensor([1.0, 5.0, 2.0, -1.0, 6.0, 3.0]))
    first = [sum(SIZES[:number]) for number in range(6)]
    e = torch.cat([member.edge_index().T + start for member, start in zip(data.members, first, strict=True)])
    return GraphRegression("six", replace(data, e=e.double()))


def test_edge_features_reach_the_model_in_training_evaluation_and_prediction(bonds: GraphRegression) -> None:
    model = GNN(GNNSettings("gine", 4, dropout=0.0, readout="sum"), bonds.signature).double()
    answer = bonds.predict(model, None, "test:0", "cpu")
    batch = next(bonds.batches("test", 1))
    told = bonds.mean + bonds.deviation * model(batch.graph, batch.x, batch.e).item()
    assert answer["value"] == pytest.approx(told)
    assert evaluate(model, bonds, "test", 1)["rmse"] == pytest.approx(abs(told - 3.0))
    other = GraphRegression("six", replace(bonds.graphs, e=torch.zeros_like(bonds.graphs.e)))
    assert other.predict(model, None, "test:0", "cpu")["value"] != pytest.approx(told)


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
