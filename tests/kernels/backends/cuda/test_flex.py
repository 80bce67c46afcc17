"""Block masks hold every edge and no other, lists as FlexAttention's own builder makes them, and scores are theirs."""

from unittest import mock

import pytest
import torch
from torch._dynamo.exc import FailOnRecompileLimitHit
from torch._dynamo.testing import CompileCounter
from torch.nn.attention import flex_attention as pytorch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from edgewise import (
    Additive,
    BackendRefusal,
    Dot,
    EdgeBias,
    Graph,
    RelativeBias,
    SenderBias,
    attend,
    blocks,
    causal,
    complete,
    window,
)
from edgewise.kernels.backends.cuda import flex
from edgewise.kernels.call import Attend
from kernels.drawn import distance, number

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def random_ranges(receivers: int, senders: int, intervals: int) -> Graph:
    """Ascending, disjoint intervals; about a quarter of the receivers have none, and some hear everybody."""
    bounds = torch.randint(0, senders + 1, (receivers, 2 * intervals)).sort(1).values
    bounds[torch.rand(receivers) < 0.25] = 0
    if torch.rand(()) < 0.5:
        first = number(0, max(0, receivers - 140))
        bounds[first : first + 140, :-1], bounds[first : first + 140, -1] = 0, senders
    return Graph.from_ranges(bounds[:, ::2].contiguous(), bounds[:, 1::2].contiguous(), senders)


def as_edges(graph: Graph) -> Graph:
    return Graph.from_csr(graph.offsets, graph.senders, graph.num_senders)


PATTERNS = {
    "causal": causal(300),
    "causal, offset": causal(150, offset=77),
    "window": window(700, 20),
    "rows of a window of the past": window(300, 20, sides="past").rows(40, 290),
    "blocks": blocks([130, 200, 3]),
    "blocks, empty": blocks([150, 0, 7], senders=[0, 4, 290]),
    "others": complete(260).remove_self_loops(),
    "complete": complete(256, 384),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_attention_on_a_pattern_is_that_of_the_equation(name):
    graph = PATTERNS[name].to(DEVICE)
    q, k = (torch.randn(nodes, 2, 16, device=DEVICE) for nodes in (graph.num_receivers, graph.num_senders))
    with uncompiled():
        y = attend(graph, q, k[:, :1], k[:, :1], Dot(0.7), backend="flex")
    assert distance(y, attend(graph, q, k[:, :1], k[:, :1], Dot(0.7), backend="reference")) <= 1e-5


def test_the_mask_is_built_once_for_a_graph():
    graph, q = window(300, 20).to(DEVICE), torch.randn(300, 1, 16, device=DEVICE)
    with mock.patch.object(flex, "tiles", wraps=flex.tiles) as build, uncompiled():
        attend(graph, q, q, q, backend="flex")
        attend(graph, 2 * q, q, q, backend="flex")
    assert build.call_count == 1


def uncompiled():
    """FlexAttention as it is written, without the compiler: PyTorch's own flag for debugging."""
    return mock.patch.object(pytorch, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", DEVICE == "cpu")


def scores(graph: Graph, heads: int, batch: tuple[int, ...]):
    """A score with every bias, and the tensors that it learns."""
    learnt = {
        "table": torch.randn(heads, 2 * 7 + 1),
        "sender": torch.randn(graph.num_senders, heads),
        "edge": torch.randn(*batch, graph.num_edges, 1),
        "edge of a head": torch.randn(graph.num_edges, heads),
    }

    def score(x):
        biases = (RelativeBias(x["table"]), SenderBias(x["sender"]), EdgeBias(x["edge"]), EdgeBias(x["edge of a head"]))
        return sum(biases, Dot(cap=3.0))

    return learnt, score


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_every_score_is_that_of_the_equation_with_its_first_and_second_derivatives():
    graph = random_ranges(150, 130, 2).to(DEVICE)
    learnt, score = scores(graph, 4, (2,))
    ends = {
        "q": (2, graph.num_receivers, 4, 16),
        "k": (2, graph.num_senders, 2, 16),
        "v": (2, graph.num_senders, 2, 24),
    }
    leaves = {name: torch.randn(shape) for name, shape in ends.items()} | learnt
    leaves = {name: leaf.to(DEVICE) for name, leaf in leaves.items()}

    def results(backend):
        x = {name: leaf.clone().requires_grad_() for name, leaf in leaves.items()}
        call = Attend(graph, x["q"], x["k"], x["v"], score(x))
        y = flex.run(call) if backend == "flex" else attend(graph, call.q, call.k, call.v, call.score, backend=backend)
        dy = torch.linspace(-1, 1, y.numel(), device=DEVICE).view(y.shape)
        first = torch.autograd.grad(y, list(x.values()), dy, retain_graph=True)
        again = torch.autograd.grad(y, list(x.values()), dy, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in again), list(x.values()))
        named = {name: tuple(zip(x, found, strict=True)) for name, found in (("first", first), ("second", second))}
        return {"output": y} | {(order, name): g for order, found in named.items() for name, g in found}

    # On the CPU PyTorch refuses gradients at the door, though the operator behind it has them.
    torch._dynamo.reset()
    with mock.patch.object(pytorch, "_validate_device", return_value=None):
        found = results("flex")
    for name, value in results("reference").items():
        assert distance(found[name].detach(), value.detach()) <= (1e-4 if name[0] == "second" else 1e-5), name


@pytest.mark.compiled
@pytest.mark.parametrize("kept", [True, False])
def test_what_it_compiled_is_kept_for_a_second_backward_pass_only_where_that_is_asked_for(kept):
    graph, q = window(40, 3).to(DEVICE), torch.randn(40, 2, 16, device=DEVICE, requires_grad=True)
    seen, grad = [], torch.autograd.grad

    def watched(*inputs, **options):
        seen.append(options.get("retain_graph"))
        return grad(*inputs, **options)

    torch._dynamo.reset()
    with mock.patch.object(pytorch, "_validate_device", return_value=None):
        y = flex.run(Attend(graph, q, q, q, Dot()))
        with mock.patch.object(torch.autograd, "grad", watched):
            y.sum().backward(retain_graph=kept)
    assert seen == [kept]
    first, q.grad = q.grad, None
    if kept:
        y.sum().backward()
        torch.testing.assert_close(q.grad, first)
    else:
        with pytest.raises(RuntimeError, match="second time"):
            y.sum().backward()


@pytest.mark.compiled
def test_graphs_of_other_sizes_share_what_was_compiled():
    torch._dynamo.reset()
    count = CompileCounter()
    compiled = torch.compile(pytorch.flex_attention, backend=count, fullgraph=True)
    with mock.patch.object(flex, "_flex_attention", return_value=compiled):
        for n in (300, 450, 700):
            graph, q = window(n, n // 10).to(DEVICE), torch.randn(n, 1, 16, device=DEVICE)
            score = Dot(scale=n / 1000, cap=n / 100) + EdgeBias(torch.randn(graph.num_edges, 1, device=DEVICE))
            y = attend(graph, q, q, q, score, backend="flex")
            torch.testing.assert_close(y, attend(graph, q, q, q, score, backend="segment"), rtol=1e-5, atol=1e-5)
    assert count.frame_count == 2, "one for the first size, and one for all others"


def test_beyond_the_limit_of_recompilation_another_backend_runs(monkeypatch):
    def full(*inputs, **options):
        raise FailOnRecompileLimitHit("recompile_limit reached with fullgraph=True")

    monkeypatch.setattr(flex, "_flex_attention", lambda device: full)
    q = torch.randn(9, 2, 16)
    with pytest.warns(UserWarning, match="others run on segment"):
        y = attend(window(9, 2), q, q, q, backend="flex")
    torch.testing.assert_close(y, attend(window(9, 2), q, q, q, backend="reference"))


@pytest.mark.parametrize(
    ("graph", "score", "options", "reason"),
    [
        (as_edges(window(9, 1)), Dot(), {}, "on graphs whose senders are ranges only"),
        (Graph.from_csr([0, 0], [], 1), Dot(), {}, "no edges"),
    ],
)
def test_refusals_name_their_reason(graph, score, options, reason):
    graph, width = graph.to(DEVICE), 1 if isinstance(score, Additive) else 16
    q, k = (torch.zeros(nodes, 1, width, device=DEVICE) for nodes in (graph.num_receivers, graph.num_senders))
    with pytest.raises(BackendRefusal, match=reason):
        attend(graph, q, k, k, score, backend="flex", **options)


def test_it_refuses_narrow_heads_and_gradients_on_the_cpu():
    graph = window(9, 1).to(DEVICE)
    x = torch.zeros(9, 1, 8, device=DEVICE)
    assert flex.BACKEND.refusal(Attend(graph, x, x, x, Dot())) == "a head has 8 channels, fewer than 16"
    x = torch.zeros(9, 1, 16, requires_grad=True)
    reason = "FlexAttention has no gradients on the CPU"
    assert flex.BACKEND.refusal(Attend(window(9, 1), x, x, x, Dot())) == reason
    bias = SenderBias(torch.zeros(9, 1, requires_grad=True))
    assert flex.BACKEND.refusal(Attend(window(9, 1), x.detach(), x.detach(), x.detach(), Dot() + bias)) == reason
    with torch.no_grad():
        assert flex.BACKEND.refusal(Attend(window(9, 1), x, x, x, Dot())) is None


def drawn_graphs(count: int) -> list[Graph]:
    graphs = [random_ranges(number(1, 400), number(1, 400), number(1, 3)) for _ in range(count)]
    return [graph for graph in graphs if graph.num_edges]


def listed(count: torch.Tensor, indices: torch.Tensor) -> list[list[int]]:
    """The blocks of each row."""
    rows = zip(count.flatten().tolist(), indices.flatten(0, -2).tolist(), strict=True)
    return [row[:most] for most, row in rows]


def check(graph: Graph) -> None:
    """The mask is that of the graph, and its lists are those of PyTorch's own builder, which looks at all pairs."""
    graph = graph.to(DEVICE)
    dense = graph.dense_mask()
    mask = flex.block_mask(graph)
    i, j = torch.arange(graph.num_receivers, device=DEVICE), torch.arange(graph.num_senders, device=DEVICE)
    assert torch.equal(mask.mask_mod(None, None, i[:, None], j), dense)
    shape = (graph.num_receivers, graph.num_senders)
    expected = pytorch.create_block_mask(lambda b, h, i, j: dense[i, j], 1, 1, *shape, device=DEVICE)
    assert mask.shape == expected.shape == (1, 1, *shape)
    for name in ("kv", "full_kv", "q", "full_q"):
        found, theirs = (
            listed(getattr(x, f"{name}_num_blocks"), getattr(x, f"{name}_indices")) for x in (mask, expected)
        )
        assert found == [sorted(row) for row in theirs], name
    for name in ("kv", "q"):  # PyTorch's kernels read the lists of full blocks at the strides of the others
        assert getattr(mask, f"{name}_indices").stride() == getattr(mask, f"full_{name}_indices").stride(), name


@pytest.mark.parametrize("name", PATTERNS)
def test_the_mask_of_a_pattern_is_exact(name):
    check(PATTERNS[name])


def test_the_masks_of_random_graphs_are_exact():
    for graph in drawn_graphs(20):
        check(graph)


class Touched(TorchDispatchMode):
    """Counts the numbers that all operations read and write."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        tensors = tree_leaves((args, kwargs, result))
        self.count += sum(x.numel() for x in tensors if isinstance(x, torch.Tensor))
        return result


def test_building_a_mask_takes_work_in_proportion_to_the_nodes():
    def work(n):
        graph = window(n, 128)
        with Touched() as touched:
            mask = flex.block_mask(graph)
        assert mask.kv_indices.shape[-1] <= 2 and mask.full_q_indices.shape[-1] <= 2, "no list is as long as the graph"
        return touched.count

    assert 100 * 4096 < work(65_536) / 16 <= 1.01 * work(4096), "in proportion to pairs it would be 16 times as much"
