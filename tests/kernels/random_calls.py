"""Random calls of the verbs and what they must return: each receiver's own equation, in float64, edge by edge."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from edgewise import (
    Additive,
    BackendRefusal,
    Dot,
    EdgeBias,
    GatedAdditive,
    Gaussian,
    Graph,
    Kernel,
    RelativeBias,
    SenderBias,
    Uniform,
    aggregate,
    attend,
    blocks,
    causal,
    collect,
    complete,
    grid,
    strided,
    window,
)

BACKENDS = (None, None, None, "native", "tiled", "dense", "segment", "factored", "reference")
SIZES = (0, 1, 2, 3, 5, 8, 17, 33, 70)
CHANNELS = (0, 1, 2, 3, 4, 7, 8, 16, 17, 32)
BAD = (float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 1e-40)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 6e-2, torch.float16: 4e-2}


@dataclass
class Trial:
    """One call: what it is in words, the call itself, what each receiver's equation gives, and how near that is due.

    Rows that are spoilt, by a node that is not finite or far too large, may hold anything; no other may notice.
    """

    what: str
    run: Callable[[], Tensor]
    expected: Callable[[], Any]
    tolerance: float
    axis: int
    spoilt: set[int]
    named: bool  # the backend, which may then refuse

    def check(self) -> None:
        try:
            y = self.run()
        except BackendRefusal:
            assert self.named, f"{self.what}: no backend takes it"
            return
        with numpy.errstate(all="ignore"):  # spoilt rows
            expected = torch.from_numpy(self.expected())
        assert y.shape == expected.shape, f"{self.what}: the shape is {list(y.shape)}, not {list(expected.shape)}"
        rows = [row for row in range(y.shape[self.axis]) if row not in self.spoilt]
        y, expected = (x.detach().double().index_select(self.axis, torch.tensor(rows).long()) for x in (y, expected))
        error = (y - expected).abs() / expected.abs().max().clamp(min=1) if y.numel() else torch.zeros(1)
        assert error.max() <= self.tolerance, f"{self.what}: off by {error.max():.1e}"


def random_graph(draw: random.Random) -> Graph:
    n, m = draw.choice(SIZES), draw.choice(SIZES)
    if not (n and m):
        edges = torch.zeros(2, 0).long()
    else:
        edges = torch.tensor([[draw.randrange(m), draw.randrange(n)] for _ in range(draw.choice((0, 1, 7, 60, 300)))])
        edges = edges.reshape(-1, 2).t().long()
    graph = draw.choice(
        [
            lambda: Graph.from_edge_index(edges, m, n),
            lambda: causal(n),
            lambda: causal(n, offset=m),
            lambda: window(n, draw.randrange(5), draw.choice((1, 1, 2)), draw.choice(("both", "past"))),
            lambda: complete(n, m),
            lambda: blocks([draw.choice(SIZES) for _ in range(draw.randrange(4))]),
            lambda: strided(n, draw.randrange(1, 5)),
            lambda: grid(draw.randrange(1, 6), draw.randrange(1, 6)),
        ]
    )()
    for _ in range(draw.choice((0, 0, 1, 2))):
        graph = transformed(graph, draw)
    return graph


def transformed(graph: Graph, draw: random.Random) -> Graph:
    square = graph.is_square
    first = draw.randrange(graph.num_receivers + 1)
    changes = [lambda: graph.transpose()[0], lambda: graph.rows(first, graph.num_receivers), graph.coalesce]
    if square:
        changes += [
            graph.add_self_loops,
            graph.remove_self_loops,
            graph.symmetrise,
            lambda: graph.subgraph([n for n in range(graph.num_receivers) if draw.random() < 0.7]),
            lambda: Graph.batch([graph, graph]),
        ]
    return draw.choice(changes)()


def tensor(draw: random.Random, *shape: int, dtype: torch.dtype) -> Tensor:
    """Numbers with an offset, in any layout: contiguous, transposed, strided, or from the middle of a storage."""
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    layout = draw.choice(("plain", "plain", "transposed", "strided", "offset"))
    scale, offset = draw.choice((0.1, 1.0, 1.0, 3.0)), draw.choice((0.0, 0.0, 0.0, 10.0))
    if dtype.itemsize < 4:  # scores are then no larger than their few digits allow
        scale, offset = 0.5, 0.0
    if layout == "transposed" and len(shape) > 1:
        x = torch.randn(*shape[:-2], shape[-1], shape[-2], generator=generator).transpose(-1, -2)
    elif layout == "strided":
        x = torch.randn(*shape[:-1], 2 * shape[-1], generator=generator)[..., ::2]
    elif layout == "offset":
        x = torch.randn(shape[0] + 3, *shape[1:], generator=generator)[3:]
    else:
        x = torch.randn(*shape, generator=generator)
    return (x * scale + offset).to(dtype)


def spoil(draw: random.Random, x: Tensor, axis: int) -> tuple[Tensor, int | None]:
    """The same, in one trial of six with a node that is not finite, or far too large; and that node."""
    if x.numel() == 0 or draw.random() > 1 / 6:
        return x, None
    x, node = x.clone(), draw.randrange(x.shape[axis])
    x.select(axis, node).copy_(torch.tensor(draw.choice(BAD)))
    return x, node


def trial(seed: int) -> Trial:
    draw = random.Random(seed)
    graph, backend = random_graph(draw), draw.choice(BACKENDS)
    dtype = draw.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16))
    verb = draw.choice(("attend", "attend", "aggregate", "collect"))
    batch = draw.choice(((), (), (1,), (2,), (0,), (2, 3)))
    make = attention if verb == "attend" else summed
    return make(draw, verb, graph, backend, dtype, batch)


def attention(draw, verb, graph, backend, dtype, batch) -> Trial:
    receivers, senders, edges = graph.num_receivers, graph.num_senders, graph.num_edges
    heads, channels, values = draw.choice((1, 2, 3, 4)), draw.choice(CHANNELS), draw.choice(CHANNELS)
    groups = heads if draw.random() < 0.8 else 1
    kind = draw.choice(("dot", "dot", "additive", "gated", "gaussian", "uniform", "kernel"))
    channels, groups = 1 if kind == "additive" else channels, heads if kind == "uniform" else groups
    q, bad_q = spoil(draw, tensor(draw, *batch, receivers, heads, channels, dtype=dtype), -3)
    k, bad_k = spoil(draw, tensor(draw, *batch, senders, groups, channels, dtype=dtype), -3)
    v, bad_v = spoil(draw, tensor(draw, *batch, senders, groups, values, dtype=dtype), -3)
    spoilt = {int(i) for i, j in zip(graph.receivers, graph.senders, strict=True) if int(j) in (bad_k, bad_v)} | {bad_q}
    a = tensor(draw, heads, channels, dtype=dtype)
    score = {
        "dot": lambda: Dot(scale=draw.choice((None, 0.5)), cap=draw.choice((None, None, 4.0))),
        "additive": Additive,
        "gated": lambda: GatedAdditive(a),
        "gaussian": lambda: Gaussian(draw.choice((0.7, 2.0))),
        "uniform": Uniform,
        "kernel": lambda: Kernel(torch.sigmoid),
    }[kind]()
    plain = score
    added = draw.choice((None, None, "edge", "sender", "relative"))
    bias = None
    if added == "edge":
        bias = tensor(draw, edges, draw.choice((1, heads)), dtype=dtype)
        score = score + EdgeBias(bias)
    elif added == "sender":
        values_of = tensor(draw, senders, draw.choice((1, heads)), dtype=dtype)
        score, bias = score + SenderBias(values_of), values_of[graph.senders]
    elif added == "relative":
        relative = RelativeBias(tensor(draw, heads, 5, dtype=dtype))
        score, bias = score + relative, relative.on_edges(graph)
    ends = (None, None) if kind == "uniform" else (q, k)

    def expected() -> numpy.ndarray:
        i, j = graph.receivers.numpy(), graph.senders.numpy()
        q64, k64, v64 = (x.double().numpy() for x in (q, k, v))
        k64, v64 = (numpy.repeat(x, heads // groups, -2) for x in (k64, v64))
        y = numpy.zeros((*batch, receivers, heads, values))
        b64 = None if bias is None else numpy.broadcast_to(bias.double().numpy(), (edges, heads))
        for row in range(receivers):
            own = numpy.flatnonzero(i == row)
            if not len(own):
                continue
            q_i, k_j = torch.from_numpy(q64[..., row : row + 1, :, :]), torch.from_numpy(k64[..., j[own], :, :])
            if kind == "uniform":
                s = numpy.zeros((*batch, len(own), heads))
            else:
                same = GatedAdditive(a.double(), plain.slope) if kind == "gated" else plain
                s = same.pairwise(q_i, k_j).numpy()
            if kind == "kernel":
                w = s * (1 if b64 is None else numpy.exp(b64[own]))
            else:
                s = s if b64 is None else s + b64[own]
                w = numpy.exp(s - s.max(-2, keepdims=True))
            total = w.sum(-2, keepdims=True)
            p = w / numpy.where(total == 0, 1, total)
            y[..., row, :, :] = (p[..., None] * v64[..., j[own], :, :]).sum(-3)
        return y

    what = f"{graph}: attend {kind} + {added}, {list(q.shape)}, {list(v.shape)}, {dtype}, backend {backend}"
    return Trial(
        what,
        lambda: attend(graph, *ends, v, score, backend=backend),
        expected,
        TOLERANCE[dtype],
        -3,
        spoilt,
        backend is not None,
    )


def summed(draw, verb, graph, backend, dtype, batch) -> Trial:
    receivers, edges = graph.num_receivers, graph.num_edges
    channels, reduce = draw.choice(CHANNELS), draw.choice(("sum", "mean", "max", "min"))
    if verb == "collect":
        x, bad = spoil(draw, tensor(draw, *batch, edges, channels, dtype=dtype), -2)
        rows, weight = numpy.arange(edges), None
        run = lambda: collect(graph, x, reduce, backend=backend)  # noqa: E731
    else:
        x, bad = spoil(draw, tensor(draw, *batch, graph.num_senders, channels, dtype=dtype), -2)
        rows = graph.senders.numpy()
        weight = draw.choice((None, tensor(draw, edges, dtype=dtype)))
        run = lambda: aggregate(graph, x, weight, reduce, backend=backend)  # noqa: E731

    def expected() -> numpy.ndarray:
        x64, i = x.double().numpy(), graph.receivers.numpy()
        m = x64[..., rows, :] if weight is None else x64[..., rows, :] * weight.double().numpy()[:, None]
        y = numpy.zeros((*batch, receivers, channels))
        for row in range(receivers):
            own = numpy.flatnonzero(i == row)
            if len(own):
                y[..., row, :] = getattr(numpy, reduce)(m[..., own, :], -2)
        return y

    what = f"{graph}: {verb} {reduce}, {list(x.shape)}, weighted {weight is not None}, {dtype}, backend {backend}"
    spoilt = {int(i) for i, row in zip(graph.receivers, rows, strict=True) if row == bad}
    return Trial(what, run, expected, TOLERANCE[dtype], -2, spoilt, backend is not None)
