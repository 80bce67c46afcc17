import json
from collections.abc import Sequence

import networkx
import pytest
from torch import nn

from edgewise import ConfigError, Graph, complete
from edgewise.apps.command import expressiveness
from edgewise.apps.command.expressiveness import Verdict, build, judge
from edgewise.apps.command.main import main
from edgewise.tasks.graphs.isomorphism import FAMILIES, Family


def judged(name: str, models: Sequence[nn.Module], relabellings: int = 2) -> Verdict:
    return judge(FAMILIES[name](), models, relabellings=relabellings)


def models(name: str, *options: str, seeds: int = 2) -> list[nn.Module]:
    return [build(name, options, seed) for seed in range(seeds)]


SPLIT_BY_1_WL = ("multisets", "trees", "random")


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        # of 66 multisets, 45 random trees and 45 random graphs
        ("gin", [66, 45, 45]),
        ("sage-mean", [65, 0, 9]),
    ],
)
def test_sum_tells_more_apart_than_mean_and_mean_more_than_max(layer, told):
    """On trees whose nodes are all alike a mean and a maximum see nothing; on graphs, whether a node has neighbours."""
    drawn = models("gnn", f"layer={layer}", "depth=5", "norm=layer", seeds=3)
    found = [judged(name, drawn) for name in SPLIT_BY_1_WL]
    assert [(row.wl_1, row.pairs) for row in found] == [(66, 66), (45, 45), (45, 45)]
    assert [row.model for row in found] == told
    assert [row.false for row in found] == [0, 0, 0]


def test_a_network_on_pairs_tells_apart_exactly_what_2_wl_does():
    """PPGN with random weights: no pair less, and none more; all families in the documents' table."""
    drawn = models("pair-network", seeds=1)
    for name in ("multisets", "hexagon", "decalin"):
        found = judged(name, drawn)
        assert (found.model, found.false) == (found.wl_2, 0), name


TABLE = [
    # model, options, pairs that it tells apart of each family
    ("gnn", ["layer=gin", "depth=5", "norm=layer"], [66, 45, 45] + 13 * [0]),
    ("graph-transformer", ["encoding=eigenspace", "encoding.size=16"], [66, 45, 45, 1, 1, 45, 45, 45, 2] + 7 * [0]),
    (
        "graph-transformer",
        ["encoding=cliques", "encoding.size=5"],
        [66, 0, 45, 1, 0, 9, 44, 33, 0, 1, 105, 6, 0, 0, 1, 1],
    ),
]


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("model", "options", "told"), TABLE)
def test_the_documents_table_and_a_hundred_relabellings_of_each_graph(model, options, told):
    answer = expressiveness.check("expressiveness", model, options, None, 0, 100)
    assert [row["model"] for row in answer["families"]] == told
    assert [row["false"] for row in answer["families"]] == [0] * 16


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
def test_one_network_tells_apart_all_105_pairs_and_the_cfi_pairs_of_treewidth_2_and_3():
    answer = expressiveness.check("expressiveness", "pair-network", ["marked=true"], None, 0, 2)
    told = {name: row["model"] for name, row in zip(FAMILIES, answer["families"], strict=True)}
    assert {name: told[name] for name in ("sr251256", "cfi-2", "cfi-3")} == {"sr251256": 105, "cfi-2": 9, "cfi-3": 4}
    assert all(row["model"] >= row["wl_2"] and row["false"] == 0 for row in answer["families"])


def test_a_model_that_looks_at_the_numbering_is_caught():
    class First(nn.Module):
        def forward(self, graph, x):
            first = graph.sizes.cumsum(0) - graph.sizes
            return graph.in_degrees()[first, None].double()

    star = Graph.from_networkx(networkx.star_graph(4))
    found = judge(Family("star", (star, complete(5))), [First()], relabellings=20)
    assert 0 < found.false < 20


def test_training_tells_apart_what_the_weights_as_drawn_do_not(monkeypatch):
    """With a threshold that hides what little differs at first; a model that is blind stays blind."""
    monkeypatch.setattr(expressiveness, "THRESHOLD", 0.1)
    pair = FAMILIES["hexagon"]()
    calm = models("pair-network", "gain=0.5", "depth=2", seeds=1)
    assert (judge(pair, calm, relabellings=5).model, judge(pair, calm, 40, 5).model) == (0, 1)
    assert judge(pair, calm, 40, 5).false == 0
    gin = models("gnn", "layer=gin", "norm=layer", seeds=1)
    assert judge(pair, gin, 40, 5).model == 0


def test_the_command_prints_a_table(capsys, monkeypatch):
    monkeypatch.setattr(expressiveness, "FAMILIES", {name: FAMILIES[name] for name in ("hexagon", "decalin")})
    assert main(["check", "expressiveness", "gnn", "layer=gcn", "--relabellings", "2", "--json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    answer = json.loads(printed[-1])
    assert [row["family"] for row in answer["families"]] == ["hexagon, two triangles", "decalin, bicyclopentyl"]
    assert answer["families"][0] | {"family": ""} == {
        "family": "", "graphs": 2, "pairs": 1, "wl_1": 0, "wl_2": 1, "model": 0, "false": 0, "missed": [1],
    }  # fmt: skip


def test_your_own_pairs_are_read_from_graph6(tmp_path, capsys):
    """A hexagon and two triangles; a square and itself renumbered, which nothing may tell apart."""
    path = tmp_path / "own.g6"
    two = networkx.disjoint_union(networkx.cycle_graph(3), networkx.cycle_graph(3))
    square = networkx.relabel_nodes(networkx.cycle_graph(4), {0: 0, 1: 2, 2: 1, 3: 3})
    graphs = [networkx.cycle_graph(6), two, networkx.cycle_graph(4), square]
    path.write_bytes(b"".join(networkx.to_graph6_bytes(graph) for graph in graphs))
    command = ["check", "expressiveness", "pair-network", "--pairs", str(path), "--relabellings", "2"]
    assert main([*command, "--train", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "trained for 1 step on each pair" in printed[0]
    assert printed[2].split() == ["own.g6", "4", "2", "0", "1", "1", "0"]
    assert printed[3] == "  not told apart: pairs 2"


@pytest.mark.parametrize(
    ("model", "option", "message"),
    [
        ("gnn", "layr=gin", "did you mean 'layer'"),
        ("gnn", "depth=two", "gnn.depth must be an integer"),
        ("transformer", "block.bias=maybe", "true or false"),
    ],
)
def test_what_cannot_be_built_is_refused(model, option, message):
    with pytest.raises(ConfigError, match=message):
        build(model, [option], 0)
