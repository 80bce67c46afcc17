"""Attention by windows computes what `reference` does, with its gradients, and refuses what a bit cannot say."""

from unittest import mock

import pytest
import torch

from edgewise import Additive, Dot, Graph, SenderBias, aggregate, attend, complete, plan, window
from edgewise.errors import BackendRefusal
from edgewise.kernels import BACKENDS
from edgewise.kernels.backends.cuda import bitmap
from edgewise.kernels.backends.cuda.programs import building
from edgewise.kernels.call import Attend
from kernels.drawn import CHANNELS, attention, disjoint_graphs, number, pick, random_graph, results, same
from pretend import Card
from triton_device import DEVICE


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    """Windows are cut at 40 columns instead of hundreds."""
    monkeypatch.setattr(building, "CHUNK", 40)


def moved(leaves):
    return {name: leaf.float().double().to(DEVICE) for name, leaf in leaves.items()}


@pytest.mark.parametrize("part", range(8))
def test_random_graphs_agree_with_reference(part):
    torch.manual_seed(part)
    graph = disjoint_graphs(25).coalesce().to(DEVICE)
    heads, batch = number(1, 2), pick([(), (), (2,)])
    channels, values = min(pick(CHANNELS), 128), min(pick(CHANNELS), 128)
    kind = "dot" if channels > 16 else "dot scaled by head"  # by about 1: scores of more channels are large
    leaves, call = attention(graph, kind, "", heads, pick([1, heads]), channels, values, batch)
    leaves = moved(leaves)
    expected = results(call, leaves, "reference")
    same(results(call, leaves, "bitmap", torch.float32), expected, 1e-5, (part, heads, channels, values))


def test_long_windows_are_cut_and_merged():
    graph = Graph.from_edge_index(
        torch.stack([torch.randint(200, (600,)), torch.randint(20, (600,)) ** 2 // 20]), 200, 20
    )
    graph = graph.coalesce().to(DEVICE)
    assert len(bitmap.structure_of(graph)[4]) >= 4
    leaves, call = attention(graph, "dot", "", 2, 2, 8, 12)
    leaves = moved(leaves)
    same(results(call, leaves, "bitmap", torch.float32), results(call, leaves, "reference"), 1e-5)


def relative_error(found, expected):
    return float((found.double() - expected).norm() / expected.norm().clamp(min=1e-30))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_error_is_at_most_twice_that_of_plain_pytorch(dtype):
    graph = random_graph(40, 48, 800).coalesce().to(DEVICE)
    leaves, call = attention(graph, "dot", "", 1, 1, 32, 16)
    leaves = {name: leaf.to(DEVICE, dtype).double() for name, leaf in leaves.items()}
    exact = results(call, leaves, "segment")
    plain, found = (results(call, leaves, backend, dtype) for backend in ("segment", "bitmap"))
    for name, value in exact.items():
        assert found[name].dtype == dtype
        ours, theirs = relative_error(found[name], value), relative_error(plain[name], value)
        assert ours <= 2 * theirs + torch.finfo(dtype).eps / 8, f"{name}: {ours:.1e}, and {theirs:.1e} in plain PyTorch"


@pytest.mark.parametrize(("senders", "receivers"), [(0, 0), (0, 3), (3, 0), (3, 18)])
def test_receivers_without_senders_get_0(senders, receivers):
    graph = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64, device=DEVICE), senders, receivers)
    q = torch.randn(receivers, 2, 4, device=DEVICE, requires_grad=True)
    k = torch.randn(senders, 2, 4, device=DEVICE, requires_grad=True)
    y = attend(graph, q, k, k, backend="bitmap")
    assert torch.equal(y, torch.zeros(receivers, 2, 4, device=DEVICE))
    y.sum().backward()
    assert torch.equal(q.grad, torch.zeros_like(q))
    assert torch.equal(k.grad, torch.zeros_like(k))


@pytest.mark.parametrize("how", ["transposed", "sliced", "off by one"])
def test_inputs_may_lie_in_memory_in_any_way(how):
    leaves, call = attention(random_graph(9, 9, 30).coalesce().to(DEVICE), "dot", "", 2, 2, 8, 8)
    packed = {name: leaf.to(DEVICE, torch.float32) for name, leaf in leaves.items()}
    elsewhere = {
        "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
        "sliced": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
        "off by one": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    }[how]
    found = call({name: elsewhere(x) for name, x in packed.items()}, "bitmap")
    assert torch.equal(found, call(packed, "bitmap"))


def test_large_scores_are_stable_and_two_runs_give_the_same_bits():
    leaves, call = attention(random_graph(20, 20, 200).coalesce().to(DEVICE), "dot", "", 1, 1, 8, 8)
    leaves = moved({name: 100 * x if name == "q" else x for name, x in leaves.items()})
    first, second = (results(call, leaves, "bitmap", torch.float32) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    same(first, results(call, leaves, "reference"), 2e-3)  # scores of hundreds are known to 1e-5


def test_second_derivatives_are_those_of_plain_pytorch():
    leaves, call = attention(random_graph(6, 6, 20).coalesce().to(DEVICE), "dot", "", 1, 1, 3, 2)
    found = []
    for backend in ("bitmap", "segment"):
        given = {name: x.to(DEVICE, torch.float32).requires_grad_() for name, x in leaves.items()}
        first = torch.autograd.grad(call(given, backend).square().sum(), list(given.values()), create_graph=True)
        found.append(torch.autograd.grad(sum(x.square().sum() for x in first), list(given.values())))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_the_operators_pass_pytorchs_own_check():
    graph = random_graph(9, 8, 30).coalesce().to(DEVICE)
    structure, reverse = bitmap.structure_of(graph), bitmap.structure_of(graph.transpose()[0])
    q, k, v = (torch.randn(1, n, 1, 4, device=DEVICE, requires_grad=True) for n in (9, 8, 8))
    index = graph.senders.to(torch.int32)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    operators = torch.ops.edgewise
    inputs = (q, k, v, graph.offsets, index, structure, reverse, 0.5)
    torch.library.opcheck(operators.attend_windows.default, inputs, test_utils=tests)
    q, k, v = (x.detach() for x in (q, k, v))
    inputs = (q, k, v, *inputs[3:])
    y, lse = bitmap.attend(bitmap.WindowsAttention(*inputs))
    inputs = (*inputs, y, lse, torch.randn_like(y), [True] * 3)
    torch.library.opcheck(operators.attend_windows_gradient.default, inputs, test_utils=tests)


def test_refusals_say_what_it_does_not_do():
    graph, x = random_graph(4, 4, 8).coalesce().to(DEVICE), torch.randn(4, 1, 2, device=DEVICE)

    def refusal(*inputs, graph=graph, **options):
        with pytest.raises(BackendRefusal) as caught:
            attend(graph, *inputs, **options, backend="bitmap")
        return str(caught.value).removeprefix("backend 'bitmap' cannot run this call: ")

    assert refusal(x[..., :1], x[..., :1], x, Additive()) == "it has no Additive score: it takes Dot"
    assert refusal(x, x, x, Dot(cap=2.0)) == "it has no soft cap"
    assert refusal(x, x, x, Dot() + SenderBias(x[..., 0])) == "it adds no SenderBias"
    assert refusal(x, x, x, dropout=0.5) == "it has no dropout"
    assert refusal(x, x, x, return_weights=True) == "it does not return its weights"
    assert "not in torch.float64" in refusal(x.double(), x.double(), x.double())
    wide = torch.randn(4, 1, 129, device=DEVICE)
    assert refusal(wide, wide, wide) == "a head has 129 channels in torch.float32, more than 128"
    twice = Graph.from_edge_index(torch.zeros(2, 2, dtype=torch.int64, device=DEVICE), 4)
    assert refusal(x, x, x, graph=twice) == "the graph has parallel edges, which it cannot count"
    with pytest.raises(BackendRefusal, match="it runs attend, not aggregate"):
        aggregate(graph, x[:, 0], backend="bitmap")


def test_it_gathers_less_where_neighbours_share_neighbours():
    def gathered(graph):
        q = torch.empty(graph.num_receivers, 1, 32, dtype=torch.bfloat16, device="meta")
        return bitmap.cost(Attend(graph, q, q, q, Dot())).rows / (2 * 32 * 2 * graph.num_edges)

    n = 4096
    near = window(n, 16)
    far = Graph.from_edge_index(torch.randint(n, (2, 16 * n)), n)
    assert gathered(near) < 0.1
    assert gathered(far) > 0.9
    sampled, bitmap_windows = bitmap.columns_of(far), len(bitmap.structure_of(far)[1])
    assert abs(sampled / bitmap_windows - 1) < 0.02


@pytest.mark.parametrize("graph", [window(4096, 16), complete(70, 50)])
def test_the_windows_of_a_rule_on_a_card_are_counted_on_the_host(graph):
    places, counted = [], bitmap.columns_of(graph)
    unique = torch.Tensor.unique

    def count(x, **options):
        places.append(x.device.type)
        return unique(x, **options)

    with Card(), mock.patch.object(torch.Tensor, "unique", count):
        assert bitmap.columns_of(graph.to("cuda")) == counted
    assert set(places) == {"cpu"}


def test_on_the_cpu_it_runs_only_by_name():
    assert BACKENDS["bitmap"].devices == ("cuda",)
    assert plan(complete(64), heads=1, channels=16).choice != "bitmap"


@pytest.mark.parametrize(
    "graph", [random_graph(200, 150, 900).coalesce(), window(200, 3), complete(70, 50), complete(9)]
)
def test_distinct_senders_of_few_windows_are_counted_and_those_of_like_windows_foretold(graph, monkeypatch):
    pairs = graph.receivers // 16 * graph.num_senders + graph.senders
    assert bitmap.columns_of(graph) == len(pairs.unique())
    monkeypatch.setattr(bitmap, "FEW", 1)  # then one window stands for all
    whole = complete(16 * 5, 20)
    assert bitmap.columns_of(whole) == 5 * 20


@pytest.mark.parametrize("senders", [1, 2, 40])
def test_the_columns_of_windows_are_their_senders(senders):
    graph = random_graph(40, senders, 100).coalesce()
    starts, column, bits, *_ = building.windows(graph.offsets, graph.senders.to(torch.int32), senders)
    window_of = torch.repeat_interleave(torch.arange(3), starts.diff())
    edges = [
        (int(w) * 16 + row, int(j))
        for w, j, word in zip(window_of, column, bits, strict=True)
        for row in range(16)
        if int(word) >> row & 1
    ]
    assert sorted(edges) == sorted(zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True))
    nothing = graph.keep_edges(graph.senders < 0)
    assert len(building.windows(nothing.offsets, nothing.senders.to(torch.int32), 0)[1]) == 0
