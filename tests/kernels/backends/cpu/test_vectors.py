"""Attention with vectors of edges: the C++ kernels against plain PyTorch, and what they promise of memory and bits."""

from dataclasses import replace

import pytest
import torch

from benchmarks.memory import CLEAR, peak_above
from edgewise import Graph, attend
from edgewise.errors import ShapeError
from edgewise.kernels import Additive, Dot, EdgeBias, EdgeInput, EdgeVectors, GatedAdditive, Gaussian, Uniform
from edgewise.kernels.backends.cpu import edges as native
from edgewise.kernels.backends.cpu import vectors
from edgewise.kernels.operator.dropout import drop
from edgewise.native import library
from kernels.drawn import covering, random_graph

pytestmark = pytest.mark.skipif(library is None, reason="built without the C++ kernels")

HEADS, CHANNELS, VALUES, FEATURES = 2, 3, 5, 4
GRAPH = Graph.from_edge_index(torch.randint(7, (2, 40), generator=torch.Generator().manual_seed(0)), num_nodes=8)
SCORES = ["Dot", "Additive", "Additive with a", "GatedAdditive", "Gaussian", "Uniform"]
VECTORS = ["tensors", "maps", "map with a bias", "maps of two features", "values", "bells"]


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
        "maps of two features": (EdgeInput((of_keys, None), e), EdgeInput((of_values, None), e + 1)),
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


@pytest.mark.parametrize("vectors", VECTORS)
@pytest.mark.parametrize("score", SCORES)
def test_the_kernels_are_the_equation(score, vectors):
    torch.manual_seed(2)
    call, leaves = case(score, vectors, batch=(2,) if len(score + vectors) % 2 else ())
    for found, expected in zip(*(with_gradients(call, leaves, name) for name in ("native", "segment")), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(call("native"), call("reference"), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-9), (torch.float32, 2e-4)])
@pytest.mark.parametrize(
    ("heads", "channels"),
    [(1, 20), (2, 32), (3, 8), (4, 16), (7, 4), (8, 9), (12, 16)],
)
@pytest.mark.parametrize("score", ["Dot", "Additive with a", "GatedAdditive"])
def test_any_number_of_heads_and_channels(score, heads, channels, dtype, limit):
    torch.manual_seed(3)
    graph = random_graph(9, 6, 70)
    call, leaves = case(score, "maps", dtype, graph=graph, heads=heads, channels=channels)
    for found, expected in zip(*(with_gradients(call, leaves, name) for name in ("native", "segment")), strict=True):
        torch.testing.assert_close(found, expected, rtol=limit, atol=limit)


@pytest.mark.parametrize(
    ("score", "vectors", "dtype"), covering(2 * SCORES, VECTORS, [torch.float32, torch.float32, torch.bfloat16])
)
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


def test_masked_senders_give_0():
    q = draw(8, 2, 3)
    e = EdgeInput((draw(6, 4), None), torch.randn(40, 4))
    for score in (Dot(), GatedAdditive(draw(2, 3))):
        masked = score + EdgeVectors(e, e) + EdgeBias(torch.full((40, 2), -torch.inf))
        y = attend(GRAPH, q, q, q, masked, backend="native")
        (dq,) = torch.autograd.grad(y.sum(), q)
        assert not y.any() and dq.isfinite().all()


@pytest.mark.parametrize(("score", "edges"), covering(SCORES, [20_000, 2_000]))
def test_threads_and_instruction_sets_change_nothing(score, edges):
    graph = random_graph(300, 200, edges)
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


@pytest.mark.compiled
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


@pytest.mark.parametrize(("score", "vectors"), covering(SCORES, VECTORS))
def test_a_graph_without_edges_leaves_no_memory_unwritten(score, vectors):
    graph = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=3)
    call, leaves = case(score, vectors, graph=graph)
    torch.use_deterministic_algorithms(True)  # what is not written is NaN then
    try:
        computed = with_gradients(call, leaves, "native")
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(bool((t == 0).all()) for t in computed)


def featured(graph, dtype=torch.float64, heads=4, channels=8, values=8, inputs=5, batch=1, **more):
    """The arguments of attention on maps of features, and its leaves."""
    edges, receivers, senders = graph.num_edges, graph.num_receivers, graph.num_senders
    shapes = [
        (batch, receivers, heads, channels), (batch, senders, heads, channels), (batch, senders, heads, values),
        (1, edges, inputs), (heads, channels, inputs), (heads, values, inputs), (1, edges, heads),
    ]  # fmt: skip
    leaves = [draw(*shape, dtype=dtype) for shape in shapes]
    options = {"scale": 0.3, "dropout": 0.0, "seed": torch.tensor([7]), **more}
    return vectors.Featured(*leaves, native.structure_of(graph), native.reverse_of(graph), **options), leaves


TO_ONE = torch.stack([torch.arange(600) % 50, torch.zeros(600, dtype=torch.long)])
HUB = Graph.from_edge_index(torch.cat([TO_ONE, torch.randint(50, (2, 200))], 1), num_nodes=50)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("sizes", [(1, 3, 2, 5), (2, 16, 16, 16), (3, 5, 9, 17), (4, 16, 16, 16), (8, 4, 20, 33)])
def test_one_kernel_of_maps_is_the_equation(sizes, dropout):
    torch.manual_seed(6)
    heads, channels, values, inputs = sizes
    own, leaves = featured(HUB, torch.float64, heads, channels, values, inputs, batch=2, dropout=dropout)
    y, plain = vectors._featured(own)[0], vectors._composed(own)
    torch.testing.assert_close(y, plain, rtol=1e-9, atol=1e-9)
    dy = torch.randn_like(y)
    for found, expected in zip(*(torch.autograd.grad(of, leaves, dy) for of in (y, plain)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    with torch.no_grad():  # keeps no weights
        assert torch.equal(vectors._featured(replace(own, reverse=()))[0], y)


def test_two_sides_and_numeric_derivatives():
    torch.manual_seed(8)
    graph = Graph.from_edge_index([[0, 2, 2, 4, 1], [0, 0, 2, 2, 2]], num_nodes=5, num_receivers=3)
    own, leaves = featured(graph, heads=2, channels=2, values=3, inputs=2, dropout=0.3)

    def y(*given):
        return vectors._featured(replace(own, **dict(zip(own.differentiable, given, strict=True))))[0]

    assert torch.autograd.gradcheck(y, leaves) and torch.autograd.gradgradcheck(y, leaves)


def test_wrong_arguments_are_refused():
    own, _ = featured(GRAPH)
    wrong = [
        ("keys is", replace(own, keys=own.keys[:, :3])), ("x is", replace(own, x=own.x[:, :9])),
        ("v is", replace(own, v=own.v[:, :3])), ("bias is", replace(own, bias=own.bias[..., :1])),
        ("receivers", replace(own, q=own.q[:, :5])), ("float32 or float64", replace(own, q=own.q.bfloat16())),
    ]  # fmt: skip
    for message, call in wrong:
        with pytest.raises(ShapeError, match=message):
            call.check()


@pytest.mark.parametrize(("lead", "vectors"), covering([(3,), (1, 3), (2, 1), (2, 3)], ["maps", "tensors"]))
def test_a_bias_may_have_a_part_of_the_batch(vectors, lead):
    """The kernel of maps read behind a bias that had fewer members than the values."""
    q, k, v = (draw(2, 3, 8, HEADS, CHANNELS) for _ in range(3))
    e, maps = draw(40, FEATURES), [draw(HEADS * CHANNELS, FEATURES) for _ in range(2)]
    rows = [draw(40, HEADS, CHANNELS) for _ in range(2)]
    pair = [EdgeInput((one, None), e) for one in maps] if vectors == "maps" else rows
    bias = draw(*lead, 40, HEADS)
    score, leaves = Dot() + EdgeVectors(*pair) + EdgeBias(bias), [q, k, v, e, *maps, *rows, bias]
    found, expected = (
        with_gradients(lambda one: attend(GRAPH, q, k, v, score, backend=one), leaves, name)
        for name in ("native", "segment")
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
