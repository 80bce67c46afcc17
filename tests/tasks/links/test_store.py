"""Links of a graph on disk: what is held out is read by nobody, and what is drawn and computed is that of memory."""

import shutil

import pytest
import torch

from edgewise.apps.command.main import main
from edgewise.data import build_store
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph, edges_between, links_of
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


@pytest.mark.parametrize("parallel", [1, 3])
def test_edges_between_pairs_are_found_by_bisection(parallel):
    edges = torch.randint(40, (2, 300), generator=torch.Generator().manual_seed(1)).repeat(1, parallel)
    graph = Graph.from_edge_index(edges, 41)
    receivers, senders = torch.cartesian_prod(torch.arange(41), torch.arange(41)).T
    first, stop = edges_between(graph, receivers, senders)
    assert (stop - first).tolist() == graph.multiplicity().flatten().tolist()
    there = first < stop
    assert torch.equal(graph.senders[first[there]], senders[there])
    assert torch.equal(graph.receivers[stop[there] - 1], receivers[there])


def test_it_trains_from_the_command_line_and_predicts(store, tmp_path, capsys):
    run = str(tmp_path / "run")
    task = ["--task.store", store, "--task.fanouts", "[6,6]", "--task.cache", "1MB"]
    steps = ["--train.steps", "150", "--train.batch", "256", "--evaluation.every", "50"]
    assert main(["train", "store-links", *task, *steps, "--optimizer.learning_rate", "0.01", "--run", run]) == 0
    assert main(["evaluate", run]) == 0
    assert "auc" in capsys.readouterr().out
    assert finished(tmp_path / "run").test > 0.75
    assert main(["predict", run, "3,17"]) == 0
    assert '"probability"' in capsys.readouterr().out
    assert main(["predict", run, "3"]) == 2
    assert "is not searched" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"fanouts": ()}, ConfigError, "task.fanouts must be a number of neighbours for each layer"),
        ({"fanouts": (-2,)}, ConfigError, "task.fanouts are numbers of neighbours"),
        ({"held": 0}, ConfigError, "task.held must be at least 1 link, not 0"),
        ({"width": 0}, ConfigError, "task.width must be at least 1"),
        ({"cache": "much"}, ConfigError, "much"),
    ],
)
def test_options_that_cannot_be_are_refused(store, options, error, message):
    with pytest.raises(error, match=message):
        link_store(store, **options)


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


@pytest.mark.parametrize("undirected", [False, True])
def test_a_share_of_the_links_is_held_out_whichever_way_they_lead(tmp_path, undirected):
    pairs = torch.triu_indices(NODES, NODES, 1)[:, ::15]
    build_store(tmp_path / "store", [(*pairs.numpy(), None)], [{"x": torch.ones(NODES, 2)}], undirected=undirected)
    task = link_store(str(tmp_path / "store"))
    held = [task.cut.valid.shape[1] / pairs.shape[1], task.cut.test.shape[1] / pairs.shape[1]]
    assert held == pytest.approx([0.05, 0.1], rel=0.15)  # some are drawn twice


def test_a_step_has_as_many_links_as_were_asked_for(store):
    task = link_store(store)
    for seed in range(1, 60):  # that of seed 0 draws the links that fold 0 has held out
        assert task.train_batch(1, torch.Generator().manual_seed(seed)).size == 2


def test_a_store_of_loops_has_no_links(tmp_path):
    loops = torch.arange(50).numpy()
    build_store(tmp_path / "loops", [(loops, loops, None)], [{"x": torch.ones(50, 2)}])
    with pytest.raises(DataError, match="nearly all of 50 edges are self-loops or held out"):
        link_store(str(tmp_path / "loops"))


def test_links_to_choose_the_weights_by_and_to_test_on_are_of_all_nodes(tmp_path):
    draw = torch.Generator().manual_seed(0)
    ends = torch.randint(300, (2, 3000), generator=draw).numpy()
    build_store(tmp_path / "s", [(ends[0], ends[1], None)], [{"x": torch.randn(300, 2)}])
    cut = link_store(str(tmp_path / "s")).cut
    assert abs(cut.valid[0].double().mean() - cut.test[0].double().mean()) < 40


@pytest.mark.parametrize("workers", [-1, 65])
def test_workers_are_none_or_some(store, workers: int):
    with pytest.raises(ConfigError, match=f"workers.*{workers}"):
        link_store(store, workers=workers)


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
