"""The studies of docs/claims.md draw what they say and run at a toy size; `figures.tsv` bounds what they find."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import networkx
import pytest
import torch

from benchmarks.studies import energy, events
from benchmarks.studies.claims import (
    alignment,
    analogies,
    far,
    learned,
    lottery,
    materials,
    molecules,
    norms,
    optimisers,
    pooling,
    posteriors,
    reach,
    remedies,
    retrieval,
    trajectories,
)
from benchmarks.studies.training import parameters
from edgewise.models import Tokens

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # PyTorch Geometric's


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_letters_are_due_backwards_each_after_the_one_before_it() -> None:
    x, due = alignment.drawn(3, 2, generator())
    sources, targets = x.view(2, 2, 3)
    assert torch.equal(due.view(2, 3), sources.flip(-1))
    assert (targets[:, 0] == alignment.LETTERS).all() and torch.equal(targets[:, 1:], due.view(2, 3)[:, :-1])


def test_letters_to_copy_are_due_at_the_blanks_and_stand_nowhere_else() -> None:
    tokens, targets, counts = far.copying(20, 3, generator())
    assert torch.equal(targets[counts].view(3, 8), tokens[:, :8])
    assert (tokens[:, :8] < far.LETTERS).all() and (tokens[:, 8:12] >= far.LETTERS).all()
    assert (tokens[:, 12:] == far.VOCABULARY - 1).all() and counts.sum() == 24


def test_each_key_stands_once_beside_the_value_that_is_due() -> None:
    tokens, due = retrieval.texts(200, 3, generator())
    for row, values in zip(tokens.tolist(), due.tolist(), strict=True):
        found = dict(divmod(token, retrieval.VALUES) for token in row if token < retrieval.PAIRS)
        assert sorted(found) == list(range(8)) and sum(token < retrieval.PAIRS for token in row) == 8
        assert [found[token - retrieval.PAIRS] for token in row[-16:]] == values


def test_what_is_asked_of_pooling_is_how_far_two_communities_lie_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling, "SHOWN", 1.0)  # every node shows its community's colour
    for seed in range(6):
        drawn = pooling.ring(1 + seed % 3, generator(seed))
        senders, receivers = drawn.colours[drawn.graph.edge_index()]
        coarse = networkx.Graph(zip(senders.tolist(), receivers.tolist(), strict=True))
        coarse.remove_edges_from(list(networkx.selfloop_edges(coarse)))
        assert networkx.is_isomorphic(coarse, networkx.cycle_graph(8))
        assert networkx.shortest_path_length(coarse, 0, 1) == 1 + seed % 3 + drawn.label


def test_marked_neighbours_are_counted_and_marks_are_looked_for_within_two_steps() -> None:
    counts, near = (reach.drawn(question, 2, generator(3)) for question in reach.MARKED)
    for graph, x, classes in (counts, near):
        network = networkx.Graph(graph.edge_index().T.tolist())
        network.add_nodes_from(range(graph.num_receivers))
        marked = set(x[:, 1].nonzero().flatten().tolist())
        for node, found in enumerate(classes.tolist()):
            if classes is counts[2]:
                assert found == min(2, len(marked & set(network[node])))
            else:
                assert found == any(networkx.single_source_shortest_path_length(network, node, 2).keys() & marked)


def test_written_molecules_are_valid_unique_and_novel_by_what_they_are_and_not_by_their_spelling() -> None:
    pytest.importorskip("rdkit")
    assert molecules.judged(["CCO", "OCC", "C1", "CC"], {"CC"}, 5)[:4] == [3 / 5, 2 / 3, 1 / 2, 1 / 5]
    written = Counter(molecules.from_counts(["CO", "NO"] * 50, 3, 40))
    assert min(written["CO"], written["NO"]) > 5 and written["CO"] + written["NO"] > 30


def test_pairs_of_forms_are_found_by_their_spelling() -> None:
    known = ["bus", "girl", "girls", "grass", "walk"]
    verbs = {"holds": "holding", "watches": "watching", "rides": "riding", "runs": "running", "walks": "walking"}
    known += [*verbs, *verbs.values()]
    found = analogies.forms(Counter(dict.fromkeys(known, 3)), least=3)
    assert dict(found["verbs"]) == verbs and found["nouns"] == [("girl", "girls")]


def test_the_probe_reads_positions_that_are_there_and_guesses_where_they_are_not() -> None:
    line = torch.linspace(0, 1, 64)[:, None] * torch.randn(1, 8, generator=generator())
    distance, order = learned.probe(line)
    assert distance < 2 and order == 1.0
    distance, order = learned.probe(learned.drawn())
    assert distance > 12 and 0.4 < order < 0.6


def test_three_ways_of_the_lottery_compute_the_same_attention_and_gradient() -> None:
    pytest.importorskip("torch_geometric.utils")
    graph = lottery.drawn(32, 3)[0]
    q, k, v = (torch.randn(32, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    results = [way(graph)(q, k, v) for way in lottery.WAYS.values()]
    gradients = [torch.autograd.grad(y.square().sum(), [q, k, v]) for y in results]
    for y, own in zip(results, gradients, strict=True):
        torch.testing.assert_close(y, results[0], rtol=0, atol=1e-10)
        torch.testing.assert_close(own, gradients[0], rtol=0, atol=1e-10)


def test_networks_that_are_compared_are_of_one_size() -> None:
    kinds = [[alignment.network(kind) for kind in alignment.WIDTHS]]
    kinds.append([make(Tokens(far.VOCABULARY, far.VOCABULARY, length=64)) for make in far.COPIERS.values()])
    kinds.append([retrieval.network(way) for way in retrieval.WAYS.values()])
    for models, apart in zip(kinds, (1.05, 1.05, 1.25), strict=True):
        sizes = [parameters(model) for model in models]
        assert max(sizes) <= apart * min(sizes)


LITTLE = {"task.training": "2", "task.held_out": "1", "task.frames": "5", "task.temperatures": "[300.0]"}
LITTLE |= {"model.width": "16", "model.depth": "2", "train.steps": "10", "evaluation.every": "10"}
TINY = {"width": 16, "depth": 1}
CHAINS = [f"{'C' * before}N{'C' * after}" for before in range(20) for after in range(20)]
SMALL: dict[str, Callable[[], Any]] = {
    "alignment": lambda: alignment.measure(lengths=(2, 3), seconds=0.1),
    "energy": lambda: energy.measure((*LITTLE.items(),), picoseconds=0.02),
    "events": lambda: [*events.measure(1, steps=3, passes=1)],
    "far": lambda: far.measure(seconds=(0.05, 0.05)),
    "learned": lambda: learned.measure({"drawn": learned.drawn(), "sinusoids": learned.sinusoids()}),
    "lottery": lambda: lottery.measure({32: (2, 8, 32), 64: (2, 64)}, steps=3),
    "materials": lambda: [*materials.measure(1, steps=1, parts={"train": 1, "valid": 1, "test": 1})],
    "molecules": lambda: [*molecules.measure(CHAINS, 1, count=8, model=TINY, train={"steps": 1})],
    "norms": lambda: norms.measure(depths=(1, 2), steps=1, seeds=2),
    "optimisers": lambda: optimisers.measure(passes=1, seeds=(1,)),
    "posteriors": lambda: posteriors.measure(runs=40, settled=0.2, repeats=2, steps=50),
    "reach": lambda: reach.measure(steps=1, seeds=2),
    "pooling": lambda: pooling.measure(distances=(1, 2), seeds=(0, 1), steps=2, sizes=(8, 12)),
    "remedies": lambda: remedies.measure(depth=(2, 3), steps=1, seeds=2),
    "trajectories": lambda: trajectories.measure(sizes=(50, 60), steps=2, seeds=(3, 4)),
    "retrieval": lambda: retrieval.learns(retrieval.WAYS["linear"], 0, (64,), ((32, 2, 1), (64, 2, 1)), 4),
}


def test_the_next_item_follows_from_the_last_one_and_the_wait_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SURE", 1.0)
    items, times = events.stream(60, generator())
    seen = torch.stack([times.diff(dim=0)[:-1], items[1:-1], items[2:]], -1).view(-1, 3)
    kinds = {(wait, last, following) for wait, last, following in seen.tolist()}
    assert len(kinds) == 2 * events.ITEMS == len({kind[:2] for kind in kinds})


@pytest.mark.parametrize(
    "name", [name if name == "learned" else pytest.param(name, marks=pytest.mark.studies) for name in SMALL]
)
def test_a_study_runs_at_a_toy_size(name: str, data: Callable[[str], Any]) -> None:
    for folder in {"far": ["tinyshakespeare"], "norms": ["tinyshakespeare"], "remedies": ["planetoid"]}.get(name, []):
        data(folder)
    if name in ("energy", "materials"):
        pytest.importorskip({"energy": "ase", "materials": "openmm"}[name])
    assert SMALL[name]()
