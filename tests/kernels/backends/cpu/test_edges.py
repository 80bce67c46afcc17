"""The operators on edges: derivatives, compilation, dropout."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from edgewise import GatedAdditive, Graph, aggregate, attend, record, use_backend
from edgewise.kernels.backends.cpu import edges
from edgewise.kernels.operator import products
from edgewise.kernels.operator.dropout import drop
from kernels.drawn import REDUCTIONS, SCORES, attention, messages, product, random_graph, results, same

WEIGHTS = ("", "edge", "heads", "heads, batch", "shared by heads")


def small_graph():
    return random_graph(3, 3, 7)


def function_of(leaves, call, needed=None):
    """The call as a function of the tensors that need gradients, and these."""
    names = [name for name in leaves if needed is None or name in needed]
    tensors = [leaves[name].requires_grad_() for name in names]
    return lambda *given: call(leaves | dict(zip(names, given, strict=True)), "native"), tensors


# Derivatives


@pytest.mark.parametrize("kind", SCORES)
def test_attention_has_first_and_second_derivatives(kind):
    function, tensors = function_of(*attention(small_graph(), kind, "edge, batched", 2, 2, 2, 1, (2,)))
    assert gradcheck(function, tensors)
    assert gradgradcheck(function, tensors, fast_mode=True)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_products_have_first_and_second_derivatives(reduce, weight):
    function, tensors = function_of(*product(small_graph(), reduce, weight, 2, 2, (2,)))
    assert gradcheck(function, tensors)
    assert gradgradcheck(function, tensors, fast_mode=True)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_messages_have_first_and_second_derivatives(reduce):
    function, tensors = function_of(*messages(small_graph(), reduce, 3, (2,)))
    assert gradcheck(function, tensors)
    assert gradgradcheck(function, tensors, fast_mode=True)


CALLS = {
    "attention": lambda graph: attention(graph, "gated", "edge", 2, 2, 3, 2),
    "sum": lambda graph: product(graph, "sum", "heads", 2, 3),
    "max": lambda graph: product(graph, "max", "heads", 2, 3),
}


def test_a_tensor_used_three_times_has_the_sum_of_its_gradients():
    graph, x = random_graph(5, 5, 12), torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: attend(graph, x, x, x, backend="native"), (x,))
    assert gradgradcheck(lambda x: attend(graph, x, x, x, backend="native"), (x,), fast_mode=True)


def test_nothing_is_prepared_for_a_backward_pass_that_will_not_come():
    graph, x = random_graph(5, 5, 12), torch.randn(5, 2, 3, requires_grad=True)
    with torch.no_grad():
        attend(graph, x, x, x, backend="native")
        aggregate(graph, x.flatten(1), backend="native")
    assert not any("reverse" in str(key) for key in graph._memo)
    attend(graph, x, x, x, backend="native")
    assert any("reverse" in str(key) for key in graph._memo)


def test_gradients_of_an_extreme_that_are_not_needed_are_not_computed():
    graph = random_graph(5, 4, 12)
    structure = [*edges.structure_of(graph), torch.empty(0, dtype=torch.int32)]
    x, weight = torch.randn(2, 4, 2, 3), torch.randn(1, 12, 2)
    y = edges.product(products.Product(x, weight, structure, (), products.MAX))
    share = edges.PRODUCTS.extreme_share(products.ExtremeShare(torch.randn_like(y), x, weight, structure, y))
    inputs, gradient = (
        (share, x, weight, structure, y, list(edges.reverse_of(graph)[:3])),
        torch.ops.edgewise.extreme_gradient,
    )
    of_both = gradient(*inputs, [True, True])
    for needed in ([True, False], [False, True]):
        for dx, some, need in zip(of_both, gradient(*inputs, needed), needed, strict=True):
            assert torch.equal(dx, some) if need else some.numel() == 0


# Compiled


COMPILED = {
    **CALLS,
    "dot": lambda graph: attention(graph, "dot scaled by head", "edge, batched", 2, 1, 3, 2, (2,)),
    "additive": lambda graph: attention(graph, "additive", "", 2, 2, 3, 2),
    "messages": lambda graph: messages(graph, "min", 3),
}


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "name", [name if name == "sum" else pytest.param(name, marks=pytest.mark.compiled) for name in COMPILED]
)
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_call_gives_the_same_without_a_graph_break(name):
    leaves, call = COMPILED[name](small_graph())
    expected = results(call, leaves, "native")
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    same(results(compiled, leaves, "native"), expected, 1e-12)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("fresh_compiler")
def test_another_graph_of_the_same_sizes_is_not_compiled_anew():
    compiled = []

    def backend(module, _):
        compiled.append(module)
        return module

    @torch.compile(backend=backend, fullgraph=True)
    def call(graph, x):
        return attend(graph, x, x, x, backend="native")

    x = torch.randn(9, 2, 4, dtype=torch.float64, requires_grad=True)
    for _ in range(3):
        graph = random_graph(9, 9, 40)
        assert torch.allclose(call(graph, x), attend(graph, x, x, x, backend="reference"), rtol=0, atol=1e-12)
    assert len(compiled) == 1


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_call_obeys_use_backend_and_record():
    graph, x = random_graph(9, 9, 40), torch.randn(9, 2, 4)
    ran = []

    def backend(module, _):
        ran.append(any("attend_edges" in str(node.target) for node in module.graph.nodes))
        return module

    compiled = torch.compile(lambda x: attend(graph, x, x, x), backend=backend, fullgraph=True)
    expected = attend(graph, x, x, x, backend="reference")
    for name in ("native", "segment"):
        with use_backend(name):
            assert torch.allclose(compiled(x), expected, atol=1e-5)
    assert ran == [True, False]
    with record() as seen:
        compiled(x)
    assert [one.weights.shape for one in seen] == [(40, 2)]


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_dropout_is_drawn_anew_and_its_gradient_fits_it():
    graph = random_graph(6, 6, 40)
    q = torch.randn(6, 2, 3, dtype=torch.float64)
    v = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    call = torch.compile(
        lambda v: attend(graph, q, q, v, dropout=0.5, backend="native"), backend="aot_eager", fullgraph=True
    )
    outputs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        y = call(v)
        (dv,) = torch.autograd.grad(y.square().sum() / 2, v)
        # y is linear in v, so that ½ ‖y‖² has the derivative ‖y‖² along v.
        assert torch.allclose((dv * v).sum(), y.square().sum())
        outputs.append(y.detach())
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


# Dropout


@pytest.mark.parametrize("kind", SCORES)
def test_dropout_is_the_same_forward_and_backward(kind):
    leaves, call = attention(small_graph(), kind, "edge", 2, 2, 3, 2, (2,), dropout=0.4)
    dropped, tensors = function_of(leaves, call)

    def function(*given):
        torch.manual_seed(3)
        return dropped(*given)

    assert gradcheck(function, tensors)
    assert gradgradcheck(function, tensors, fast_mode=True)
    first = function(*tensors)
    assert not torch.equal(dropped(*tensors), first), "the next call draws another mask"
    assert torch.equal(function(*tensors), first)


@pytest.mark.parametrize("kind", ["dot", "additive", "gated", "uniform", "gaussian"])
def test_the_mask_describes_what_is_dropped(kind):
    graph, heads, batch = random_graph(9, 8, 100), 4, 2
    leaves, call = attention(graph, kind, "edge", heads, heads, 5, 3, (batch,), dropout=0.3)
    torch.manual_seed(3)
    y = call(leaves, "native")
    torch.manual_seed(3)
    mask = drop(torch.ones(batch, graph.num_edges, heads), 0.3, torch.randint(2**62, (1,)))
    assert set(mask.unique().tolist()) == {0.0, float(torch.tensor(1 / 0.7))}
    # The same with a sender of its own for every edge, whose values are masked.
    own = Graph.from_csr(graph.offsets, torch.arange(graph.num_edges), graph.num_edges)
    _, plain = attention(own, kind, "edge", heads, heads, 5, 3, (batch,))
    by_edge = {name: x[:, graph.senders] if name in ("k", "v") else x for name, x in leaves.items()}
    expected = plain(by_edge | {"v": by_edge["v"] * mask.unsqueeze(-1)}, "reference")
    assert torch.allclose(y, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("end", ["q", "k"])
def test_an_isolated_node_that_is_not_finite_leaves_the_weights_gradient_alone(end):
    graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], 5)
    q, k, v = torch.randn(3, 5, 2, 4)
    {"q": q, "k": k}[end][3] = torch.inf
    a = torch.randn(2, 4, requires_grad=True)
    y = attend(graph, q.requires_grad_(), k.requires_grad_(), v, GatedAdditive(a), backend="native")
    assert all(bool(x.isfinite().all()) for x in torch.autograd.grad(y.sum(), [a, q, k]))
