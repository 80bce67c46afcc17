import networkx
import pytest
import torch

from benchmarks.studies.claims import pooling
from benchmarks.studies.claims.common.kept import Kept


@pytest.mark.parametrize("distance", pooling.DISTANCES)
def test_what_is_asked_is_how_far_two_communities_lie_apart(distance: int, monkeypatch) -> None:
    monkeypatch.setattr(pooling, "SHOWN", 1.0)  # every node shows its community's colour
    labels = set()
    for seed in range(20):
        drawn = pooling.ring(distance, torch.Generator().manual_seed(seed))
        senders, receivers = drawn.colours[drawn.graph.edge_index()]
        coarse = networkx.Graph(zip(senders.tolist(), receivers.tolist(), strict=True))
        coarse.remove_edges_from(list(networkx.selfloop_edges(coarse)))
        assert networkx.is_isomorphic(coarse, networkx.cycle_graph(8))
        assert networkx.shortest_path_length(coarse, 0, 1) == distance + drawn.label
        labels.add(drawn.label)
    assert labels == {0, 1}


def test_numbers_of_nodes_links_and_colours_say_nothing() -> None:
    drawn = [pooling.ring(3, torch.Generator().manual_seed(seed)) for seed in range(400)]
    labels = torch.tensor([one.label for one in drawn])
    counts = torch.tensor(
        [[len(one.colours), one.graph.num_edges, *one.colours.bincount(minlength=8)] for one in drawn]
    )
    near, far = counts[labels == 0].double(), counts[labels == 1].double()
    error = (near.var(0) / len(near) + far.var(0) / len(far)).sqrt()
    assert ((near.mean(0) - far.mean(0)).abs() < 3.5 * error).all()


def test_the_networks_differ_in_their_clusters_alone() -> None:
    drawn = pooling.rings(1, 3, 0)
    graph, colours, labels = pooling.together(list(drawn))
    shared, found = {}, {}
    for name, way in pooling.WAYS.items():
        torch.manual_seed(0)
        model = pooling.Network(way)
        outputs, losses = model(graph, colours)
        assert outputs.shape == (3, 2) and (losses != 0) == (way.penalty > 0)
        own = {key for key, _ in model.named_parameters() if "assign" not in key}
        shared.setdefault(way.after, own)
        assert own == shared[way.after]
        found[name] = outputs
        assert any(key.startswith("assign") for key, _ in model.named_parameters()) == (way.clusters == "learned")
    assert not torch.allclose(found["random clusters"], found["no pooling"])
    assert torch.equal(found["min-cut pooling"], found["min-cut pooling without its losses"])
    assert len(labels) == 3


def test_a_table_is_printed_and_drawn(capsys) -> None:
    table = pooling.measure(Kept(), distances=(1, 2), seeds=(0, 1), steps=2, sizes=(8, 12))
    assert list(table) == list(pooling.WAYS) and all(len(row) == 2 for row in table.values())
    assert all(0 <= own["least"] <= own["accuracy"] <= own["most"] <= 1 for row in table.values() for own in row)
    assert capsys.readouterr().out.count("\n") == len(pooling.WAYS) + 2
    assert len(pooling.picture(table, (1, 2)).axes[0].lines) == len(pooling.WAYS) + 1


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
def test_only_min_cut_pooling_tells_far_communities_apart() -> None:
    torch.set_num_threads(1)
    table = pooling.measure(Kept(), distances=pooling.DISTANCES[-1:])
    reached = {name: row[0]["accuracy"] for name, row in table.items()}
    assert reached.pop("min-cut pooling") >= pooling.FAR == 0.90
    assert max(reached.values()) <= pooling.LOST == 0.65
