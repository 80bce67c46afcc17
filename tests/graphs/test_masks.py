"""A mask's graph is what the mask says, in the form that kernels run; attention on it is that of the dense oracle."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask

from edgewise.errors import GraphError
from edgewise.graphs import Graph, causal, complete, window
from edgewise.graphs.rule import Blocks, Both, Causal
from pretend import CARD, Card

NUMBER = torch.tensor([0] * 7 + [1] * 4 + [2] * 9)
CHOSEN = torch.rand(5, 5, generator=torch.Generator().manual_seed(1)) < 0.5
N = len(NUMBER)

MASKS: dict[str, tuple[Callable[..., Any], Any]] = {
    "complete": (lambda b, h, q, k: (q >= 0) & (k >= 0), complete(N).rule),
    "causal": (lambda b, h, q, k: q >= k, Causal()),
    "sliding": (lambda b, h, q, k: (q >= k) & (q - k < 4), window(N, 3, sides="past").rule),
    "window": (lambda b, h, q, k: (q - k).abs() <= 2, window(N, 2).rule),
    "document": (lambda b, h, q, k: NUMBER[q] == NUMBER[k], Blocks((7, 4, 9), (7, 4, 9))),
    "causal-document": (
        lambda b, h, q, k: (NUMBER[q] == NUMBER[k]) & (q >= k),
        Both(Blocks((7, 4, 9), (7, 4, 9)), Causal()),
    ),
    "prefix-lm": (lambda b, h, q, k: (k < 6) | (q >= k), None),
    "random-block": (lambda b, h, q, k: CHOSEN[q // 4, k // 4], None),
    "scattered": (lambda b, h, q, k: (7 * q + 3 * k) % 5 == 0, None),
    "one column": (lambda b, h, q, k: k == 3, None),
    "nothing": (lambda b, h, q, k: q < 0, None),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_the_graph_that_flex_attention_sees(name: str) -> None:
    mask, rule = MASKS[name]
    graph = Graph.from_mask(mask, N)
    dense = create_mask(mask, 1, 1, N, N, device="cpu")[0, 0]
    assert torch.equal(graph.dense_mask(), dense)
    assert graph == Graph.from_mask(dense)
    assert graph.num_edges == int(dense.sum())
    assert graph.rule == rule


def test_blocks_of_a_mask_are_cut_at_the_last_position() -> None:
    blocks = torch.tensor([[True, False, True], [False, True, True]])
    graph = Graph.from_mask(blocks, 5, 8, block=3)
    dense = blocks.repeat_interleave(3, 0).repeat_interleave(3, 1)[:5, :8]
    assert torch.equal(graph.dense_mask(), dense)
    assert torch.equal(Graph.from_mask(lambda b, h, q, k: q >= k, 5, block=2).dense_mask(), _past_blocks(5, 2))


def _past_blocks(n: int, block: int) -> torch.Tensor:
    at = torch.arange(n) // block
    return at[:, None] >= at


def test_a_mask_that_is_evaluated_in_parts_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewise.graphs.masks.PAIRS", 3 * N)
    for mask, rule in MASKS.values():
        assert Graph.from_mask(mask, N).rule == rule
    assert Graph.from_mask(MASKS["causal"][0], N) == causal(N)


def test_a_block_mask_of_flex_attention() -> None:
    block_mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cpu")
    assert Graph.from_mask(block_mask) == causal(256)


@pytest.mark.parametrize(
    ("mask", "what"),
    [
        (lambda b, h, q, k: (q >= k) & (h >= 0), "depends on the head: give head="),
        (lambda b, h, q, k: (q >= k) & (b >= 0), "depends on the batch: give batch="),
        (lambda b, h, q, k: q - k, "must be bool .*int64"),
        (lambda b, h, q, k: (q - k).float(), "is an EdgeBias"),
        (lambda q, k: q >= k, r"must take \(b, h, q_idx, kv_idx\)"),
        (lambda b, h, q, k: NUMBER[q + N] == 1, "within the graph: index"),
        (lambda b, h, q, k: True, "return one bool tensor"),
        (torch.ones(N, N), "is an EdgeBias"),
        (torch.ones(2, 2, dtype=torch.bool), rf"must be \[{N}, 2\]"),
        ("causal", "not str"),
    ],
)
def test_what_is_no_mask_is_refused(mask: Any, what: str) -> None:
    with pytest.raises(GraphError, match=what):
        Graph.from_mask(mask, N)


def test_masks_that_flex_attention_joins() -> None:
    from torch.nn.attention.flex_attention import and_masks, create_block_mask, or_masks

    def past(b: Any, h: Any, q: Any, kv: Any) -> Any:
        return q >= kv

    def near(b: Any, h: Any, q: Any, kv: Any) -> Any:
        return q - kv <= 1

    both = and_masks(past, or_masks(near, near))
    assert Graph.from_mask(both, 5) == window(5, radius=1, sides="past")
    assert Graph.from_mask(create_block_mask(both, None, None, 9, 9, device="cpu")) == window(9, radius=1, sides="past")
    with pytest.raises(GraphError, match="the mask depends on the batch"):
        Graph.from_mask(and_masks(past, lambda b, h, q, kv: kv <= b), 5)


def test_documents() -> None:
    bounds = torch.tensor([0, 7, 11, 11, 20], dtype=torch.int32)
    assert Graph.from_cu_seqlens(bounds) == Graph.from_mask(MASKS["document"][0], N)
    past = Graph.from_cu_seqlens(bounds, causal=True)
    assert past == Graph.from_mask(MASKS["causal-document"][0], N)
    assert past.sizes.tolist() == [7, 4, 0, 9]
    across = Graph.from_cu_seqlens([0, 2, 3], [0, 1, 4])
    assert across.dense_mask().int().tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 1]]
    assert across.sender_sizes.tolist() == [1, 3]
    assert Graph.from_cu_seqlens([0]).num_receivers == 0


@pytest.mark.parametrize(
    ("bounds", "others", "what"),
    [
        ([1, 2], None, "must start with 0"),
        ([], None, "must start with 0"),
        ([0, 3, 2], None, r"cu_seqlens\[2\] = 2 < 3"),
        ([0, 3], [0, 1, 2], "has 1 documents and cu_seqlens_k 2"),
        ([0, 3], [0, 4], "as many senders as receivers"),
        ([0.0, 3.0], None, "must hold integers"),
    ],
)
def test_bounds_that_bound_no_documents(bounds: list[Any], others: list[int] | None, what: str) -> None:
    with pytest.raises(GraphError, match=what):
        Graph.from_cu_seqlens(bounds, others, causal=True)


def among(number: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return (number[q] == number[k]) & (q % 3 >= k % 3)


def test_the_graph_of_a_function_is_where_the_tensors_are_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Graph.from_mask(partial(among, NUMBER), N).dense_mask()
    with Card():
        number = NUMBER.to("cuda")
        monkeypatch.setitem(globals(), "NUMBER", number)
        for mask in (
            partial(among, number),
            lambda b, h, q, k: among(number, b, h, q, k),
            lambda b, h, q, k: among(NUMBER, b, h, q, k),
            lambda b, h, q, k, number=number: among(number, b, h, q, k),
        ):
            graph = Graph.from_mask(mask, N)
            assert graph.device == CARD
            assert torch.equal(graph.to("cpu").dense_mask(), right)
        with pytest.raises(GraphError, match="depends on the batch"):
            Graph.from_mask(lambda b, h, q, k: number[q] == b, N)
        assert Graph.from_mask(lambda b, h, q, k: q >= k, N).device == torch.device("cpu")
