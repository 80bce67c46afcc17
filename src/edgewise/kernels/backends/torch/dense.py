"""PyTorch's scaled_dot_product_attention, on complete, causal, block and near-dense graphs; and for what that has not,
soft caps, weights to return and kernels, the scores of all pairs in plain PyTorch.

Rule graphs cost no mask where none is needed (complete, causal, blocks); other graphs cost one [I, J] mask, cached
with the graph. On the GPU and in half precision blocks are one call of PyTorch's variable-length flash attention.
Time O(I·J·H·C); memory O(N·H·C), and O(I·J·H) where a bias makes the mask or scores are written.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from edgewise.graphs import Graph, complete
from edgewise.graphs.derived import cached
from edgewise.graphs.rule import Blocks, Causal
from edgewise.graphs.tracing import is_transformed
from edgewise.kernels.backend import BLOCKS, CAUSAL, Attention, Backend, Cost, Probe, Sums, Takes
from edgewise.kernels.call import Aggregate, Attend, Call
from edgewise.kernels.operator.layout import flat, heads_first, unflat, widened
from edgewise.kernels.operator.operator import DTYPES
from edgewise.kernels.scores import Additive, Bias, Dot, EdgeBias, Kernel, Uniform
from edgewise.native import library


class Fit(NamedTuple):
    """What a call takes: launches of it and of each head of its batch; for each pair's product of two numbers, so many
    of them, and for its exponential; and operations for each row of a head."""

    call: float
    head: float
    product: float
    softmax: int
    row: int


# On a CPU fitted to 550 calls without and 130 with a mask, of 1 to 512 nodes and up to 2.5 ms, on one thread of an AMD
# EPYC; on a GPU assumed, but for launches, by an H100's host. With a mask numbers that are not finite are looked for.
FITS = {
    "cpu": (Fit(1.65, 0.0125, 1.0, 57, 6200), Fit(2.25, 0.041, 1.2, 104, 0)),
    "cuda": (Fit(7, 0, 1, 15, 0), Fit(7, 0, 4 / 3, 36, 0)),
}
FLASH_TILE = 128, 64  # receivers and senders that flash attention computes at once, the last ones of a sequence padded
SKIPPED = 256  # senders: the tiles that causal attention leaves out; assumed
ROWS, BUSY = 64, 132  # of a head that a GPU's multiprocessor computes at a time, and how many of these an H100 has
GROUP, FLASH_BLOCKS = 14, 7  # launches for each size of blocks (fitted), and more of flash attention on blocks
COPIED, BLOCKS_COPIED = 16, 48  # bytes for each number of v: of q, k, v and y; and with blocks copied; counted
SUM, ENTRY = 4, 8  # launches of a sum, and bytes for each entry of its matrix, written and read; counted
MASK_LIMIT = 2**31  # entries of a mask that is still reasonable to build: 2 GiB of bool
# Scores that are written: how many of them are reasonable (1 GiB of float32), bytes for each, and launches; counted.
WRITTEN, WRITTEN_BYTES, WRITTEN_CALL = 2**28, 80, 12
FLASH_WIDTH = 256  # channels of a head that flash attention takes, in multiples of 8


def _is_written(call: Attend) -> bool:
    """Whether scaled_dot_product_attention cannot compute it."""
    return (
        call.return_weights or not isinstance(call.score, Dot | Uniform) or getattr(call.score, "cap", None) is not None
    )


def _scores(call: Attend) -> int:
    return call.v.shape[:-3].numel() * call.heads * call.graph.num_receivers * call.graph.num_senders


def _refuses(call: Call) -> str | None:
    """Masks and scores that are too large to build, and scores that it would only write."""
    graph = call.graph
    if isinstance(call, Attend) and _is_written(call):
        if isinstance(call.score, Additive) and not call.return_weights:
            return "it has no Additive score unless its weights are returned"
        return f"{_scores(call)} scores are too many to write" if _scores(call) > WRITTEN else None
    if isinstance(call, Attend) and not call.score.biases and _needs_no_mask(graph):
        return None
    if graph.num_receivers * graph.num_senders > MASK_LIMIT:
        return f"a mask of {graph.num_receivers} × {graph.num_senders} entries is too large"
    return None


def _spreads(call: Call) -> bool:
    """Whether pairs without an edge are multiplied too, by 0."""
    graph = call.graph
    if isinstance(call, Attend) and not call.score.biases and not _is_written(call) and BLOCKS.holds(graph):
        return False
    return not graph.is_complete


def cost(call: Call) -> Cost:
    """All pairs at the speed of matrix products; a mask is read once per head."""
    graph = call.graph
    pairs = graph.num_receivers * graph.num_senders
    if isinstance(call, Aggregate):
        return Cost(flops=2 * pairs * call.x.numel() // max(1, graph.num_senders), bytes=ENTRY * pairs, launches=SUM)
    assert isinstance(call, Attend)
    if _is_written(call):
        width = call.v.shape[-1] + (0 if call.q is None else call.q.shape[-1])
        return Cost(flops=2 * _scores(call) * width, bytes=WRITTEN_BYTES * _scores(call), launches=WRITTEN_CALL)
    batch = call.v.shape[:-3].numel()
    masked = bool(call.score.biases) or not _needs_no_mask(graph)
    blocks, groups, further = 1, 0, 0
    if not masked and BLOCKS.holds(graph):
        assert isinstance(graph.rule, Blocks)
        if _runs_flash(call):
            pairs, further = _in_flash_tiles(graph), FLASH_BLOCKS
        else:
            pairs = graph.num_edges
            sizes = [both for both in zip(graph.rule.receivers, graph.rule.senders, strict=True) if all(both)]
            blocks, groups = len(sizes), len(set(sizes))
    elif not masked and not graph.is_complete:
        pairs = min(pairs, graph.num_edges + SKIPPED * graph.num_receivers)
    fit = FITS["cuda" if graph.device.type == "cuda" else "cpu"][masked]
    width = call.v.shape[-1] + (call.q.shape[-1] if call.q is not None else call.v.shape[-1])
    numbers = 2 * pairs * (fit.product * width + fit.softmax) + fit.row * graph.num_receivers
    traffic = (COPIED if groups == 0 else BLOCKS_COPIED) * call.v.numel()
    if masked:  # a bias is a float32, a mask a bool
        traffic += batch * call.heads * pairs * (5 if call.score.biases else 1)
    launches = fit.call + fit.head * batch * call.heads * blocks + GROUP * groups + further
    flops = batch * call.heads * numbers
    if graph.device.type == "cuda":
        flops *= max(1, BUSY / max(1, batch * call.heads * -(-graph.num_receivers // ROWS)))
    return Cost(flops=int(flops), bytes=traffic, launches=launches)


def yields(call: Call) -> bool:
    """Whether its bits would depend on the number of threads on a CPU, where other kernels' do not.

    They do in float32 and float64. bfloat16's products do not, but for those of one head, which it splits among its
    threads, and of fewer than 32 queries, for which its threads' buffers do not begin alike. Compiled code is held to
    as little, and so are scores that are written, which no kernel computes.
    """
    if isinstance(call, Attend) and _is_written(call):
        return False
    graph = call.graph
    others = graph.device.type == "cpu" and call.dtype in DTYPES and library is not None and not is_transformed()
    if not others:
        return False
    if call.dtype != torch.bfloat16 and not torch.compiler.is_compiling():
        return True
    if not isinstance(call, Attend):
        return False
    heads = call.v.shape[:-3].numel() * call.heads
    return heads == 1 or (graph.num_receivers < 32 and graph.num_receivers % 4 > 0)


def run(call: Call) -> Tensor | tuple[Tensor, Tensor]:
    """Compute the call on all pairs at once."""
    if isinstance(call, Attend) and _is_written(call):
        return _written(call.with_equal_heads())
    if is_transformed():
        with sdpa_kernel(SDPBackend.MATH):  # the only one with rules for torch.func's transforms
            return _run(call)
    return _run(call)


def _run(call: Call) -> Tensor:
    if isinstance(call, Aggregate):
        return _aggregate(call)
    assert isinstance(call, Attend)
    graph, score = call.graph, call.score
    q, k, v = _ends(call)
    q, scale = score.scaled(q) if isinstance(score, Dot) else (q, None)
    q, k, v = (heads_first(x) for x in (q, k, v))  # [B, H, N, C]
    if BLOCKS.holds(graph) and not score.biases:
        blocks = _flash_blocks if _runs_flash(call) else _blocks
        y = blocks(graph, q, k, v, scale, call.dropout)
    else:
        causal = len(score.biases) == 0 and CAUSAL.holds(graph)
        mask = None if causal else _mask(call)
        y = scaled_dot_product_attention(
            q, k, v, mask, call.dropout, causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
    return unflat(y.transpose(1, 2), call)


BACKEND = Backend(
    name="dense",
    summary="PyTorch's scaled_dot_product_attention: complete, causal, block and near-dense graphs; plain matrices "
    "for soft caps, kernels and weights to return",
    takes=Takes(
        attend=Attention(scores=(Dot, Uniform, Additive, Kernel), cap=True, weights=True),
        aggregate=Sums(reductions=("sum", "mean"), weighted=(0, 1), mixed=True),
        parallel=False,
        transformed=True,
    ),
    limits=_refuses,
    cost=cost,
    run=run,
    spreads=_spreads,
    yields=yields,
    probes=(
        Probe("cpu", "flops", lambda device: complete(512)),
        Probe("cuda", "flops", lambda device: complete(8192).to(device), heads=8, channels=64),
    ),
)


def _written(call: Attend) -> Tensor | tuple[Tensor, Tensor]:
    """Scores [*, H, I, J] of all pairs, their softmax, or a kernel's own weights, and the product with the values."""
    graph, score, v = call.graph, call.score, call.v.movedim(-2, -3)
    s = _written_scores(call) if score.needs_ends else widened(v.real).new_zeros(*v.shape[:-1], 1).mT
    mask = None if graph.is_complete or _is_last_row(graph) else _edge_mask(graph)
    z = sum([_bias_of_pairs(graph, bias) for bias in score.biases], torch.zeros_like(s) if _is_kernel(call) else s)
    z = (z.expand(*z.shape[:-2], graph.num_receivers, -1)) if mask is None else z.masked_fill(~mask, -torch.inf)
    # A receiver whose senders are all masked, or that has none, gives 0.
    none = (z.detach() == -torch.inf).all(-1, keepdim=True) if score.biases or not _has_senders(graph) else None
    z = z if none is None else z.masked_fill(none, 0.0)
    if _is_kernel(call):
        w = s * (z - z.detach().amax(-1, keepdim=True)).exp()  # what is common to a receiver's weights cancels
        total = w.sum(-1, keepdim=True)
        p = w / torch.where(total == 0, 1, total)
    else:
        p = z.softmax(-1)
    p = p if none is None else p.masked_fill(none, 0.0)
    y = (functional.dropout(p, call.dropout).to(v.dtype) @ v).movedim(-3, -2)
    if not call.return_weights:
        return y
    pair = graph.receivers * graph.num_senders + graph.senders
    return y, p.flatten(-2).index_select(-1, pair).transpose(-1, -2)


def _written_scores(call: Attend) -> Tensor:
    score = call.score
    q, k = (widened(x).movedim(-2, -3) for x in call.ends())
    if isinstance(score, Kernel):
        return score.feature_map(q) @ score.feature_map(k).mT
    if isinstance(score, Additive):
        return functional.leaky_relu(q + k.mT, score.slope)
    assert isinstance(score, Dot)
    factor = score.factor(q.shape[-1])
    s = (q * (factor.view(-1, 1, 1) if isinstance(factor, Tensor) else factor)) @ k.mT
    return s if score.cap is None else score.cap * torch.tanh(s / score.cap)


def _is_kernel(call: Attend) -> bool:
    return isinstance(call.score, Kernel)


def _has_senders(graph: Graph) -> bool:
    """Whether every receiver is known to have a sender, without a look at the edges."""
    return graph.num_senders > 0 and (graph.is_complete or isinstance(graph.rule, Causal))


def _ends(call: Attend) -> tuple[Tensor, Tensor, Tensor]:
    if call.q is not None and call.k is not None:
        return call.q, call.k, call.v
    zero = call.v.new_zeros(())  # equal scores for everybody
    shape = (*call.v.shape[:-3], call.graph.num_receivers, *call.v.shape[-2:])
    return zero.expand(shape), zero.expand(call.v.shape), call.v


def _needs_no_mask(graph: Graph) -> bool:
    return graph.is_complete or CAUSAL.holds(graph) or _is_last_row(graph) or BLOCKS.holds(graph)


def _is_last_row(graph: Graph) -> bool:
    """A causal graph with an edge between every pair: one step of cached decoding."""
    return isinstance(graph.rule, Causal) and graph.offset >= graph.num_senders - 1


def _mask(call: Attend) -> Tensor | None:
    """What masks the scores, broadcastable to [B, H, I, J]: boolean without biases, None where nothing is masked."""
    graph = call.graph
    unmasked = graph.is_complete or _is_last_row(graph)
    mask = None if unmasked else _edge_mask(graph)
    if not call.score.biases:
        return mask
    total: Tensor | None = None
    for bias in call.score.biases:
        pairs = _bias_of_pairs(graph, bias)
        total = pairs if total is None else total + pairs
    assert total is not None
    if mask is not None:
        total = total.masked_fill(~mask, float("-inf"))
    total = total.to(call.v.dtype)
    if total.ndim > 3:  # a bias that differs from one member of the batch to the next
        total = flat(total.expand(*call.v.shape[:-3], *total.shape[-3:]), 3)
    return total


@cached
def _edge_mask(graph: Graph) -> Tensor:
    return graph.dense_mask()


@cached
def _matrix(graph: Graph, dtype: torch.dtype) -> Tensor:
    return graph.dense_mask().to(dtype)


def _bias_of_pairs(graph: Graph, bias: Bias) -> Tensor:
    """A bias as [*, H, I or 1, J]."""
    if not isinstance(bias, EdgeBias):
        return bias.on_pairs(graph)
    values = bias.on_edges(graph).transpose(-1, -2)  # [*, H, E]
    flat = values.new_zeros(*values.shape[:-1], graph.num_receivers * graph.num_senders)
    pair = graph.receivers * graph.num_senders + graph.senders
    return flat.index_copy(-1, pair, values).reshape(*flat.shape[:-1], graph.num_receivers, graph.num_senders)


@cached
def _in_flash_tiles(graph: Graph) -> int:
    """Pairs of blocks as flash attention computes them: in tiles, which small blocks do not fill."""
    assert isinstance(graph.rule, Blocks)
    rows, columns = FLASH_TILE
    both = zip(graph.rule.receivers, graph.rule.senders, strict=True)
    return rows * columns * sum(-(-receivers // rows) * -(-senders // columns) for receivers, senders in both)


def _runs_flash(call: Attend) -> bool:
    """Whether PyTorch's variable-length flash attention takes a batch of blocks."""
    graph, v = call.graph, call.v
    width = max(v.shape[-1], v.shape[-1] if call.q is None else call.q.shape[-1])
    return (
        graph.device.type == "cuda"
        and v.dtype in (torch.float16, torch.bfloat16)
        and width <= FLASH_WIDTH
        and torch.cuda.get_device_capability(graph.device) >= (8, 0)
        and torch.backends.cuda.flash_sdp_enabled()
        and _suits_flash(graph)
    )


@cached
def _suits_flash(graph: Graph) -> bool:
    """Whether some block has pairs, and none has senders alone: nothing would write their gradients."""
    rule = graph.rule
    if not isinstance(rule, Blocks):
        return False
    pairs = list(zip(rule.receivers, rule.senders, strict=True))
    return any(i and j for i, j in pairs) and not any(j and not i for i, j in pairs)


def _flash_blocks(graph: Graph, q: Tensor, k: Tensor, v: Tensor, scale: float | None, dropout: float) -> Tensor:
    """Disjoint complete graphs one after another, in one call."""
    batch, width, values = q.shape[0], q.shape[-1], v.shape[-1]
    scale = width**-0.5 if scale is None else scale
    even = -(-max(width, values) // 8) * 8
    # [B, H, N, C] -> [B * N, H, C]
    q, k, v = (pad(x, (0, even - x.shape[-1])).transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    y = _flash_attention(q, k, v, *_bounds(graph, batch), scale, dropout)
    return y.unflatten(0, (batch, graph.num_receivers)).transpose(1, 2)[..., :values]


def _flash_attention(
    q: Tensor, k: Tensor, v: Tensor, q_bounds: Tensor, k_bounds: Tensor, q_most: int, k_most: int, scale: float,
    dropout: float,
) -> Tensor:  # fmt: skip
    """q [T, H, C], k and v [S, G, C]; sequence n is rows bounds[n], ..., bounds[n + 1] - 1 of them. Differentiable."""
    y: Tensor = torch.ops.aten._flash_attention_forward(
        q, k, v, q_bounds, k_bounds, q_most, k_most, dropout, False, False, scale=scale
    )[0]
    return y


@cached
def _bounds(graph: Graph, batch: int) -> tuple[Tensor, Tensor, int, int]:
    """Where blocks begin and end, [B * N + 1] int32 for receivers and for senders, and how many the largest has."""
    assert isinstance(graph.rule, Blocks)
    sides = graph.rule.receivers, graph.rule.senders
    receivers, senders = (
        pad(torch.tensor(sizes * batch).cumsum(0), (1, 0)).to(graph.device, torch.int32) for sizes in sides
    )
    return receivers, senders, max(sides[0]), max(sides[1])


def _blocks(graph: Graph, q: Tensor, k: Tensor, v: Tensor, scale: float | None, dropout: float) -> Tensor:
    """Disjoint complete graphs, grouped by size so that none is padded."""
    y = q.new_zeros(*q.shape[:-1], v.shape[-1])
    for rows, columns in _blocks_by_size(graph):  # [G, I_b], [G, J_b]
        block_q, block_k, block_v = (
            x[:, :, nodes.flatten()].unflatten(2, nodes.shape).transpose(1, 2).flatten(0, 1)
            for x, nodes in ((q, rows), (k, columns), (v, columns))
        )
        gqa = q.shape[1] != k.shape[1]
        part = scaled_dot_product_attention(block_q, block_k, block_v, dropout_p=dropout, scale=scale, enable_gqa=gqa)
        part = part.unflatten(0, (q.shape[0], len(rows))).transpose(1, 2).flatten(2, 3)
        y = y.index_copy(2, rows.flatten(), part)
    return y


@cached
def _blocks_by_size(graph: Graph) -> list[tuple[Tensor, Tensor]]:
    """For each size of block, which receivers [G, I_b] and senders [G, J_b] its G blocks hold."""
    assert isinstance(graph.rule, Blocks)
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    first_receiver = first_sender = 0
    for receivers, senders in zip(graph.rule.receivers, graph.rule.senders, strict=True):
        if receivers and senders:
            groups.setdefault((receivers, senders), []).append((first_receiver, first_sender))
        first_receiver, first_sender = first_receiver + receivers, first_sender + senders
    by_size = []
    for (receivers, senders), starts in groups.items():
        row, column = torch.tensor(starts, device=graph.device).t()
        rows = row[:, None] + torch.arange(receivers, device=graph.device)
        columns = column[:, None] + torch.arange(senders, device=graph.device)
        by_size.append((rows, columns))
    return by_size


def _aggregate(call: Aggregate) -> Tensor:
    """A X, with the matrix A [I, J] written out; the mean divides by the number of senders."""
    graph, x, weight = call.graph, call.x, call.weight
    if call.reduce == "mean" and x.dtype == torch.float16:
        x = x.float()  # the mean may fit where the sum does not
    if weight is None:
        matrix = _matrix(graph, x.dtype)
    else:
        pair = graph.receivers * graph.num_senders + graph.senders
        flat = x.new_zeros(graph.num_receivers * graph.num_senders)
        matrix = flat.index_copy(0, pair, weight.to(x.dtype)).view(graph.num_receivers, graph.num_senders)
    y = matrix @ x
    if call.reduce == "mean":
        y = y / graph.in_degrees().clamp(min=1).unsqueeze(-1)
    return y.half() if call.x.dtype == torch.float16 else y
