"""Tiles of graphs: how many pairs they have, and of those by edges a bit for each pair."""

import pytest
import torch

from edgewise import Dot, EdgeBias, Graph, attend, plan, use_backend
from edgewise.errors import BackendRefusal, EdgewiseError, GraphError
from edgewise.graphs import causal, grid, squares, window
from edgewise.kernels.backends.cpu import tiled, tiles
from edgewise.native import library
from kernels.backends.cpu.tiles import GRAPHS, draw, largest_error, random_edges, results

if library is None:
    pytest.skip("the C++ kernels were not built", allow_module_level=True)

BITS = ["bits", "bits, blocks", "bits, wide"]


@pytest.mark.parametrize("name", BITS)
def test_a_bit_stands_for_each_edge_and_no_other_pair(name):
    graph = GRAPHS[name]
    words, blocks = tiled.words_of(graph)
    found = torch.zeros(graph.num_receivers, graph.num_senders, dtype=torch.bool)
    for i in range(graph.num_receivers):
        first, last, begin = blocks[i // 32].tolist()
        found[i, first:last] = (words[begin : begin + last - first] >> i % 32 & 1).bool()
    assert torch.equal(found, graph.dense_mask())
    assert sum(words.shape) == int((blocks[:, 1] - blocks[:, 0]).sum())


def test_where_edges_are_few_or_far_apart_there_are_no_tiles():
    assert tiled.tiles_of(random_edges(2000, 2000, 0.005)) is None
    assert tiled.tiles_of(random_edges(400, 400, 0.01)) is None
    assert tiled.tiles_of(random_edges(400, 400, 0.2)) is not None
    assert tiled.words_of(causal(40)) is None
    batch = GRAPHS["bits, blocks"]
    assert batch.num_edges < tiled.pairs_of(batch) < 3 * batch.num_edges  # blocks apart from each other


@pytest.mark.parametrize(
    "graph", [causal(1 << 20), window(1 << 20, 70), grid(1000, 1100), squares(1000, 1100, 7)], ids=lambda g: str(g.rule)
)
def test_pairs_of_many_receivers_are_counted_in_a_sample(graph, monkeypatch):
    counted = tiled.pairs_of(graph)
    monkeypatch.setattr(tiles, "COUNTED", 1 << 19)
    sampled = tiled.pairs_of(Graph(graph.rule, graph.num_receivers, graph.num_senders))
    assert sampled == pytest.approx(counted, rel=0.01) and sampled != counted


def test_a_plan_makes_no_ranges():
    graph = window(1 << 21, 3)
    made = plan(graph, heads=4, channels=16)
    assert "_ranges" not in vars(graph)
    assert {one.backend for one in made.candidates if one.seconds} >= {"tiled", "flex", "native"}
    with pytest.raises(GraphError, match="a list of the ranges of 6,000,000,000 receivers takes"):
        plan(grid(100_000, 60_000), heads=4, channels=16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("where", range(3))
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_reaches_neighbours_alone(where, value, dtype):
    graph = GRAPHS["bits"]
    tensors = draw(graph, 2, 8, 8, dtype=dtype)
    plain = results(graph, tensors, "tiled")[0]
    node = int(graph.senders[40]) if where else int(graph.receivers[40])
    tensors[where][node, 1] = value
    found = results(graph, tensors, "tiled")[0]
    reached = torch.zeros(graph.num_receivers, dtype=torch.bool)
    reached[graph.receivers[graph.senders == node] if where else [node]] = True
    assert 0 < int(reached.sum()) < graph.num_receivers
    exact = torch.isfinite(results(graph, [x.double() for x in tensors], "segment")[0])
    assert torch.equal(found.isfinite(), exact)
    same = 1e-2 if dtype == torch.bfloat16 else 1e-5
    assert torch.allclose(found[~reached].double(), plain[~reached].double(), rtol=same, atol=same)


def test_gradients_and_second_gradients():
    graph = random_edges(6, 12, 0.95)
    leaves = [x.requires_grad_() for x in draw(graph, 1, 2, 1, batch=(2,))]
    with use_backend("tiled"):
        assert torch.autograd.gradcheck(lambda q, k, v: attend(graph, q, k, v), leaves)
        assert torch.autograd.gradgradcheck(lambda q, k, v: attend(graph, q, k, v), leaves)


def test_second_gradients_with_dropout():
    graph, seed = random_edges(6, 12, 0.95), torch.tensor([12345])
    leaves = [x.requires_grad_() for x in draw(graph, 1, 1, 1)]
    leaves = [x.detach()[None].requires_grad_() for x in leaves]
    starts, stops, _ = tiled.tiles_of(graph)

    def run(q, k, v):
        own = tiled.TilesAttention(q, k, v, None, starts, stops, None, None, *tiled.words_of(graph), 0.7, 0.4, seed)
        return tiled.attend_tiles(own)[0]

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


def test_it_is_a_proper_operator_and_blocks_are_checked():
    graph, seed = GRAPHS["bits"], torch.tensor([3])
    (starts, stops, _), (words, blocks) = tiled.tiles_of(graph), tiled.words_of(graph)
    q, k, v = (x[None].requires_grad_() for x in draw(graph, 2, 8, 5, dtype=torch.float32))
    inputs = (q, k, v, None, starts, stops, None, None, words, blocks, 0.3, 0.4, seed)
    torch.library.opcheck(tiled.attend_tiles.overload, inputs)
    for wrong in (blocks[:-1], blocks + torch.tensor([0, 1, 0]), blocks + torch.tensor([0, 0, 40]), blocks - 1):
        with pytest.raises(EdgewiseError, match="blocks"):
            tiled.attend_tiles.overload(*inputs[:9], wrong, *inputs[10:])


def test_every_instruction_set_agrees():
    graph, chosen = GRAPHS["bits, blocks"], library.instruction_set()
    tensors = draw(graph, 2, 16, 9)
    exact = results(graph, tensors, "segment")
    try:
        for name in library.instruction_sets():
            library.use_instruction_set(name)
            assert largest_error(results(graph, tensors, "tiled"), exact) < 1e-10
            assert largest_error(results(graph, [x.float() for x in tensors], "tiled"), exact) < 1e-4
    finally:
        library.use_instruction_set(chosen)


def test_biases_are_refused():
    graph, x = GRAPHS["bits"], torch.randn(90, 1, 4)
    bias = EdgeBias(torch.randn(graph.num_edges, 1))
    with use_backend("tiled"), pytest.raises(BackendRefusal, match="by rule or ranges only"):
        attend(graph, x[:75], x, x, Dot() + bias)


def test_parallel_edges_are_refused():
    pairs = torch.ones(20, 20).nonzero().t()
    graph, x = Graph.from_edge_index(torch.cat([pairs, pairs[:, :1]], 1), 20), torch.randn(20, 1, 4)
    with use_backend("tiled"), pytest.raises(BackendRefusal, match="parallel"):
        attend(graph, x, x, x)


def test_rows_of_panels_cross_the_blocks_of_bits():
    members = [random_edges(n, n, 0.8, seed) for seed, n in enumerate((7, 50, 33, 64, 1, 30))]
    graph = Graph.batch(members)
    tensors = draw(graph, 3, 16, 16)
    assert largest_error(results(graph, tensors, "tiled"), results(graph, tensors, "segment")) < 1e-10
