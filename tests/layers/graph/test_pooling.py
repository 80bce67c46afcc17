import pytest
import torch
from torch import nn

from edgewise import Graph, complete
from edgewise.errors import ConfigError, ShapeError
from edgewise.layers import (
    READOUTS,
    AttentionReadout,
    ClusterAssignment,
    FirstReadout,
    Set2Set,
    diff_pool,
    min_cut_pool,
)
from layers.parity import assert_parity, assert_same, leaf, messy_graph


@pytest.fixture
def graph():
    path = Graph.from_edge_index([[0, 1], [1, 2]], num_nodes=3)
    return Graph.batch([path, complete(1), complete(2)])


@pytest.mark.parametrize(("name", "pool"), [("mean", "mean"), ("sum", "add"), ("max", "max")])
def test_readouts_are_pygs_global_pools(graph, name, pool):
    pyg = pytest.importorskip("torch_geometric.nn")
    x, member = leaf(6, 4), torch.tensor([0, 0, 0, 1, 2, 2])
    expected = getattr(pyg, f"global_{pool}_pool")(x, member)
    assert_parity(READOUTS[name](4), {}, (graph, x), expected, [x])


def test_attention_readout_is_pygs_attentional_aggregation(graph):
    pyg = pytest.importorskip("torch_geometric.nn")
    x, member = leaf(6, 4), torch.tensor([0, 0, 0, 1, 2, 2])
    gate = nn.Linear(4, 1, bias=False).double()
    expected = pyg.aggr.AttentionalAggregation(gate)(x, member)
    weights = {"gate.weight": gate.weight}
    assert_parity(AttentionReadout(4).double(), weights, (graph, x), expected, [x, gate.weight])


def test_set2set_is_pygs(graph):
    pyg = pytest.importorskip("torch_geometric.nn")
    x, peer = leaf(6, 4), pyg.aggr.Set2Set(4, 3).double()
    names = {"ih": "recurrent", "hh": "state"}
    weights = {f"{names[k[-5:-3]]}.{k.split('_')[0][5:]}": p for k, p in peer.named_parameters()}
    expected = peer(x, torch.tensor([0, 0, 0, 1, 2, 2]))
    assert_parity(Set2Set(4, 3).double(), weights, (graph, x), expected, [x, *peer.parameters()])


@pytest.mark.parametrize("wrong", [torch.inf, torch.nan])
def test_the_first_node_does_not_read_the_others(graph, wrong):
    x, readout = torch.randn(6, 4), FirstReadout(4)
    expected, first = readout(graph, x), [0, 3, 4]
    x[[1, 2, 5]] = wrong
    x.requires_grad_()
    y = readout(graph, x)
    assert torch.equal(y, expected)
    y.sum().backward()
    assert x.grad[first].all() and not x.grad[[1, 2, 5]].any()


@pytest.mark.parametrize("name", READOUTS)
def test_a_graph_without_nodes_gives_zero(name):
    y = READOUTS[name](4)(Graph.batch([complete(2), complete(0)]), torch.randn(2, 4))
    assert y[1].tolist() == [0.0] * 4


def symmetric(nodes: int, edges: int, seed: int) -> Graph:
    index = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(seed))
    return Graph.from_edge_index(index, nodes).symmetrise()


def numbers(pooled, clusters):
    """All that pooling gives, as one vector: its gradient is the gradient of everything."""
    x, weight = pooled.x.unflatten(-2, (-1, clusters)), pooled.weight.unflatten(-1, (-1, clusters, clusters))
    return torch.cat([t.flatten() for t in (x, weight, pooled.cut, pooled.orthogonality)])


@pytest.mark.parametrize("clusters", [2, 5])
def test_a_batch_pools_as_pygs_dense_pooling_of_each_member(clusters):
    pyg = pytest.importorskip("torch_geometric.nn.dense")
    members = [symmetric(7, 12, 0), symmetric(4, 5, 1), complete(6)]
    x, logits = leaf(17, 3), leaf(17, clusters, seed=1)
    found = numbers(min_cut_pool(Graph.batch(members), x, logits.softmax(-1)), clusters)
    parts = zip(members, x.split([7, 4, 6]), logits.split([7, 4, 6]), strict=True)
    peers = [pyg.dense_mincut_pool(x_g, m.multiplicity().double(), s_g) for m, x_g, s_g in parts]
    expected = torch.cat([torch.cat([peer[part].flatten() for peer in peers]) for part in range(4)])
    assert_same(found, expected, [x, logits])


def test_diff_pool_is_pygs_of_each_member():
    pyg = pytest.importorskip("torch_geometric.nn.dense")
    members = [symmetric(7, 12, 0), messy_graph(), complete(6)]
    x, logits = leaf(20, 3), leaf(20, 4, seed=1)
    weights = [leaf(m.num_edges, seed=2 + n) for n, m in enumerate(members)]
    pooled = diff_pool(Graph.batch(members), x, logits.softmax(-1), torch.cat(weights))
    expected = []
    for m, x_g, s_g, w in zip(members, x.split([7, 7, 6]), logits.split([7, 7, 6]), weights, strict=True):
        A = torch.zeros(len(x_g), len(x_g), dtype=w.dtype).index_put((m.receivers, m.senders), w, accumulate=True)
        expected.append([part.flatten() for part in pyg.dense_diff_pool(x_g, A, s_g, normalize=False)])
    found = torch.cat([pooled.x.flatten(), pooled.weight.flatten(), pooled.link, pooled.entropy])
    assert_same(found, torch.cat([torch.cat(parts) for parts in zip(*expected, strict=True)]), [x, logits, *weights])


def test_it_is_the_equation_with_weights_on_a_directed_graph():
    graph, x, logits = messy_graph(), leaf(7, 3), leaf(7, 4, seed=1)
    weight = leaf(graph.num_edges, seed=2).square()
    s, A = logits.softmax(-1), torch.zeros(7, 7, dtype=torch.float64)
    A = A.index_put((graph.receivers, graph.senders), weight, accumulate=True)
    links = s.T @ A @ s
    cut = -links.trace() / (s.T @ torch.diag(A.sum(1)) @ s).trace()
    overlap = s.T @ s
    orthogonality = (overlap / overlap.norm() - torch.eye(4, dtype=torch.float64) / 2).norm()
    links = links - torch.diag(links.diag())
    links = links / links.sum(1, keepdim=True).sqrt() / links.sum(1).sqrt()
    expected = torch.cat([(s.T @ x).flatten(), links.flatten(), cut[None], orthogonality[None]])
    assert_same(numbers(min_cut_pool(graph, x, s, weight), 4), expected, [x, logits, weight], tolerance=1e-11)


def test_graphs_without_edges_or_nodes_have_finite_gradients():
    empty = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=0)
    bare = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=3)
    x, logits = leaf(3, 2), leaf(3, 2, seed=1)
    pooled = min_cut_pool(Graph.batch([empty, bare]), x, logits.softmax(-1))
    assert pooled.cut.tolist() == [0, 0] and not pooled.weight.any() and not pooled.x[:2].any()
    for gradient in torch.autograd.grad(numbers(pooled, 2).sum(), (x, logits)):
        assert gradient.isfinite().all()
    pooled = diff_pool(Graph.batch([empty, bare]), x, logits.softmax(-1))
    assert pooled.link[0] == pooled.entropy[0] == 0 and not pooled.weight.any() and not pooled.x[:2].any()
    assert torch.autograd.grad((pooled.link + pooled.entropy).sum(), logits)[0].isfinite().all()


def test_training_on_its_losses_alone_finds_planted_communities():
    """What the paper claims: unsupervised, the losses cluster a graph; and few edges leave a cluster."""
    generator = torch.Generator().manual_seed(0)
    community = torch.arange(60) // 20
    chance = torch.where(community[:, None] == community, 0.4, 0.02)
    graph = Graph.from_edge_index((torch.rand(60, 60, generator=generator) < chance).nonzero().T, 60).symmetrise()
    x = graph.multiplicity().float()
    assign = ClusterAssignment(60, 3)
    optimizer = torch.optim.Adam(assign.parameters(), 0.1)
    for _ in range(80):
        pooled = min_cut_pool(graph, x, assign(graph, x))
        optimizer.zero_grad()
        (pooled.cut + pooled.orthogonality).sum().backward()
        optimizer.step()
    found = assign(graph, x).argmax(-1)
    assert pooled.cut.item() < -0.7
    assert all((found[community == c] == found[20 * c]).all() for c in range(3)) and len(found.unique()) == 3


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="clusters must be a whole number, at least 1"):
        ClusterAssignment(3, 0)
    with pytest.raises(ShapeError, match=r"s is .*\[\*, 7, C\], a row for each"):
        min_cut_pool(messy_graph(), torch.zeros(7, 2), torch.zeros(6, 2))
