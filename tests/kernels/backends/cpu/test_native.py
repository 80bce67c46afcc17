"""The native backend computes what `reference` does, on every instruction set, or says why not."""

import subprocess
import sys

import pytest
import torch

from edgewise import Dot, Graph, aggregate, attend
from edgewise.errors import BackendRefusal
from edgewise.kernels.backends.cpu import edges, native
from edgewise.native import library, threads
from edgewise.testing import check_kernel
from kernels.drawn import (
    BIASES,
    CHANNELS,
    REDUCTIONS,
    SCORES,
    WEIGHTS,
    attention,
    covering,
    disjoint_graphs,
    messages,
    number,
    pick,
    product,
    random_graph,
    results,
    same,
)


def test_it_agrees_with_reference_on_every_kind_of_graph():
    refused = check_kernel("native")
    assert all("Kernel" in case or "capped" in case for case in refused)


# Graphs side by side in a trial: 4,000 graphs in all.
GRAPHS, TRIALS, PARTS = 20, 100, 2


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


def agrees_on_every_instruction_set(draw, widths):
    """Whether native does what plain PyTorch does; `draw` gives tensors of a width and a call of them."""
    chosen = library.instruction_set()
    try:
        for channels in widths:
            leaves, call = draw(channels)
            leaves = {name: leaf.bfloat16().double() for name, leaf in leaves.items()}
            expected = results(call, leaves, "segment")
            for name in library.instruction_sets():
                library.use_instruction_set(name)
                same(results(call, leaves, "native"), expected, 1e-10, (name, channels))
                same(results(call, leaves, "native", torch.float32), expected, 1e-4, (name, channels, "float32"))
                same(results(call, leaves, "native", torch.bfloat16), expected, 0.05, (name, channels, "bfloat16"))
    finally:
        library.use_instruction_set(chosen)


@pytest.mark.parametrize(("kind", "heads"), [("dot", 1), ("additive", 4), ("gated", 8), ("dot", 4), ("gated", 2)])
def test_any_number_of_channels_on_every_instruction_set(kind, heads):
    graph, widths = random_graph(40, 30, 300), (*range(1, 18), 24, 31, 32, 40, 64, 65, 130)
    agrees_on_every_instruction_set(lambda width: attention(graph, kind, "", heads, heads, width, width), widths)


@pytest.mark.parametrize(("reduce", "weight"), [("sum", ""), ("mean", "edge"), ("sum", "heads")])
def test_sums_of_any_number_of_channels_on_every_instruction_set(reduce, weight):
    graph, widths = random_graph(40, 30, 300), (*range(1, 21), 24, 31, 47, 64, 81, 97, 129, 200)
    agrees_on_every_instruction_set(lambda width: product(graph, reduce, weight, 3, width), widths)


# Members of a batch share a walk over the edges: as heads of attention, and as channels of sums


@pytest.fixture
def shared(monkeypatch):
    """How many members shared the walk of each call."""
    counts, members = [], native._members
    monkeypatch.setattr(native, "_members", lambda call: counts.append(members(call)) or counts[-1])
    return counts


@pytest.mark.parametrize(
    ("kind", "batch", "heads", "count"),
    [
        (*one, *more)
        for one, more in covering(
            [(kind,) for kind in SCORES], [((8,), 1, 8), ((2, 6), 1, 4), ((6,), 2, 2), ((15,), 1, 1), ((8,), 3, 1)]
        )
    ],
)
def test_members_that_share_a_walk_attend_as_each_does_alone(kind, batch, heads, count, shared):
    leaves, call = attention(random_graph(60, 50, 2000), kind, "", heads, heads, 5, 7, batch)
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    expected = results(call, leaves, "segment")
    same(results(call, leaves, "native"), expected, 1e-10)
    same(results(call, leaves, "native", torch.float32), expected, 1e-4)
    assert set(shared) == {1 if kind == "gaussian" else count}  # which is a product with a bias


@pytest.mark.parametrize(("batch", "channels", "count"), [((8,), 4, 8), ((2, 3), 3, 6), ((64,), 1, 64), ((7,), 16, 1)])
@pytest.mark.parametrize(("reduce", "weight"), list(zip(REDUCTIONS, WEIGHTS, strict=True)))
def test_members_that_share_a_walk_are_summed_as_each_is_alone(reduce, weight, batch, channels, count, shared):
    heads = 2 if "heads" in weight and channels > 1 else 1
    leaves, call = product(random_graph(60, 50, 9000), reduce, weight, heads, -(-channels // heads), batch)
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    expected = results(call, leaves, "segment")
    same(results(call, leaves, "native"), expected, 1e-10)
    same(results(call, leaves, "native", torch.float32), expected, 1e-4)
    assert set(shared) == {1 if "batch" in weight else count}


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


def test_little_work_starts_no_second_thread_and_has_the_same_bits(monkeypatch) -> None:
    used, found, before = [], [], torch.get_num_threads()
    monkeypatch.setattr(edges, "threads", lambda work: used.append(threads(work)) or used[-1])
    graph = Graph.from_edge_index(torch.randint(200, (2, 9000)), num_nodes=200)
    x = torch.randn(200, 1, 256)
    try:
        for wanted in (1, 2):
            torch.set_num_threads(wanted)
            found.append([f(graph, x[..., :width]) for width in (4, 256) for f in (_summed, _averaged)])
    finally:
        torch.set_num_threads(before)
    assert used == [1] * 4 + [1, 1, 2, 2]
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def _summed(graph: Graph, x: torch.Tensor) -> torch.Tensor:
    return aggregate(graph, x[:, 0], backend="native")


def _averaged(graph: Graph, x: torch.Tensor) -> torch.Tensor:
    return attend(graph, x, x, x, Dot(), backend="native")
