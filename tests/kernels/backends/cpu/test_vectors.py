"""Attention with vectors of edges: the C++ kernels against plain PyTorch, and what they promise of memory and bits."""

import pytest
import torch

from benchmarks.memory import CLEAR, peak_above
from edgewise import Graph, attend
from edgewise.kernels import Additive, Dot, EdgeBias, EdgeInput, EdgeVectors, GatedAdditive, Gaussian, Uniform
from edgewise.kernels.operator.dropout import drop
from edgewise.native import library
from kernels.drawn import random_graph

pytestmark = pytest.mark.skipif(library is None, reason="built without the C++ kernels")

HEADS, CHANNELS, VALUES, FEATURES = 2, 3, 5, 4
GRAPH = Graph.from_edge_index(torch.randint(7, (2, 40), generator=torch.Generator().manual_seed(0)), num_nodes=8)
SCORES = ["Dot", "Additive", "Additive with a", "GatedAdditive", "Gaussian", "Uniform"]
VECTORS = ["tensors", "maps", "map with a bias", "values", "bells"]


def draw(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype).requires_grad_()


def case(score, vectors, dtype=torch.float64, batch=(), graph=GRAPH, heads=HEADS, channels=CHANNELS):
    """A call of attention without its backend, and its leaves."""
    edges, width = graph.num_edges, 1 if score == "Additive" else channels

    def own(*shape):
        return draw(*shape, dtype=dtype)

    q, k = own(*batch, graph.num_receivers, heads, width), own(*batch, graph.num_senders, heads, width)
    v, a = own(*batch, graph.num_senders, heads, VALUES), [own(heads, channels) for _ in range(2)]
    made = {
        "Dot": lambda: Dot(0.7), "Additive": lambda: Additive(0.3), "Additive with a": lambda: Additive(0.3, *a),
        "GatedAdditive": lambda: GatedAdditive(a[0], 0.3), "Gaussian": lambda: Gaussian(2.0), "Uniform": Uniform,
    }[score]()  # fmt: skip
    e, of_keys, bias = own(edges, FEATURES), own(heads * width, FEATURES), own(heads * width)
    of_values, keys, values = own(heads * VALUES, FEATURES), own(*batch, edges, heads, width), own(edges, heads, VALUES)
    length, bells = own(edges, 1), own(heads * width, 6)
    pair = {
        "tensors": (keys, values),
        "maps": (EdgeInput((of_keys, None), e), EdgeInput((of_values, bias.new_ones(heads * VALUES)), e)),
        "map with a bias": (EdgeInput((of_keys, bias), e), None),
        "values": (None, EdgeInput((of_values, None), e)),
        "bells": (EdgeInput((bells, None), length, 2.0), values),
    }[vectors]
    if score in ("Gaussian", "Uniform"):
        pair = (None, values if pair[1] is None else pair[1])
    edge_bias = own(edges, heads)
    made = made + EdgeVectors(*pair) + EdgeBias(edge_bias)
    ends = (None, None) if score == "Uniform" else (q, k)
    leaves = [q, k, v, *a, e, of_keys, bias, of_values, keys, values, length, bells, edge_bias]
    return lambda backend, **more: attend(graph, *ends, v, made, backend=backend, **more), leaves


def with_gradients(call, leaves, backend):
    y = call(backend)
    d = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    return [y, *torch.autograd.grad(y, leaves, d, materialize_grads=True, allow_unused=True)]


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("vectors", VECTORS)
@pytest.mark.parametrize("score", SCORES)
def test_the_kernels_are_the_equation(score, vectors, batch):
    torch.manual_seed(2)
    call, leaves = case(score, vectors, batch=batch)
    for found, expected in zip(*(with_gradients(call, leaves, name) for name in ("native", "segment")), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(call("native"), call("reference"), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("heads", "channels"), [(1, 20), (3, 8), (4, 16), (8, 9)])
@pytest.mark.parametrize("score", SCORES)
def test_any_number_of_heads_and_channels(score, heads, channels):
    torch.manual_seed(3)
    graph = random_graph(9, 6, 70)
    call, leaves = case(score, "maps", graph=graph, heads=heads, channels=channels)
    for found, expected in zip(*(with_gradients(call, leaves, name) for name in ("native", "segment")), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vectors", VECTORS)
@pytest.mark.parametrize("score", SCORES)
def test_errors_are_at_most_twice_those_of_plain_pytorch(score, vectors, dtype):
    torch.manual_seed(4)
    call, leaves = case(score, vectors, dtype)
    torch.manual_seed(4)
    exact, exact_leaves = case(score, vectors)
    with torch.no_grad():
        for leaf, truth in zip(leaves, exact_leaves, strict=True):
            truth.copy_(leaf)
    results = [with_gradients(call, leaves, name) for name in ("native", "segment")]
    for ours, plain, truth in zip(*results, with_gradients(exact, exact_leaves, "segment"), strict=True):
        error, usual = ((t.double() - truth).norm() for t in (ours, plain))
        assert error <= 2 * usual + 8 * torch.finfo(dtype).eps * truth.norm()


@pytest.mark.parametrize("vectors", ["tensors", "maps"])
@pytest.mark.parametrize("score", ["Dot", "Additive", "GatedAdditive"])
def test_second_derivatives(score, vectors):
    torch.manual_seed(5)
    graph = random_graph(3, 3, 6)
    call, leaves = case(score, vectors, graph=graph)
    used = [t for t, g in zip(leaves, with_gradients(call, leaves, "native")[1:], strict=True) if g.abs().sum()]
    first = torch.autograd.grad(call("native").square().sum(), used, create_graph=True)
    plain = torch.autograd.grad(call("segment").square().sum(), used, create_graph=True)
    assert any(t.requires_grad for t in first)
    for found, expected in zip(
        *(torch.autograd.grad(sum(t.square().sum() for t in of), used) for of in (first, plain)), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_dropout_is_that_of_attention_without_vectors():
    v = torch.ones(GRAPH.num_senders, 2, 1)
    values = torch.randn(40, 2, 1)
    for seed in range(3):
        torch.manual_seed(seed)
        plain = attend(GRAPH, None, None, v, Uniform(), dropout=0.5, backend="native")
        torch.manual_seed(seed)
        with_values = attend(
            GRAPH, None, None, v, Uniform() + EdgeVectors(values=values), dropout=0.5, backend="native"
        )
        torch.manual_seed(seed)
        degree = GRAPH.in_degrees().clamp(min=1)
        p = drop((1 / degree)[GRAPH.receivers].reshape(1, -1, 1).repeat(1, 1, 2), 0.5, torch.randint(2**62, (1,)))[0]
        more = torch.zeros_like(plain).index_add(0, GRAPH.receivers, p.unsqueeze(-1) * values)
        torch.testing.assert_close(with_values, plain + more)


def test_masked_and_missing_senders_give_0():
    q = draw(8, 2, 3)
    e = EdgeInput((draw(6, 4), None), torch.randn(40, 4))
    for score in (Dot(), GatedAdditive(draw(2, 3))):
        masked = score + EdgeVectors(e, e) + EdgeBias(torch.full((40, 2), -torch.inf))
        y = attend(GRAPH, q, q, q, masked, backend="native")
        (dq,) = torch.autograd.grad(y.sum(), q)
        assert not y.any() and dq.isfinite().all()
    none = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), num_nodes=8)
    vectors = EdgeVectors(torch.zeros(0, 2, 3), torch.zeros(0, 2, 3))
    assert not attend(none, q, q, q, Dot() + vectors, backend="native").any()


@pytest.mark.parametrize("score", SCORES)
def test_threads_and_instruction_sets_change_nothing(score):
    graph = random_graph(300, 200, 20_000)
    call, leaves = case(score, "maps", torch.float32, graph=graph, heads=4, channels=16)
    before, chosen, bits = torch.get_num_threads(), library.instruction_set(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            bits.append(with_gradients(call, leaves, "native"))
        for name in library.instruction_sets():
            library.use_instruction_set(name)
            for found, expected in zip(with_gradients(call, leaves, "native"), bits[0], strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    finally:
        torch.set_num_threads(before)
        library.use_instruction_set(chosen)
    for other in bits[1:]:
        assert all(torch.equal(one, two) for one, two in zip(bits[0], other, strict=True))


@pytest.mark.parametrize("score", ["Dot", "Additive with a", "GatedAdditive"])
def test_compiled_it_is_one_graph(score):
    call, leaves = case(score, "maps", torch.float32)
    compiled = torch.compile(lambda: call("native"), fullgraph=True, backend="aot_eager")
    y, expected = compiled(), call("native")
    torch.testing.assert_close(y, expected)
    for found, right in zip(
        *(torch.autograd.grad(t.sum(), leaves, allow_unused=True, materialize_grads=True) for t in (y, expected)),
        strict=True,
    ):
        torch.testing.assert_close(found, right)


@pytest.mark.skipif(not CLEAR, reason="the system does not reset the peak of memory")
@pytest.mark.parametrize("score", ["Dot", "Additive with a", "GatedAdditive"])
def test_maps_are_never_written_down(score):
    graph = random_graph(2000, 2000, 300_000)
    call, leaves = case(score, "maps", torch.float32, graph=graph, heads=4, channels=16)
    leaves = [leaf for leaf in leaves if leaf.shape[0] != graph.num_edges]  # raw features need no gradient

    def step():
        return torch.autograd.grad(call("native").sum(), leaves, allow_unused=True)

    step()
    assert peak_above(step) < 300_000 * 64 * 4 / 1e6  # megabytes of W e alone


@pytest.mark.parametrize("vectors", VECTORS)
@pytest.mark.parametrize("score", SCORES)
def test_a_graph_without_edges_leaves_no_memory_unwritten(score, vectors):
    graph = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=3)
    call, leaves = case(score, vectors, graph=graph)
    torch.use_deterministic_algorithms(True)  # what is not written is NaN then
    try:
        computed = with_gradients(call, leaves, "native")
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(bool((t == 0).all()) for t in computed)
