"""Sizes of zero, points far from the origin, huge rules, and tensors that are written behind a graph's back."""

import itertools

import pytest
import torch

from edgewise import (
    Additive,
    BackendRefusal,
    Dot,
    GatedAdditive,
    Gaussian,
    Graph,
    GraphError,
    Kernel,
    SenderBias,
    Uniform,
    aggregate,
    attend,
    blocks,
    causal,
    collect,
    complete,
    window,
)

ON_CPU = [None, "native", "tiled", "dense", "segment", "factored", "reference"]


def drawn(receivers, senders, edges=9):
    if not (receivers and senders):
        return Graph.from_edge_index(torch.zeros(2, 0).long(), senders, receivers)
    generator = torch.Generator().manual_seed(0)
    ends = [torch.randint(size, (edges,), generator=generator) for size in (senders, receivers)]
    return Graph.from_edge_index(torch.stack(ends), senders, receivers)


GRAPHS = {
    "edges": drawn,
    "no edges": lambda receivers, senders: drawn(receivers, senders, 0),
    "causal": lambda receivers, senders: causal(receivers),
    "complete": complete,
    "blocks": lambda receivers, senders: blocks([receivers, senders]),
    "window": lambda receivers, senders: window(receivers, 2),
}
SCORES = {
    "dot": lambda heads, channels: Dot(),
    "additive": lambda heads, channels: Additive(),
    "gated": lambda heads, channels: GatedAdditive(torch.ones(heads, channels)),
    "gaussian": lambda heads, channels: Gaussian(),
    "uniform": lambda heads, channels: Uniform(),
    "kernel": lambda heads, channels: Kernel(torch.exp),
}


SIZES = list(itertools.product((0, 4), (0, 4), (0, 3), (0, 3)))  # receivers, senders, channels, values
BATCHES = ((), (0,), (2,))


@pytest.mark.parametrize("backend", ON_CPU)
def test_attention_of_nothing_is_nothing(backend):
    heads, ran = 2, 0
    cases = itertools.product(GRAPHS.values(), SCORES.items())
    # Of each score on each kind of graph six sizes: all sixteen come with each score.
    for n, ((make, (name, score)), part) in enumerate(itertools.product(cases, range(6))):
        receivers, senders, channels, values = SIZES[(n * 7) % len(SIZES)]
        batch, graph = BATCHES[(n + part) % 3], make(receivers, senders)
        width = 1 if name == "additive" else channels
        sizes = (graph.num_receivers, width), (graph.num_senders, width), (graph.num_senders, values)
        q, k, v = (torch.randn(*batch, rows, heads, last, requires_grad=True) for rows, last in sizes)
        ends = (None, None) if name == "uniform" else (q, k)
        try:
            y = attend(graph, *ends, v, score(heads, channels), backend=backend)
        except BackendRefusal:
            assert backend is not None
            continue
        ran += 1
        assert y.shape == (*batch, graph.num_receivers, heads, values)
        assert y.isfinite().all() and y.requires_grad
        y.sum().backward()
        assert v.grad is not None and v.grad.isfinite().all()
    assert ran >= 12


@pytest.mark.parametrize("backend", [None, "native", "segment", "reference"])
@pytest.mark.parametrize("kind", GRAPHS)
def test_sums_of_nothing_are_nothing(kind, backend):
    reductions = ("sum", "mean", "max", "min")
    for n, (receivers, senders, channels) in enumerate(itertools.product((0, 4), (0, 4), (0, 3))):
        graph, batch, reduce = GRAPHS[kind](receivers, senders), BATCHES[n % 3], reductions[n % 4]
        x = torch.randn(*batch, graph.num_senders, channels, requires_grad=True)
        y = aggregate(graph, x, torch.rand(graph.num_edges), reduce, backend=backend)
        m = torch.randn(*batch, graph.num_edges, channels, requires_grad=True)
        z = collect(graph, m, reduce, backend=backend)
        assert y.shape == z.shape == (*batch, graph.num_receivers, channels)
        (y.sum() + z.sum()).backward()
        assert x.grad is not None and m.grad is not None


@pytest.mark.parametrize(
    ("kind", "scale", "offset"),
    [("edges", 0.1, 1e3), ("edges", 1.0, 1e6), ("complete", 10.0, 0.0), ("complete", 1.0, 1e3), ("window", 1.0, 1e6)],
)
def test_a_gaussian_loses_no_digits_far_from_the_origin(kind, scale, offset):
    def written_out(q, k, v):
        s = (q[i] - k[j]).square().sum(-1) / -2
        pairs = s.new_full((40, 40, s.shape[1]), float("-inf")).index_put((i, j), s)
        top = pairs.detach().amax(1).clamp(min=-1e30)
        w = (s - top[i]).exp()
        total = torch.zeros_like(top).index_add(0, i, w)
        weights = w / torch.where(total == 0, 1, total)[i]
        return torch.zeros_like(v).index_add(0, i, weights.unsqueeze(-1) * v[j])

    def results(function, q, k, v):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        y = function(*leaves)
        y.square().sum().backward()
        return [y.detach(), *(x.grad for x in leaves)]

    ours, plain = [0.0] * 4, [0.0] * 4  # sums of squared errors of y, dq, dk and dv
    for seed in range(6):
        graph = GRAPHS[kind](40, 40) if kind != "edges" else drawn_once(seed)
        i, j = graph.receivers, graph.senders
        q, k, v = torch.randn(3, 40, 2, 8, generator=torch.Generator().manual_seed(seed))
        q, k = q * scale + offset, k * scale + offset
        exact = results(written_out, *(x.double() for x in (q, k, v)))
        for errors, function in ((ours, lambda q, k, v: attend(graph, q, k, v, Gaussian())), (plain, written_out)):  # noqa: B023
            for n, (a, b) in enumerate(zip(results(function, q, k, v), exact, strict=True)):
                errors[n] += float((a - b).square().sum())
    assert all(a <= 4 * b for a, b in zip(ours, plain, strict=True)), (ours, plain)


def drawn_once(seed):
    """A graph without parallel edges."""
    return Graph.from_edge_index(
        (torch.rand(40, 40, generator=torch.Generator().manual_seed(seed)) < 0.1).nonzero().t(), 40
    )


def test_a_graph_that_was_written_is_refused():
    x = torch.randn(6, 2, 4)
    for name, index in (("senders", 0), ("offsets", 1), ("receivers", 0)):
        graph = drawn(6, 6)
        attend(graph, x, x, x)
        getattr(graph, name)[index] = 10**9
        for call in (lambda: attend(graph, x, x, x), lambda: aggregate(graph, x[:, 0]), lambda: graph.transpose()):  # noqa: B023
            with pytest.raises(GraphError, match=rf"immutable, but its {name} were written in place"):
                call()
    graph = drawn(6, 6)
    graph.senders[0] = 10**9  # before anything was computed with it
    with pytest.raises(GraphError, match="immutable"):
        attend(graph, x, x, x)


@pytest.mark.parametrize("backend", [None, "native", "tiled", "dense", "segment"])
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_gradients_beyond_the_neighbours_of_a_nan_are_finite(name, backend):
    graph, bad = window(40, 1), 17
    leaves = {key: torch.randn(40, 2, 8, generator=torch.Generator().manual_seed(n)) for n, key in enumerate("qkv")}
    leaves[name][bad] = float("nan")
    leaves = {key: x.requires_grad_() for key, x in leaves.items()}
    attend(graph, *leaves.values(), backend=backend).sum().backward()
    far = (torch.arange(40) - bad).abs() > 2
    assert all(x.grad[far].isfinite().all() for x in leaves.values())


@pytest.mark.parametrize("backend", [None, "segment", "reference"])
@pytest.mark.parametrize("make", [causal, complete])
def test_biases_of_a_kernel_score_may_be_large_and_mask_senders(make, backend):
    v = torch.randn(4, 1, 3)
    masked = torch.full((4, 1), float("-inf"))
    none = attend(make(4), v, v, v, Kernel(torch.exp) + SenderBias(masked), backend=backend)
    assert torch.equal(none, torch.zeros_like(v))
    large = torch.tensor([[200.0], [200.0], [float("-inf")], [200.0]])
    found = attend(make(4), v, v, v, Kernel(torch.exp) + SenderBias(large), backend=backend)
    torch.testing.assert_close(
        found, attend(make(4), v, v, v, Kernel(torch.exp) + SenderBias(large - 200), backend=backend)
    )
    assert found.isfinite().all()
