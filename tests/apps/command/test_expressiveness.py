import json
from itertools import combinations

import networkx
import pytest
import torch

from edgewise import ConfigError
from edgewise.apps.command import expressiveness
from edgewise.apps.command.expressiveness import Family, build, families, judge
from edgewise.apps.command.main import main
from edgewise.graphs import complete


@pytest.mark.parametrize("family", list(families())[:4], ids=lambda family: family.name)
def test_no_two_graphs_of_a_family_are_isomorphic(family):
    graphs = [networkx.Graph(graph.to_networkx()) for graph in family.graphs]
    assert not any(networkx.faster_could_be_isomorphic(a, b) and networkx.is_isomorphic(a, b) for a, b in
                   list(combinations(graphs, 2))[:10])  # fmt: skip


def test_the_fourth_family_is_strongly_regular():
    *_, (rook, shrikhande) = [family.graphs for family in families()][:4]
    for graph in (rook, shrikhande):
        a = graph.dense_mask().double()
        assert torch.equal(a @ a, 6 * torch.eye(16) + 2 * a + 2 * (1 - a - torch.eye(16)).double())


def test_sr251256_has_fifteen_graphs_that_2_wl_takes_for_one(data):
    data("expressiveness")
    (family,) = [family for family in families() if family.name == "sr251256"]
    assert len(family.graphs) == 15
    assert expressiveness.refinement_classes(family.graphs, 2).unique().tolist() == [0]


def test_message_passing_is_blind_where_1_wl_is(monkeypatch):
    monkeypatch.setattr(expressiveness, "RELABELLINGS", 5)
    models = [build("gnn", ["layer=gin", "depth=4", "norm=layer"], seed) for seed in range(2)]
    for family in families():
        found = judge(family, models)
        assert (found.wl_1, found.model, found.false) == (0, 0, 0), family.name


TABLE = [
    # model, options, pairs that it tells apart of each family
    ("gnn", ["layer=gin", "depth=5", "norm=layer"], [0, 0, 0, 0, 0]),
    ("graph-transformer", ["encoding=eigenspace", "encoding_size=16"], [1, 1, 45, 0, 0]),
    ("graph-transformer", ["encoding=cliques", "encoding_size=5"], [1, 0, 9, 1, 105]),
]


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("model", "options", "told"), TABLE)
def test_the_documents_table_and_a_hundred_relabellings_of_each_graph(data, model, options, told):
    data("expressiveness")
    answer = expressiveness.check(model, options)
    assert [row["pairs"] for row in answer["families"]] == [1, 1, 45, 1, 105]
    assert [row["wl_2"] for row in answer["families"]] == [1, 1, 45, 0, 0]
    assert [row["model"] for row in answer["families"]] == told
    assert [row["wl_1"] + row["false"] for row in answer["families"]] == [0] * 5


def test_what_1_wl_tells_apart_gin_does_too(monkeypatch):
    monkeypatch.setattr(expressiveness, "RELABELLINGS", 5)
    trees = tuple(map(expressiveness._given, networkx.nonisomorphic_trees(6)))
    found = judge(Family("trees", trees), [build("gnn", ["layer=gin", "depth=5"], seed) for seed in range(3)])
    assert found.wl_1 == found.wl_2 == found.model == found.pairs == 15
    assert found.false == 0


def test_a_model_that_looks_at_the_numbering_is_caught(monkeypatch):
    class First(torch.nn.Module):
        def forward(self, graph, x):
            first = graph.sizes.cumsum(0) - graph.sizes
            return graph.in_degrees()[first, None].double()

    monkeypatch.setattr(expressiveness, "RELABELLINGS", 20)
    star = expressiveness._given(networkx.star_graph(4))
    found = judge(Family("star", (star, complete(5))), [First()])
    assert 0 < found.false < 20


def test_the_command_prints_a_table(capsys, monkeypatch):
    monkeypatch.setattr(expressiveness, "RELABELLINGS", 2)
    monkeypatch.setattr(expressiveness, "families", lambda: iter(list(families())[:2]))
    assert main(["check", "expressiveness", "gnn", "layer=gcn", "--json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    answer = json.loads(printed[-1])
    assert [row["family"] for row in answer["families"]] == ["hexagon, two triangles", "decalin, bicyclopentyl"]
    assert answer["families"][0] | {"family": ""} == {
        "family": "", "graphs": 2, "pairs": 1, "wl_1": 0, "wl_2": 1, "model": 0, "false": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "option", "message"),
    [
        ("gnn", "layer", "as OPTION=VALUE"),
        ("gnn", "layr=gin", "did you mean 'layer'"),
        ("gnn", "depth=two", "gnn.depth must be an integer"),
        ("gnn", "layer=gnn", "choose one of gcn"),
        ("gnm", "layer=gin", "choose one of graph-autoencoder"),
        ("transformer", "block.bias=maybe", "true or false"),
        ("gnn", "layer.heads=2", "gnn.layer 'gcn' takes no option 'heads'"),
    ],
)
def test_what_cannot_be_built_is_refused(model, option, message):
    with pytest.raises(ConfigError, match=message):
        build(model, [option], 0)
