"""Batches have the edges, rows and numbers that PyTorch Geometric's loader promises."""

import pytest
import torch

from edgewise.errors import ConfigError
from edgewise.interop import NeighborLoader

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
    for batch in NeighborLoader(whole, fanouts, input_nodes=whole.train_mask, batch_size=4, shuffle=True):
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
    for batch in NeighborLoader(whole, [-1], batch_size=7):
        torch.testing.assert_close(layer(batch.x, batch.edge_index)[: batch.batch_size], y[batch.input_id])


def test_a_seed_decides_the_draw_and_a_transform_sees_the_batch() -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        loader = NeighborLoader(data(), [2, 2], [3, 9], batch_size=2, transform=lambda batch: batch.e_id)
        drawn.append(next(iter(loader)))
    assert torch.equal(*drawn)


def test_what_the_loader_refuses() -> None:
    with pytest.raises(ConfigError, match="has no option replace: there are batch_sampler, batch_size"):
        NeighborLoader(data(), [2], replace=True)
    with pytest.raises(ConfigError, match="takes a Data with an edge_index, not dict"):
        NeighborLoader({}, [2])
    with pytest.raises(ConfigError, match="not HeteroData"):
        NeighborLoader(geometric.HeteroData(), [2])
