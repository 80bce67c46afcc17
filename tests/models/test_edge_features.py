"""The models that read what is known of the edges: batches, orders, samples, and what is refused."""

import pytest
import torch

from edgewise import ConfigError, Graph, ShapeError
from edgewise.configuration import Choice
from edgewise.graphs import sample_neighbors
from edgewise.models import MODELS, Features
from edgewise.models.graph.transformer import looped
from layers.parity import each

GRAPH = Graph.from_edge_index([[0, 1, 1, 2, 3, 0, 2, 3, 2], [1, 0, 2, 1, 0, 3, 3, 2, 2]], num_nodes=5)  # 4 is alone
OTHER = Graph.from_edge_index([[0, 1, 1], [1, 0, 2]], num_nodes=3)
READERS = {
    "gat": ("gnn", {"layer": "gat", "depth": 2, "dropout": 0.0, "connection": "residual"}),
    "gatv2": ("gnn", {"layer": "gatv2", "depth": 2, "dropout": 0.0}),
    "gine": ("gnn", {"layer": "gine", "depth": 2, "dropout": 0.0}),
    "gated-gcn": ("gnn", {"layer": "gated-gcn", "depth": 2, "dropout": 0.0, "connection": "residual"}),
    "graph-network": ("graph-network", {"depth": 2}),
    "post": ("graph-transformer", {"depth": 2, "heads": 2, "block": "post-norm"}),
    "pre, batch": ("graph-transformer", {"depth": 2, "heads": 2, "block": Choice("pre-norm", {"norm": "batch"})}),
    "gps": ("graph-transformer", {"depth": 2, "heads": 2, "attention": "gps"}),
}


def build(reader: str, whole: bool, edges: int = 2):
    name, options = READERS[reader]
    settings, model = MODELS[name]
    readout = {"readout": "sum"} if whole and name != "graph-network" else {}
    return model(settings(width=8, **options, **readout), Features(3, 4, whole_graph=whole, edges=edges)).double()


def features(*graphs: Graph):
    generator = torch.Generator().manual_seed(0)
    nodes, edges = sum(g.num_receivers for g in graphs), sum(g.num_edges for g in graphs)
    draw = (
        torch.randn(rows, width, dtype=torch.float64, generator=generator) for rows, width in ((nodes, 3), (edges, 2))
    )
    return tuple(draw)


@pytest.mark.parametrize(("reader", "whole"), each(READERS, [True, False]))
def test_every_weight_and_every_edge_matters_and_members_of_a_batch_do_not_mix(reader, whole):
    model = build(reader, whole).eval()
    x, e = features(GRAPH, OTHER)
    e.requires_grad_()
    y = model(Graph.batch([GRAPH, OTHER]), x, e)
    alone = torch.cat([model(GRAPH, x[:5], e[:9]), model(OTHER, x[5:], e[9:])])
    torch.testing.assert_close(y, alone, rtol=1e-10, atol=1e-10)
    y.square().sum().backward()
    assert bool((e.grad.abs().sum(1) > 0).all())
    reached = [p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters()]
    assert sum(reached) > 0.7 * len(reached)  # the last block's edges, and the last whole, may answer nobody


@pytest.mark.parametrize(("reader", "whole"), each(READERS, [True, False]))
def test_the_order_of_nodes_and_edges_does_not_matter(reader, whole):
    model = build(reader, whole).eval()
    (x, e), generator = features(GRAPH), torch.Generator().manual_seed(1)
    for _ in range(4):
        nodes, edges = torch.randperm(5, generator=generator), torch.randperm(9, generator=generator)
        place = nodes.argsort()  # node v of GRAPH is node place[v] of the other
        other = Graph.from_edge_index(place[GRAPH.edge_index()][:, edges], num_nodes=5)
        y = model(other, x[nodes], other.sort_edges(e[edges]))
        expected = model(GRAPH, x, e)
        torch.testing.assert_close(y, expected if whole else expected[nodes], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("reader", READERS)
def test_kinds_of_edges_are_one_hot_features(reader):
    model, (x, _) = build(reader, whole=False, edges=3).eval(), features(GRAPH)
    kinds = torch.tensor([0, 1, 2, 0, 1, 2, 2, 1, 0])
    one_hot = torch.eye(3, dtype=torch.float64)[kinds]
    torch.testing.assert_close(model(GRAPH, x, kinds), model(GRAPH, x, one_hot), rtol=0, atol=0)


@pytest.mark.parametrize("reader", ["gine", "gated-gcn"])
def test_a_sample_of_all_neighbours_is_the_whole_graph(reader):
    """And a sample takes its own edges' features from those of the large graph."""
    model = build(reader, whole=False).eval()
    x, e = features(GRAPH)
    seeds = torch.tensor([3, 0])
    sample = sample_neighbors(GRAPH, seeds, [-1, -1])
    found = model(sample, x[sample.nodes], e)
    torch.testing.assert_close(found, model(GRAPH, x, e)[seeds], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reader", READERS)
def test_features_that_are_missing_or_not_asked_for_are_refused(reader):
    x, e = features(GRAPH)
    with pytest.raises(ShapeError):
        build(reader, whole=False)(GRAPH, x)
    with pytest.raises(ShapeError):
        build(reader, whole=False, edges=0)(GRAPH, x, e)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "gnn",
            {"layer": "gcn"},
            "'gcn' reads no edge features, and this task has some: gat, gatv2, gine, gated-gcn, pna, ",
        ),
        ("gnn", {"layer": "gine", "edge_dropout": 0.5}, "cannot leave out edges"),
        ("graph-transformer", {"attention": "kernel"}, "neighbors, gps, graphormer, weighted do"),
        ("graph-transformer", {"attention": "weighted"}, "one weight of each edge, and this task has 2"),
        ("graph-transformer", {"block": "one-residual"}, "no feed-forward network for edges"),
    ],
)
def test_settings_that_would_leave_them_unread_are_refused(name, options, message):
    settings, model = MODELS[name]
    with pytest.raises(ConfigError, match=message):
        model(settings(**options), Features(3, 4, edges=2))


@pytest.mark.parametrize("block", ["pre-norm", "post-norm", "one-residual"])
def test_graphormer_reads_bonds_along_its_paths(block):
    """Every bond of a molecule without rings is on a path; members of a batch do not mix."""
    settings, model = MODELS["graph-transformer"]
    options = {"attention": "graphormer", "width": 8, "heads": 2, "block": block, "readout": "sum"}
    chain = Graph.from_edge_index([[0, 1, 1, 2, 1, 3], [1, 0, 2, 1, 3, 1]], num_nodes=4)
    built = model(settings(**options), Features(3, 4, whole_graph=True, edges=2)).double().eval()
    both, (x, e) = Graph.batch([chain, chain]), features(chain, chain)
    e.requires_grad_()
    y = built(both, x, e)
    alone = torch.cat([built(chain, x[:4], e[:6]), built(chain, x[4:], e[6:])])
    torch.testing.assert_close(y, alone, rtol=1e-10, atol=1e-10)
    y.square().sum().backward()
    assert bool((e.grad.abs().sum(1) > 0).all())


def test_weighted_attention_gives_loops_that_are_missing_the_weight_one():
    settings, model = MODELS["graph-transformer"]
    built = model(settings("weighted", width=8, heads=2, depth=1), Features(3, 4, edges=1)).double().eval()
    x, e = features(GRAPH)
    with_loops = GRAPH.add_self_loops()
    all_e = torch.cat([e[:, :1], torch.ones(4, 1, dtype=torch.float64)])
    graph, missing = looped(GRAPH)
    assert missing == 4
    torch.testing.assert_close(built(GRAPH, x, e[:, :1]), built(with_loops, x, graph.sort_edges(all_e)))
    plain = model(settings("weighted", width=8, heads=2, depth=1), Features(3, 4)).double().eval()
    plain.load_state_dict(built.state_dict())
    ones = torch.ones(9, 1, dtype=torch.float64)
    torch.testing.assert_close(plain(GRAPH, x), built(GRAPH, x, ones))
