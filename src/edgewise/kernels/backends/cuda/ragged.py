"""Triton kernels on the GPU for batches of small complete graphs: one tile for each block and head, biases included.

Cost        time O(E·H·C) with every block padded on the chip to 16, 32, 64 or 128 nodes; memory O(N·H·C + E·H), and no
            padding of the batch; the same bits every time
Reference   Dao et al., FlashAttention, 2022 (its tile is here the whole block, so that nothing need be rescaled)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from edgewise.graphs import Graph, complete
from edgewise.graphs.derived import cached
from edgewise.graphs.rule import Blocks
from edgewise.kernels.backend import BLOCKS, COMPLETE, Attention, Backend, Cost, Probe, Takes
from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.backends.cuda import selfcheck
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.operator.composed import attend
from edgewise.kernels.operator.dropout import drop, seed_for
from edgewise.kernels.operator.layout import batched, empty_like, flat, rows_contiguous, unflat
from edgewise.kernels.operator.operator import Arguments, Operator
from edgewise.kernels.scores import Dot, EdgeBias, SenderBias

MOST = 128  # nodes of a block
WIDEST = 128  # channels of a head
BYTES = 2**14  # of a block's queries: more of them, beside keys, values and gradients, do not fit on the chip
SOFTMAX = 5  # products for a pair's exponential; assumed
CALL = 12  # launches; by an H100's host
LARGE = 64  # nodes of a block beyond which it has a launch of its own kind
Launches = tuple[int, int, int]  # small blocks, which come first; the logarithm of their largest tile; large blocks


def _refuses_blocks(call: Call) -> str | None:
    """Blocks that do not fit into a tile."""
    assert isinstance(call, Attend)
    sizes = sizes_of(call.graph)
    most = max((*sizes[0], *sizes[1]), default=0)
    if most > MOST:
        return f"a block has {most} nodes, more than the {MOST} that fit in a tile"
    widest = max(call.ends()[0].shape[-1], call.v.shape[-1])
    if _tile(most) * _tile(widest) * call.v.element_size() > BYTES:
        return f"blocks of {most} nodes with {widest} channels do not fit on the chip in {call.v.dtype}"
    return None


def cost(call: Call) -> Cost:
    """Pairs inside the padded tiles, at the speed of matrix products; every tensor once, and a number for each bias."""
    assert isinstance(call, Attend)
    pairs = pairs_of(call.graph)
    batch, width = call.v.shape[:-3].numel(), call.ends()[0].shape[-1] + call.v.shape[-1]
    biases = batch * call.heads * (call.graph.num_edges if call.score.biases else 0)
    numbers = 2 * call.v.numel() + 2 * call.ends()[0].numel() + biases
    return Cost(
        tiles=2 * batch * call.heads * pairs * (width + SOFTMAX),
        bytes=call.v.element_size() * numbers,
        launches=CALL,
    )


def run(call: Call) -> Tensor:
    """Compute the call, block by block and head by head."""
    assert isinstance(call, Attend) and isinstance(call.score, Dot)
    score, call = call.score, call.with_equal_heads()
    q, k = call.ends()
    q, scale = score.scaled(q)
    bias, by_sender = _bias(call.graph, score)
    table, launches = blocks_of(call.graph)
    q, k, v = (rows_contiguous(flat(x, 3)) for x in (q, k, call.v))
    seed = seed_for(call.graph, call.dropout)
    own = BlocksAttention(q, k, v, batched(bias, call, 2), by_sender, table, *launches, scale, call.dropout, seed)
    return unflat(attend_blocks(own), call)


BACKEND = Backend(
    name="ragged",
    summary="Triton on a GPU: batches of complete graphs of up to 128 nodes, biases included",
    takes=Takes(dtypes=gpu.DTYPES, attend=Attention(scores=(Dot,), graphs=(COMPLETE, BLOCKS), most=WIDEST)),
    devices=("cuda",),
    by_name=gpu.INTERPRETED_ON,
    need=gpu.TRITON,
    limits=_refuses_blocks,
    distrusted=partial(selfcheck.refusal, "ragged"),
    cost=cost,
    run=run,
    probes=(Probe("cuda", "tiles", lambda device: Graph.batch([complete(64)] * 2048).to(device)),),
)


def sizes_of(graph: Graph) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Receivers and senders of each complete graph of a batch."""
    if isinstance(graph.rule, Blocks):
        return graph.rule.receivers, graph.rule.senders
    return (graph.num_receivers,), (graph.num_senders,)


@cached
def blocks_of(graph: Graph) -> tuple[Tensor, Launches]:
    """The blocks as the kernels read them."""
    return _blocks(*sizes_of(graph), graph.device)


def _blocks(receivers: tuple[int, ...], senders: tuple[int, ...], device: torch.device) -> tuple[Tensor, Launches]:
    """[N, 5]: the first receiver, sender and edge of each block, and its size."""
    sizes = torch.tensor([receivers, senders], dtype=torch.int64)
    counts = torch.cat([sizes, sizes.prod(0, keepdim=True)])
    table, largest = torch.cat([counts.cumsum(1) - counts, sizes]).t(), sizes.amax(0)
    small = largest <= LARGE
    most = int(largest.masked_fill(~small, 0).amax()) if len(receivers) else 0
    count = int(small.sum())
    table = torch.cat([table[small], table[~small]]).to(device)
    return table, (count, _tile(most).bit_length() - 1, len(receivers) - count)


# As for `rule.constant`: torch.compile runs it while it traces.
_blocks._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _tile(nodes: int) -> int:
    """The power of two to which the chip pads so many."""
    return max(16, 1 << (nodes - 1).bit_length())


@cached
def pairs_of(graph: Graph) -> int:
    """Pairs inside the tiles of all blocks."""
    return sum(count * _tile(size) ** 2 for size, count in Counter(map(max, *sizes_of(graph))).items())


def _bias(graph: Graph, score: Dot) -> tuple[Tensor | None, bool]:
    """All biases as one, [*, E, H]; or [*, J, H] and True where it depends on the sender alone."""
    by_sender = [bias.values for bias in score.biases if isinstance(bias, SenderBias)]
    if by_sender and len(by_sender) == len(score.biases):
        return sum(by_sender[1:], by_sender[0]), True
    return score.edge_bias(graph), False


def _near(x: Tensor) -> Tensor:
    """The same, where needed copied so that the rows of a block lie within 32 bits of each other."""
    return rows_contiguous(x) if x.stride(1) < 2**24 else x.contiguous()


@dataclass(slots=True)
class BlocksAttention(Arguments):
    """q [B, I, H, C], k [B, J, H, C], v [B, J, H, D], bias [B or 1, E or J, H or 1], blocks [N, 5]; launches."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None
    by_sender: bool
    blocks: Tensor
    small: int
    most: int
    large: int
    scale: float
    dropout: float
    seed: Tensor

    differentiable: ClassVar[tuple[str, ...]] = ("q", "k", "v", "bias")

    def empty(self) -> Tensor:
        return self.v.new_empty(*self.q.shape[:3], self.v.shape[3])

    def unread(self) -> tuple[str, ...]:
        return ("results",)


@dataclass(slots=True)
class BlocksAttentionGradient(BlocksAttention):
    """Those of the call, and which of its differentiable fields need a gradient."""

    dy: Tensor
    needed: Sequence[bool]

    def empty(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # type: ignore[override]
        v, bias = self.v, self.bias
        dbias = v.new_empty(0)
        if bias is not None and self.needed[3]:
            shape = (v.shape[0], bias.shape[1], v.shape[2])
            # What is still to be summed over the batch or the heads stays exact.
            dbias = bias.new_empty(shape, dtype=bias.dtype if bias.shape == shape else torch.float32)
        return empty_like(self.q), empty_like(self.k), empty_like(v), dbias


def _attend(own: BlocksAttention) -> Tensor:
    from edgewise.kernels.backends.cuda.programs import ragged

    y = own.empty()
    ragged.attend(own, _near(own.q), _near(own.k), _near(own.v), y)
    return y


def _attend_gradient(own: BlocksAttentionGradient) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from edgewise.kernels.backends.cuda.programs import ragged

    results = own.empty()
    ragged.attend(own, _near(own.q), _near(own.k), _near(own.v), _near(own.dy), results)
    return results


def _composed(own: BlocksAttention) -> Tensor:
    """The attention by differentiable operations."""

    def dropped(p_ij: Tensor) -> Tensor:  # the kernels number a member of the batch last
        return drop(p_ij.movedim(0, -1), own.dropout, own.seed).movedim(-1, 0)

    in_order = own.blocks[(own.blocks[:, 0] + own.blocks[:, 1]).argsort()]
    graph = Graph(Blocks(tuple(in_order[:, 3].tolist()), tuple(in_order[:, 4].tolist()))).to(own.q.device)
    score = Dot(own.scale)
    if own.bias is not None:
        score = score + (SenderBias if own.by_sender else EdgeBias)(own.bias)
    return attend(graph, own.q, own.k, own.v, score, dropped if own.dropout > 0 else None)


attend_blocks_gradient = Operator("attend_blocks_gradient", BlocksAttentionGradient, _attend_gradient)
attend_blocks = Operator("attend_blocks", BlocksAttention, _attend, attend_blocks_gradient, _composed)
