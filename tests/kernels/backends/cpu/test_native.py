"""The native backend computes what `reference` does, as precisely as plain PyTorch, at any layout of its inputs."""

import subprocess
import sys

import pytest
import torch

from edgewise import Additive, Dot, Graph, aggregate, attend
from edgewise.errors import BackendRefusal, ShapeError
from edgewise.native import library
from edgewise.testing import check_kernel
from kernels.drawn import (
    BIASES,
    CHANNELS,
    SCORES,
    attention,
    disjoint_graphs,
    messages,
    number,
    pick,
    product,
    random_graph,
    results,
    same,
)

REDUCTIONS = ("sum", "mean", "max", "min")
WEIGHTS = ("", "edge", "heads", "heads, batch")


def test_it_agrees_with_reference_on_every_kind_of_graph():
    refused = check_kernel("native")
    assert all("Kernel" in case or "capped" in case for case in refused)


# Graphs side by side in a trial: 10,000 graphs in all.
GRAPHS, TRIALS, PARTS = 20, 250, 5


def drawn_attention(graph):
    heads, batch = number(1, 9), pick([(), (), (2,), (1, 2)])
    groups = pick([n for n in range(1, heads + 1) if heads % n == 0])
    kind, bias = pick(SCORES), pick(BIASES)
    wide = heads < 4 and not batch  # `reference` holds every pair of nodes for each channel
    channels, values = pick(CHANNELS if wide else CHANNELS[:12]), pick(CHANNELS)
    return (kind, bias, heads, groups), attention(graph, kind, bias, heads, groups, channels, values, batch)


def drawn_product(graph):
    reduce, weight, batch = pick(REDUCTIONS), pick((*WEIGHTS, "messages")), pick([(), (2,), (1, 2)])
    if weight == "messages":
        return (reduce, weight), messages(graph, reduce, pick(CHANNELS), batch)
    return (reduce, weight, batch), product(
        graph, reduce, weight, number(1, 9), pick(CHANNELS), batch, pick([True, False])
    )


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("draw", [drawn_attention, drawn_product])
def test_random_small_graphs_agree_with_reference(draw, part):
    for trial in range(TRIALS // PARTS):
        torch.manual_seed(1000 * part + trial)
        where, (leaves, call) = draw(disjoint_graphs(GRAPHS))
        leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
        expected = results(call, leaves, "reference")
        same(results(call, leaves, "native"), expected, 1e-10, (part, trial, where))
        same(results(call, leaves, "native", torch.float32), expected, 1e-4, (part, trial, where, "float32"))


# A row's last columns fill a vector in part: of which length that is depends on the instruction set


@pytest.mark.parametrize("heads", [1, 4, 8])
@pytest.mark.parametrize("kind", ["dot", "additive", "gated"])
def test_any_number_of_channels_on_every_instruction_set(kind, heads):
    graph, chosen = random_graph(40, 30, 300), library.instruction_set()
    try:
        for channels in (*range(1, 21), *range(24, 81, 7), 130):
            leaves, call = attention(graph, kind, "", heads, heads, channels, channels)
            leaves = {name: leaf.bfloat16().double() for name, leaf in leaves.items()}
            expected = results(call, leaves, "segment")
            for name in library.instruction_sets():
                library.use_instruction_set(name)
                same(results(call, leaves, "native"), expected, 1e-10, (name, channels))
                same(results(call, leaves, "native", torch.float32), expected, 1e-4, (name, channels, "float32"))
                same(results(call, leaves, "native", torch.bfloat16), expected, 0.05, (name, channels, "bfloat16"))
    finally:
        library.use_instruction_set(chosen)


# Long rows, whose neighbours' numbers exceed the cache: they are walked in bands


def far_apart(receivers, senders, edges, ascending):
    """Wide enough to exceed the cache; parallel edges, empty rows, and rows that hear no one of the first half."""
    to = torch.randint(receivers - 3, (edges,))
    by = torch.where(to % 5 == 0, torch.randint(senders // 2, senders, (edges,)), torch.randint(senders, (edges,)))
    graph = Graph.from_edge_index(torch.stack([by, to]), senders, receivers)
    return graph if ascending else Graph.from_csr(graph.offsets, graph.senders.flip(0).roll(7), senders)


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("ends", [(60, 1200), (1200, 60)], ids=["many senders", "many receivers"])
@pytest.mark.parametrize("kind", SCORES)
def test_rows_walked_in_bands_agree_with_plain_pytorch(kind, ends, ascending):
    graph = far_apart(*ends, 4800, ascending)
    leaves, call = attention(graph, kind, "edge", 2, 2, 1024, 2048 if kind in ("additive", "uniform") else 1024)
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    if "bias" in leaves:
        leaves["bias"][(graph.senders < 400) & (graph.receivers % 2 == 0)] = float("-inf")  # whole parts of a row
    expected = results(call, leaves, "segment")
    same(results(call, leaves, "native"), expected, 1e-10)
    single = results(call, leaves, "native", torch.float32)
    same(single, expected, 1e-4)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again = results(call, leaves, "native", torch.float32)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(again[name], value) for name, value in single.items())


# Rows on more pages than a processor remembers: they are asked for at once


@pytest.mark.parametrize("kind", [*SCORES, "dot, keys as values"])
def test_attention_to_rows_on_many_pages_agrees_with_plain_pytorch(kind):
    score, _, alike = kind.partition(", ")
    leaves, call = attention(
        far_apart(500, 1500, 5000, True), score, "", 2, 2, 1024, 2048 if kind in ("additive", "uniform") else 1024
    )
    if alike:
        del leaves["v"]
        call = with_keys_as_values(call)
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    expected = results(call, leaves, "segment")
    same(results(call, leaves, "native"), expected, 1e-10)
    same(results(call, leaves, "native", torch.float32), expected, 1e-4)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_products_of_rows_on_many_pages_agree_with_plain_pytorch(weight):
    leaves, call = product(far_apart(500, 1500, 5000, True), "sum", weight, 2, 2048)
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    expected = results(call, leaves, "segment")
    same(results(call, leaves, "native"), expected, 1e-10)
    same(results(call, leaves, "native", torch.float32), expected, 1e-4)


# Keys that are the values: one gradient for both


def with_keys_as_values(call):
    return lambda leaves, backend: call({**leaves, "v": leaves["k"]}, backend)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("edges", [120, 3000], ids=["short rows", "long rows"])
@pytest.mark.parametrize("kind", ["dot", "gated"])
def test_keys_may_be_the_values(kind, edges, dtype):
    leaves, call = attention(random_graph(60, 70, edges), kind, "edge", 4, 4, 6, 6)
    leaves = {name: leaf.to(dtype).double() for name, leaf in leaves.items() if name != "v"}
    expected = results(with_keys_as_values(call), leaves, "reference")
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}[dtype]
    same(results(with_keys_as_values(call), leaves, "native", dtype), expected, tolerance)


def test_keys_that_are_the_values_may_be_walked_in_bands():
    leaves, call = attention(far_apart(1200, 60, 4800, True), "dot", "", 2, 2, 512, 512)
    del leaves["v"]
    expected = results(with_keys_as_values(call), leaves, "segment")
    same(results(with_keys_as_values(call), leaves, "native"), expected, 1e-10)


# Precision


def precision_cases():
    for kind in SCORES:
        yield f"{kind} attention", lambda graph, kind=kind: attention(graph, kind, "edge", 4, 2, 24, 16)
    for reduce in REDUCTIONS:
        for weight in WEIGHTS:
            yield (
                f"{weight} weighted {reduce}",
                lambda graph, reduce=reduce, weight=weight: product(graph, reduce, weight, 3, 20, equal=True),
            )
        yield f"{reduce} of messages", lambda graph, reduce=reduce: messages(graph, reduce, 20)


def relative_error(found, expected):
    return float((found.double() - expected).norm() / expected.norm().clamp(min=1e-30))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("case", "make"), list(precision_cases()), ids=lambda x: x if isinstance(x, str) else "")
def test_the_error_is_at_most_twice_that_of_plain_pytorch(case, make, dtype):
    leaves, call = make(random_graph(200, 300, 6000))
    leaves = {name: leaf.to(dtype).double() for name, leaf in leaves.items()}
    exact = results(call, leaves, "segment")
    plain, found = (results(call, leaves, backend, dtype) for backend in ("segment", "native"))
    assert all(value.dtype == dtype for value in found.values())
    for name, value in exact.items():
        ours, theirs = relative_error(found[name], value), relative_error(plain[name], value)
        rounding = torch.finfo(dtype).eps / 8  # of a result that plain PyTorch happens to get right
        assert ours <= 2 * theirs + rounding, f"{name}: {ours:.1e}, and {theirs:.1e} in plain PyTorch"


def test_a_gradient_that_sums_over_every_edge_is_as_precise():
    leaves, call = attention(random_graph(2000, 2000, 200_000), "gated", "", 4, 4, 16, 2)
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    exact = results(call, leaves, "native")["gradient of a"]
    ours, theirs = (
        relative_error(results(call, leaves, backend, torch.float32)["gradient of a"], exact)
        for backend in ("native", "segment")
    )
    assert ours <= 2 * theirs, f"{ours:.1e}, and {theirs:.1e} in plain PyTorch"


# Layouts


def laid_out(x, how):
    """The same numbers, elsewhere in memory."""
    if how == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if how == "heads first" and x.ndim > 1:
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if how == "sliced":
        return torch.cat([x, x], -1)[..., : x.shape[-1]]
    if how == "every other row":
        return torch.stack([x, x], 1).flatten(0, 1)[::2]
    if how == "off by one":
        return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
    return x[:1].expand(x.shape)


LAYOUTS = ("transposed", "heads first", "sliced", "every other row", "off by one", "expanded")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("how", LAYOUTS)
def test_inputs_may_lie_in_memory_in_any_way(how, dtype):
    graph = random_graph(6, 6, 20)
    for leaves, call in (
        attention(graph, "gated", "edge", 4, 4, 8, 8),
        attention(graph, "dot", "edge", 3, 3, 5, 7),
        product(graph, "max", "heads", 3, 8),
        product(graph, "sum", "", 1, 9),
        product(graph, "mean", "edge", 1, 9),
        messages(graph, "mean", 9),
    ):
        elsewhere = {name: laid_out(leaf.to(dtype), how) for name, leaf in leaves.items()}
        packed = {name: leaf.contiguous() for name, leaf in elsewhere.items()}
        assert torch.equal(call(elsewhere, "native"), call(packed, "native"))
        for name in leaves:  # with a gradient to this one only
            found, expected = (
                torch.autograd.grad(call(x | {name: x[name].requires_grad_()}, "native").square().sum(), x[name])[0]
                for x in ({key: value.detach() for key, value in y.items()} for y in (elsewhere, packed))
            )
            assert torch.equal(found, expected), name


def test_the_gradient_of_a_result_may_be_expanded_or_transposed():
    graph = random_graph(6, 6, 20)
    for leaves, call in (attention(graph, "dot", "", 2, 2, 4, 4), product(graph, "max", "heads", 2, 4)):
        leaf = leaves.get("v", leaves.get("x")).requires_grad_()
        for dy in (torch.ones(1, 1, 1).expand(6, 2, 4), torch.randn(4, 2, 6).transpose(0, 2)):
            expected, found = (
                torch.autograd.grad(call(leaves, "native"), leaf, given.double())[0] for given in (dy.contiguous(), dy)
            )
            assert torch.equal(found, expected)


# Numbers that are not finite, and large ones


def some_scores(graph, heads=3, channels=5):
    for kind in ("dot", "additive", "gated"):
        yield kind, *attention(graph, kind, "edge", heads, heads, channels, 4)


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FC00001, 0x7FFFFFFF, 0xFFC12345])
def test_a_nan_query_reaches_its_receiver_and_nobody_else(bits):
    graph = random_graph(9, 9, 200)
    nan = torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32)
    for kind, leaves, call in some_scores(graph):
        leaves = {name: leaf.float() for name, leaf in leaves.items()}
        clean = call(leaves, "native")
        leaves["q"][4, 1, 0] = nan
        y = call(leaves, "native")
        assert y[4, 1].isnan().all(), kind
        others = torch.ones(9, 3, dtype=torch.bool)
        others[4, 1] = False
        assert torch.equal(y[others], clean[others]), kind


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_wrong_number_is_never_silently_lost(wrong, dtype):
    graph = random_graph(9, 9, 60)
    listens = torch.zeros(9, dtype=torch.bool)
    listens[graph.receivers[graph.senders == 4]] = True
    assert 0 < listens.sum() < 9
    for kind, leaves, call in some_scores(graph):
        for name in ("q", "k", "v"):
            given = {key: leaf.to(dtype, copy=True) for key, leaf in leaves.items()}
            given[name][4] = wrong
            found, expected = (results(call, given, backend, dtype) for backend in ("native", "segment"))
            for what, value in expected.items():
                if wrong != wrong or what == "output":
                    assert not (found[what].isfinite() & ~value.isfinite()).any(), (kind, name, what)
            if name != "q":
                assert found["output"][~listens].isfinite().all(), (kind, name)
    for reduce in REDUCTIONS:
        x = torch.randn(9, 5, dtype=torch.float64).to(dtype)
        x[4] = float("nan")
        y = aggregate(graph, x, reduce=reduce, backend="native")
        assert torch.equal(y.isnan(), listens[:, None].expand(9, 5)), reduce


@pytest.mark.parametrize("kind", ["dot", "additive", "gated", "uniform"])
def test_minus_infinity_masks_an_edge_and_a_masked_row_is_0(kind):
    graph = random_graph(8, 8, 150)
    leaves, call = attention(graph, kind, "edge", 2, 2, 5, 4)
    hidden = (torch.arange(graph.num_edges) % 3 == 0) | (graph.receivers == 5)
    leaves["bias"][hidden] = float("-inf")
    found = results(call, leaves, "native")
    kept = (~hidden).nonzero().flatten()
    smaller = Graph.from_edge_index(graph.edge_index()[:, kept], num_nodes=8)
    _, call = attention(smaller, kind, "edge", 2, 2, 5, 4)
    expected = results(call, leaves | {"bias": leaves["bias"][kept]}, "native")
    assert (found["gradient of bias"][hidden] == 0).all()
    found["gradient of bias"] = found["gradient of bias"][kept]
    same(found, expected, 1e-12)
    assert (found["output"][5] == 0).all()
    assert all(value.isfinite().all() for value in found.values())


@pytest.mark.parametrize("kind", ["dot", "additive"])
def test_large_scores_are_stable(kind):
    graph = random_graph(8, 8, 100)
    leaves, call = attention(graph, kind, "edge", 2, 2, 4, 4)
    leaves = {name: 1e4 * leaf if name == "bias" else leaf for name, leaf in leaves.items()}
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    exact, found = results(call, leaves, "native"), results(call, leaves, "native", torch.float32)
    assert all(value.isfinite().all() for value in found.values())
    same(found, exact, 1e-2)  # scores of 1e4 are known to 1e-3


# What it refuses, and life without it


def test_refusals_say_what_it_does_not_do():
    graph, x = random_graph(4, 4, 8), torch.randn(4, 1, 2)

    def refusal(call):
        with pytest.raises(BackendRefusal) as caught:
            call()
        return str(caught.value).removeprefix("backend 'native' cannot run this call: ")

    assert refusal(lambda: attend(graph, x, x, x, Dot(cap=2.0), backend="native")) == "it has no soft cap"
    half = x.half()
    said = refusal(lambda: attend(graph, half, half, half, backend="native"))
    assert said == "its kernels compute in float32, float64 and bfloat16, not in torch.float16"
    said = refusal(lambda: attend(graph, x, x, x, return_weights=True, backend="native"))
    assert said == "it does not return its weights"
    said = refusal(lambda: aggregate(graph, x[:, 0], torch.ones(8).double(), backend="native"))
    assert said == "weights in torch.float64 do not fit features in torch.float32"


def test_additive_scores_take_one_number_of_each_end():
    graph, x = random_graph(4, 4, 8), torch.randn(4, 1, 2)
    with pytest.raises(ShapeError, match="queries and keys have 2 channels"):
        attend(graph, x, x, x, Additive())


WITHOUT = """
import sys, warnings
sys.modules["edgewise.native._native"] = None  # as where it was not built
import torch
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    from edgewise import Graph, aggregate, attend, collect, plan
    assert not told
    n = 2000
    graph = Graph.from_edge_index(torch.randint(n, (2, 20 * n)), num_nodes=n)
    x = torch.randn(n, 4, 32, requires_grad=True)
    table = str(plan(graph, heads=4, channels=32))
    assert not told, "a plan runs nothing"
    for _ in range(2):
        attend(graph, x, x, x).sum().backward()
        aggregate(graph, x.flatten(1), reduce="max")
        collect(graph, torch.randn(20 * n, 4))
print(len(told), told[0].category.__name__, told[0].message)
print(next(line for line in table.splitlines() if "native" in line))
try:
    attend(graph, x, x, x, backend="native")
except Exception as error:
    print(error)
"""


def test_without_the_extension_everything_runs_on_plain_pytorch_and_says_so_once():
    done = subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    warning, row, refusal = done.stdout.splitlines()
    assert warning.startswith("1 RuntimeWarning edgewise was installed without its C++ kernels: ")
    assert "install a C++ compiler" in warning
    assert "edgewise was installed without its C++ kernels" in row
    assert refusal == "backend 'native' cannot run this call: edgewise was installed without its C++ kernels"


def test_weights_of_another_dtype_are_not_read_as_those_before():
    graph, x = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2), torch.ones(2, 3, 1, dtype=torch.bfloat16)
    for dtype in (torch.bfloat16, torch.float32, torch.float64):  # the choice of a backend is remembered
        weight = torch.full((2, 3), 2.0, dtype=dtype)
        assert aggregate(graph, x, weight).flatten().tolist() == [2.0] * 6
