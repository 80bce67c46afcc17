"""One or several targets, some unknown: the loss and the measures are those of the known ones alone."""

import math

import pytest
import torch
from torch.nn import functional

from edgewise import Graph
from edgewise.data.columns import Target
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import complete
from edgewise.layers import GCN
from edgewise.tasks import node_folder
from edgewise.tasks.core.measures import measures, quality
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.own.several import GappedBatch, Several
from edgewise.tasks.own.texts import text_table
from edgewise.training.simple import best_simple

CLASS, NUMBER = Target("class", ("a", "b", "c"), "", "kind"), Target("number", (), "", "mass")
BOTH = Several((CLASS, NUMBER), ((0.0, 1.0), (5.0, 2.0)))
Y = torch.tensor([[2.0, 7.0], [math.nan, 4.0], [0.0, math.nan]])
O = torch.tensor([[0.1, -0.4, 0.9, 0.5], [9.0, 9.0, 9.0, -1.0], [0.3, 0.2, 0.1, 77.0]])  # noqa: E741


def test_the_loss_is_the_mean_over_known_targets() -> None:
    """Written out term by term in float64."""
    outputs = O.double().requires_grad_()
    classes = functional.cross_entropy(outputs[[0, 2], :3], torch.tensor([2, 0]), reduction="sum")
    numbers = (0.5 - 1.0) ** 2 + (-1.0 + 0.5) ** 2
    loss = BOTH.loss(outputs, Y.double())
    assert loss.item() == pytest.approx((classes.item() + numbers) / 4, rel=1e-12)
    loss.backward()
    assert outputs.grad is not None
    assert outputs.grad[1, :3].tolist() == [0, 0, 0] and outputs.grad[2, 3] == 0  # unknown targets teach nothing
    assert torch.autograd.gradcheck(lambda o: BOTH.loss(o, Y.double()), O.double().requires_grad_())


def test_classes_may_count_differently() -> None:
    """As many times as they weigh, and the mean is over as many targets as before."""
    weighted = Several((CLASS, NUMBER), BOTH.scales, ((1.0, 5.0, 3.0), ()))
    rows = torch.tensor([0, 0, 0, 1, 2])  # the first is of the class c, which weighs 3
    numbers = (0.5 - 1.0) ** 2
    repeated = BOTH.loss(O[rows], Y[rows]) * 8 - 2 * numbers
    assert weighted.loss(O, Y).item() == pytest.approx(repeated.item() / 4, rel=1e-6)


def test_examples_may_count_differently() -> None:
    """As many times as they weigh, in the loss, the scores and the measures."""
    rows, w = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([2.0, 1.0, 3.0])
    weighted = torch.cat([Y, w[:, None]], 1)
    repeated = BOTH.loss(O[rows], Y[rows]) * 8  # known targets
    assert BOTH.loss(O, weighted).item() == pytest.approx(repeated.item() / 4, rel=1e-6)
    one, other = BOTH.score(O, weighted), BOTH.score(O[rows], Y[rows])
    assert {name: float(value) for name, value in one.items()} == pytest.approx({n: float(v) for n, v in other.items()})
    mine, theirs = measures(BOTH.answers(O, weighted)), measures(BOTH.answers(O[rows], Y[rows]))
    assert {n: row["value"] for n, row in mine.items()} == pytest.approx({n: r["value"] for n, r in theirs.items()})


@pytest.mark.parametrize("kind", ["nodes", "texts"])
def test_a_column_says_how_much_each_counts(kind, tmp_path) -> None:
    """It is no feature; what trains has a mean of 1; what is no weight is named by its line."""
    cells = [n % 4 for n in range(40)]
    rows = [f"{n},{'good' if n % 2 else 'bad'} {n % 5},{'ab'[n % 2]},{cells[n]}" for n in range(40)]
    file = tmp_path / ("nodes.csv" if kind == "nodes" else "texts.csv")
    file.write_text("\n".join(["id,text,label,count", *rows]))
    (tmp_path / "edges.csv").write_text("from,to\n" + "".join(f"{n},{(n + 1) % 40}\n" for n in range(40)))

    def made(column: str = "count"):
        if kind == "nodes":
            return node_folder(str(tmp_path), sample_weight=column)
        return text_table(str(file), level="character", sample_weight=column, label="label")

    task = made()
    train = task.splits["train"]
    (batch,) = task.batches("train", 40)
    own = torch.tensor(cells).double()[train]
    assert torch.allclose(batch.target[:, 1], own / own.mean()) and batch.size == len(train)
    assert sum(part.size for part in batch.split(2)) in (len(train), 2 * len(train))
    assert task.signature.outputs == 2 and "count" not in str(task.own.fitted.columns)
    said = task.answers(torch.randn(40 if kind == "nodes" else len(train), 2), batch)
    assert torch.equal(said[0].weights, batch.target[:, 1])
    best = best_simple(task)
    assert best is not None and 0 <= best.valid < 1.001
    with pytest.raises(DataError, match=r"no column 'often' of weights of"):
        made("often")
    file.write_text(file.read_text().replace(",b,3", ",b,-3", 1))
    with pytest.raises(DataError, match=r"line 5: count is '-3': a weight is a number from 0 on"):
        made()


def test_a_part_of_a_batch_without_a_known_target_has_no_loss() -> None:
    outputs = torch.ones(2, 4, requires_grad=True)
    loss = BOTH.loss(outputs, torch.full((2, 2), math.nan))
    loss.backward()
    assert loss.item() == 0 and outputs.grad is not None and not outputs.grad.any()


def test_each_target_has_its_own_measures() -> None:
    sums = BOTH.score(O, Y)
    means = {name: float(value) / float(sums["count"]) for name, value in sums.items() if name != "count"}
    scores = BOTH.finish(means)
    assert scores["accuracy kind"] == 1 and scores["rmse mass"] == pytest.approx(1.0)  # 6 for 7, 3 for 4
    assert scores["mae mass"] == pytest.approx(1.0) and scores["loss"] == pytest.approx(BOTH.loss(O, Y).item())
    nothing = BOTH.score(O[1:2], Y[1:2])
    assert "accuracy kind" not in BOTH.finish({name: float(value) for name, value in nothing.items()})
    one = Several((NUMBER,), ((5.0, 2.0),))
    assert one.metric == "rmse" and set(one.finish({"loss": 1.0, "known mass": 1.0, "rmse": 4.0, "mae": 2.0})) == {
        "loss",
        "rmse",
        "mae",
    }


def test_predictions_and_their_quality_are_by_target() -> None:
    made = BOTH.named(O[0], Y[1])
    assert made["kind"]["class"] == "c" and made["kind"]["label"] is None
    assert list(made["kind"]["probabilities"]) == ["a", "b", "c"]
    assert made["mass"] == {"value": 6.0, "measured": 4.0}
    made = quality(BOTH.answers(O, Y), "xyz".__getitem__)
    assert made["measures"]["rmse mass"]["value"] == pytest.approx(1.0)
    own = made["targets"]
    assert own["kind"]["classes"]["c"]["count"] == 1 and own["kind"]["classes"]["b"]["count"] == 0
    assert [one["example"] for one in own["mass"]["worst"]] == ["x", "y"]


def test_each_target_is_explained_by_its_name_and_in_its_unit() -> None:
    ring, x, layer = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3), torch.randn(3, 2), GCN(2, 4)
    subject = BOTH.subject(Subject((ring, x), (1,), node=1))
    classes, mass = layer(ring, x)[1].split([3, 1])

    def explained(wanted: str | None) -> tuple[str, float, float]:
        made, shown, what = subject.explained(layer, wanted)
        assert made.node == 1
        return what, made.value, shown(made.outputs()).item()

    p = classes.softmax(-1)
    for wanted, best in ((None, int(p.argmax())), ("kind", int(p.argmax())), ("kind:c", 2)):
        what, odds, chance = explained(wanted)
        assert what == f"kind {'abc'[best]!r}" and chance == pytest.approx(p[best].item(), abs=1e-6)
        assert odds == pytest.approx((p[best] / (1 - p[best])).log().item(), abs=1e-4)
    expected = pytest.approx(5 + 2 * mass.item(), abs=1e-5)
    assert explained("mass") == ("mass", expected, expected)
    for wrong, message in {
        "mas": "did you mean 'mass'",
        "kind:d": "one of a, b, c",
        "mass:1": "one number",
        "0": "kind, mass",
    }.items():
        with pytest.raises(ConfigError, match=message):
            subject.explained(layer, wrong)


def test_of_one_target_its_class_or_value_is_explained() -> None:
    graph, layer = complete(2), GCN(2, 1)
    x = torch.randn(2, 2)
    explained, _, what = Several((NUMBER,), ((5.0, 2.0),)).subject(Subject((graph, x), (0,))).explained(layer)
    assert what == NUMBER.name and explained.value == pytest.approx(5 + 2 * layer(graph, x)[0, 0].item(), abs=1e-5)
    subject = Several((CLASS,), ((0.0, 1.0),)).subject(Subject((graph, x), (0,)))
    assert subject.explained(GCN(2, 3), "b")[2] == "'b'"


def test_a_batch_counts_known_targets() -> None:
    members = (complete(2), complete(1), complete(3))
    y = torch.cat([Y, torch.ones(3, 1)], 1)
    batch = GappedBatch.of(members, torch.zeros(6, 1), y)
    assert batch.size == 4 and batch.read(O).shape == (3, 4)
    parts = batch.split(2)
    assert sum(part.size for part in parts) == 4 and all(isinstance(part, GappedBatch) for part in parts)
    nobody = GappedBatch(complete(1), torch.zeros(1, 1), y[:0])  # a rank that has no graph's first node
    assert nobody.size == 0 and BOTH.loss(nobody.read(O[:0]), nobody.target) == 0
    weighted = sum(BOTH.loss(o, part.target) * part.size for o, part in zip(O.split([1, 2]), parts, strict=True)) / 4
    assert weighted.item() == pytest.approx(BOTH.loss(O, Y).item(), rel=1e-6)
