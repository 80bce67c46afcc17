import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import edgewise
from apps.explorer.peer import content_of, edited, in_node, node_needed, random_edits
from edgewise.apps import recipes
from edgewise.apps.explorer import examples
from edgewise.apps.explorer.examples import (
    BONDS,
    CAFFEINE,
    PLACES,
    caffeine,
    choices,
    neighbourhood,
    outputs_of,
    pieces,
    planner,
    predictions,
)
from edgewise.apps.explorer.page import demonstration
from edgewise.apps.options import configure
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph, causal, complete, grid, window
from edgewise.models import MODELS
from edgewise.models.signature import Features
from edgewise.training import Choice, RunConfig, load_run
from edgewise.training.runs import assemble

Runs = Callable[[str], Path]


def test_characters_are_named_and_white_space_is_visible(trained: Runs) -> None:
    loaded = load_run(trained("text"), device="cpu")
    (piece, *_) = pieces(loaded.model, loaded.task, loaded.pattern, None)
    assert len(piece.names) == len(piece.features) == 8
    assert all(len(name) == 1 and not name.isspace() for name in piece.names)
    assert len(outputs_of(loaded.task)) == loaded.task.signature.outputs


def test_images_are_the_first_of_the_validation_data(trained: Runs) -> None:
    loaded = load_run(trained("digits"), device="cpu")
    found = pieces(loaded.model, loaded.task, loaded.pattern, None)
    batch = next(iter(loaded.task.batches("valid", 4, loaded.pattern)))
    assert len(found) == 4
    with torch.no_grad():
        expected = loaded.model.positions(batch.graph, loaded.model.embed(batch.x))
    assert torch.allclose(torch.stack([piece.features for piece in found]), expected)


def test_every_member_of_a_small_graph_is_shown_with_its_class() -> None:
    loaded = demonstration()
    (piece,) = pieces(loaded.model, loaded.task, loaded.pattern, None)
    assert piece.graph.num_receivers == 34
    assert piece.targets is not None
    assert piece.targets.tolist() == loaded.task.nodes.labels.tolist()


def test_of_a_large_graph_the_nodes_around_one_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = demonstration()
    monkeypatch.setattr(examples, "MOST_NODES", 20)
    monkeypatch.setattr(examples, "AROUND", 10)
    (piece,) = pieces(loaded.model, loaded.task, loaded.pattern, None)
    assert piece.names[0] == "0" and len(piece.names) == 10
    (piece,) = pieces(loaded.model, loaded.task, loaded.pattern, "33")
    assert piece.names[0] == "33" and "nearest to node 33" in piece.note


def test_a_node_of_one_of_many_examples_is_refused(trained: Runs) -> None:
    loaded = load_run(trained("digits"), device="cpu")
    with pytest.raises(ConfigError, match="--node 3: digits has many examples"):
        pieces(loaded.model, loaded.task, loaded.pattern, "3")


def own(folder: Path, label: str) -> Any:
    """The explorer's recipe on a table of ten nodes with names: its task, an untrained model and its pattern."""
    nodes = [f"n{k},0.{k},{20 + k}.5,{'ab'[k % 2]}" for k in range(10)]
    (folder / "nodes.csv").write_text("\n".join(["id,height,age,party", *nodes]))
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(f"n{k},n{(k + 1) % 10}" for k in range(10)))
    options = {"name": "node-folder", "folder": str(folder), "label": label}
    config = configure(recipes.read("karate-explorer"), [(f"task.{name}", value) for name, value in options.items()])
    return *assemble(config), config.graph


def test_nodes_of_a_table_have_their_names(tmp_path: Path) -> None:
    task, model, pattern = own(tmp_path, "party")
    (piece,) = pieces(model, task, pattern, None)
    assert piece.names == [f"n{k}" for k in range(10)]
    (piece,) = pieces(model, task, pattern, "n3")
    assert piece.names[0] == "n3" and piece.title == "around node n3" and "nearest to node n3" in piece.note
    with pytest.raises(DataError, match=r"no node '3' in .*: its nodes are called 'n0'"):
        pieces(model, task, pattern, "3")


def masked(folder: Path) -> RunConfig:
    """Texts of which some tokens are to be guessed, with an untrained transformer."""
    for k in range(20):
        (folder / "ab"[k % 2]).mkdir(exist_ok=True)
        (folder / "ab"[k % 2] / f"{k}.txt").write_text(f"the text number {k} of twenty")
    task = Choice("masked-texts", {"file": str(folder), "level": "byte", "length": 48, "share": 0.3})
    return RunConfig(task, Choice("transformer", {"width": 16, "depth": 1, "heads": 2}))


def test_texts_with_masks_have_their_own_targets_and_no_other_splits(tmp_path: Path) -> None:
    config = masked(tmp_path)
    task, model = assemble(config)
    batch = next(iter(task.batches("valid", examples.COUNT, config.graph)))
    found = pieces(model, task, config.graph, None)
    assert isinstance(batch.graph, Graph) and batch.rows is not None
    expected = torch.full((batch.graph.num_receivers,), -1)
    expected[batch.rows] = batch.target
    assert [piece.graph.num_receivers for piece in found] == batch.graph.sizes.tolist()
    assert torch.equal(torch.cat([piece.targets for piece in found if piece.targets is not None]), expected)


def test_several_targets_are_refused(tmp_path: Path) -> None:
    task, model, pattern = own(tmp_path, "age,party")
    with pytest.raises(ConfigError, match=r"several targets \(age, party\): the explorer shows the classes of one"):
        pieces(model, task, pattern, None)


def test_a_neighbourhood_grows_hop_by_hop_and_ends_with_the_component() -> None:
    star = Graph.from_edge_index([[1, 2, 3, 4, 0], [0, 0, 0, 1, 5]], num_nodes=6)
    assert neighbourhood(star, 0, 10).tolist() == [0, 1, 2, 3, 4]
    assert neighbourhood(star, 0, 2).tolist() == [0, 1]
    assert neighbourhood(star, 2, 5).tolist() == [2]


PLAN = planner(2, 4)


def model() -> nn.Module:
    settings, kind = MODELS["transformer"]
    return kind(settings(width=8, heads=2, depth=1, positions="none"), Features(3, 2)).eval()


def test_an_example_can_be_put_on_its_own_graph_and_on_patterns() -> None:
    names = [one["name"] for one in choices(window(34, 5), "its own", PLAN)]
    assert names == ["given", "causal", "window", "grid", "complete", "molecule", "friendship"]
    assert [one["name"] for one in choices(complete(3), "complete", PLAN)] == ["complete", "causal", "window", "grid"]


def test_caffeine_has_its_bonds() -> None:
    bonds = caffeine().in_degrees() - 1
    assert sorted(bonds.tolist()) == [1] * 5 + [2] * 2 + [3] * 7
    assert CAFFEINE.count("N") == 4
    lengths = [math.dist(PLACES[a], PLACES[b]) for a, b in BONDS]
    assert min(lengths) > 0.98 and max(lengths) < 1.02  # all bonds are drawn alike


@node_needed
def test_the_page_follows_the_same_rules() -> None:
    for n in (1, 2, 9, 14, 34):
        graph = edited(complete(n), random_edits(n, n * n // 2, n))
        content = content_of(model(), graph, torch.randn(n, 8), 2)
        entries = content["examples"][0]["graphs"]
        columns = next(one["rule"]["columns"] for one in entries if one["name"] == "grid")
        expected: dict[str, Graph] = {
            "given": graph,
            "causal": causal(n),
            "window": window(n, 2),
            "grid": grid(-(-n // columns), columns).subgraph(range(n)),
            "complete": complete(n),
        }
        shown = [name for name in expected if name in {one["name"] for one in entries}]
        for name, found in zip(shown, in_node(content, [{"graph": name} for name in shown]), strict=True):
            hops = torch.tensor(found["hops"])
            assert found["edges"] == expected[name].num_edges
            near = expected[name].senders[expected[name].receivers == 0]
            assert sorted({0, *near.tolist()}) == ((hops == 0) | (hops == 1)).nonzero().flatten().tolist()


def test_the_plan_is_the_planners() -> None:
    entry = next(one for one in choices(complete(9), "complete", PLAN) if one["name"] == "causal")
    plan = edgewise.plan(causal(9), edgewise.Dot(), heads=2, channels=4)
    chosen = [one for one in plan.candidates if one.seconds is not None and not one.by_name]
    assert entry["plan"][0]["backend"] == plan.choice
    assert [one["seconds"] for one in entry["plan"] if one["seconds"] is not None] == [one.seconds for one in chosen]


@pytest.mark.parametrize("n", [1, 2, 50])
def test_predictions_end_with_all_pairs(n: int) -> None:
    (made,) = predictions({n}, PLAN)
    assert made["edges"][-1] == n * n
    assert all(len(times) == len(made["edges"]) for times in made["seconds"].values())
