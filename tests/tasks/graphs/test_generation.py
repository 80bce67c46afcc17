import json

import networkx
import pytest
import torch
from torch.nn import functional

from edgewise import Graph, complete
from edgewise.graphs import links_of
from edgewise.graphs.comparison import isomorphism_classes, random_alike
from edgewise.models import Transformer, TransformerSettings
from edgewise.models.text.sampling import Sampling
from edgewise.tasks import graph_generation, graph_reconstruction
from edgewise.tasks.graphs.generation import (
    COLUMNS,
    END,
    FAMILIES,
    SURE,
    GraphTokens,
    Grids,
    breadth_first,
    distance_logit,
    draw_splits,
    most_linked,
)
from edgewise.training import evaluate
from layers.parity import leaf

TASK = graph_generation(train=30, test=20, draws=12)
GRIDS = graph_generation("grids", train=20, test=20, draws=8)


def small(task):
    return Transformer(TransformerSettings(width=16, depth=1, heads=2), task.signature)


class Reciter(torch.nn.Module):
    """A model that writes the same sequences whatever happens, a row each, over and over; then ends."""

    def __init__(self, *sequences):
        super().__init__()
        self.signature, self.sequences = TASK.signature, sequences

    def caches(self, graph):
        return []

    def forward(self, graph, x, caches=None):
        scores = torch.zeros(*x.shape, self.signature.outputs)
        for row, column in torch.cartesian_prod(*(torch.arange(n) for n in x.shape)).tolist():
            sequence, place = self.sequences[row % len(self.sequences)], graph.offset + column + 1
            scores[row, column, sequence[place] if place < len(sequence) else END] = 100.0
        return scores


def alternating():
    """Writes the first two test graphs, a path of two nodes that is not valid, and a sequence that does not end."""
    known = [TASK.tokens.encode(graph, range(graph.num_receivers)) for graph in TASK.splits["test"][:2]]
    return Reciter(*known, [0, 1, 2, 21, 0], TASK.tokens.encode(complete(20), range(20)))


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
    (drawn,) = TASK.sample(Reciter([END, 1, 3, 2, 30]), 1)  # node 3 before node 2, then a link to node 10
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


def test_graphs_are_printed_drawn_and_returned():
    values, drawings, text = TASK.generate(alternating(), None, Sampling(count=4, seed=3), "cpu")
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
    (section,) = TASK.draw(alternating(), None, scores)
    drawing, table = section.make()
    assert drawing.caption.startswith("10 of 40 sequences did not end")
    titles = drawing.figure.titles
    assert titles.index("test graphs") == 0 and titles.index("written by the model") == COLUMNS
    assert len(drawing.figure.members) == 3 * COLUMNS
    assert [row[0] for row in table.rows][1:5:3] == ["novel", "degree MMD²"]
    (section,) = TASK.draw(alternating(), None, {})  # not measured yet
    assert len(list(section.make())) == 1


BRIDGED = Graph.from_networkx(networkx.barbell_graph(4, 2))


@pytest.mark.parametrize("seed", range(10))
def test_the_order_is_that_of_a_search(seed):
    """Distances from the first node never fall, and nodes come in the order of their earliest neighbours."""
    order = breadth_first(BRIDGED, torch.Generator().manual_seed(seed))
    assert sorted(order) == list(range(10))
    network = BRIDGED.to_networkx().to_undirected()
    distance = networkx.single_source_shortest_path_length(network, order[0])
    assert [distance[node] for node in order] == sorted(distance.values())
    place = {node: k for k, node in enumerate(order)}
    parents = [min(place[j] for j in network[node]) for node in order[1:]]
    assert parents == sorted(parents)


@pytest.mark.parametrize("seed", range(10))
def test_the_next_node_has_the_most_links_to_those_before(seed):
    graph = Graph.from_networkx(networkx.gnp_random_graph(12, 0.3, seed=seed))
    order = most_linked(graph, torch.Generator().manual_seed(seed))
    assert sorted(order) == list(range(12))
    linked = graph.dense_mask()[order][:, order]
    for k in range(1, 12):
        assert linked[k:, :k].sum(1).argmax() == 0  # the first of the greatest


@pytest.mark.parametrize("seed", range(10))
def test_a_sequence_holds_its_graph(seed):
    tokens, generator = GraphTokens(most=12), torch.Generator().manual_seed(seed)
    graph = Graph.from_networkx(networkx.gnp_random_graph(12, 0.3, seed=seed))
    order = breadth_first(graph, generator)
    sequence = tokens.encode(graph, order)
    assert len(sequence) == 2 + 12 + graph.num_edges // 2
    assert max(sequence) < tokens.size
    found = tokens.decode(torch.tensor([*sequence, 5, 5]))
    assert torch.equal(found.dense_mask(), graph.dense_mask()[order][:, order])
    assert isomorphism_classes([found, graph]) == [0, 0]


@pytest.mark.parametrize(
    "broken",
    [
        [0, 1, 2, 5],  # no end
        [1, 2, 0],  # no beginning
        [0, 0],  # no node
        [0, 2, 0],  # the second node first
        [0, 5, 1, 0],  # a link of no node
        [0, 1, 2, 6, 0],  # a link to itself
        [0, 1, 2, 7, 0],  # to a later node
        [0, 1, 2, 5, 5, 0],  # twice
        [0, 1, 2, 3, 6, 5, 0],  # in the wrong order
        [0, 1, 1, 0],  # the first node twice
    ],
)
def test_a_sequence_that_breaks_the_rules_is_no_graph(broken):
    assert GraphTokens(most=4).decode(broken) is None


def test_allowed_tokens_are_those_that_keep_the_rules():
    tokens, generator = GraphTokens(most=7), torch.Generator().manual_seed(0)
    graphs = [Graph.from_networkx(networkx.gnp_random_graph(7, 0.4, seed=seed)) for seed in range(3)]
    sequences = [tokens.encode(graph, breadth_first(graph, generator)) for graph in graphs]
    for sequence in sequences:
        allowed = tokens.allowed(torch.tensor(sequence))
        for place in range(len(sequence) - 1):
            assert allowed[place, sequence[place + 1]]
            for token in range(1, tokens.size):
                keeps = tokens.decode([*sequence[: place + 1], token, 0]) is not None
                assert bool(allowed[place, token]) == keeps
            assert bool(allowed[place, 0]) == (place > 0)
        assert allowed[-1].nonzero().tolist() == [[1]]  # another graph
    one_after_another = torch.tensor([token for sequence in sequences for token in sequence[:-1]])
    alone = torch.cat([tokens.allowed(torch.tensor(sequence[:-1])) for sequence in sequences])
    assert torch.equal(tokens.allowed(one_after_another), alone)
    assert torch.equal(tokens.allowed(one_after_another.expand(2, -1))[1], alone)


def members(name: str, count: int, seed: int = 0) -> list[Graph]:
    generator = torch.Generator().manual_seed(seed)
    return [FAMILIES[name].draw(generator) for _ in range(count)]


@pytest.mark.parametrize(("name", "count"), [("communities", 150), ("grids", 20)])
def test_members_are_valid_and_random_graphs_of_their_density_are_not(name, count):
    family, drawn = FAMILIES[name], members(name, count)
    assert sum(map(family.valid, drawn)) >= 0.95 * count  # a chance cut of two communities may be unclear
    generator = torch.Generator().manual_seed(1)
    assert sum(family.valid(random_alike(graph, generator)) for graph in drawn) <= 0.15 * count
    assert max(graph.num_receivers for graph in drawn) <= family.most
    assert max(graph.num_edges for graph in drawn) <= 2 * family.links
    turned = [graph.permute(torch.randperm(graph.num_receivers)) for graph in drawn[:10]]
    assert [family.valid(graph) for graph in turned] == [family.valid(graph) for graph in drawn[:10]]
    assert drawn == members(name, count)


def test_a_grid_is_known_by_its_shape_only():
    grids = Grids()
    for a, b in ((3, 3), (4, 5), (6, 6)):
        other = Graph.from_networkx(networkx.grid_2d_graph(a, b))
        assert grids.valid(other)
        assert isomorphism_classes([other, grids.of(a, b), grids.of(b, a)]) == [0, 0, 0]
    ring = networkx.grid_2d_graph(4, 4, periodic=True)
    assert not grids.valid(Graph.from_networkx(ring))
    assert not grids.valid(grids.of(2, 8))
    links = grids.of(4, 4).edge_index().T.tolist()
    less = [pair for pair in links if sorted(pair) != [0, 1]]
    assert not grids.valid(Graph.from_edge_index(torch.tensor(less).T, 16))


def test_withheld_shapes_are_only_tested_on():
    grids = Grids()
    shapes = {(a, b): grids.withheld(grids.of(a, b)) for a in grids.sides for b in grids.sides}
    assert {tuple(sorted(shape)) for shape, kept in shapes.items() if kept} == set(grids.unseen)
    splits = draw_splits(grids, 40, 60, torch.Generator().manual_seed(0))
    assert [len(graphs) for graphs in splits.values()] == [40, 4, 60]
    assert not any(map(grids.withheld, splits["train"] + splits["valid"]))
    assert any(map(grids.withheld, splits["test"]))


PLACES = graph_reconstruction(train=20, test=10)


def test_the_decoder_is_its_equation():
    z, pairs = leaf(5, 3), torch.tensor([[0, 1, 4], [2, 3, 0]])
    expected = torch.stack([SURE - (z[i] - z[j]).norm() ** 2 for i, j in pairs.T.tolist()])
    found = distance_logit(z, pairs)
    assert torch.allclose(found, expected, atol=1e-12)
    slopes = (torch.autograd.grad(y.square().sum(), z)[0] for y in (found, expected))
    assert torch.allclose(*slopes, atol=1e-10)


def test_pairs_are_all_pairs_of_each_graph_and_targets_are_its_links():
    batch = PLACES.train_batch(4, torch.Generator().manual_seed(0))
    pairs, a = batch.pairs, batch.graph.dense_mask()
    sizes = batch.graph.sizes
    assert pairs.shape[1] == int((sizes * (sizes - 1) // 2).sum()) == batch.size
    assert torch.equal(batch.target > 0, a[pairs[0], pairs[1]])
    owner = torch.arange(4).repeat_interleave(sizes)
    assert torch.equal(owner[pairs[0]], owner[pairs[1]])
    assert batch.x.shape == (int(sizes.sum()), 8)
    z = torch.randn_like(batch.x)
    expected = functional.binary_cross_entropy(distance_logit(z, pairs).sigmoid(), a[pairs[0], pairs[1]].float())
    assert torch.allclose(PLACES.loss(z, batch), expected, rtol=1e-3)


def test_noise_is_new_in_training_and_stays_in_evaluation():
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(PLACES.train_batch(20, generator).x[:12], PLACES.train_batch(20, generator).x[:12])
    again = graph_reconstruction(train=20, test=10)
    for one, other in zip(PLACES.batches("test", 4), again.batches("test", 4), strict=True):
        assert torch.equal(one.x, other.x)
    whole, parts = (torch.cat([batch.x for batch in PLACES.batches("test", size)]) for size in (10, 3))
    assert torch.equal(whole, parts)


class Oracle(torch.nn.Module):
    """Places that hold the graph: rows of the square root of the Laplacian, shifted to part what is not linked."""

    def __init__(self, right: float) -> None:
        super().__init__()
        self.right = torch.nn.Parameter(torch.tensor(right))

    def forward(self, graph, x):
        a = graph.dense_mask().double()
        values, vectors = torch.linalg.eigh(a + 40 * torch.eye(len(a)))  # |z_i - z_j|² = 80 - 2 a_ij
        z = vectors * values.clamp(min=0).sqrt()
        return z * (SURE / 79).__pow__(0.5) * self.right


def test_scores_are_those_of_places_that_hold_the_graph_and_of_places_that_do_not():
    """|z_i - z_j|² is below b exactly where i and j are linked; scaled up nothing is linked, scaled down everything."""
    scores = evaluate(Oracle(1.0), PLACES, "test", 4)
    assert (scores["f1"], scores["accuracy"]) == (1.0, 1.0)
    nothing, everything = (evaluate(Oracle(right), PLACES, "test", 4) for right in (3.0, 0.1))
    share = sum(links_of(graph).shape[1] for graph in PLACES.splits["test"]) / sum(
        graph.num_receivers * (graph.num_receivers - 1) // 2 for graph in PLACES.splits["test"]
    )
    assert (nothing["f1"], nothing["accuracy"]) == (0, pytest.approx(1 - share))
    assert (everything["f1"], everything["accuracy"]) == (pytest.approx(2 * share / (1 + share)), pytest.approx(share))


def test_a_prediction_tells_links_from_places():
    answer = PLACES.predict(Oracle(1.0), None, "test:3", "cpu")
    assert answer["links"] == answer["predicted"] == links_of(PLACES.splits["test"][3]).T.tolist()
