"""The tiled backend computes what `reference` does on every graph that it takes, and the same bits on any threads."""

import pytest
import torch

from edgewise import Dot, EdgeBias, Graph, attend, plan, use_backend
from edgewise.errors import BackendRefusal, GraphError
from edgewise.graphs import blocks, causal, complete, grid, squares, window
from edgewise.kernels.backends.cpu import tiled, tiles
from edgewise.kernels.call import Attend
from edgewise.kernels.planning.planner import candidates
from edgewise.native import library
from edgewise.testing import check_kernel
from kernels.backends.cpu.tiles import GRAPHS, SHAPES, biased, draw, dropped, largest_error, random_ranges, results

if library is None:
    pytest.skip("the C++ kernels were not built", allow_module_level=True)


def test_it_agrees_with_reference_on_every_kind_of_graph():
    refused = check_kernel("tiled")
    assert not any(case.startswith("attend Dot on") and "given" not in case and "no " not in case for case in refused)


@pytest.mark.parametrize("name", GRAPHS)
def test_values_and_gradients_are_those_of_the_equation(name):
    graph = GRAPHS[name]
    for heads, channels, values in SHAPES[: 2 if graph.num_receivers > 1000 else None]:
        tensors = draw(graph, heads, channels, values)
        assert largest_error(results(graph, tensors, "tiled"), results(graph, tensors, "segment")) < 1e-10
        single = [x.float() for x in tensors]
        exact = results(graph, [x.double() for x in single], "segment")
        assert largest_error(results(graph, single, "tiled"), exact) < 1e-4


@pytest.mark.parametrize("name", ["causal", "window", "blocks", "complete, other senders", "ranges, three"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_error_is_at_most_twice_that_of_plain_pytorch(name, dtype):
    graph = GRAPHS[name]
    for heads, channels, values in SHAPES[:4]:
        tensors = draw(graph, heads, channels, values, dtype=dtype)
        exact = results(graph, [x.double() for x in tensors], "segment")
        plain, found = (results(graph, tensors, backend) for backend in ("segment", "tiled"))
        assert all(x.dtype == dtype for x in found)
        for one, other, right in zip(found, plain, exact, strict=True):
            ours, theirs = ((x.double() - right).norm() / right.norm() for x in (one, other))
            assert ours <= 2 * theirs + torch.finfo(dtype).eps / 8


def test_empty_rows_are_0_with_finite_gradients():
    graph = random_ranges(200, 60, 2)
    silent = graph.in_degrees() == 0
    assert silent.any()
    y, dq, dk, dv = results(graph, draw(graph, 2, 16, 16, dtype=torch.float32), "tiled")
    assert (y[silent] == 0).all()
    assert (dq[silent] == 0).all()
    assert all(x.isfinite().all() for x in (y, dq, dk, dv))


@pytest.mark.parametrize(("name", "heads"), [("causal", 1), ("window, far", 4), ("blocks", 4), ("ranges, three", 1)])
@pytest.mark.parametrize("batch", [2, 11])
def test_the_same_bits_on_any_number_of_threads(name, heads, batch):
    graph, before = GRAPHS[name], torch.get_num_threads()
    tensors = draw(graph, heads, 16, 16, batch=(batch,), dtype=torch.float32)
    bias = torch.randn(graph.num_edges, heads)
    try:
        found = []
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.append([*results(graph, tensors, "tiled"), *biased(graph, tensors, bias, "tiled")])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "window, far"])
def test_biases_on_edges_and_their_gradients(name):
    graph = GRAPHS[name]
    for batch, of_bias, heads in (((), (), 1), ((11,), (), 3), ((2, 2), (2, 2), 2), ((3,), (1,), 2)):
        tensors = draw(graph, heads, 5, 9, batch)
        for bias_heads in {1, heads}:
            bias = torch.randn(*of_bias, graph.num_edges, bias_heads, dtype=torch.float64)
            exact = biased(graph, tensors, bias, "segment")
            assert largest_error(biased(graph, tensors, bias, "tiled"), exact) < 1e-10
            single = biased(graph, [x.float() for x in tensors], bias.float(), "tiled")
            assert largest_error(single, exact) < 1e-4


@pytest.mark.parametrize("name", ["causal", "window, dilated", "blocks", "complete", "ranges, three"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_forgets_the_same_pairs_forward_and_backward(name, dtype):
    graph = GRAPHS[name]
    tensors = draw(graph, 3, 6, 10, batch=(4,), dtype=dtype)
    bias = torch.randn(graph.num_edges, 3, dtype=dtype)
    exact, share = dropped(graph, [x.double() for x in tensors], bias.double(), 0.3, "written out")
    found, _ = dropped(graph, tensors, bias, 0.3, "tiled")
    assert largest_error(found, exact) < (1e-10 if dtype == torch.float64 else 2e-4)
    assert abs(share - 0.7) < 0.02


def test_a_bias_of_minus_infinity_masks():
    graph = squares(6, 6, 3)
    tensors = draw(graph, 1, 8, 8)
    bias = torch.randn(graph.num_edges, 1, dtype=torch.float64)
    bias[::2] = -torch.inf
    bias[graph.offsets[4] : graph.offsets[5]] = -torch.inf
    found = biased(graph, tensors, bias, "tiled")
    assert (found[0][4] == 0).all()
    assert largest_error(found, biased(graph, tensors, bias, "segment")) < 1e-12


def test_one_long_head_is_worked_through_in_pieces():
    for graph in (window(9000, 30), causal(900)):
        tensors, bias = draw(graph, 1, 32, 32), torch.randn(graph.num_edges, 1, dtype=torch.float64)
        assert largest_error(results(graph, tensors, "tiled"), results(graph, tensors, "segment")) < 1e-10
        assert largest_error(biased(graph, tensors, bias, "tiled"), biased(graph, tensors, bias, "segment")) < 1e-10


def test_rows_may_lie_anywhere():
    graph = causal(37)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        fused = torch.randn(2, 37, 3 * 4 * 16, dtype=torch.float64).to(dtype)
        views = [x.unflatten(-1, (4, 16)) for x in fused.chunk(3, -1)]
        heads_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in views]
        packed = results(graph, [x.contiguous() for x in views], "tiled")
        for elsewhere in (views, heads_first):
            assert all(torch.equal(a, b) for a, b in zip(results(graph, elsewhere, "tiled"), packed, strict=True))
    x = torch.randn(37, 2, 8).requires_grad_()
    with use_backend("tiled"):
        y = attend(graph, x, x, x)
        found = [
            torch.autograd.grad(y, x, g, retain_graph=True)[0]
            for g in (torch.ones(()).expand_as(y), torch.ones_like(y))
        ]
    assert torch.equal(*found)


def test_scales_by_head_and_shared_keys():
    graph = window(40, 5)
    q, k, v = draw(graph, 4, 16, 8, batch=(3, 2))
    score = Dot(torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64))
    tensors = [q, k[..., :2, :], v[..., :2, :]]
    assert largest_error(results(graph, tensors, "tiled", score), results(graph, tensors, "segment", score)) < 1e-12


def test_large_scores_are_stable():
    graph = causal(50)
    tensors = [30 * x.float() for x in draw(graph, 2, 16, 16)]
    found = results(graph, tensors, "tiled")
    exact = results(graph, [x.double() for x in tensors], "segment")
    assert all(x.isfinite().all() for x in found)
    assert float((found[0].double() - exact[0]).abs().max()) < 0.1


FEW = Graph.from_ranges(torch.tensor([[0], [1], [2], [0]]), torch.tensor([[2], [4], [2], [5]]), 5)


@pytest.mark.parametrize(
    ("graph", "sizes", "dropout"), [(FEW, (2, 3, 2), 0.0), (squares(2, 3, 2), (1, 1, 1), 0.0), (FEW, (1, 1, 1), 0.4)]
)
def test_gradients_and_second_gradients(graph, sizes, dropout):
    leaves = [x.requires_grad_() for x in draw(graph, *sizes, batch=(2,))]
    leaves.append(torch.randn(graph.num_edges, 1, dtype=torch.float64, requires_grad=True))

    def run(q, k, v, bias):
        torch.manual_seed(3)
        return attend(graph, q, k, v, Dot() + EdgeBias(bias), dropout=dropout, backend="tiled")

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True)


def test_it_is_a_proper_operator():
    graph = window(20, 3)
    (starts, stops), seed = graph.ranges(), torch.tensor([2**40 + 7])
    for dtype in (torch.float32, torch.float64):
        q, k, v = (x.requires_grad_() for x in draw(graph, 2, 8, 5, batch=(2,), dtype=dtype))
        torch.library.opcheck(tiled.attend_tiles.overload, (q, k, v, None, starts, stops, None, None, 0.3, 0.0, seed))
        places, order = tiled.places_of(graph), torch.arange(20)
        bias = torch.randn(1 if dtype == torch.float32 else 2, 2, graph.num_edges, dtype=dtype)
        inputs = (q, k, v, bias.requires_grad_(), starts, stops, order, places, 0.3, 0.4, seed)
        torch.library.opcheck(tiled.attend_tiles.overload, inputs)


def test_every_instruction_set_agrees():
    graph, chosen = window(100, 9), library.instruction_set()
    tensors, bias = draw(graph, 2, 16, 9), torch.randn(graph.num_edges, 2, dtype=torch.float64)
    exact, with_bias = results(graph, tensors, "segment"), biased(graph, tensors, bias, "segment")
    try:
        for name in library.instruction_sets():
            library.use_instruction_set(name)
            assert largest_error(results(graph, tensors, "tiled"), exact) < 1e-10
            assert largest_error(results(graph, [x.float() for x in tensors], "tiled"), exact) < 1e-4
            assert largest_error(biased(graph, tensors, bias, "tiled"), with_bias) < 1e-10
    finally:
        library.use_instruction_set(chosen)


def test_the_cost_follows_the_pairs_inside_the_tiles():
    def pairs(graph):
        return tiled.pairs_of(graph)

    assert 4096 * 257 < pairs(window(4096, 128)) < 1.4 * 4096 * 257
    assert pairs(blocks([25] * 40)) < 2 * 40 * 25 * 25
    x = torch.randn(500, 2, 16)
    listed = {one.backend: one for one in candidates(Attend(window(500, 9), x, x, x, Dot()))}
    assert listed["tiled"].seconds is not None


def test_refusals_say_what_it_does_not_do():
    x = torch.randn(4, 1, 2)
    given = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=4)
    for call, reason in (
        (lambda: attend(given, x, x, x), "no form with few sender intervals"),
        (lambda: attend(causal(4), x, x, x, Dot(cap=2.0)), "no soft cap"),
        (lambda: attend(causal(4), x.half(), x.half(), x.half()), "not in torch.float16"),
    ):
        with use_backend("tiled"), pytest.raises(BackendRefusal, match=reason):
            call()


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800001, -0x3FFF01])
@pytest.mark.parametrize("where", "qkv")
def test_nan_stays_nan_whatever_its_lower_bits_are(where, bits):
    tensors = {name: torch.randn(64, 2, 8) for name in "qkv"}
    tensors[where].view(torch.int32)[5, 1, 3] = bits
    for graph, first in ((causal(64), 5), (complete(64), 0)):
        spoilt = torch.zeros(64, 2, 8, dtype=torch.bool)
        if where == "q":
            spoilt[5, 1] = True
        elif where == "k":
            spoilt[first:, 1] = True
        else:
            spoilt[first:, 1, 3] = True
        assert torch.equal(attend(graph, *tensors.values(), backend="tiled").isnan(), spoilt)


@pytest.mark.parametrize("silent", [64, 40])
def test_receivers_without_senders_have_a_gradient_of_0_where_a_head_is_cut_in_pieces(silent):
    """What their panels had in memory was left there."""
    n = 512
    graph = Graph.from_ranges([[0]] * (n + silent), [[n]] * n + [[0]] * silent, n)
    q = torch.randn(graph.num_receivers, 1, 64, requires_grad=True)
    k, v = torch.randn(2, graph.num_senders, 1, 64)
    y = attend(graph, q, k, v, backend="tiled")
    left = [torch.full_like(q, 1e6) for _ in range(8)]
    del left  # whose memory is given out again
    (dq,) = torch.autograd.grad(y.sum(), q)
    (expected,) = torch.autograd.grad(attend(graph, q, k, v, backend="segment").sum(), q)
    assert not dq[graph.in_degrees() == 0].any()
    torch.testing.assert_close(dq, expected, rtol=1e-3, atol=1e-4)


def test_ranges_may_lie_in_any_order():
    starts, stops = torch.tensor([[0, 1, 0, 2], [3, 4, 5, 6]]), torch.tensor([[2, 3, 1, 4], [5, 6, 7, 8]])
    q = torch.randn(4, 2, 8)
    k, v = torch.randn(2, 8, 2, 8)
    graph = Graph.from_ranges(starts.t(), stops.t(), 8)
    torch.testing.assert_close(attend(graph, q, k, v, backend="tiled"), attend(graph, q, k, v, backend="segment"))


@pytest.mark.parametrize("what", ["a score that overflows", "a bias of NaN", "a gradient of NaN"])
def test_what_is_not_finite_stays_with_its_neighbours_in_the_gradient(what):
    graph, bad = window(40, 1), 17
    q, k, v = torch.randn(3, 40, 2, 8)
    bias = torch.zeros(graph.num_edges, 2)
    if what.startswith("a score"):
        q[bad], k = 1e38, 10 * k
    elif what.startswith("a bias"):
        bias[graph.receivers == bad] = torch.nan
    leaves = [x.requires_grad_() for x in (q, k, v, bias)]
    y = attend(graph, q, k, v, Dot() + EdgeBias(bias), backend="tiled")
    dy = torch.ones_like(y)
    if what.startswith("a gradient"):
        dy[bad] = torch.nan
    *of_nodes, of_bias = torch.autograd.grad(y, leaves, dy)
    far = (torch.arange(40) - bad).abs() > 2
    assert all(bool(x[far].isfinite().all()) for x in (y, *of_nodes))
    assert not all(bool(x.isfinite().all()) for x in of_nodes)
    assert bool(of_bias[graph.receivers != bad].isfinite().all())


@pytest.mark.parametrize(
    "graph", [causal(1 << 20), window(1 << 20, 70), grid(1000, 1100), squares(1000, 1100, 7)], ids=lambda g: str(g.rule)
)
def test_pairs_of_many_receivers_are_counted_in_a_sample(graph, monkeypatch):
    counted = tiled.pairs_of(graph)
    monkeypatch.setattr(tiles, "COUNTED", 1 << 19)
    sampled = tiled.pairs_of(Graph(graph.rule, graph.num_receivers, graph.num_senders))
    assert sampled == pytest.approx(counted, rel=0.01) and sampled != counted


def test_a_list_of_edges_to_consecutive_senders_runs_on_its_ranges():
    whole = complete(70).edge_index()
    for edges in (whole, whole[:, whole[0] != whole[1]], causal(90).edge_index(), blocks([40, 0, 30]).edge_index()):
        graph = Graph.from_edge_index(edges, num_nodes=90)
        assert plan(graph, heads=2, channels=16).choice == "tiled"
        tensors, bias = draw(graph, 2, 16, 9), torch.randn(graph.num_edges, 2, dtype=torch.float64)
        assert largest_error(results(graph, tensors, "tiled"), results(graph, tensors, "segment")) < 1e-10
        assert largest_error(biased(graph, tensors, bias, "tiled"), biased(graph, tensors, bias, "segment")) < 1e-10
    far, doubled = torch.cat([whole[:, :64], 2 * whole[:, 2000:]], 1), whole[:, :1000].repeat(1, 2)
    for edges in (far, doubled, whole[:, :100], whole[:, :0]):
        assert plan(Graph.from_edge_index(edges, num_nodes=140), heads=2, channels=16).choice != "tiled"


def test_a_plan_makes_no_ranges():
    graph = window(1 << 21, 3)
    made = plan(graph, heads=4, channels=16)
    assert "_ranges" not in vars(graph)
    assert {one.backend for one in made.candidates if one.seconds} >= {"tiled", "flex", "native"}
    with pytest.raises(GraphError, match="ranges of 6,000,000,000 receivers, which takes too long"):
        plan(grid(100_000, 60_000), heads=4, channels=16)
