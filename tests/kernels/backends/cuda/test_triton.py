"""The backend `triton` computes what `reference` does, as precisely as plain PyTorch, at any layout of its inputs."""

import os
import subprocess
import sys

import pytest
import torch

from edgewise import Dot, EdgeBias, Graph, Kernel, Uniform, aggregate, attend, causal, collect, plan
from edgewise.errors import BackendRefusal
from edgewise.kernels.backends.cuda import attention as launched
from edgewise.kernels.backends.cuda import products
from kernels.drawn import BIASES, SCORES, attention, disjoint_graphs, number, pick, random_graph, results, same
from triton_device import DEVICE


def found(leaves, call, dtype=torch.float32, backend="triton"):
    """Output and gradients, computed on the device under test."""
    given = {name: leaf.to(DEVICE, dtype) for name, leaf in leaves.items()}
    return {name: x.cpu() for name, x in results(call, given, backend, dtype).items()}


def rounded(leaves, dtype=torch.float32):
    return {name: leaf.to(dtype).double() for name, leaf in leaves.items()}


# 500 graphs in all: with other senders than receivers, empty rows, hubs, parallel edges, self-loops, or nothing.
GRAPHS, TRIALS = 42, 12


@pytest.mark.parametrize("trial", range(TRIALS))
def test_random_small_graphs_agree_with_reference(trial):
    torch.manual_seed(trial)
    graph = disjoint_graphs(GRAPHS)
    heads, batch = number(1, 8), pick([(), (), (2,)])
    groups = pick([n for n in range(1, heads + 1) if heads % n == 0])
    kind, bias = SCORES[trial % len(SCORES)], BIASES[trial % len(BIASES)]
    sizes = (1, 5, 8, 12, 24, 48, 64, 128) if heads < 3 and not batch else (1, 5, 8, 12, 16, 24)
    channels, values = pick(sizes), pick(sizes)
    leaves, call = attention(graph, kind, bias, heads, groups, channels, values, batch)
    leaves = rounded(leaves)
    where = (trial, kind, bias, heads, groups, channels, values, batch)
    same(found(leaves, call), results(call, leaves, "reference"), 1e-5, where)


@pytest.mark.parametrize("kind", ["dot", "additive", "gated", "uniform"])
def test_hubs_are_cut_into_chunks_and_merged(kind):
    graph = Graph.from_edge_index(
        torch.cat([random_graph(4, 5, 500).edge_index(), torch.zeros(2, 300).long()], 1), 5, 4
    )
    assert graph.in_degrees().max() > 3 * 128 and graph.transpose()[0].in_degrees().max() > 2 * 128
    leaves, call = attention(graph, kind, "edge", 3, 3, 5, 12)
    leaves = rounded(leaves)
    same(found(leaves, call), results(call, leaves, "reference"), 1e-5)


@pytest.mark.parametrize("sizes", [(0, 0, 0), (3, 0, 0), (0, 3, 0), (3, 4, 0)])
def test_graphs_without_nodes_or_edges(sizes):
    receivers, senders, _ = sizes
    graph = Graph.from_edge_index(torch.zeros(2, 0).long(), senders, receivers)
    for kind in ("dot", "gated", "uniform"):
        leaves, call = attention(graph, kind, "edge", 2, 2, 4, 4)
        y = found(leaves, call)
        assert all((value == 0).all() for value in y.values())
        assert y["output"].shape == (receivers, 2, 4)


# Precision


def relative_error(value, expected):
    return float((value.double() - expected).norm() / expected.norm().clamp(min=1e-30))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["dot", "additive", "gated", "uniform"])
def test_the_error_is_at_most_twice_that_of_plain_pytorch(kind, dtype):
    leaves, call = attention(random_graph(60, 70, 700), kind, "edge", 4, 4, 24, 16)
    leaves = rounded(leaves, dtype)
    exact = results(call, leaves, "segment")
    plain, ours = found(leaves, call, dtype, "segment"), found(leaves, call, dtype)
    for name, value in exact.items():
        assert ours[name].dtype == dtype
        error, theirs = (relative_error(x[name], value) for x in (ours, plain))
        rounding = torch.finfo(dtype).eps / 8  # of a result that plain PyTorch happens to get right
        assert error <= 2 * theirs + rounding, f"{name}: {error:.1e}, and {theirs:.1e} in plain PyTorch"


def test_the_bits_are_the_same_every_time():
    leaves, call = attention(random_graph(9, 9, 400), "gated", "edge", 3, 3, 5, 4, dropout=0.2)
    runs = []
    for _ in range(2):
        torch.manual_seed(1)
        runs.append(found(leaves, call))
    assert all(torch.equal(value, runs[1][name]) for name, value in runs[0].items())


# Layouts, and numbers that are not finite


def laid_out(x, how):
    """The same numbers, elsewhere in memory."""
    if how == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if how == "a slice of wider rows":
        return torch.cat([x, x], -1)[..., : x.shape[-1]]
    if how == "a part of a projection":
        return (
            torch.cat([x.flatten(1), x.flatten(1)], -1)[:, x[0].numel() :].unflatten(1, x.shape[1:])
            if x.ndim > 1
            else x
        )
    if how == "off by one":
        return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
    return x[:1].expand(x.shape)


@pytest.mark.parametrize(
    "how", ["transposed", "a slice of wider rows", "a part of a projection", "off by one", "expanded"]
)
def test_inputs_may_lie_in_memory_in_any_way(how):
    leaves, call = attention(random_graph(6, 6, 20), "gated", "edge", 2, 2, 8, 8)
    elsewhere = {name: laid_out(leaf.to(DEVICE, torch.float32), how) for name, leaf in leaves.items()}
    packed = {name: leaf.contiguous() for name, leaf in elsewhere.items()}
    assert torch.equal(call(elsewhere, "triton"), call(packed, "triton"))
    for x in (elsewhere["v"].requires_grad_(), packed["v"].requires_grad_()):
        call((elsewhere if x is elsewhere["v"] else packed), "triton").square().sum().backward()
    assert torch.equal(elsewhere["v"].grad, packed["v"].grad)


def test_the_gradient_of_a_result_may_be_expanded_or_transposed():
    leaves, call = attention(random_graph(6, 6, 20), "dot", "", 2, 2, 4, 4)
    leaves = {name: leaf.to(DEVICE, torch.float32).requires_grad_() for name, leaf in leaves.items()}
    for dy in (torch.ones(1, 1, 1).expand(6, 2, 4), torch.randn(4, 2, 6).transpose(0, 2)):
        expected, ours = (
            torch.autograd.grad(call(leaves, "triton"), leaves["q"], given)[0]
            for given in (dy.contiguous().to(DEVICE), dy.to(DEVICE))
        )
        assert torch.equal(ours, expected)


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_nan_query_reaches_its_receiver_and_nobody_else():
    leaves, call = attention(random_graph(9, 9, 80), "dot", "edge", 3, 3, 5, 4)
    leaves = {name: leaf.to(DEVICE, torch.float32) for name, leaf in leaves.items()}
    clean = call(leaves, "triton")
    leaves["q"][4, 1, 0] = float("nan")
    y = call(leaves, "triton")
    others = torch.ones(9, 3, dtype=torch.bool)
    others[4, 1] = False
    assert y[4, 1].isnan().all() and torch.equal(y[others], clean[others])


@pytest.mark.parametrize("kind", ["dot", "uniform"])
def test_minus_infinity_masks_an_edge_and_a_masked_row_is_0(kind):
    graph = random_graph(8, 8, 100)
    leaves, call = attention(graph, kind, "edge", 2, 2, 5, 4)
    hidden = (torch.arange(graph.num_edges) % 3 == 0) | (graph.receivers == 5)
    leaves["bias"][hidden] = float("-inf")
    leaves = rounded(leaves)
    ours = found(leaves, call)
    assert (ours["output"][5] == 0).all() and (ours["gradient of bias"][hidden] == 0).all()
    kept = (~hidden).nonzero().flatten()
    smaller = Graph.from_edge_index(graph.edge_index()[:, kept], num_nodes=8)
    _, call = attention(smaller, kind, "edge", 2, 2, 5, 4)
    ours["gradient of bias"] = ours["gradient of bias"][kept]
    same(ours, results(call, leaves | {"bias": leaves["bias"][kept]}, "reference"), 1e-5)


def test_large_scores_are_stable():
    leaves, call = attention(random_graph(8, 8, 100), "dot", "edge", 2, 2, 4, 4)
    leaves = rounded({name: 1e4 * leaf if name == "bias" else leaf for name, leaf in leaves.items()})
    ours = found(leaves, call)
    assert all(value.isfinite().all() for value in ours.values())
    same(ours, results(call, leaves, "segment"), 1e-2)  # scores of 1e4 are known to 1e-3


# Choice and refusals


def test_it_runs_on_the_cpu_only_where_asked_for():
    names = [one.backend for one in plan(causal(64).to(DEVICE), heads=2, channels=16).candidates if one.refusal is None]
    assert names.index("triton") > names.index("segment") or DEVICE.type == "cuda"


def test_refusals_say_what_it_does_not_do():
    graph, x = random_graph(4, 4, 8).to(DEVICE), torch.randn(4, 1, 2, device=DEVICE)

    def refusal(call):
        with pytest.raises(BackendRefusal) as caught:
            call()
        return str(caught.value).removeprefix("backend 'triton' cannot run this call: ")

    wide = x.double()
    said = refusal(lambda: attend(graph, wide, wide, wide, backend="triton"))
    assert said == "its kernels compute in float32, bfloat16 and float16, not in torch.float64"
    assert refusal(lambda: attend(graph, x, x, x, Dot(cap=2.0), backend="triton")) == "it has no soft cap"
    said = refusal(lambda: attend(graph, x, x, x, Kernel(torch.exp), backend="triton"))
    assert said == "it has no Kernel score: it takes Dot, Additive, GatedAdditive and Uniform"
    said = refusal(lambda: attend(graph, x, x, x, return_weights=True, backend="triton"))
    assert said == "it does not return its weights"
    huge = torch.zeros(4, 1, 1025)
    said = refusal(lambda: attend(graph, None, None, huge, Uniform() + EdgeBias(torch.zeros(8, 1)), backend="triton"))
    assert said == "a head has 1025 channels, more than 1024"
    assert "not in torch.float64" in refusal(lambda: aggregate(graph, wide[:, 0], backend="triton"))
    assert "not in torch.float64" in refusal(lambda: collect(graph, wide[graph.senders, 0], backend="triton"))


WITHOUT = """
import torch
from edgewise import attend, causal, plan
x = torch.randn(5, 1, 2)
try:
    attend(causal(5), x, x, x, backend="triton")
except Exception as error:
    print(error)
import sys
print("triton" in sys.modules)
"""


def test_without_a_gpu_it_refuses_and_triton_is_never_loaded():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, env=environment
    )  # fmt: skip
    said, loaded = done.stdout.splitlines()
    assert said == "backend 'triton' cannot run this call: its kernels run on NVIDIA GPUs, not on cpu"
    assert loaded == "False"


def test_what_kernels_read_of_a_graph_is_made_once():
    graph = Graph.from_edge_index([[0, 1], [1, 0]], 2).to(DEVICE)
    for made in (launched.structure_of, launched.reverse_of, products.structure_of, products.reverse_of):
        assert made(graph) is made(graph)
