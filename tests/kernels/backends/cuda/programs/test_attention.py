"""The fused attention: derivatives, dropout, vectors of edges, and what its kernels compile to."""

import pytest
import torch

from edgewise import Dot, EdgeVectors, GatedAdditive, Graph, Uniform, attend
from edgewise.kernels.backends.cuda import attention as triton_attention
from edgewise.kernels.backends.cuda.programs.tiles import attention_bytes
from edgewise.kernels.operator.attention import ADDITIVE, DOT, GATED, NONE
from edgewise.kernels.operator.dropout import drop
from kernels.backends.cuda.programs.apart import run
from kernels.drawn import attention, random_graph, results, same
from triton_device import DEVICE


def small_graph():
    return random_graph(3, 3, 7)


def on_device(leaves):
    return {name: leaf.to(DEVICE, torch.float32).requires_grad_() for name, leaf in leaves.items()}


def test_rows_are_copied_only_where_16_bytes_at_a_time_cannot_read_them():
    x = torch.randn(2, 6, 3, 8, device=DEVICE)
    flat = torch.randn(1000, device=DEVICE)
    odd = flat.as_strided((2, 6, 3, 6), (6 * 18, 18, 6, 1))  # rows of 18 numbers are read two at a time
    as_they_are = [x, x[:1], x[:, :, :1], x[:, ::2], odd, flat[4:].as_strided((1, 6, 1, 8), (0, 20, 3, 1))]
    to_copy = [
        x[:, :3],  # the second member does not follow the first
        x[..., ::2],
        x.transpose(1, 2),
        x[:, :, ::2],
        x[:1, :, :2, :6],
        flat[1:].as_strided((1, 6, 1, 8), (0, 20, 8, 1)),
        flat.as_strided((1, 6, 1, 8), (0, 21, 8, 1)),
    ]
    for rows in as_they_are:
        assert triton_attention._rows(rows) is rows
    for rows in to_copy:
        copied = triton_attention._rows(rows)
        assert copied is not rows and copied.is_contiguous() and torch.equal(copied, rows)
    assert triton_attention._rows(None) is None


# As operators of PyTorch's library


def operator_inputs(kind, vectors, gradient=True):
    """Inputs of `attend` in its own layout."""
    graph = random_graph(5, 4, 12).to(DEVICE)
    width = 1 if kind == ADDITIVE else 3

    def draw(*sizes):
        return torch.randn(*sizes, device=DEVICE).requires_grad_(gradient)

    q, k = (None, None) if kind == NONE else (draw(2, 5, 2, width), draw(2, 4, 2, width))
    a = draw(2, 3) if kind == GATED else None
    keys, values = (draw(1, 12, 2, 3), draw(2, 12, 2, 3)) if vectors else (None, None)
    ends = (q, k, draw(2, 4, 2, 3), a, draw(1, 12, 2), keys, values)
    structure, reverse = list(triton_attention.structure_of(graph)), list(triton_attention.reverse_of(graph))
    return (*ends, structure, reverse, kind, 0.5, 0.2, 0.3, torch.tensor([7], device=DEVICE))


def test_the_operators_pass_pytorchs_own_check():
    inputs = operator_inputs(DOT, vectors=True)
    torch.library.opcheck(torch.ops.edgewise.attend_rows.default, inputs)
    inputs = operator_inputs(GATED, vectors=False, gradient=False)
    y, lse, rest = triton_attention.attend(triton_attention.RowsAttention(*inputs))
    inputs = (*inputs, y, lse, rest, torch.randn_like(y), [True] * 5 + [False] * 2)
    torch.library.opcheck(torch.ops.edgewise.attend_rows_gradient.default, inputs)


@pytest.mark.parametrize("kind", ["dot", "gated"])
def test_second_derivatives_are_those_of_plain_pytorch(kind):
    leaves, call = attention(small_graph(), kind, "edge", 2, 2, 3, 2)
    expected, found = [], []
    for backend, seconds in (("segment", expected), ("triton", found)):
        given = on_device(leaves)
        firsts = torch.autograd.grad(call(given, backend).square().sum(), list(given.values()), create_graph=True)
        total = sum(first.square().sum() for first in firsts)
        seconds += torch.autograd.grad(total, list(given.values()))
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


def test_a_tensor_used_three_times_has_the_sum_of_its_gradients():
    graph, x = random_graph(5, 5, 12).to(DEVICE), torch.randn(5, 2, 3, device=DEVICE)
    found, expected = (
        torch.autograd.grad(attend(graph, y, y, y, backend=backend).square().sum(), y)[0]
        for backend, y in (("triton", x.clone().requires_grad_()), ("segment", x.clone().requires_grad_()))
    )
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_compiled_call_gives_the_same_without_a_graph_break():
    torch._dynamo.reset()
    leaves, call = attention(small_graph(), "gated", "edge", 2, 2, 3, 2)
    given = {name: leaf.to(DEVICE, torch.float32) for name, leaf in leaves.items()}
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    same(results(compiled, given, "triton", torch.float32), results(call, given, "triton", torch.float32), 1e-6)
    torch._dynamo.reset()


# Dropout


@pytest.mark.parametrize("kind", ["dot", "uniform"])
def test_the_mask_is_that_of_the_hash_forward_and_backward(kind):
    graph, heads, batch = random_graph(9, 8, 100), 3, 2
    leaves, call = attention(graph, kind, "edge", heads, heads, 5, 4, (batch,), dropout=0.3)
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    torch.manual_seed(3)
    found = results(call, {name: leaf.to(DEVICE) for name, leaf in leaves.items()}, "triton", torch.float32)
    torch.manual_seed(3)
    seed = torch.randint(2**62, (1,), device=DEVICE)
    mask = drop(torch.ones(batch, graph.num_edges, heads, device=DEVICE), 0.3, seed).cpu()
    assert set(mask.unique().tolist()) == {0.0, float(torch.tensor(1 / 0.7))}
    # The same with a sender of its own for every edge, whose values are masked.
    own = Graph.from_csr(graph.offsets, torch.arange(graph.num_edges), graph.num_edges)
    _, plain = attention(own, kind, "edge", heads, heads, 5, 4, (batch,))

    def by_edge(given, backend):
        given = {name: x[:, graph.senders] if name in ("k", "v") else x for name, x in given.items()}
        return plain(given | {"v": given["v"] * mask.unsqueeze(-1)}, backend)

    same({name: x.cpu() for name, x in found.items()}, results(by_edge, leaves, "reference"), 1e-5)


def test_dropout_keeps_the_mean_and_is_drawn_anew():
    n, probability = 500, 0.25
    graph = Graph.from_csr(torch.arange(0, 20 * n + 1, 20), torch.randint(n, (20 * n,)), n).to(DEVICE)
    v = torch.ones(n, 2, 1, device=DEVICE)
    y, other = (attend(graph, None, None, v, Uniform(), dropout=probability, backend="triton") for _ in range(2))
    spread = (probability / (1 - probability) / 20) ** 0.5  # of a mean of 20 weights, each 0 or 4/3
    assert abs(y.mean() - 1) < 4 * spread / (2 * n) ** 0.5
    assert abs(y.std() / spread - 1) < 0.1
    assert not torch.equal(y, other)


# Vectors of edges


@pytest.mark.parametrize(("kind", "batch"), [("dot", ()), ("dot", (2,)), ("gated", ()), ("values only", ())])
def test_vectors_of_edges_agree_with_reference(kind, batch):
    graph, heads = random_graph(6, 5, 300 if kind == "dot" else 40), 3
    q, k, v = (torch.randn(*batch, n, heads, c) for n, c in ((6, 4), (5, 4), (5, 8)))
    a, keys, values = (
        torch.randn(*lead, heads, c) for lead, c in (((), 4), ((graph.num_edges,), 4), ((*batch, graph.num_edges), 8))
    )
    leaves = (
        {"v": v, "values": values}
        if kind == "values only"
        else {"q": q, "k": k, "v": v, "keys": keys, "values": values}
    )
    leaves |= {"a": a} if kind == "gated" else {}

    def call(given, backend):
        score = {"dot": Dot(), "values only": Uniform()}.get(kind) or GatedAdditive(given["a"])
        score = score + EdgeVectors(given.get("keys"), given["values"])
        return attend(graph.to(given["v"].device), given.get("q"), given.get("k"), given["v"], score, backend=backend)

    found = results(call, {name: leaf.to(DEVICE) for name, leaf in leaves.items()}, "triton", torch.float32)
    same({name: x.cpu() for name, x in found.items()}, results(call, leaves, "reference"), 1e-5)


# What the kernels compile to, and how often


def test_no_variant_spills_and_rows_are_read_16_bytes_at_a_time(tmp_path):
    for variant in run("attention_compiled.py", tmp_path):
        where = f"{variant['kernel']} {variant['sizes']}"
        assert variant["STACK"] == variant["LOCAL"] == 0, f"{where} spills"
        assert variant["REG"] <= 168, where
        assert variant["wide loads"] >= variant["gathers"], where


def test_a_thousand_batches_of_other_sizes_are_served_by_the_same_kernels(tmp_path):
    found = run("attention_variants.py", tmp_path)
    assert found["batches"] == 1000
    assert found["variants"] == {"attend": 2, "merge": 2, "pair": 1, "by_sender": 2, "by_receiver": 2}


def test_the_bytes_that_a_pass_moves():
    found = attention_bytes(10, 20, 100, 2, (3, 5), 4)
    assert found["attend"] == 100 * (4 + 24 + 40) + 10 * (12 + 24 + 40 + 8)
    assert found["by_sender"] == 100 * (8 + 24 + 40 + 24) + 20 * (12 + 2 * 64)
