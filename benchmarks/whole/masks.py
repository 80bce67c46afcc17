"""Attention under FlexAttention's masks, trained on a CPU, beside PyTorch's attention with the same mask.

    python -m benchmarks.whole.masks 4096 [MASK ...]

One process and one thread; the two take turns. Results and gradients of both are first compared with float64. CPU time
of a forward and backward pass, the median of the rounds, without what it takes to make the graph, which has a column.
"""

import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.kernels import attend, plan

HEADS, CHANNELS, ROUNDS = 4, 64, 7
BLOCK = 128

Mask = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def document(n: int) -> Mask:
    """Documents of some hundred tokens, each causal."""
    lengths = torch.randint(n // 32, n // 8, (32,), generator=torch.Generator().manual_seed(1))
    number = torch.bucketize(torch.arange(n), lengths.cumsum(0), right=True)
    return lambda b, h, q_idx, kv_idx: (number[q_idx] == number[kv_idx]) & (q_idx >= kv_idx)


def sliding(n: int) -> Mask:
    """The last eighth of the tokens."""
    return lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx < n // 8)


def prefix(n: int) -> Mask:
    """A prefix that all read, and the past."""
    return lambda b, h, q_idx, kv_idx: (kv_idx < n // 4) | (q_idx >= kv_idx)


def random_blocks(n: int) -> Mask:
    """A quarter of the blocks of 128 x 128 pairs, and those on the diagonal."""
    count = -(-n // BLOCK)
    chosen = torch.rand(count, count, generator=torch.Generator().manual_seed(1)) < 0.25
    chosen |= torch.eye(count, dtype=torch.bool)
    return lambda b, h, q_idx, kv_idx: chosen[q_idx // BLOCK, kv_idx // BLOCK]


MASKS = {"document": document, "sliding": sliding, "prefix-lm": prefix, "random-block": random_blocks}


def study(name: str, n: int) -> None:
    """One line of the table."""
    start = time.process_time()
    graph = Graph.from_mask(MASKS[name](n), n)
    making = time.process_time() - start
    mask, generator = graph.dense_mask(), torch.Generator().manual_seed(2)
    q, k, v, dy = (torch.randn(1, n, HEADS, CHANNELS, generator=generator) for _ in range(4))
    inputs = [t.requires_grad_() for t in (q, k, v)]

    def by_edgewise(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(graph, q, k, v)

    def by_sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)

    def step(who: Callable[..., Tensor], inputs: list[Tensor] = inputs, dy: Tensor = dy) -> list[Tensor]:
        y = who(*inputs)
        return [y.detach(), *torch.autograd.grad(y, inputs, dy)]

    exact = step(by_sdpa, [t.detach().double().requires_grad_() for t in inputs], dy.double())
    contenders = {"edgewise": by_edgewise, "sdpa": by_sdpa}
    error = {who: max(map(_apart, step(run), exact)) for who, run in contenders.items()}
    assert error["edgewise"] <= 1e-5, (name, error)
    seconds: dict[str, list[float]] = {who: [] for who in contenders}
    for _ in range(ROUNDS):
        for who, run in contenders.items():
            start = time.process_time()
            step(run)
            seconds[who].append(time.process_time() - start)
    ours, theirs = (1e3 * median(seconds[who]) for who in contenders)
    backend = plan(graph, heads=HEADS, channels=CHANNELS).choice
    what = f"{graph.density:.2f} | {backend} | {1e3 * making:.0f} ms | {ours:.0f} ms | {theirs:.0f} ms"
    print(f"| {name} | {what} | {theirs / ours:.1f} × | {error['edgewise']:.0e} |", flush=True)


def _apart(found: Tensor, exact: Tensor) -> float:
    """The largest difference, as a part of the largest number."""
    return float((found - exact).abs().max() / exact.abs().max())


def main() -> None:
    n, *names = sys.argv[1:]
    torch.set_num_threads(1)
    for name in names or MASKS:
        study(name, int(n))


if __name__ == "__main__":
    main()
