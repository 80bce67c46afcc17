import json

import pytest
import torch

from edgewise import complete
from edgewise.graphs import links_of
from edgewise.graphs.comparison import random_alike
from edgewise.models import Transformer, TransformerSettings
from edgewise.tasks import graph_generation
from edgewise.tasks.core.abilities import Sampling
from edgewise.tasks.graphs.generation import COLUMNS, END

TASK = graph_generation(train=30, test=20, draws=12)
GRIDS = graph_generation("grids", train=20, test=20, draws=8)


def small(task):
    return Transformer(TransformerSettings(width=16, depth=1, heads=2), task.signature)


class Reciter(torch.nn.Module):
    """A model that writes one sequence whatever happens, then ends."""

    def __init__(self, task, sequence):
        super().__init__()
        self.signature, self.sequence = task.signature, sequence

    def caches(self, graph):
        return []

    def forward(self, graph, x, caches=None):
        scores = torch.full((*x.shape, self.signature.outputs), -100.0)
        for column in range(x.shape[-1]):
            place = graph.offset + column + 1
            scores[..., column, self.sequence[place] if place < len(self.sequence) else END] = 100.0
        return scores


@pytest.mark.parametrize("task", [TASK, GRIDS], ids=lambda task: task.name)
def test_a_batch_is_what_each_sequence_alone_would_be(task):
    batch = task.train_batch(5, torch.Generator().manual_seed(0))
    assert len(batch.members) == 5
    sizes = batch.graph.sizes.tolist()
    x, target = batch.x.split(sizes), batch.target.split(sizes)
    for inputs, wanted in zip(x, target, strict=True):
        assert inputs[0] == END == wanted[-1]
        assert torch.equal(inputs[1:], wanted[:-1])
        assert task.family.valid(task.tokens.decode([*inputs.tolist(), END])) or task is TASK
    model = small(task).eval()
    alone = torch.cat([model(task.sequence_graph(None, len(inputs)), inputs[None])[0] for inputs in x])
    together = model(batch.graph, batch.x)
    assert torch.allclose(together, alone, atol=1e-5)
    parts = batch.split(2)
    losses = torch.stack([task.loss(model(part.graph, part.x), part) * part.size for part in parts])
    assert torch.allclose(losses.sum() / batch.size, task.loss(together, batch), atol=1e-5)


def test_orders_are_new_in_training_and_stay_in_evaluation():
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(TASK.train_batch(30, generator).x[:200], TASK.train_batch(30, generator).x[:200])
    again = graph_generation(train=30, test=20, draws=12)
    ones, others = ([batch.x for batch in task.batches("valid", 2)] for task in (TASK, again))
    assert all(torch.equal(a, b) for a, b in zip(ones, others, strict=True))


def test_what_breaks_the_rules_has_no_chance():
    (drawn,) = TASK.sample(Reciter(TASK, [END, 1, 3, 2, 30]), 1)  # node 3 before node 2, then a link to node 10
    assert drawn is not None
    batch = TASK.train_batch(2, torch.Generator().manual_seed(0))
    outputs = torch.randn(len(batch.x), TASK.signature.outputs, dtype=torch.float64, requires_grad=True)
    total, start = torch.zeros((), dtype=torch.float64), 0
    for place, target in enumerate(batch.target.tolist()):
        start = place if batch.x[place] == END else start
        before = batch.x[start : place + 1].tolist()
        fitting = [t for t in range(TASK.tokens.size) if t == END or TASK.tokens.decode([*before, t, END]) is not None]
        fitting = fitting if len(before) > 1 else [1]
        total = total - (outputs[place, target] - outputs[place, fitting].logsumexp(0))
    loss = TASK.loss(outputs, batch)
    torch.testing.assert_close(loss, total / len(batch.x), rtol=1e-12, atol=0)
    found, wanted = (torch.autograd.grad(value, outputs)[0] for value in (loss, total / len(batch.x)))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-15)


def test_scores_of_drawn_graphs_are_what_they_say():
    """Two training graphs, one of them renumbered; a new one twice; a random one; and a sequence without an end."""
    first = TASK.splits["train"][0]
    new = TASK.splits["test"][3]
    chance = random_alike(new, torch.Generator().manual_seed(5))
    drawn = [first, first.permute(torch.randperm(first.num_receivers)), new, new, chance, None]
    scores = TASK.compare(drawn)
    valid = [TASK.family.valid(graph) for graph in (first, first, new, new, chance)]
    assert scores["valid"] == pytest.approx(sum(valid) / 6)
    assert scores["novel"] == pytest.approx(3 / 6)
    assert scores["unique"] == pytest.approx(3 / 6)
    assert scores["valid and novel"] == pytest.approx(sum(valid[2:]) / 6)
    true, random = TASK.compare(TASK.splits["test"]), TASK.compare([random_alike(g) for g in TASK.splits["test"]])
    for name in ("degree", "clustering"):
        assert true[name] == pytest.approx(0, abs=1e-9)
        assert true[f"{name} of random graphs"] == pytest.approx(random[name], rel=0.5)
        assert random[name] > 0.005
    nothing = TASK.compare([None, None])
    assert (nothing["valid"], nothing["unique"], nothing["degree"]) == (0, 0, 2.0)


class Alternating(torch.nn.Module):
    """Writes the first two test graphs, a path of two nodes that is not valid, and a sequence that does not end."""

    def __init__(self):
        super().__init__()
        self.signature = TASK.signature
        known = [TASK.tokens.encode(graph, range(graph.num_receivers)) for graph in TASK.splits["test"][:2]]
        self.sequences = [*known, [0, 1, 2, 21, 0], TASK.tokens.encode(complete(20), range(20))]

    def caches(self, graph):
        return []

    def forward(self, graph, x, caches=None):
        scores = torch.zeros(*x.shape, self.signature.outputs)
        for row, column in torch.cartesian_prod(*(torch.arange(n) for n in x.shape)).tolist():
            sequence, place = self.sequences[row % 4], graph.offset + column + 1
            scores[row, column, sequence[place] if place < len(sequence) else 0] = 100.0
        return scores


def test_graphs_are_printed_drawn_and_returned():
    values, drawings, text = TASK.generate(Alternating(), None, Sampling(count=4, seed=3), "cpu")
    first, second = TASK.splits["test"][:2]
    links = [links_of(first).T.tolist(), links_of(second).T.tolist(), [[0, 1]], None]
    assert [graph.get("links") for graph in values["graphs"]] == links
    valid = [TASK.family.valid(first), TASK.family.valid(second), False, False]
    assert [graph["valid"] for graph in values["graphs"]] == valid
    assert text.splitlines()[2:] == ["2: 2 nodes, 1 link, not valid", "3: the sequence does not end, not valid"]
    assert drawings["drawing"].name == "generated-3"
    members = drawings["drawing"].figure.members
    assert [graph.num_receivers for graph, _ in members] == [first.num_receivers, second.num_receivers, 2]
    assert members[2][1].tolist() == [1, 1]
    json.dumps(values)


def test_the_report_draws_test_graphs_and_written_ones():
    scores = TASK.compare(TASK.splits["test"])
    (section,) = TASK.draw(Alternating(), None, scores)
    drawing, table = section.make()
    assert drawing.caption.startswith("10 of 40 sequences did not end")
    titles = drawing.figure.titles
    assert titles.index("test graphs") == 0 and titles.index("written by the model") == COLUMNS
    assert len(drawing.figure.members) == 3 * COLUMNS
    assert [row[0] for row in table.rows][1:5:3] == ["novel", "degree MMD²"]
    (section,) = TASK.draw(Alternating(), None, {})  # not measured yet
    assert len(list(section.make())) == 1
