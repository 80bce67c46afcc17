"""Batches have the edges, rows and numbers that PyTorch Geometric's loader promises."""

import numpy
import pytest
import torch

from edgewise.errors import ConfigError, GraphError
from edgewise.graphs import Graph, complete, sample_neighbors
from edgewise.interop import GraphLoader
from pretend import CARD, Card

geometric = pytest.importorskip("torch_geometric.data")


def data():
    generator = torch.Generator().manual_seed(1)
    edge_index = torch.randint(0, 30, (2, 150), generator=generator)
    rows = {"x": torch.arange(30.0)[:, None], "y": torch.arange(30), "train_mask": torch.arange(30) < 11}
    return geometric.Data(edge_index=edge_index, edge_attr=torch.arange(150.0)[:, None], name="rows", **rows)


@pytest.mark.parametrize("fanouts", [[-1], [3, 2], [2, -1, 1], []])
def test_a_batch_is_a_part_of_the_graph(fanouts) -> None:
    whole = data()
    seen = []
    for batch in GraphLoader(whole, fanouts, input_nodes=whole.train_mask, batch_size=4, shuffle=True):
        seeds = batch.n_id[: batch.batch_size]
        seen.append(seeds)
        assert torch.equal(seeds, batch.input_id)
        assert len(batch.n_id.unique()) == len(batch.n_id) == batch.num_nodes
        assert len(batch.e_id.unique()) == len(batch.e_id)
        assert torch.equal(batch.n_id[batch.edge_index], whole.edge_index[:, batch.e_id])
        assert torch.equal(batch.x, whole.x[batch.n_id])
        assert torch.equal(batch.y, whole.y[batch.n_id])
        assert torch.equal(batch.edge_attr, whole.edge_attr[batch.e_id])
        assert batch.name == "rows"
        assert sum(batch.num_sampled_nodes) == len(batch.n_id)
        assert sum(batch.num_sampled_edges) == len(batch.e_id)
        first = 0
        for fanout, count, edges in zip(fanouts, batch.num_sampled_nodes, batch.num_sampled_edges[1:], strict=False):
            degrees = torch.bincount(whole.edge_index[1], minlength=30)[batch.n_id[first : first + count]]
            assert edges == int((degrees if fanout < 0 else degrees.clamp(max=fanout)).sum())
            first += count
    assert sorted(torch.cat(seen).tolist()) == list(range(11))


def test_all_neighbours_give_what_the_whole_graph_gives() -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    whole, layer = data(), nn.SAGEConv(1, 3)
    y = layer(whole.x, whole.edge_index)
    for batch in GraphLoader(whole, [-1], batch_size=7):
        torch.testing.assert_close(layer(batch.x, batch.edge_index)[: batch.batch_size], y[batch.input_id])


def test_a_seed_decides_the_draw_and_a_transform_sees_the_batch() -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        loader = GraphLoader(data(), [2, 2], [3, 9], batch_size=2, transform=lambda batch: batch.e_id)
        drawn.append(next(iter(loader)))
    assert torch.equal(*drawn)


def test_columns_of_an_index_and_rows_of_arrays() -> None:
    """As PyTorch Geometric has them: of what has `index` in its name, the last axis is that of edges or nodes."""
    whole = data()
    whole.edge_label_index, whole.node_index = torch.arange(300).view(2, 150), torch.arange(60).view(2, 30)
    whole.height, whole.square = numpy.arange(30.0), torch.arange(900).view(30, 30)
    (batch,) = GraphLoader(whole, [2], numpy.arange(30) < 4, batch_size=4)
    assert torch.equal(batch.edge_label_index, whole.edge_label_index[:, batch.e_id])
    assert torch.equal(batch.node_index, whole.node_index[:, batch.n_id])
    assert torch.equal(batch.square, whole.square[batch.n_id])
    assert batch.height.tolist() == batch.n_id.tolist()


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([3, 30], "input_nodes, place 1: node 30 is out of range: the graph has 30 nodes"),
        (torch.tensor([-1]), "input_nodes, place 0: node -1 is out of range"),
        (torch.tensor([1.5]), "input_nodes must hold integers"),
        (torch.ones(29, dtype=torch.bool), r"a mask of nodes must have shape \[30\], not \[29\]"),
        (numpy.ones(31, dtype=bool), r"a mask of nodes must have shape \[30\], not \[31\]"),
        (3, "input_nodes must have 1 axis"),
    ],
)
def test_nodes_that_the_graph_does_not_have_are_refused(nodes, message) -> None:
    with pytest.raises(GraphError, match=message):
        GraphLoader(data(), [2], nodes)


def test_what_the_loader_refuses() -> None:
    with pytest.raises(GraphError, match="seed 1: node 30 is out of range: the graph has 30 nodes"):
        GraphLoader(data(), [2]).sample([0, 30])
    for one in (data(), {"graph": complete(3)}):
        with pytest.raises(ConfigError, match="of one graph takes num_neighbors"):
            GraphLoader(one)
    for wrong in (5, {("a", "to", "b"): [2]}):
        with pytest.raises(ConfigError, match="num_neighbors lists how many are drawn in each hop"):
            GraphLoader(data(), wrong)
    with pytest.raises(ConfigError, match="has no option replace: there are batch_sampler, batch_size"):
        GraphLoader(data(), [2], replace=True)
    with pytest.raises(ConfigError, match="takes a Data with an edge_index, or a dict with a graph, not dict"):
        GraphLoader({}, [2])
    with pytest.raises(ConfigError, match="not HeteroData"):
        GraphLoader(geometric.HeteroData(), [2])


def test_after_an_interruption_batches_are_parts_of_the_graph(monkeypatch) -> None:
    whole, calls = data(), []
    loader = GraphLoader(whole, [-1, -1], batch_size=4)
    list(loader)

    def stopped(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return sample_neighbors(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("edgewise.interop.loader.sample_neighbors", stopped)
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
    for batch in loader:
        assert torch.equal(batch.n_id[batch.edge_index], whole.edge_index[:, batch.e_id])


def test_a_node_given_several_times_has_as_many_rows_each_with_its_draws() -> None:
    whole, seeds = data(), [3, 9, 3, 3, 4, 9]
    degrees = torch.bincount(whole.edge_index[1], minlength=30)
    (batch,) = GraphLoader(whole, [2, -1], seeds, batch_size=6)
    assert batch.n_id[:6].tolist() == batch.input_id.tolist() == seeds
    assert len(batch.n_id[6:].unique()) == len(batch.n_id) - 6
    assert torch.equal(batch.n_id[batch.edge_index], whole.edge_index[:, batch.e_id])
    senders, receivers = batch.edge_index
    assert torch.equal(torch.bincount(receivers)[:6], degrees[seeds].clamp(max=2))
    assert not torch.isin(
        senders, torch.tensor([2, 3, 5])
    ).any()  # the first row of a node is where its edges come from
    first, second = batch.num_sampled_nodes[:2]
    assert batch.num_sampled_edges[1:] == [
        int(degrees[seeds].clamp(max=2).sum()),
        int(degrees[batch.n_id[6 : 6 + second]].sum()),
    ]
    assert first == 6
    sampler = torch.utils.data.RandomSampler(range(30), replacement=True)
    assert sum(batch.batch_size for batch in GraphLoader(whole, [3, 3], batch_size=8, sampler=sampler)) == 30


def test_rows_and_edges_of_data_on_a_card_are_there() -> None:
    with Card():
        whole = data()
        whole.x, whole.edge_index = whole.x.to("cuda"), whole.edge_index.to("cuda")
        for batch in GraphLoader(whole, [2, 2], batch_size=7):
            assert batch.x.device == batch.edge_index.device == CARD
            assert batch.y.device == torch.device("cpu")


def test_our_own_graph_gives_what_pytorch_geometric_s_data_gives() -> None:
    whole = data()
    graph = Graph.from_edge_index(whole.edge_index, 30)
    ours = {"graph": graph, "x": whole.x, "e": graph.sort_edges(whole.edge_attr), "name": "rows", "y": torch.tensor(3)}
    drawn = []
    for given in (whole, ours):
        torch.manual_seed(5)
        drawn.append(next(iter(GraphLoader(given, [3, -1], [3, 9, 4], batch_size=3))))
    theirs, batch = drawn
    part = batch["graph"]
    assert torch.equal(batch["n_id"], theirs.n_id) and torch.equal(batch["x"], theirs.x)
    assert torch.equal(batch["e"][:, 0].sort().values, theirs.e_id.sort().values.float())
    senders, receivers = whole.edge_index[:, batch["e"][:, 0].long()]
    assert torch.equal(batch["n_id"][part.senders], senders)
    assert torch.equal(batch["n_id"][part.receivers], receivers)
    assert (batch["name"], batch["y"], batch["batch_size"]) == ("rows", torch.tensor(3), 3)


def test_many_graphs_are_batched_as_one() -> None:
    graphs = [
        {"graph": complete(n), "x": torch.full((n, 2), n), "y": torch.tensor(float(n)), "name": n} for n in (1, 2, 3)
    ]
    batches = list(GraphLoader(graphs, batch_size=2, transform=lambda batch: batch | {"seen": True}))
    assert [batch["graph"].num_edges for batch in batches] == [5, 9]
    assert batches[0]["batch"].tolist() == [0, 1, 1] and batches[0]["x"][:, 0].tolist() == [1, 2, 2]
    assert batches[0]["y"].tolist() == [1, 2] and batches[0]["name"] == [1, 2] and batches[1]["seen"]
    theirs = [geometric.Data(x=torch.ones(n, 2), edge_index=torch.zeros(2, n, dtype=torch.int64)) for n in (1, 2, 3)]
    assert [batch.num_graphs for batch in GraphLoader(theirs, batch_size=2)] == [2, 1]
