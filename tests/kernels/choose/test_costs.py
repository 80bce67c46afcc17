"""What every backend counts of a call, to the last operation and byte: a term that is lost changes choices silently."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import asdict

import pytest
import torch
from torch import Tensor

from edgewise import (
    Additive,
    Dot,
    EdgeBias,
    Filter,
    Graph,
    Kernel,
    SenderBias,
    Uniform,
    blocks,
    causal,
    complete,
    window,
)
from edgewise.kernels import BACKENDS
from edgewise.kernels.backend import Backend
from edgewise.kernels.backends.cpu import tiled
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from recorded import check_recorded

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels for GPUs are refused where there is one")


@pytest.fixture(autouse=True)
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many pairs lie in tiles depends on how wide the machine's vectors are: here they hold edges alone."""
    monkeypatch.setattr(tiled, "pairs_of", lambda graph: graph.num_edges)


DRAWN = torch.Generator().manual_seed(0)
ENDS = torch.stack([torch.randint(n, (700,), generator=DRAWN) for n in (90, 60)])
GRAPHS = {
    "edges": Graph.from_edge_index(ENDS, 90, 60),
    "nothing": Graph.from_edge_index(ENDS[:, :0], 90, 60),
    "complete": complete(60, 90),
    "causal": causal(60),
    "late": causal(60, offset=30),
    "window": window(90, 7),
    "blocks": blocks([30, 2, 30], senders=[20, 0, 20]),
    "tile": blocks([16, 16]),
}
FIELDS = ("flops", "tiles", "edges", "bytes", "gathered", "largest", "rows", "held", "launches")


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype, device="meta")


def calls(graph: Graph) -> Iterator[tuple[str, Call]]:
    receivers, senders, edges = graph.num_receivers, graph.num_senders, graph.num_edges
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        q, k, v = (zeros(2, n, 4, c, dtype=dtype) for n, c in ((receivers, 16), (senders, 16), (senders, 24)))
        yield f"dot, {name}", Attend(graph, q, k, v, Dot())
        x, weight = zeros(3, senders, 4, 10, dtype=dtype), zeros(3, edges, 4, dtype=dtype)
        yield f"sum, {name}", Aggregate(graph, x[:, :, 0], None, "sum")
        yield f"weighted mean, {name}", Aggregate(graph, x[:, :, 0], weight[0, :, 0], "mean")
        yield f"sum by heads, {name}", Aggregate(graph, x, weight, "sum")
        yield f"max, {name}", Aggregate(graph, x[:, :, 0], None, "max")
        yield f"messages, {name}", Collect(graph, zeros(3, edges, 10, dtype=dtype), "sum")
    q, k, v = (zeros(n, 10, c) for n, c in ((receivers, 8), (senders, 8), (senders, 8)))
    yield "dropout", Attend(graph, q, k, v, Dot(), dropout=0.5)
    yield "shared keys", Attend(graph, q, k[:, :2], v[:, :2], Dot())
    yield "edge bias", Attend(graph, q, k, v, Dot() + EdgeBias(zeros(edges, 10)))
    yield "sender bias", Attend(graph, q, k, v, Dot() + SenderBias(zeros(senders, 10)))
    yield "kernel", Attend(graph, q, k, v, Kernel(torch.exp))
    yield "uniform", Attend(graph, None, None, v, Uniform())
    yield "additive", Attend(graph, q[..., :1], k[..., :1], v, Additive())
    yield "filter", Collect(graph, Filter(zeros(edges, 8), zeros(senders, 8)), "sum")


def costs(graph: Graph, backends: Iterable[Backend] = BACKENDS.values()) -> Iterator[str]:
    for what, call in calls(graph):
        for backend in backends:
            if backend.refusal_but_need(call) is None:
                cost = asdict(backend.cost(call))
                yield f"{what}: {backend.name} {', '.join(f'{cost[field]} {field}' for field in FIELDS if cost[field])}"


@pytest.mark.parametrize("name", GRAPHS)
def test_costs_are_those_on_record(name: str) -> None:
    check_recorded(f"costs/{name}", costs(GRAPHS[name]))


@pytest.mark.parametrize("name", ["edges", "blocks"])
def test_costs_on_a_gpu_are_those_on_record(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))  # counting needs no card
    on_gpu = copy.copy(GRAPHS[name])
    on_gpu.__dict__["device"] = torch.device("cuda")
    everywhere = [backend for backend in BACKENDS.values() if backend.devices is None]
    check_recorded(f"costs/{name}-cuda", costs(on_gpu, everywhere))
