"""To other libraries and back."""

import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import networkx
import numpy
import pytest
import scipy.sparse
import torch

from edgewise.errors import ConfigError, DataError, EdgewiseError, GraphError, ShapeError, installing
from edgewise.graphs import Graph, causal, complete, grid
from edgewise.layers import HGT
from graphs.examples import random_graphs


@pytest.fixture
def pyg():
    return pytest.importorskip("torch_geometric.data")


def test_networkx_and_back() -> None:
    for graph in [*random_graphs(), causal(4), grid(2, 3)]:
        there = graph.to_networkx()
        assert there.is_multigraph() == graph.has_duplicates
        assert list(there.nodes) == list(range(graph.num_receivers))
        assert Graph.from_networkx(there) == graph


def test_a_networkx_edge_from_u_to_v_means_that_v_listens_to_u() -> None:
    directed = networkx.DiGraph()
    directed.add_nodes_from("cab")
    directed.add_edge("a", "b")
    graph = Graph.from_networkx(directed)
    assert graph.edge_index().tolist() == [[1], [2]]  # c, a, b are 0, 1, 2
    assert graph.num_receivers == 3


def test_undirected_networkx_edges_go_both_ways() -> None:
    undirected = networkx.Graph([(0, 1), (2, 2), (1, 2)])
    graph = Graph.from_networkx(undirected)
    assert graph.multiplicity().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 1]]
    weights = torch.tensor([10.0, 20.0, 30.0, 10.0, 20.0])  # 0-1, 1-2, 2-2, then 1-0, 2-1
    assert list(undirected.edges) == [(0, 1), (1, 2), (2, 2)]
    table = graph.to_scipy(graph.sort_edges(weights)).toarray().tolist()
    assert table == [[0, 10, 0], [10, 0, 20], [0, 20, 30]]
    assert Graph.from_networkx(networkx.MultiGraph([(0, 1), (0, 1)])).multiplicity().tolist() == [[0, 2], [2, 0]]
    assert Graph.from_networkx(networkx.empty_graph(3)).num_edges == 0


class DGLGraph:
    """What `from_dgl` reads of a DGL graph, as its documentation has it."""

    def __init__(self, edges, senders, receivers, **more):
        self._edges, self._counts = edges, (senders, receivers)
        vars(self).update(more)

    def edges(self, order):
        assert order == "eid"
        return tuple(torch.tensor(side, dtype=torch.int32) for side in self._edges)

    def num_src_nodes(self):
        return self._counts[0]

    def num_dst_nodes(self):
        return self._counts[1]


def test_a_dgl_graph_a_block_and_a_batch() -> None:
    edges = ([2, 0, 3], [1, 1, 2])
    graph = Graph.from_dgl(DGLGraph(edges, 4, 4, batch_size=1, canonical_etypes=[("_N", "_E", "_N")]))
    assert graph == Graph.from_edge_index(edges, 4)
    assert graph.sort_edges(torch.tensor([1.0, 2.0, 3.0])).tolist() == [2, 1, 3]
    block = Graph.from_dgl(DGLGraph(edges, 4, 3, is_block=True))
    assert (block.num_senders, block.num_receivers) == (4, 3)
    batched = DGLGraph(([0, 2], [1, 3]), 4, 4, batch_size=2, batch_num_nodes=lambda: torch.tensor([2, 2]))
    assert Graph.from_dgl(batched).sizes.tolist() == [2, 2]


def test_to_dgl_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a module that has what `to_dgl` calls, as DGL's documentation has it."""

    def graph(ends, num_nodes):
        made = DGLGraph([end.tolist() for end in ends], num_nodes, num_nodes, batch_size=1, edata={})
        made.set_batch_num_nodes = lambda n: vars(made).update(batch_size=len(n), batch_num_nodes=lambda: n)
        made.set_batch_num_edges = lambda n: vars(made).update(of_members=n.tolist())
        return made

    def block(ends, num_src_nodes, num_dst_nodes):
        return DGLGraph([end.tolist() for end in ends], num_src_nodes, num_dst_nodes, is_block=True, edata={})

    with pytest.raises(ConfigError, match="to_dgl needs DGL"):
        complete(2).to_dgl()
    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace(graph=graph, create_block=block))
    plain = Graph.from_edge_index([[2, 0, 3], [1, 1, 2]], 4, edge_attr=torch.tensor([[1.0], [2.0], [3.0]]))
    assert plain.to_dgl().edata["edge_attr"].tolist() == [[2], [1], [3]]
    hop = Graph.from_edge_index([[2, 0, 3], [1, 1, 2]], 4, 3)
    batch = Graph.batch([plain, complete(2), plain])
    for made in (plain, hop, batch):
        assert Graph.from_dgl(made.to_dgl()) == made
    assert Graph.from_dgl(batch.to_dgl()).sizes.tolist() == [4, 2, 4] and batch.to_dgl().of_members == [3, 4, 3]


@pytest.mark.parametrize(("kind", "edges"), [("csc", [[0, 2, 1], [1, 1, 0]]), ("csr", [[1, 1, 0], [0, 2, 1]])])
@pytest.mark.parametrize("numbered", [True, False])
def test_a_dgl_graph_that_holds_columns_or_rows_alone(kind: str, edges: list[list[int]], numbered: bool) -> None:
    number = torch.tensor([2, 0, 1] if numbered else [], dtype=torch.int64)

    class Held:
        num_src_nodes = num_dst_nodes = staticmethod(lambda: 3)
        formats = staticmethod(lambda: {"created": [kind], "not created": []})

        def edges(self, order: str) -> Any:
            raise RuntimeError("this graph may not be listed")

        def adj_tensors(self, asked: str) -> Any:
            assert asked == kind
            return torch.tensor([0, 1, 3, 3]), torch.tensor([1, 0, 2]), number

    graph, e = Graph.from_dgl(Held()), torch.tensor([10, 20, 30])
    listed = torch.tensor(edges if numbered else [[edges[side][at] for at in (2, 0, 1)] for side in (0, 1)])
    assert torch.equal(graph.edge_index(), graph.sort_edges(listed.T).T)
    assert sorted(graph.sort_edges(e).tolist()) == [10, 20, 30]


def test_what_from_dgl_refuses() -> None:
    with pytest.raises(GraphError, match="takes a DGL graph, not list"):
        Graph.from_dgl([])
    kinds = [("user", "follows", "user"), ("user", "likes", "item")]
    with pytest.raises(GraphError, match="2 types of edges: give one of them"):
        Graph.from_dgl(DGLGraph(([], []), 1, 1, canonical_etypes=kinds))


@pytest.mark.parametrize(
    ("ends", "counts", "message"),
    [
        (([0], [1, 2]), [2, 2], "edges are as many senders as receivers, not 1 and 2"),
        (([0], [1]), [2, 3], r"the sum of batch_num_nodes must rise from 0 to the number of nodes, 4, not \[0, 2, 5\]"),
        (([0], [1]), [5, -1], "the sum of batch_num_nodes must rise from 0"),
        (([0], [2]), [2, 2], "the edge from 0 to 2 joins two graphs of the batch"),
    ],
)
def test_edges_and_members_of_a_dgl_graph_must_fit(ends: Any, counts: list[int], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_dgl(DGLGraph(ends, 4, 4, batch_size=2, batch_num_nodes=lambda: torch.tensor(counts)))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("indices", [0, 9, 1], "this csr_array is damaged: axis 1 index 9 exceeds matrix dimension 3"),
        ("indptr", [0, 2, 1, 3], "indptr must rise from 0 to the number of entries, 3"),
        ("indptr", [1, 2, 3, 3], "indptr must rise from 0"),
        ("indptr", [0, 2, 3, 9], "indptr must rise from 0 to the number of entries, 3"),
    ],
)
def test_a_damaged_scipy_matrix_is_refused(name: str, values: list[int], message: str) -> None:
    matrix = scipy.sparse.csr_array(numpy.eye(3))
    setattr(matrix, name, numpy.array(values, dtype=numpy.int32))
    with pytest.raises(GraphError, match=message):
        Graph.from_scipy(matrix)


def test_scipy_and_back() -> None:
    for graph in [*random_graphs(), *random_graphs(square=False), causal(4), complete(2, 3)]:
        matrix = graph.to_scipy()
        assert matrix.shape == (graph.num_receivers, graph.num_senders)
        assert matrix.toarray().tolist() == graph.multiplicity().tolist()
        assert Graph.from_scipy(matrix) == graph


@pytest.mark.parametrize("kind", ["csr", "coo", "lil"])
def test_scipy_values_follow_the_edges(kind: str) -> None:
    draw = torch.Generator().manual_seed(3)
    table = torch.rand(5, 4, generator=draw) * (torch.rand(5, 4, generator=draw) < 0.5)
    for matrix in (
        scipy.sparse.csr_array(table.numpy()).asformat(kind),
        scipy.sparse.csr_matrix(table.numpy()).asformat(kind),
    ):
        graph = Graph.from_scipy(matrix)
        weight = graph.sort_edges(torch.from_numpy(matrix.tocoo().data))
        assert torch.equal(torch.from_numpy(graph.to_scipy(weight).toarray()), table)


def test_scipy_keeps_every_stored_entry() -> None:
    matrix = scipy.sparse.coo_array(([0.0, 1.0, 2.0], ([0, 1, 1], [0, 1, 1])), shape=(2, 2))
    assert Graph.from_scipy(matrix).multiplicity().tolist() == [[1, 0], [0, 2]]


def test_a_scipy_matrix_does_not_share_the_graphs_memory() -> None:
    graph = Graph.from_edge_index([[0, 1], [1, 0]], 2)
    graph.to_scipy().indices[:] = 0
    assert graph.senders.tolist() == [1, 0]
    with pytest.raises(ShapeError, match=r"weight must be a tensor \[2\]"):
        graph.to_scipy(torch.ones(3))


def test_pyg_and_back(pyg) -> None:
    for graph in [*random_graphs(), causal(4)]:
        data = graph.to_pyg()
        assert data.num_nodes == graph.num_receivers
        assert Graph.from_pyg(data) == graph
    attributes = torch.randn(3, 2)
    data = pyg.Data(edge_index=torch.tensor([[2, 0, 1], [1, 1, 0]]), edge_attr=attributes, num_nodes=3)
    assert torch.equal(Graph.from_pyg(data).sort_edges(data.edge_attr), attributes[[2, 1, 0]])


def test_a_pyg_batch_is_a_batch(pyg) -> None:
    members = list(random_graphs(6))
    batch = Graph.from_pyg(pyg.Batch.from_data_list([graph.to_pyg() for graph in members]))
    assert batch == Graph.batch(members)
    assert batch.sizes.tolist() == Graph.batch(members).sizes.tolist()
    again = batch.to_pyg()
    assert again.batch.tolist() == torch.repeat_interleave(batch.sizes).tolist()
    assert Graph.from_pyg(again).sizes.tolist() == batch.sizes.tolist()
    again.edge_index = torch.tensor([[0], [again.num_nodes - 1]])
    with pytest.raises(GraphError, match="joins two graphs of the batch"):
        Graph.from_pyg(again)
    again.ptr = torch.tensor([0, 2])
    with pytest.raises(GraphError, match="ptr must rise from 0"):
        Graph.from_pyg(again)


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(ConfigError, match="to_pyg needs PyTorch Geometric: " + re.escape(installing("pyg"))):
        causal(3).to_pyg()


@pytest.mark.processes
def test_other_libraries_are_imported_only_when_asked_for() -> None:
    code = (
        "import sys; from edgewise.graphs import Graph, causal; from types import SimpleNamespace as S; "
        "causal(3).senders; Graph.from_pyg(S(edge_index=[[0], [0]], num_nodes=1)); "
        "print([m for m in ('torch_geometric', 'networkx', 'scipy', 'torch._dynamo') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("nodes", [0, 1, 7, 63])
def test_graph6_is_networkxs(nodes):
    networkx = pytest.importorskip("networkx")
    drawn = networkx.gnp_random_graph(nodes, 0.3, seed=nodes)
    graph = Graph.from_graph6(networkx.to_graph6_bytes(drawn, header=nodes % 2 == 0).decode())
    assert graph.num_receivers == nodes
    linked = {pair for u, v in drawn.edges for pair in ((u, v), (v, u))}
    assert {tuple(pair) for pair in graph.edge_index().T.tolist()} == linked


@pytest.mark.parametrize("line", ["", "é", "A", "Bwww", "~??", "~~~~~~~~", 7])
def test_what_is_no_graph6_is_refused(line):
    with pytest.raises(DataError, match="graph6"):
        Graph.from_graph6(line)


def hetero() -> Any:
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["paper"].x = torch.arange(6.0).view(3, 2)
    data["author"].x = torch.tensor([[10.0], [20.0]])
    data["venue"].num_nodes = 1
    data["author", "writes", "paper"].edge_index = torch.tensor([[1, 0, 0], [0, 0, 2]])
    data["paper", "in", "venue"].edge_index = torch.tensor([[2, 0], [0, 0]])
    data["author", "writes", "paper"].edge_attr = torch.tensor([[1.0], [2.0], [3.0]])
    return data


def test_typed_data_of_pytorch_geometric_are_one_graph() -> None:
    data = hetero()
    graph, types, relation, x, e, kinds, relations = typed = Graph.from_pyg(data)
    assert kinds == ("paper", "author", "venue") and types.tolist() == [0, 0, 0, 1, 1, 2]
    assert relations == (("author", "writes", "paper"), ("paper", "in", "venue"))
    assert x.tolist() == [[0, 1], [2, 3], [4, 5], [10, 0], [20, 0], [0, 0]]
    assert [typed.rows(kind) for kind in kinds] == [slice(0, 3), slice(3, 5), slice(5, 6)]
    edges = list(
        zip(graph.senders.tolist(), graph.receivers.tolist(), relation.tolist(), e[:, 0].tolist(), strict=True)
    )
    assert sorted(edges) == [(0, 5, 1, 0.0), (2, 5, 1, 0.0), (3, 0, 0, 2.0), (3, 2, 0, 3.0), (4, 0, 0, 1.0)]
    joined = data.to_homogeneous(add_node_type=False, add_edge_type=False, node_attrs=[], edge_attrs=[])
    assert Graph.from_edge_index(joined.edge_index, 6) == graph
    layer = HGT(2, 4, len(relations), len(kinds))
    assert layer(graph, x, relation, types)[typed.rows("author")].shape == (2, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["paper"].update({"x": torch.zeros(3)}), r"x of 'paper' is \[3\]; expected \[3, C\]"),
        (
            lambda data: data["author", "writes", "paper"].edge_index.add_(2),
            r"the edges \(author, writes, paper\): .*2",
        ),
        (lambda data: data["paper", "in", "venue"].pop("edge_index"), r"\(paper, in, venue\) have no edge_index"),
        (lambda data: data["venue"].pop("num_nodes"), "how many nodes of 'venue' there are: set num_nodes"),
    ],
)
@pytest.mark.filterwarnings("ignore:Unable to accurately infer")
def test_what_is_wrong_with_typed_data_is_said(change: Any, message: str) -> None:
    data = hetero()
    change(data)
    with pytest.raises(EdgewiseError, match=message):
        Graph.from_pyg(data)


def test_a_type_that_there_is_not_is_named() -> None:
    with pytest.raises(GraphError, match="no type of nodes 'film': there are paper, author, venue"):
        Graph.from_pyg(hetero()).rows("film")
