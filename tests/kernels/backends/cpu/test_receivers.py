"""The operators of exported programs give what the verbs do, on edges in any order, and the C++ has their schemas."""

import re
from pathlib import Path

import pytest
import torch

import edgewise
from edgewise import Additive, Dot, EdgeBias, GatedAdditive, Graph, Uniform
from edgewise.errors import ShapeError
from edgewise.kernels.backends.cpu.receivers import OPERATORS
from edgewise.kernels.operator.attention import ADDITIVE, DOT, GATED, NONE
from edgewise.kernels.operator.products import REDUCTIONS
from edgewise.native import library
from kernels.drawn import covering

native = torch.ops.edgewise
pytestmark = pytest.mark.skipif(library is None, reason="the native kernels were not built")
RECEIVERS, SENDERS, EDGES = 6, 9, 40


def edges(count: int = EDGES) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(count)
    return torch.randint(SENDERS, (count,), generator=draw), torch.randint(RECEIVERS - 1, (count,), generator=draw)


def graph_of(senders: torch.Tensor, receivers: torch.Tensor) -> Graph:
    return Graph.from_edge_index(torch.stack([senders, receivers]), SENDERS, RECEIVERS)


@pytest.mark.parametrize("kind", ["as they come", "by receiver", "none"])
def test_edges_are_listed_by_receiver_with_their_places(kind: str) -> None:
    senders, receivers = edges(0 if kind == "none" else EDGES)
    if kind == "by receiver":
        receivers, order = receivers.sort(stable=True)
        senders = senders[order]
    offsets, index, order = native.edges_by_receiver(senders, receivers, RECEIVERS, SENDERS, True)
    assert (offsets.dtype, index.dtype, order.dtype) == (torch.int64, torch.int32, torch.int32)
    assert offsets.diff().tolist() == torch.bincount(receivers, minlength=RECEIVERS).tolist()
    assert torch.equal(senders[order], index.long())
    assert torch.equal(receivers[order], torch.arange(RECEIVERS).repeat_interleave(offsets.diff()))
    *same, nothing = native.edges_by_receiver(senders, receivers, RECEIVERS, SENDERS, False)
    assert torch.equal(same[0], offsets) and torch.equal(same[1], index) and not nothing.numel()


def test_many_edges_in_order_are_listed_in_blocks_and_rows_without_edges_between_them_kept() -> None:
    draw, rows = torch.Generator().manual_seed(0), 9_000
    receivers = (torch.randint(rows // 3, (30_000,), generator=draw) * 3 + 1).sort().values
    senders = torch.randint(SENDERS, receivers.shape, generator=draw)
    offsets, index, order = native.edges_by_receiver(senders, receivers, rows, SENDERS, True)
    assert torch.equal(offsets[1:], torch.bincount(receivers, minlength=rows).cumsum(0)) and offsets[0] == 0
    assert torch.equal(index.long(), senders) and torch.equal(order.long(), torch.arange(len(receivers)))


WRONG = [-1, SENDERS, -(1 << 63), (1 << 63) - 1, (1 << 32) + 1]


@pytest.mark.parametrize(("wrong", "place", "end"), covering(2 * WRONG, [0, 2_047, 2_048, 4_999], [0, 1]))
def test_one_edge_out_of_bounds_among_many_is_refused(wrong: int, place: int, end: int) -> None:
    ends = torch.zeros(2, 5_000, dtype=torch.int64)
    ends[end, place] = wrong
    with pytest.raises(ShapeError, match=rf"{('senders', 'receivers')[end]} must lie in 0, \.\.\., 8: "):
        native.edges_by_receiver(*ends, SENDERS, SENDERS, True)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64])
def test_edges_of_another_dtype_or_number_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ShapeError, match=r"must be torch\.int64"):
        native.edges_by_receiver(torch.zeros(3, dtype=dtype), torch.zeros(3, dtype=torch.int64), 2, 2, True)
    with pytest.raises(ShapeError, match=r"receivers is \[2\]"):
        native.edges_by_receiver(*(torch.zeros(n, dtype=torch.int64) for n in (3, 2)), 2, 2, True)


@pytest.mark.parametrize("kind", [DOT, ADDITIVE, GATED, NONE])
@pytest.mark.parametrize("biased", [False, True])
def test_attention_is_that_of_the_verb(kind: int, biased: bool) -> None:
    senders, receivers = edges()
    width = 1 if kind == ADDITIVE else 4
    q, k, v, a = torch.randn(RECEIVERS, 2, width), torch.randn(SENDERS, 2, width), torch.randn(SENDERS, 2, 3), None
    if kind == NONE:
        q = k = None
    if kind == GATED:
        a = torch.randn(2, 4)
    score = {DOT: Dot(0.5), ADDITIVE: Additive(0.1), GATED: GatedAdditive(a, 0.1), NONE: Uniform()}[kind]
    offsets, index, order = native.edges_by_receiver(senders, receivers, RECEIVERS, SENDERS, True)
    bias, graph = torch.randn(EDGES, 2) if biased else None, graph_of(senders, receivers)
    if bias is not None:
        score = score + EdgeBias(graph.sort_edges(bias))
        bias = bias[order][None]
    given = [None if x is None else x[None] for x in (q, k, v)]
    y = native.attend_by_receiver(*given, a, bias, offsets, index, kind, 0.5, 0.1)
    expected = edgewise.attend(graph, q, k, v, score, backend="reference")
    torch.testing.assert_close(y[0], expected, rtol=0, atol=1e-5)
    assert not y[0, -1].any()  # a receiver without senders


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_the_verb(reduce: str, weighted: bool) -> None:
    senders, receivers = edges()
    x, w = torch.randn(SENDERS, 5), torch.randn(EDGES) if weighted else None
    offsets, index, order = native.edges_by_receiver(senders, receivers, RECEIVERS, SENDERS, True)
    rows, weight = x[None, :, None], None if w is None else w.reshape(1, -1, 1)
    y = native.sum_by_receiver(rows, weight, offsets, index, order if weighted else None, REDUCTIONS[reduce])
    graph = graph_of(senders, receivers)
    weight = None if w is None else graph.sort_edges(w)
    expected = edgewise.aggregate(graph, x, weight, reduce, backend="reference")
    torch.testing.assert_close(y[0, :, 0], expected, rtol=0, atol=1e-5)


def test_there_is_no_negative_number_of_nodes() -> None:
    senders, receivers = torch.tensor([[0, 5, 2], [2, 0, 1]])
    for counts in ((3, -1), (-1, 6)):
        with pytest.raises(ShapeError, match="there cannot be -1 nodes"):
            native.edges_by_receiver(senders, receivers, *counts, True)


def test_no_nodes_have_no_results() -> None:
    offsets, index, _ = native.edges_by_receiver(*(torch.zeros(0, dtype=torch.int64),) * 2, 0, 0, True)
    assert native.sum_by_receiver(torch.ones(1, 0, 1, 3), None, offsets, index, None, 0).shape == (1, 0, 1, 3)
    v = torch.ones(1, 0, 2, 3)
    assert native.attend_by_receiver(None, None, v, None, None, offsets, index, NONE, 1.0, 0.0).shape == (1, 0, 2, 3)


def test_wrong_shapes_are_refused() -> None:
    offsets, index, _ = native.edges_by_receiver(*edges(), RECEIVERS, SENDERS, True)
    q, v = torch.ones(1, RECEIVERS + 1, 2, 3), torch.ones(1, SENDERS, 2, 3)
    with pytest.raises(ShapeError, match="q is"):
        native.attend_by_receiver(q, v, v, None, None, offsets, index, DOT, 1.0, 0.0)
    with pytest.raises(ShapeError, match="index must lie in"):
        native.sum_by_receiver(torch.ones(1, 2, 1, 3), None, offsets, index, None, 0)


def test_the_cpp_has_the_same_schemas() -> None:
    source = (Path(edgewise.__file__).parent / "native" / "operators.cpp").read_text("utf-8")
    (listed,) = re.findall(r"SCHEMAS\[\] = \{(.*?)\n\};", source, re.S)
    assert re.findall(r'"(.*?)"', re.sub(r'"\s+"', "", listed)) == list(OPERATORS)
