"""From form to form, against the dense count."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from edgewise import GraphError, native
from edgewise.graphs import Graph, strided
from edgewise.graphs import forms as lowering
from edgewise.graphs.rule import Causal, Either, Intervals, Rule


@pytest.mark.parametrize("chunk", [1, 64])
def test_lowering_in_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    whole = strided(60, 3)
    assert whole.ranges() is None
    assert len(whole.offsets) == 61
    monkeypatch.setattr(lowering, "CHUNK", chunk)
    pieces = strided(60, 3)
    assert pieces.num_edges == whole.num_edges == int(whole.dense_mask().sum())
    assert torch.equal(pieces.senders, whole.senders)
    assert torch.equal(pieces.offsets, whole.offsets)


def test_edges_in_order_already_are_copied_not_shared() -> None:
    offsets, senders = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
    graph = Graph.from_csr(offsets, senders, 2)
    senders[0], offsets[1] = 1, 0
    assert (graph.senders.tolist(), graph.offsets.tolist()) == ([0, 1], [0, 1, 2])


# In C++, against the same in PyTorch

compiled = pytest.mark.skipif(native.library is None, reason="edgewise was installed without its C++ kernels")


def in_plain_torch(monkeypatch: pytest.MonkeyPatch, build: Callable[[], Any]) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(native, "library", None)
        return build()


def drawn_edges(seed: int) -> tuple[torch.Tensor, torch.Tensor, tuple[int, int]]:
    """Few edges or many, few nodes or many, in order or not, hubs, self-loops, parallel edges, nothing at all."""
    draw = torch.Generator().manual_seed(seed)

    def number(most: int) -> int:
        return int(torch.randint(0, most, (), generator=draw))

    shape = number(60), number(60)
    edges = number((8, 60, 900)[seed % 3]) if min(shape) else 0
    receivers = torch.randint(0, max(1, shape[0]), (edges,), generator=draw)
    senders = torch.randint(0, max(1, shape[1]), (edges,), generator=draw)
    if seed % 5 == 0:
        receivers = torch.where(torch.rand(edges, generator=draw) < 0.9, receivers[:1].sum(), receivers)
    if seed % 7 == 0:
        receivers = receivers.sort().values
    return receivers, senders, shape


@compiled
def test_edges_are_sorted_transposed_and_coalesced_as_in_plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(200):
        receivers, senders, shape = drawn_edges(seed)

        def build() -> list[torch.Tensor]:
            made = lowering.sorted_edges(receivers, senders, shape)  # noqa: B023
            graph = Graph.from_csr(made[0], made[1], shape[1])  # noqa: B023
            transposed, order = graph.transpose()
            single = graph.coalesce()
            return [*made, transposed.offsets, transposed.senders, order, single.offsets, single.senders]

        for ours, theirs in zip(build(), in_plain_torch(monkeypatch, build), strict=True):
            assert torch.equal(ours, theirs), seed


@compiled
@pytest.mark.parametrize("columns", [50_000, 2**40])  # with so many senders, an edge fills two words
def test_many_edges_are_sorted_alike_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    draw = torch.Generator().manual_seed(1)
    receivers = torch.randint(0, 50_000, (300_000,), generator=draw)
    receivers[::3] = 7
    senders = torch.randint(0, columns, (300_000,), generator=draw) // 2 * 2
    expected = in_plain_torch(monkeypatch, lambda: lowering.sorted_edges(receivers, senders, (50_000, columns)))
    for threads in (1, 2, 4):
        monkeypatch.setattr(native, "threads", lambda threads=threads: threads)
        found = lowering.sorted_edges(receivers, senders, (50_000, columns))
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found[:3], expected[:3], strict=True))


@compiled
def test_edges_that_lie_apart_in_memory() -> None:
    pairs = torch.tensor([[1, 2], [0, 1], [1, 0]])
    made = lowering.sorted_edges(pairs[:, 0], pairs[:, 1], (2, 3))
    assert [part.tolist() for part in made] == [[0, 1, 3], [1, 0, 2], [1, 2, 0], [0, 1, 1]]


def test_c_gets_no_fake_tensors() -> None:
    real = torch.zeros(3, dtype=torch.int64)
    assert lowering.compiled(real) is native.library
    with FakeTensorMode() as mode:
        assert lowering.compiled(mode.from_tensor(real)) is None
        assert lowering.compiled(real, torch.empty(3)) is None
    assert lowering.compiled(real.to("meta")) is None


@dataclass(frozen=True)
class Ahead(Rule):
    """Everyone listens to itself and to those right after it, with intervals that nobody has clipped."""

    far: int = 2
    times: int = 1
    rows: int = 1

    def listens(self, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return (j >= i) & (j < i + self.far)

    def intervals(self, i: torch.Tensor, senders: int) -> Intervals:
        starts = i[:: self.rows, None].repeat(1, self.times)
        return starts, starts + self.far


@pytest.mark.parametrize("graph", [Graph(Ahead(), 3, 4), Graph(Ahead(1, 1), 3), Graph(Ahead(0, 9), 3)])
def test_intervals_of_ones_own_rule_are_followed(graph: Graph) -> None:
    assert graph.num_edges == len(graph.senders) == int(graph.dense_mask().sum())


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Ahead(), r"of Ahead\(.*\) for receivers from position 0 on: receiver 2, range 0: \[2, 4\) is out of range"),
        (Ahead(1, 2), "receiver 0, range 1: .* starts before the range in front of it stops"),
        (Ahead(1, 9), "receiver 0, range 1: .* starts before the range in front of it stops"),
        (Ahead(-1), "receiver 0, range 0: .* stops before it starts"),
        (Ahead(1, 1, 2), "there are 2 rows for 3 receivers"),
        (Either(Causal(), Ahead()), "receiver 2, range 1: .* is out of range"),
    ],
)
def test_wrong_intervals_of_ones_own_rule_are_refused(rule: Rule, message: str) -> None:
    graph = Graph(rule, 3)
    for read in (lambda: graph.senders, graph.in_degrees, lambda: graph.num_edges):
        with pytest.raises(GraphError, match=message):
            read()


def test_edges_are_sorted_where_a_pair_is_no_number_of_64_bits() -> None:
    """They were in the order of what their products wrapped to."""
    edges = torch.tensor([[5, 2**61, 7, 5, 2**61 - 1], [3, 0, 1, 3, 0]])
    graph = Graph.from_edge_index(edges, num_nodes=2**62, num_receivers=4)
    assert graph.edge_index().tolist() == [[2**61 - 1, 2**61, 7, 5, 5], [0, 0, 1, 3, 3]]
    assert graph.sort_edges(torch.arange(5)).tolist() == [4, 1, 2, 0, 3]
