"""Products that factorise: kernel scores on complete and causal graphs in linear cost, and sums over all senders.

    complete    y_i = φ(q_i) (Σ_j φ(k_j) v_jᵀ) / φ(q_i)·(Σ_j φ(k_j))
    causal      the same with sums over j ≤ i: a running state between chunks, a small triangle inside each
    blocks      as complete, block by block: a batch of complete graphs

Time O((I + J)·H·F·D), memory O(N·H·(F + D)) plus one F × D state per chunk of 64 positions. Half precisions are summed
in float32: totals of thousands of features are beyond float16, and bfloat16 loses what a long sequence adds.
Reference   Katharopoulos et al. 2020, eqs. 4–6 and 9–12.
"""

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.graphs.rule import Blocks, Causal
from edgewise.kernels.backend import BLOCKS, CAUSAL, COMPLETE, Attention, Backend, Cost, Sums, Takes
from edgewise.kernels.call import Aggregate, Attend, Call
from edgewise.kernels.operator.layout import widened
from edgewise.kernels.scores import Kernel

CHUNK = 64  # positions between two states
WHOLE, BLOCK, CHUNKED = 12, 8, 25  # launches: all nodes, for each block, in chunks; counted
SUM, CARD_SUM = 0.95, 3  # launches of a sum: fitted, and on a GPU counted
MOVED = 16  # bytes for each number of q, k and v: two passes in float32, written and read; counted


def cost(call: Call) -> Cost:
    """Linear in the nodes. The width of the feature map is taken as that of its input: only running it would show."""
    if isinstance(call, Aggregate):
        launches = CARD_SUM if call.graph.device.type == "cuda" else SUM
        return Cost(flops=call.x.numel(), bytes=8 * call.x.numel(), launches=launches)
    assert isinstance(call, Attend)
    q, k = call.ends()
    features, rule = q.shape[-1], call.graph.rule
    flops = 2 * features * call.v.shape[-1] * (q.shape[:-1].numel() + k.shape[:-1].numel())
    launches = WHOLE
    if isinstance(rule, Causal):
        flops, launches = flops + 2 * CHUNK * (features + call.v.shape[-1]) * q.shape[:-1].numel(), CHUNKED
    elif isinstance(rule, Blocks):
        launches += BLOCK * len(rule.senders)
    return Cost(flops=flops, bytes=MOVED * (q.numel() + k.numel() + call.v.numel()), launches=launches)


def run(call: Call) -> Tensor:
    """Compute the call through its factors."""
    graph = call.graph
    if isinstance(call, Aggregate):
        half = call.x.dtype == torch.float16  # whose mean may fit where the sum does not
        y = call.x.sum(-2, keepdim=True, dtype=torch.float32 if half else None)
        y = y / max(1, graph.num_senders) if call.reduce == "mean" else y
        y = y.half() if half else y
        return y.expand(*y.shape[:-2], graph.num_receivers, y.shape[-1]).contiguous()  # to be written in place
    assert isinstance(call, Attend) and isinstance(call.score, Kernel)
    score, call = call.score, call.with_equal_heads()
    q, k = call.ends()
    phi_q, phi_k, v = widened(score.feature_map(q)), widened(score.feature_map(k)), widened(call.v)
    if graph.is_complete or 0 in (graph.num_receivers, graph.num_senders):
        y, total = _complete(phi_q, phi_k, v)
    elif isinstance(graph.rule, Blocks):
        receivers, senders = graph.rule.receivers, graph.rule.senders
        parts = (x.split(sizes, -3) for x, sizes in ((phi_q, receivers), (phi_k, senders), (v, senders)))
        y, total = (torch.cat(ends, -2) for ends in zip(*map(_complete, *parts), strict=True))
    else:
        phi_q, phi_k, v = (x.transpose(-3, -2) for x in (phi_q, phi_k, v))
        y, total = _causal(phi_q, phi_k, v)
    return (y / torch.where(total == 0, 1, total)).transpose(-3, -2).to(call.dtype)


BACKEND = Backend(
    name="factored",
    summary="Kernel scores on complete and causal graphs in linear cost, and sums over all senders",
    takes=Takes(
        attend=Attention(scores=(Kernel,), biases=(), dropout=False, graphs=(COMPLETE, CAUSAL, BLOCKS)),
        aggregate=Sums(reductions=("sum", "mean"), weighted=(0,), graphs=(COMPLETE,)),
        transformed=True,
    ),
    cost=cost,
    run=run,
)


def _complete(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_j φ(q_i)·φ(k_j) v_j and the same sum without v_j, [*, H, I, ...] for [*, N, H, ...]."""
    y = phi_q.transpose(-3, -2) @ torch.einsum("...jhf,...jhd->...hfd", phi_k, v)
    return y, torch.einsum("...ihf,...hf->...hi", phi_q, phi_k.sum(-3)).unsqueeze(-1)


def _causal(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_{j ≤ i} φ(q_i)·φ(k_j) v_j and the same sum without v_j, for [*, H, N, ...]."""
    receivers, senders = phi_q.shape[-2], phi_k.shape[-2]
    chunks = -(-max(receivers, senders) // CHUNK)
    phi_q = _chunked(phi_q, chunks)  # [*, H, chunks, CHUNK, F]
    phi_k = _chunked(phi_k, chunks)
    v = functional.pad(_chunked(v, chunks), (0, 1), value=1.0)  # a column of ones sums the weights as well
    # A NaN would reach the receivers in front of it as 0 · NaN: it is set to 0, and those after it are NaN.
    finite = (phi_k.isfinite().all(-1) & v.isfinite().all(-1)).unsqueeze(-1)
    states = (phi_k.mT @ v).cumsum(-3)  # of each chunk and those before it
    before = phi_q @ functional.pad(states[..., :-1, :, :], (0, 0, 0, 0, 1, 0))
    phi_k, v = torch.where(finite, phi_k, 0), torch.where(finite, v, 0)
    y = before + (phi_q @ phi_k.mT).tril() @ v
    y = y.masked_fill((~finite).cumsum(-2) > 0, float("nan"))
    y = y.flatten(-3, -2)[..., :receivers, :]
    return y[..., :-1], y[..., -1:]


def _chunked(x: Tensor, chunks: int) -> Tensor:
    """[*, N, F] -> [*, chunks, CHUNK, F], with zeros at the end."""
    x = functional.pad(x, (0, 0, 0, chunks * CHUNK - x.shape[-2]))
    return x.reshape(*x.shape[:-2], chunks, CHUNK, x.shape[-1])
