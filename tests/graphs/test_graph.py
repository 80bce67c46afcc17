"""The three forms and what follows from them."""

import copy
import pickle
from collections.abc import Callable

import numpy
import pytest
import torch

from edgewise import attend
from edgewise.errors import GraphError, ShapeError
from edgewise.graphs import Graph, blocks, causal, complete, draw, fixed, grid, strided, window
from edgewise.graphs.rule import Causal
from graphs.examples import PATTERNED, random_edges, random_graphs

ALL = [*PATTERNED, *random_graphs(8), *random_graphs(8, square=False)]


def counted(edge_index: torch.Tensor, receivers: int, senders: int) -> torch.Tensor:
    """int64 [I, J], one edge at a time."""
    table = torch.zeros(receivers, senders, dtype=torch.int64)
    for j, i in edge_index.T.tolist():
        table[i, j] += 1
    return table


@pytest.mark.parametrize("square", [True, False])
def test_edge_lists_become_the_graph_they_say(square: bool) -> None:
    for seed in range(40):
        edges, senders, receivers = random_edges(seed, square)
        graph = Graph.from_edge_index(edges, senders, None if square else receivers)
        table = counted(edges, receivers, senders)
        assert torch.equal(graph.multiplicity(), table)
        assert torch.equal(graph.dense_mask(), table > 0)
        assert torch.equal(graph.in_degrees(), table.sum(1))
        assert torch.equal(graph.out_degrees(), table.sum(0))
        assert (graph.num_receivers, graph.num_senders, graph.num_edges) == (receivers, senders, edges.shape[1])
        assert graph.has_duplicates == bool((table > 1).any())
        assert graph.has_self_loops == (receivers == senders and bool((table.diagonal() > 0).all()))
        assert graph.density == pytest.approx(edges.shape[1] / max(1, receivers * senders))
        assert graph.ranges() is None
        key = graph.receivers * senders + graph.senders
        assert bool((key.diff() >= 0).all())
        assert torch.equal(graph.edge_index(), torch.stack([graph.senders, graph.receivers]))


def test_sort_edges_follows_the_caller() -> None:
    for seed in range(40):
        edges, senders, receivers = random_edges(seed, square=False)
        graph = Graph.from_edge_index(edges, senders, receivers)
        assert torch.equal(graph.sort_edges(edges.T).T, graph.edge_index())
        number = torch.arange(edges.shape[1])
        parallel = torch.stack([*graph.edge_index().flip(0), graph.sort_edges(number)]).T.tolist()
        assert parallel == sorted(parallel)  # parallel edges stay in the caller's order
        transposed, perm = graph.transpose()
        assert torch.equal(transposed.sort_edges(number), graph.sort_edges(number)[perm])


def test_sort_edges_refuses_what_it_cannot_know() -> None:
    graph = Graph.from_edge_index([[1, 0], [0, 0]], num_nodes=2)
    with pytest.raises(ShapeError, match=r"has shape \[2, \.\.\.\], not \[3, 4\]"):
        graph.sort_edges(torch.zeros(3, 4))
    with pytest.raises(ShapeError, match=r"not \[\]"):
        graph.sort_edges(torch.tensor(1.0))
    with pytest.raises(ShapeError, match="not a list"):
        graph.sort_edges([1.0, 2.0])  # type: ignore[arg-type]
    for other in (causal(3), graph.add_self_loops(), Graph.from_ranges([[0]], [[1]], 1)):
        with pytest.raises(GraphError, match="no caller's edge order"):
            other.sort_edges(torch.zeros(other.num_edges))


def test_csr_rows_are_sorted_and_remembered() -> None:
    graph = Graph.from_csr([0, 3, 3, 4], [4, 0, 2, 1], num_senders=5)
    assert graph.edge_index().tolist() == [[0, 2, 4, 1], [0, 0, 0, 2]]
    assert graph.sort_edges(torch.tensor([1, 2, 3, 4])).tolist() == [2, 3, 1, 4]
    again = Graph.from_csr(graph.offsets, graph.senders, 5)
    assert again == graph
    assert again.sort_edges(torch.arange(4)).tolist() == [0, 1, 2, 3]


def test_ranges_become_edges() -> None:
    graph = Graph.from_ranges([[0, 3], [0, 0], [4, 1]], [[2, 5], [0, 0], [4, 3]], num_senders=5)
    assert graph.dense_mask().int().tolist() == [[1, 1, 0, 1, 1], [0, 0, 0, 0, 0], [0, 1, 1, 0, 0]]
    assert graph.num_edges == 6
    assert not graph.has_duplicates
    ranges = graph.ranges()
    assert ranges is not None
    starts, stops = ranges
    assert bool((starts <= stops).all())
    assert bool((stops[:, :-1] <= starts[:, 1:]).all())  # the empty ranges have moved to where the row ascends
    assert Graph.from_ranges(torch.zeros(3, 0).long(), torch.zeros(3, 0).long(), 4).num_edges == 0


@pytest.mark.parametrize("graph", ALL, ids=lambda graph: repr(graph)[6:60])
def test_every_form_says_the_same(graph: Graph) -> None:
    edges = Graph.from_csr(graph.offsets, graph.senders, graph.num_senders)
    assert torch.equal(edges.multiplicity(), graph.multiplicity())
    assert torch.equal(edges.dense_mask(), graph.dense_mask())
    assert (edges == graph) == (graph.offset == 0)
    if (ranges := graph.ranges()) is not None:
        assert torch.equal(Graph.from_ranges(*ranges, graph.num_senders).senders, graph.senders)
    assert graph.offsets.dtype == graph.senders.dtype == graph.receivers.dtype == torch.int64
    assert graph.in_degrees().dtype == graph.out_degrees().dtype == graph.multiplicity().dtype == torch.int64


@pytest.mark.parametrize("graph", ALL, ids=lambda graph: repr(graph)[6:60])
def test_transposing_twice_gives_the_graph_back(graph: Graph) -> None:
    transposed, perm = graph.transpose()
    assert transposed is graph.transpose()[0]
    assert torch.equal(transposed.multiplicity(), graph.multiplicity().T)
    assert torch.equal(transposed.senders, graph.receivers[perm])
    assert torch.equal(transposed.receivers, graph.senders[perm])
    back, inverse = transposed.transpose()
    assert torch.equal(back.edge_index(), graph.edge_index())
    assert torch.equal(perm[inverse], torch.arange(graph.num_edges))
    if transposed.rule is not None:
        assert torch.equal(transposed.dense_mask(), graph.dense_mask().T)


def test_symmetric_rules_stay_rules_when_transposed() -> None:
    for graph in (complete(3, 4), window(5, 2), grid(2, 3), blocks([1, 2], senders=[2, 0])):
        assert graph.transpose()[0].rule is not None
    assert complete(3, 4).transpose()[0] == complete(4, 3)
    assert causal(4).transpose()[0].rule is None
    assert window(5, 1).rows(1, 3).transpose()[0].rule is None  # its senders would need an offset


def test_equality_is_structure() -> None:
    graph = causal(4)
    edges = Graph.from_edge_index(graph.edge_index().flip(1), 4)
    assert graph == edges
    assert hash(graph) == hash(edges)
    assert graph == causal(4)
    assert graph != causal(5)
    assert graph != window(4, 1)
    assert graph != causal(2, senders=4, offset=2)
    assert causal(2, offset=2).rows(0, 2) == causal(2, offset=2)
    assert Graph.from_edge_index([[0], [0]], 1) != Graph.from_edge_index([[0, 0], [0, 0]], 1)
    assert graph != "graph"


def test_a_graph_is_immutable() -> None:
    graph = causal(3)
    for change in (
        lambda: setattr(graph, "offset", 1),
        lambda: setattr(graph, "new", 1),
        lambda: delattr(graph, "rule"),
    ):
        with pytest.raises(GraphError, match="immutable"):
            change()
    edges, senders = torch.tensor([[0, 1], [1, 2]]), 3
    graph = Graph.from_edge_index(edges, senders)
    edges.zero_()
    assert graph.edge_index().tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize("graph", ALL[::9], ids=lambda graph: repr(graph)[6:60])
def test_graphs_are_pickled_and_copied_without_what_is_derived(graph: Graph) -> None:
    graph.transpose(), graph.sizes, graph.num_edges
    graph.memo("unpicklable", lambda: lambda: None)
    for again in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph), copy.copy(graph)):  # noqa: S301
        assert again == graph
        assert again.rule == graph.rule
        assert "_transposed" not in vars(again)
        assert again.memo("unpicklable", lambda: 3) == 3
        assert torch.equal(again.sizes, graph.sizes)
        if graph._order is not None:
            assert torch.equal(again.sort_edges(graph._order), graph.sort_edges(graph._order))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])  # noqa: S301
def test_a_copy_whose_tensors_are_written_says_so(again) -> None:
    graph = again(Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3))
    graph.senders.zero_()
    with pytest.raises(GraphError, match="its senders were written in place"):
        graph.transpose()


@pytest.mark.parametrize(
    "make",
    [
        lambda graph: graph.keep_edges(torch.ones(3, dtype=torch.bool)),
        lambda graph: graph.rows(0, 3),
        lambda graph: graph.subgraph([0, 1]),
        lambda graph: graph.permute([2, 1, 0]),
        lambda graph: graph.add_self_loops(),
        lambda graph: graph.intersection(graph),
        lambda graph: causal(3).union(graph),
        lambda graph: graph.transpose()[0].intersection(graph),
        lambda graph: Graph.batch([causal(2), graph]),
        lambda graph: graph.to("meta"),
        lambda graph: graph.edge_index(),
        lambda graph: graph.to_scipy(),
        copy.deepcopy,
        pickle.dumps,
    ],
)
def test_no_graph_is_made_of_one_whose_tensors_are_written(make: Callable[[Graph], object]) -> None:
    graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)
    assert graph.receivers.tolist() == [0, 1, 2] and not graph.has_duplicates
    graph.transpose(), graph.in_degrees(), graph.num_edges
    graph.senders[0] = 1 << 40  # where no kernel may look
    with pytest.raises(GraphError, match="its senders were written in place"):
        make(graph)


def test_a_graph_moves_while_another_thread_reads_of_it() -> None:
    graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)

    class Elsewhere:
        def to(self, device: torch.device) -> None:
            assert len(graph.receivers) == 3  # derived meanwhile

    vars(graph)["halo"] = Elsewhere()
    assert graph.sizes.tolist() == [3]  # which lies behind it
    assert graph.to("meta").device.type == "meta"


def test_values_first_read_in_inference_mode_serve_training() -> None:
    graph = window(5, 1)
    with torch.inference_mode():
        graph.transpose(), graph.receivers, graph.offsets
        weight = graph.memo("weight", lambda: graph.in_degrees().float())
    assert not weight.is_inference()
    x = torch.ones(5, requires_grad=True)
    (x[graph.senders] * weight[graph.receivers]).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5.0, 8.0, 9.0, 8.0, 5.0]


def test_to_moves_every_form() -> None:
    graph = Graph.from_edge_index([[1, 0], [0, 0]], num_nodes=2)
    assert graph.to("cpu") is graph
    assert graph.to(torch.device("cpu")) is graph
    graph.transpose(), graph.add_self_loops(), graph.membership()
    graph.memo("key", lambda: 1)
    moved = graph.to("meta")
    assert moved.device.type == "meta"
    transposed, perm = moved.transpose()
    for tensor in (moved.senders, moved.offsets, perm, transposed.senders, transposed.offsets, moved.sizes):
        assert tensor.device.type == "meta"
    assert moved.memo("key", lambda: 2) == 2  # made on the other device, so made again
    assert causal(3).to("meta").rule == Causal()
    assert causal(3).to("meta").senders.device.type == "meta"


def test_numpy_arrays_lists_and_other_integers_are_taken() -> None:
    expected = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
    given = [
        [[0, 1], [1, 2]],
        ((0, 1), (1, 2)),
        numpy.array([[0, 1], [1, 2]]),
        numpy.array([[0, 1], [1, 2]], dtype=numpy.uint16),
        torch.tensor([[0, 1], [1, 2]], dtype=torch.int32),
        torch.tensor([[0, 1], [1, 2]], dtype=torch.uint8),
        [torch.tensor([0, 1]), torch.tensor([1, 2])],
        [numpy.array([0, 1]), numpy.array([1, 2])],
        torch.tensor([[0, 1], [1, 2]]).T.contiguous().T,
        numpy.array([[0, 1], [1, 2]], dtype=">i8"),
        numpy.array([[1, 0], [2, 1]])[:, ::-1],
    ]
    for edges in given:
        assert Graph.from_edge_index(edges, numpy.int64(3)) == expected
    read_only = numpy.array([[0, 1], [1, 2]])
    read_only.flags.writeable = False
    assert Graph.from_edge_index(read_only, 3) == expected
    assert Graph.from_edge_index([[], []], 3).num_edges == 0
    assert Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), 0).num_edges == 0
    assert Graph.from_csr([0], [], 0).num_receivers == 0


def walk(graph: Graph, x: torch.Tensor) -> torch.Tensor:
    transposed, perm = graph.transpose()
    sums = torch.zeros(graph.num_receivers).index_add(0, graph.receivers, x[graph.senders])
    back = torch.zeros(graph.num_senders).index_add(0, transposed.receivers, x[transposed.senders] * (perm + 1))
    return sums * graph.num_edges + back / (1 + graph.out_degrees()) + graph.memo("half", lambda: torch.tensor(0.5))


@pytest.mark.parametrize("make", [lambda: window(6, 1), lambda: Graph.from_edge_index([[0, 3, 1], [5, 2, 2]], 6)])
def test_a_graph_is_lowered_inside_torch_compile_without_a_break(make) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(walk, backend="eager", fullgraph=True)
    graph, x = make(), torch.randn(6)
    for _ in range(2):  # first lowered in the compiled function, then read from what that kept
        torch.testing.assert_close(compiled(graph, x), walk(make(), x))


@pytest.mark.parametrize(
    "make",
    [
        *(causal, complete, lambda n: window(n, 2), lambda n: window(n, 1, dilation=2), lambda n: strided(n, 3)),
        *(lambda n: fixed(n, 2), lambda n: window(n, 1).union(strided(n, 3)), lambda n: blocks([n // 2, n - n // 2])),
        *(lambda n: window(n, 2).intersection(causal(n)), lambda n: window(n, 1).remove_self_loops()),
    ],
)
@pytest.mark.compiled
def test_a_graph_by_rule_is_made_inside_torch_compile_without_a_break(make) -> None:
    def step(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        graph = make(x.shape[0])
        return attend(graph, x, x, x), graph.num_edges

    torch._dynamo.reset()
    compiled = torch.compile(step, backend="eager", fullgraph=True, dynamic=True)
    for n in (8, 11):
        x = torch.randn(n, 2, 4)
        y, edges = compiled(x)
        torch.testing.assert_close(y, step(x)[0], rtol=1e-4, atol=1e-5)
        assert edges == make(n).num_edges


def test_a_graph_that_is_too_large_to_draw_is_refused() -> None:
    with pytest.raises(GraphError, match=r"100,000 x 100,000 has over 4,194,304 characters: draw a part"):
        draw(causal(100_000))


@pytest.mark.parametrize("of", [Graph.multiplicity, Graph.dense_mask])
def test_a_table_of_all_pairs_of_a_huge_graph_is_refused(of):
    huge = Graph.from_edge_index([[0], [1]], 50_000_000)
    with pytest.raises(GraphError, match="a mask of 50,000,000 × 50,000,000 pairs takes"):
        of(huge)
