import math

import pytest
import torch
from torch import nn

import edgewise
from apps.explorer.peer import content_of, edited, in_node, node_needed, random_edits
from edgewise.apps.explorer.choices import BONDS, CAFFEINE, PLACES, Shape, caffeine, choices, predictions, short_grid
from edgewise.graphs import Graph, causal, complete, window
from edgewise.models import MODELS
from edgewise.models.signature import Features

SHAPE = Shape(2, 4)


def model() -> nn.Module:
    settings, kind = MODELS["transformer"]
    return kind(settings(width=8, heads=2, depth=1, positions="none"), Features(3, 2)).eval()


def test_an_example_can_be_put_on_its_own_graph_and_on_patterns() -> None:
    names = [one["name"] for one in choices(short_grid(34, 5), "its own", SHAPE)]
    assert names == ["given", "causal", "window", "grid", "complete", "molecule", "friendship"]
    assert [one["name"] for one in choices(complete(3), "complete", SHAPE)] == ["complete", "causal", "window", "grid"]


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
        expected: dict[str, Graph] = {
            "given": graph,
            "causal": causal(n),
            "window": window(n, 2),
            "grid": short_grid(n, next(one["rule"]["columns"] for one in entries if one["name"] == "grid")),
            "complete": complete(n),
        }
        shown = [name for name in expected if name in {one["name"] for one in entries}]
        for name, found in zip(shown, in_node(content, [{"graph": name} for name in shown]), strict=True):
            hops = torch.tensor(found["hops"])
            assert found["edges"] == expected[name].num_edges
            near = expected[name].senders[expected[name].receivers == 0]
            assert sorted({0, *near.tolist()}) == ((hops == 0) | (hops == 1)).nonzero().flatten().tolist()


def test_the_plan_is_the_planners() -> None:
    entry = next(one for one in choices(complete(9), "complete", SHAPE) if one["name"] == "causal")
    plan = edgewise.plan(causal(9), edgewise.Dot(), heads=2, channels=4)
    chosen = [one for one in plan.candidates if one.seconds is not None and not one.by_name]
    assert entry["plan"][0]["backend"] == plan.choice
    assert [one["seconds"] for one in entry["plan"] if one["seconds"] is not None] == [one.seconds for one in chosen]


@pytest.mark.parametrize("n", [1, 2, 50])
def test_predictions_end_with_all_pairs(n: int) -> None:
    (made,) = predictions({n}, SHAPE)
    assert made["edges"][-1] == n * n
    assert all(len(times) == len(made["edges"]) for times in made["seconds"].values())
