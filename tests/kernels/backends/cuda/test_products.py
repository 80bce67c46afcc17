"""Triton's sparse products compute what `reference` does, with its gradients, whatever lies in memory how."""

import pytest
import torch

from edgewise import Graph, aggregate, collect, complete, window
from edgewise.errors import BackendRefusal
from edgewise.kernels.backends.cuda import products as triton_products
from edgewise.kernels.backends.cuda.programs import building
from edgewise.kernels.backends.cuda.programs import products as programs
from edgewise.kernels.backends.torch import segment
from edgewise.kernels.call import Aggregate
from edgewise.kernels.choose.machines import MACHINES
from edgewise.kernels.operator import products
from kernels.drawn import (
    CHANNELS,
    REDUCTIONS,
    disjoint_graphs,
    messages,
    number,
    pick,
    product,
    random_graph,
    results,
    same,
)
from triton_device import DEVICE

NAME = "triton"
WEIGHTS = ("", "edge", "heads", "heads, batch", "shared by heads")


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    """Hubs of nine edges are cut, instead of those of thousands."""
    monkeypatch.setattr(building, "CHUNK", 8)


def on_device(graph):
    return graph.to(DEVICE)


def moved(leaves):
    return {name: leaf.float().double().to(DEVICE) for name, leaf in leaves.items()}


@pytest.mark.parametrize("part", range(10))
def test_random_graphs_agree_with_reference(part):
    torch.manual_seed(part)
    graph = on_device(disjoint_graphs(50))
    reduce, weight, channels = pick(REDUCTIONS), pick((*WEIGHTS, "messages")), pick(CHANNELS)
    if weight == "messages":
        leaves, call = messages(graph, reduce, channels)
    else:
        batch = (2,) if "batch" in weight else ()
        leaves, call = product(graph, reduce, weight, number(1, 5), channels, batch, pick([True, False]))
    leaves = moved(leaves)
    expected = results(call, leaves, "reference")
    same(results(call, leaves, NAME, torch.float32), expected, 1e-5, (part, reduce, weight, channels))


@pytest.mark.parametrize("weight", ["", "heads", "shared by heads", "messages"])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_every_kind_agrees_where_messages_tie(reduce, weight):
    graph = on_device(random_graph(12, 9, 50))
    leaves, call = (
        messages(graph, reduce, 3) if weight == "messages" else product(graph, reduce, weight, 3, 1, equal=True)
    )
    leaves = moved(leaves)
    expected = results(call, leaves, "reference")
    same(results(call, leaves, NAME, torch.float32), expected, 1e-5)


def relative_error(found, expected):
    return float((found.detach().double() - expected.detach()).norm() / expected.detach().norm().clamp(min=1e-30))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("reduce", "weight"), [("sum", "heads"), ("mean", "edge"), ("max", "heads")])
def test_the_error_is_at_most_twice_that_of_plain_pytorch(reduce, weight, dtype):
    graph = on_device(random_graph(30, 40, 300))
    leaves, call = product(graph, reduce, weight, 3, 20, equal=True)
    leaves = {name: leaf.to(DEVICE, dtype).double() for name, leaf in leaves.items()}
    exact = results(call, leaves, "segment")
    plain, found = (results(call, leaves, backend, dtype) for backend in ("segment", NAME))
    for name, value in exact.items():
        assert found[name].dtype == dtype
        ours, theirs = relative_error(found[name], value), relative_error(plain[name], value)
        rounding = torch.finfo(dtype).eps / 8  # of a result that plain PyTorch happens to get right
        assert ours <= 2 * theirs + rounding, f"{name}: {ours:.1e}, and {theirs:.1e} in plain PyTorch"


@pytest.mark.parametrize(("senders", "receivers", "edges"), [(0, 0, 0), (0, 3, 0), (3, 0, 0), (3, 2, 0)])
def test_nothing_to_add_up_gives_0(senders, receivers, edges):
    graph = Graph.from_edge_index(torch.zeros(2, edges, dtype=torch.int64, device=DEVICE), senders, receivers)
    x = torch.randn(senders, 4, device=DEVICE, requires_grad=True)
    m_ij = torch.randn(0, 4, device=DEVICE, requires_grad=True)
    for reduce in REDUCTIONS:
        for y in (aggregate(graph, x, reduce=reduce, backend=NAME), collect(graph, m_ij, reduce, backend=NAME)):
            assert torch.equal(y, torch.zeros(receivers, 4, device=DEVICE))
            y.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_more_channels_than_a_tile_and_more_heads_than_lanes(reduce, monkeypatch):
    monkeypatch.setattr(programs, "WARPS", 4)  # as on a GPU
    monkeypatch.setattr(programs, "LANES", 128)
    graph = on_device(random_graph(4, 4, 9))
    for weight, heads, channels in (("edge", 1, 700), ("heads", 2, 600), ("heads", 160, 2), ("heads", 600, 1)):
        leaves, call = product(graph, reduce, weight, heads, channels)
        leaves = moved(leaves)
        same(results(call, leaves, NAME, torch.float32), results(call, leaves, "reference"), 1e-5, (heads, channels))


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_rows_of_one_length_stay_in_their_own_order(reduce):
    graph = on_device(window(9, 1).rows(1, 8))  # three senders each: there is no schedule
    assert building.schedule(graph.offsets) == []
    leaves, call = product(graph, reduce, "heads", 2, 3)
    leaves = moved(leaves)
    same(results(call, leaves, NAME, torch.float32), results(call, leaves, "reference"), 1e-5)


def laid_out(x, how):
    """The same numbers, elsewhere in memory."""
    if how == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if how == "sliced":
        return torch.cat([x, x], -1)[..., : x.shape[-1]]
    if how == "every other row":
        return torch.stack([x, x], 1).flatten(0, 1)[::2]
    if how == "off by one":
        return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
    return x[:1].expand(x.shape)


def test_what_kernels_read_lies_at_multiples_of_16_bytes_and_is_copied_only_where_it_must_be():
    numbers = torch.randn(64, device=DEVICE)
    for first in range(9):
        x = numbers[first:]
        assert programs.aligned(x).data_ptr() % 16 == 0
        assert (programs.aligned(x) is x) == (x.data_ptr() % 16 == 0) and torch.equal(programs.aligned(x), x)


@pytest.mark.parametrize("how", ["transposed", "sliced", "every other row", "off by one", "expanded"])
def test_inputs_may_lie_in_memory_in_any_way(how):
    graph = on_device(random_graph(6, 6, 20))
    reduce, weight = ("sum", "edge") if how in ("sliced", "expanded") else ("max", "heads")
    leaves, call = product(graph, reduce, weight, 2, 8)
    elsewhere = {name: laid_out(leaf.to(DEVICE, torch.float32), how) for name, leaf in leaves.items()}
    packed = {name: leaf.contiguous() for name, leaf in elsewhere.items()}
    found = []
    for given in (elsewhere, packed):
        y = call({name: x.requires_grad_() for name, x in given.items()}, NAME)
        found.append([y, *torch.autograd.grad(y.square().sum(), list(given.values()))])
    assert all(torch.equal(ours, expected) for ours, expected in zip(*found, strict=True))


def test_the_gradient_of_a_result_may_be_expanded_or_transposed():
    graph = on_device(random_graph(6, 6, 20))
    for reduce in ("mean", "max"):
        leaves, call = product(graph, reduce, "heads", 2, 4)
        given = [leaf.to(DEVICE, torch.float32).requires_grad_() for leaf in leaves.values()]
        y = call(dict(zip(leaves, given, strict=True)), NAME)
        for dy in (
            torch.ones(1, 1, 1, device=DEVICE).expand(6, 2, 4),
            torch.randn(4, 2, 6, device=DEVICE).permute(2, 1, 0),
        ):
            found, expected = (torch.autograd.grad(y, given, d, retain_graph=True) for d in (dy, dy.contiguous()))
            assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_nan_reaches_its_receivers_and_nobody_else():
    graph = on_device(random_graph(9, 9, 40))
    listens = torch.zeros(9, dtype=torch.bool, device=DEVICE)
    listens[graph.receivers[graph.senders == 4]] = True
    assert 0 < listens.sum() < 9
    x = torch.randn(9, 5, device=DEVICE)
    x[4] = float("nan")
    for reduce in ("sum", "max"):
        y = aggregate(graph, x, reduce=reduce, backend=NAME)
        assert torch.equal(y.isnan(), listens[:, None].expand(9, 5)), reduce


# Derivatives, and the operators as PyTorch's library sees them


@pytest.mark.parametrize(("reduce", "weight"), [("sum", "heads"), ("mean", "edge"), ("max", "shared by heads")])
def test_second_derivatives_are_those_of_plain_pytorch(reduce, weight):
    graph = on_device(random_graph(4, 4, 12))
    leaves, call = product(graph, reduce, weight, 2, 2)
    for needed in leaves:
        found = []
        for backend in (NAME, "segment"):
            given = {name: leaf.to(DEVICE, torch.float32) for name, leaf in leaves.items()}
            leaf = given[needed].requires_grad_()
            (first,) = torch.autograd.grad(call(given, backend).square().sum(), leaf, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), leaf)[0])
        assert torch.allclose(*found, rtol=1e-4, atol=1e-4), needed


@pytest.mark.parametrize("reduce", [products.SUM, products.MAX])
def test_the_operators_pass_pytorchs_own_check(reduce):
    graph = on_device(random_graph(5, 4, 20))
    structure, reverse = triton_products.structure_of(graph), triton_products.reverse_of(graph)
    x = torch.randn(1, 4, 2, 3, device=DEVICE, requires_grad=True)
    weight = torch.randn(1, 20, 2, device=DEVICE, requires_grad=True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    operators = torch.ops.edgewise
    torch.library.opcheck(operators.triton_product.default, (x, weight, structure, reverse, reduce), test_utils=tests)
    x, weight = x.detach(), weight.detach()
    y = triton_products.PRODUCTS.product(products.Product(x, weight, structure, reverse, reduce))
    dy = torch.randn_like(y)
    if reduce == products.SUM:
        inputs = (dy, x, structure, 2)
        torch.library.opcheck(operators.triton_product_gradient.default, inputs, test_utils=tests)
        return
    torch.library.opcheck(operators.triton_extreme_share.default, (dy, x, weight, structure, y), test_utils=tests)
    inputs, gradient = (dy, x, weight, structure, y, reverse), operators.triton_extreme_gradient.default
    both = gradient(*inputs, [True, True])
    for needed in ([True, True], [True, False], [False, True]):
        torch.library.opcheck(gradient, (*inputs, needed), test_utils=tests)
        for whole, some, need in zip(both, gradient(*inputs, needed), needed, strict=True):
            assert torch.equal(whole, some) if need else some.numel() == 0, "what is not needed is not computed"


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_compiled_call_gives_the_same_without_a_graph_break():
    torch._dynamo.reset()
    leaves, call = product(on_device(random_graph(5, 5, 20)), "mean", "heads", 2, 3)
    leaves = moved(leaves)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    expected = results(call, leaves, NAME, torch.float32)
    same(results(compiled, leaves, NAME, torch.float32), expected, 1e-6)
    torch._dynamo.reset()


def test_two_runs_give_the_same_bits():
    leaves, call = product(on_device(random_graph(9, 9, 80)), "sum", "heads", 2, 4)
    leaves = moved(leaves)
    first, second = (results(call, leaves, NAME, torch.float32) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


# What it refuses, and what it would cost


def test_refusals_say_what_it_does_not_do():
    graph, x = on_device(random_graph(4, 4, 8)), torch.randn(4, 1, 2, device=DEVICE)

    def refusal(call):
        with pytest.raises(BackendRefusal) as caught:
            call()
        return str(caught.value).removeprefix(f"backend {NAME!r} cannot run this call: ")

    assert "not in torch.float64" in refusal(lambda: aggregate(graph, x[:, 0].double(), backend=NAME))


def test_its_cost_counts_what_is_read():
    graph = random_graph(100, 100, 1000)
    few, many = (Aggregate(graph, torch.empty(100, c), None, "sum") for c in (8, 80))
    assert triton_products.cost(many).rows == 10 * triton_products.cost(few).rows == 4 * 1000 * 80
    listed = Aggregate(complete(10), torch.empty(10, 8), None, "sum")
    assert triton_products.cost(listed).bytes >= 24 * 100


@pytest.mark.parametrize(("dtype", "reduce"), [(torch.float32, "sum"), (torch.bfloat16, "sum"), (torch.float32, "max")])
def test_on_a_gpu_it_is_predicted_to_read_less_than_cusparse_and_much_less_than_gathering(dtype, reduce):
    graph = random_graph(1000, 1000, 20_000)
    graph.__dict__["device"] = torch.device("cuda")  # for a prediction no card is needed
    call = Aggregate(graph, torch.empty(1000, 128, dtype=dtype), None, reduce)
    ours, theirs = (MACHINES["cuda"].seconds(backend.cost(call)) for backend in (triton_products, segment))
    assert ours < theirs
    moved = segment.cost(call)
    if dtype == torch.float32 and reduce == "sum":
        assert moved.bytes - triton_products.cost(call).bytes == 8 * 20_000  # 12 bytes an edge instead of 4
    else:
        assert moved.gathered == 4 * triton_products.cost(call).rows
