"""The Triton kernels compute what `reference` does, forward and backward, however their inputs lie in memory.

Without a GPU Triton's interpreter runs them, slowly: by default one small call of each, all by `-m interpreter`.
"""

import os
import subprocess
import sys

import pytest
import torch

from edgewise import (
    BackendRefusal,
    Dot,
    EdgeVectors,
    GatedAdditive,
    Graph,
    Kernel,
    Uniform,
    attend,
    blocks,
    complete,
    window,
)
from edgewise.kernels.backends.cuda import attention as rows_attention
from edgewise.kernels.backends.cuda import bitmap
from edgewise.kernels.backends.cuda.programs import building
from edgewise.kernels.backends.cuda.programs import products as programs
from edgewise.kernels.operator.dropout import drop
from edgewise.kernels.operator.operator import Operator
from kernels.drawn import (
    BIASES,
    CHANNELS,
    REDUCTIONS,
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
from triton_device import DEVICE

slow = pytest.mark.interpreter
KINDS = ("rows", "blocks", "windows", "sums")  # what the kernels are made for
NAMES = {"rows": "triton", "blocks": "ragged", "windows": "bitmap", "sums": "triton"}
WEIGHTS = ("", "edge", "heads", "heads, batch", "shared by heads", "messages")


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    """Hubs and windows are cut at a few edges, instead of at thousands."""
    monkeypatch.setattr(building, "CHUNK", 16)


def random_blocks(*sizes: int) -> Graph:
    """Blocks of those sizes, some with other senders than receivers, and of all kinds of empty ones."""
    return blocks([*sizes, 0, 3], senders=[*(pick((size, 1 + size // 2)) for size in sizes), 2, 0])


def drawn(kind: str, seed: int, count: int):
    """A random call that a kernel takes, on a graph of some `count` small ones."""
    torch.manual_seed(seed)
    heads, batch = number(1, 4), pick([(), (), (2,)])
    groups = pick([n for n in range(1, heads + 1) if heads % n == 0])
    if kind == "sums":
        reduce, weight, channels = REDUCTIONS[seed % 4], WEIGHTS[seed % 6], pick(CHANNELS)
        if weight == "messages":
            return messages(disjoint_graphs(count), reduce, channels)
        batch = (2,) if "batch" in weight else ()
        return product(disjoint_graphs(count), reduce, weight, heads, channels, batch, equal=seed % 2 == 1)
    if kind == "rows":
        score, bias, sizes = SCORES[seed % len(SCORES)], BIASES[seed % len(BIASES)], (1, 5, 8, 12, 16, 24, 48)
        return attention(disjoint_graphs(count), score, bias, heads, groups, pick(sizes), pick(sizes), batch)
    score, sizes = ("dot", "dot scaled by head")[seed % 2], (1, 8, 13, 24, 32)
    if kind == "windows":
        graph = disjoint_graphs(count).coalesce()
        return attention(graph, score, "", heads, groups, pick(sizes), pick(sizes), batch)
    graph = random_blocks(*[(9, 3), (17, 70, 1), (40, 9)][seed % 3])
    return attention(graph, score, BIASES[seed % len(BIASES)], min(heads, 2), 1, pick(sizes), pick(sizes), batch)


def on_device(leaves, dtype=torch.float32):
    return {name: leaf.to(DEVICE, dtype) for name, leaf in leaves.items()}


def found(kind, call, leaves, dtype=torch.float32, backend=None):
    """Output and gradients, computed on the device under test."""
    return {name: x.cpu() for name, x in results(call, on_device(leaves), backend or NAMES[kind], dtype).items()}


def agrees(kind, leaves, call, tolerance=1e-5, where=""):
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    same(found(kind, call, leaves), results(call, leaves, "reference"), tolerance, where)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_call_agrees_with_reference(kind):
    agrees(kind, *drawn(kind, 2 if kind == "sums" else 0, 4))


@slow
@pytest.mark.parametrize("seed", range(1, 13))
@pytest.mark.parametrize("kind", KINDS)
def test_random_calls_agree_with_reference(kind, seed):
    agrees(kind, *drawn(kind, seed, 42), where=seed)


def small(kind, **options):
    """A call without parallel edges, of which one receiver may have many."""
    graph = blocks([4, 3]) if kind == "blocks" else random_graph(7, 7, 30).coalesce()
    if kind == "sums":
        return product(graph, options.pop("reduce", "sum"), "heads", 2, 8)
    return attention(graph, options.pop("score", "dot"), options.pop("bias", ""), 2, 2, 8, 8, **options)


@slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("kind", "what"),
    [("rows", "dot"), ("rows", "gated"), ("blocks", "dot"), ("windows", "dot"), ("sums", "mean"), ("sums", "max")],
)
def test_the_error_is_at_most_twice_that_of_plain_pytorch(kind, what, dtype):
    graph = random_blocks(20, 40) if kind == "blocks" else random_graph(40, 48, 700).coalesce()
    if kind == "sums":
        leaves, call = product(graph, what, "heads", 3, 20, equal=True)
    else:
        leaves, call = attention(graph, what, "" if kind == "windows" else "edge", 2, 2, 24, 16)
    leaves = {name: leaf.to(dtype).double() for name, leaf in leaves.items()}
    exact = results(call, leaves, "segment")
    plain, ours = found(kind, call, leaves, dtype, "segment"), found(kind, call, leaves, dtype)
    for name, value in exact.items():
        error, theirs = (float((x[name].double() - value).norm() / value.norm()) for x in (ours, plain))
        rounding = torch.finfo(dtype).eps / 8  # of a result that plain PyTorch happens to get right
        assert ours[name].dtype == dtype and error <= 2 * theirs + rounding, name


@slow
@pytest.mark.parametrize(("senders", "receivers"), [(0, 0), (0, 3), (3, 0), (3, 18)])
def test_receivers_without_senders_get_0(senders, receivers):
    nothing = Graph.from_edge_index(torch.zeros(2, 0).long(), senders, receivers)
    for kind in KINDS:
        if kind == "sums":
            calls = [product(nothing, reduce, "edge", 1, 4) for reduce in REDUCTIONS]
            calls += [messages(nothing, reduce, 4) for reduce in REDUCTIONS]
        else:
            graph = blocks([receivers], senders=[senders]) if kind == "blocks" and not senders * receivers else nothing
            calls = [] if kind == "blocks" and senders * receivers else [attention(graph, "dot", "", 2, 2, 4, 4)]
        for leaves, call in calls:
            y = found(kind, call, leaves)
            assert len(y["output"]) == receivers and not any(value.any() for value in y.values())


@slow
@pytest.mark.parametrize("score", ["dot", "additive", "gated", "uniform"])
def test_hubs_are_cut_into_chunks_and_merged(score):
    index = torch.cat([random_graph(4, 5, 500).edge_index(), torch.zeros(2, 300).long()], 1)
    agrees("rows", *attention(Graph.from_edge_index(index, 5, 4), score, "edge", 3, 3, 5, 12))


@slow
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_more_channels_than_a_tile_and_more_heads_than_lanes(reduce, monkeypatch):
    monkeypatch.setattr(programs, "WARPS", 4)  # as on a GPU
    monkeypatch.setattr(programs, "LANES", 128)
    for weight, heads, channels in (("edge", 1, 700), ("heads", 2, 600), ("heads", 160, 2), ("heads", 600, 1)):
        agrees("sums", *product(random_graph(4, 4, 9), reduce, weight, heads, channels))
    agrees("sums", *product(window(9, 1).rows(1, 8), reduce, "heads", 2, 3))  # of one length: there is no schedule


@slow
@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_the_same_every_time(kind):
    leaves, call = small(kind) if kind in ("windows", "sums") else small(kind, bias="edge", dropout=0.2)
    runs = []
    for _ in range(2):
        torch.manual_seed(1)
        runs.append(found(kind, call, leaves))
    assert all(torch.equal(value, runs[1][name]) for name, value in runs[0].items())


LAYOUTS = {
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "a slice of wider rows": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "a part of a projection": lambda x: torch.stack([x, x], 1)[:, 1],
    "off by one": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "expanded": lambda x: x[:1].expand(x.shape),
}


@slow
@pytest.mark.parametrize("how", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_and_gradients_may_lie_in_memory_in_any_way(kind, how):
    leaves, call = small(kind, reduce="max") if kind == "sums" else small(kind)
    elsewhere = {name: LAYOUTS[how](leaf) for name, leaf in on_device(leaves).items()}
    runs = []
    for given in (elsewhere, {name: leaf.contiguous() for name, leaf in elsewhere.items()}):
        given = [leaf.detach().requires_grad_() for leaf in given.values()]
        y = call(dict(zip(leaves, given, strict=True)), NAMES[kind])
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)
        runs.append([y, *torch.autograd.grad(y, given, LAYOUTS[how](dy) if given[0].is_contiguous() else dy)])
        if how == "expanded":
            runs[-1] = runs[-1][:1]
    assert all(torch.equal(ours, expected) for ours, expected in zip(*runs, strict=True))


@slow
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_are_those_of_plain_pytorch(kind):
    leaves, call = small(kind, reduce="max") if kind == "sums" else small(kind)
    second = []
    for backend in (NAMES[kind], "segment"):
        given = {name: leaf.requires_grad_() for name, leaf in on_device(leaves).items()}
        first = torch.autograd.grad(call(given, backend).square().sum(), list(given.values()), create_graph=True)
        second.append(torch.autograd.grad(sum(x.square().sum() for x in first), list(given.values())))
    for ours, theirs in zip(*second, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


@slow
@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("kind", ["rows", "blocks", "sums"])
def test_a_nan_reaches_its_receivers_and_nobody_else(kind):
    leaves, call = small(kind)
    given = on_device(leaves)
    given["x" if kind == "sums" else "v"][4] = float("nan")
    y = call(given, NAMES[kind]).flatten(1)
    graph = blocks([4, 3]) if kind == "blocks" else None
    if graph is None:
        expected = call(given, "segment").flatten(1).isnan()
    else:
        expected = (torch.arange(7) >= 4)[:, None].expand(y.shape)
    assert torch.equal(y.isnan().cpu(), expected.cpu()) and 0 < expected.sum() < expected.numel()


@slow
@pytest.mark.parametrize(("kind", "score"), [("rows", "dot"), ("rows", "uniform"), ("blocks", "dot")])
def test_minus_infinity_masks_an_edge_and_a_masked_row_is_0(kind, score):
    graph = blocks([6, 3]) if kind == "blocks" else random_graph(8, 8, 100)
    leaves, call = attention(graph, score, "edge", 2, 2, 5, 4)
    hidden = (torch.arange(graph.num_edges) % 3 == 0) | (graph.receivers == 5)
    leaves["bias"][hidden] = float("-inf")
    ours = found(kind, call, leaves)
    assert not ours["output"][5].any() and not ours["gradient of bias"][hidden].any()
    agrees(kind, leaves, call)


@slow
@pytest.mark.parametrize("kind", ["rows", "windows"])
def test_large_scores_are_stable(kind):
    leaves, call = small(kind)
    leaves = {name: 100 * leaf if name == "q" else leaf for name, leaf in leaves.items()}
    agrees(kind, leaves, call, 2e-3)  # scores of hundreds are known to 1e-5


@slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_operators_pass_pytorchs_own_check(kind, monkeypatch):
    called, real = [], Operator.__call__
    monkeypatch.setattr(Operator, "__call__", lambda self, own: called.append((self, own)) or real(self, own))
    for reduce in ("sum", "max") if kind == "sums" else ("",):
        leaves, call = small(kind, reduce=reduce) if reduce else small(kind)
        found(kind, call, leaves)
    assert len({operator.overload for operator, _ in called}) == (4 if kind == "sums" else 2)
    for operator, own in called:
        inputs = [getattr(own, name) for name in operator.names]
        inputs = tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in inputs)
        torch.library.opcheck(operator.overload, inputs, test_utils=("test_schema", "test_faketensor"))


@slow
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_call_gives_the_same_without_a_graph_break(kind):
    torch._dynamo.reset()
    leaves, call = small(kind)
    expected = found(kind, call, leaves)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    same(found(kind, compiled, leaves), expected, 1e-6)
    torch._dynamo.reset()


# Dropout


@slow
@pytest.mark.parametrize("score", ["dot", "uniform"])
def test_the_mask_is_that_of_the_hash_forward_and_backward(score):
    graph, heads, batch = random_graph(9, 8, 100), 3, 2
    leaves, call = attention(graph, score, "edge", heads, heads, 5, 4, (batch,), dropout=0.3)
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    torch.manual_seed(3)
    ours = found("rows", call, leaves)
    torch.manual_seed(3)
    seed = torch.randint(2**62, (1,), device=DEVICE)
    mask = drop(torch.ones(batch, graph.num_edges, heads, device=DEVICE), 0.3, seed).cpu()
    # The same with a sender of its own for every edge, whose values are masked.
    own = Graph.from_csr(graph.offsets, torch.arange(graph.num_edges), graph.num_edges)
    _, plain = attention(own, score, "edge", heads, heads, 5, 4, (batch,))

    def by_edge(given, backend):
        given = {name: x[:, graph.senders] if name in ("k", "v") else x for name, x in given.items()}
        return plain(given | {"v": given["v"] * mask.unsqueeze(-1)}, backend)

    same(ours, results(by_edge, leaves, "reference"), 1e-5)


@slow
def test_blocks_draw_the_same_weights_forward_backward_and_for_second_derivatives():
    leaves, call = attention(blocks([20, 3]), "dot", "edge", 1, 1, 8, 8, dropout=0.3)
    given = {name: leaf.requires_grad_() for name, leaf in on_device(leaves).items()}
    runs = []
    for again in (False, True):
        torch.manual_seed(1)
        y = call(given, "ragged")
        dy = torch.linspace(-1, 1, y.numel(), device=DEVICE).view(y.shape)
        runs.append([y, *torch.autograd.grad(y, list(given.values()), dy, create_graph=again)])
    for ours, expected in zip(*runs, strict=True):
        torch.testing.assert_close(ours, expected.detach(), rtol=1e-4, atol=1e-5)
    # The output is linear in the values, so their gradient tells which weights the forward pass used.
    torch.testing.assert_close((runs[0][0] * dy).sum(), (runs[0][1] * given["v"]).sum(), rtol=1e-4, atol=1e-4)
    v = torch.eye(50, device=DEVICE)[:, None].expand(2, 50, 2, 50)  # a sender's value is its own channel
    q, k = torch.zeros(2, 30, 2, 4, device=DEVICE), torch.zeros(2, 50, 2, 4, device=DEVICE)
    survives = attend(blocks([30], senders=[50]).to(DEVICE), q, k, v, dropout=0.3, backend="ragged") > 0
    assert 0.66 < survives.float().mean() < 0.74
    assert not torch.equal(survives[0, :, 0], survives[0, :, 1]) and not torch.equal(survives[0], survives[1])


# One kernel's own


@slow
@pytest.mark.parametrize(("score", "batch"), [("dot", (2,)), ("gated", ()), ("values only", ())])
def test_vectors_of_edges_agree_with_reference(score, batch):
    graph, heads = random_graph(6, 5, 300 if score == "dot" else 40), 3
    edges = graph.num_edges
    sizes = {"v": (*batch, 5, heads, 8), "values": (*batch, edges, heads, 8)}
    if score != "values only":
        sizes |= {"q": (*batch, 6, heads, 4), "k": (*batch, 5, heads, 4), "keys": (edges, heads, 4)}
    leaves = {name: torch.randn(size) for name, size in sizes.items()}
    leaves |= {"a": torch.randn(heads, 4)} if score == "gated" else {}

    def call(given, backend):
        made = {"dot": Dot(), "values only": Uniform()}.get(score) or GatedAdditive(given["a"])
        made = made + EdgeVectors(given.get("keys"), given["values"])
        return attend(graph.to(given["v"].device), given.get("q"), given.get("k"), given["v"], made, backend=backend)

    agrees("rows", leaves, call)


@slow
def test_members_of_a_batch_may_lie_beyond_32_bits():
    """Queries 2^31 numbers apart, of which only two rows of pages are ever touched."""
    graph = complete(4).to(DEVICE)
    q = torch.empty(2**31 + 64, dtype=torch.float16, device=DEVICE).as_strided((2, 4, 1, 16), (2**31, 16, 16, 1))
    q.copy_(torch.randn(2, 4, 1, 16))
    k, v = torch.randn(2, 2, 4, 1, 16, device=DEVICE).half()
    y = attend(graph, q, k, v, backend="ragged")
    torch.testing.assert_close(y, attend(graph, q.contiguous(), k, v, backend="reference"), rtol=1e-2, atol=1e-2)


def test_rows_are_copied_only_where_16_bytes_at_a_time_cannot_read_them():
    x, flat = torch.randn(2, 6, 3, 8, device=DEVICE), torch.randn(1000, device=DEVICE)
    odd = flat.as_strided((2, 6, 3, 6), (6 * 18, 18, 6, 1))  # rows of 18 numbers are read two at a time
    for rows in (x, x[:1], x[:, :, :1], x[:, ::2], odd, flat[4:].as_strided((1, 6, 1, 8), (0, 20, 3, 1))):
        assert rows_attention._rows(rows) is rows
    beside = flat[1:].as_strided((1, 6, 1, 8), (0, 20, 8, 1)), flat.as_strided((1, 6, 1, 8), (0, 21, 8, 1))
    for rows in (x[:, :3], x[..., ::2], x.transpose(1, 2), x[:, :, ::2], x[:1, :, :2, :6], *beside):
        copied = rows_attention._rows(rows)
        assert copied is not rows and copied.is_contiguous() and torch.equal(copied, rows)
    numbers = torch.randn(64, device=DEVICE)
    for first in range(9):  # of products
        x = numbers[first:]
        assert programs.aligned(x).data_ptr() % 16 == 0 and torch.equal(programs.aligned(x), x)
        assert (programs.aligned(x) is x) == (x.data_ptr() % 16 == 0)


@pytest.mark.parametrize(
    "graph", [random_graph(200, 150, 900).coalesce(), window(200, 3), complete(70, 50), complete(9)]
)
def test_distinct_senders_of_few_windows_are_counted_and_those_of_like_windows_foretold(graph, monkeypatch):
    pairs = graph.receivers // 16 * graph.num_senders + graph.senders
    assert bitmap.columns_of(graph) == len(pairs.unique())
    monkeypatch.setattr(bitmap, "FEW", 1)  # then one window stands for all
    assert bitmap.columns_of(complete(16 * 5, 20)) == 5 * 20


# Refusals


@pytest.mark.parametrize(
    ("name", "graph", "score", "options", "reason"),
    [
        ("triton", window(6, 1), Kernel(torch.exp), {}, "no Kernel score: it takes Dot, Additive, GatedAdditive and"),
        ("triton", window(6, 1), Dot(), {"channels": 1025}, "a head has 1025 channels, more than 1024"),
        ("ragged", window(6, 1), Dot(), {}, "it runs on complete graphs and batches of complete graphs only"),
        ("ragged", blocks([3, 129]), Dot(), {}, "a block has 129 nodes, more than the 128 that fit in a tile"),
        ("ragged", complete(128), Dot(), {"channels": 128, "dtype": torch.bfloat16}, "do not fit on the chip"),
        ("bitmap", Graph.from_csr([0, 2], [0, 0], 1), Dot(), {}, "parallel edges, which it cannot count"),
    ],
)
def test_refusals_name_their_reason(name, graph, score, options, reason):
    channels, dtype = options.pop("channels", 4), options.pop("dtype", torch.float32)
    q, k = (torch.zeros(n, 1, channels, dtype=dtype, device=DEVICE) for n in (graph.num_receivers, graph.num_senders))
    with pytest.raises(BackendRefusal, match=f"backend '{name}' cannot run this call: .*{reason}"):
        attend(graph.to(DEVICE), q, k, k, score, backend=name, **options)


WITHOUT = """
import sys, torch
from edgewise import attend, causal
x = torch.randn(5, 1, 2)
try:
    attend(causal(5), x, x, x, backend="triton")
except Exception as error:
    print(error)
print("triton" in sys.modules)
"""


@pytest.mark.processes
def test_without_a_gpu_it_refuses_and_triton_is_never_loaded():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    said, loaded = done.stdout.splitlines()
    assert said == "backend 'triton' cannot run this call: its kernels run on NVIDIA GPUs, not on cpu"
    assert loaded == "False"
