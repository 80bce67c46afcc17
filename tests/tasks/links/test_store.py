"""Links of a graph on disk: what is held out is read by nobody, and what is drawn and computed is that of memory."""

import shutil

import pytest
import torch

from edgewise.apps.command.main import main
from edgewise.data import build_store
from edgewise.errors import DataError
from edgewise.graphs import Graph, links_of
from edgewise.models import GNN, Features, GNNSettings
from edgewise.tasks import link_store
from edgewise.tasks.core.task import Parts
from edgewise.training import finished

NODES = 300


def communities() -> torch.Tensor:
    """Edges of 300 nodes that listen mostly within ten groups; some are parallel, some loops, half in one direction."""
    draw = torch.Generator().manual_seed(5)
    receivers = torch.arange(NODES).repeat_interleave(10)
    near = receivers // 30 * 30 + torch.randint(30, receivers.shape, generator=draw)
    senders = torch.where(
        torch.rand(receivers.shape, generator=draw) < 0.9, near, torch.randint(NODES, near.shape, generator=draw)
    )
    edges = torch.stack([senders, receivers])
    return torch.cat([edges, edges[:, :900].flip(0), edges[:, :50]], 1)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    place = tmp_path_factory.mktemp("links") / "store"
    draw = torch.Generator().manual_seed(6)
    x = torch.randn(10, 12, generator=draw).repeat_interleave(30, 0) + torch.randn(NODES, 12, generator=draw)
    senders, receivers = communities()
    build_store(place, [(senders.numpy(), receivers.numpy(), None)], [{"x": x}])
    return str(place)


def codes(pairs: torch.Tensor) -> set[int]:
    low, high = pairs.min(0).values, pairs.max(0).values
    return set((low * NODES + high).tolist())


def test_every_link_is_in_one_part_and_pairs_without_a_link_have_none(store):
    task = link_store(store)
    whole = Graph.from_edge_index(communities(), NODES)
    every, cut = codes(links_of(whole)), task.cut
    assert min(cut.valid.shape[1], cut.test.shape[1]) > 50
    valid, test = codes(cut.valid), codes(cut.test)
    assert valid <= every and test <= every and not valid & test
    assert not (codes(cut.valid_none) | codes(cut.test_none)) & every
    assert cut.valid_none.shape == cut.valid.shape and cut.test_none.shape == cut.test.shape
    ends = torch.stack([whole.senders, whole.receivers])
    held = torch.tensor([code in valid | test for code in (ends.min(0).values * NODES + ends.max(0).values).tolist()])
    assert task.missing.tolist() == held.nonzero()[:, 0].tolist()  # all edges of these links, and no other
    assert task.epoch_size == whole.num_edges - len(task.missing)
    seen = set()
    for seed in range(60):
        batch = task.train_batch(200, torch.Generator().manual_seed(seed))
        sample = batch.graph
        assert not any(torch.isin(edges, task.missing).any() for edges in sample.edges)
        pairs = sample.nodes[batch.pairs]
        linked = codes(pairs[:, batch.target > 0])
        assert linked <= every - valid - test
        assert not codes(pairs[:, batch.target == 0]) & (every - valid - test)
        seen |= linked
    assert len(seen) > 0.9 * len(every - valid - test)  # any of them may be drawn


def test_an_evaluation_is_that_of_the_graph_in_memory_without_the_held_out_links(store):
    task = link_store(store, width=8, fanouts=(4, 4))
    torch.manual_seed(0)
    model = GNN(GNNSettings("sage-mean", 8, 2, dropout=0.0), Features(12, 8)).eval()
    whole = Graph.from_edge_index(communities(), NODES)
    kept = torch.ones(whole.num_edges, dtype=torch.bool)
    kept[task.missing] = False
    seen = Graph.from_edge_index(torch.stack([whole.senders[kept], whole.receivers[kept]]), NODES)
    z = model(seen, task.rows[torch.arange(NODES)])
    for split in ("valid", "test"):
        (batch,) = task.batches(split, 64)
        nodes = batch.graph.nodes
        torch.testing.assert_close(model(*batch.inputs), z[nodes], rtol=0, atol=1e-5)
        assert batch.size == 2 * task.splits[split].shape[0]
    i, j = task.cut.test[:, 0].tolist()
    told = task.predict(model, None, f"{i},{j}", "cpu")
    assert told["probability"] == pytest.approx((z[i] @ z[j]).sigmoid().item(), rel=1e-5)
    assert told["training link"] is False


def test_parts_are_the_batch_of_one_process_and_workers_change_nothing(store):
    task = link_store(store, cache="4kB")

    def parts(count):
        terms, drawn = task.train_parts(64, torch.Generator().manual_seed(3), None, Parts(count, range(count)))
        assert terms == sum(part.size for part in drawn)
        return drawn

    (one,), three = parts(1), parts(3)
    pairs = [part.graph.nodes[part.pairs][:, part.target == kind] for kind in (1, 0) for part in three]
    assert torch.equal(torch.cat(pairs, 1), one.graph.nodes[one.pairs])
    place = {int(node): row for row, node in enumerate(one.graph.nodes)}
    for part in three:
        for row, node in enumerate(part.graph.nodes.tolist()):
            assert torch.equal(part.x[row], one.x[place[node]])


def test_it_trains_from_the_command_line_and_predicts(store, tmp_path, capsys):
    run = str(tmp_path / "run")
    task = ["--task.store", store, "--task.fanouts", "[6,6]", "--task.cache", "1MB"]
    steps = ["--train.steps", "20", "--train.batch", "128", "--evaluation.every", "20"]
    assert main(["train", "store-links", *task, *steps, "--optimizer.learning_rate", "0.01", "--run", run]) == 0
    assert main(["evaluate", run]) == 0
    assert "auc" in capsys.readouterr().out
    assert finished(tmp_path / "run").test > 0.5
    assert main(["predict", run, "3,17"]) == 0
    assert '"probability"' in capsys.readouterr().out
    assert main(["predict", run, "3"]) == 2
    assert "is not searched" in capsys.readouterr().err


def test_a_store_that_does_not_serve_is_named(store, tmp_path):
    with pytest.raises(DataError, match="is no store"):
        link_store(str(tmp_path))
    build_store(tmp_path / "bare", [([0, 1], [1, 0], None)], 2)
    with pytest.raises(DataError, match="no features"):
        link_store(str(tmp_path / "bare"))
    build_store(tmp_path / "few", [([0, 1], [1, 0], None)], [{"x": torch.ones(2, 3)}])
    with pytest.raises(DataError, match="a graph of 2 edges has too few links"):
        link_store(str(tmp_path / "few"))
    i, j = torch.cartesian_prod(torch.arange(9), torch.arange(9)).T
    build_store(tmp_path / "all", [(i.numpy(), j.numpy(), None)], [{"x": torch.ones(9, 3)}])
    with pytest.raises(DataError, match="nearly all of 9 nodes are linked"):
        link_store(str(tmp_path / "all"))


@pytest.mark.parametrize(("name", "number", "size"), [("senders", -1, 4), ("senders", NODES, 4), ("offsets", 2**40, 8)])
def test_links_that_lead_out_of_a_damaged_store_are_not_drawn(store, tmp_path, name: str, number: int, size: int):
    """They were held out, or trained on, as links to no node."""
    damaged = shutil.copytree(store, tmp_path / "damaged")
    path = damaged / f"{name}.safetensors"
    content = bytearray(path.read_bytes())
    content[-200 * size : -size] = number.to_bytes(size, "little", signed=True) * 199
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged: a row's offsets or senders are out of range"):
        link_store(str(damaged)).train_batch(1000, torch.Generator().manual_seed(0))
