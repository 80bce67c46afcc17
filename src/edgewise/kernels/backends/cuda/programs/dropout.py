"""Dropout by counter on a GPU: the mask of `edgewise.kernels.operator.dropout`, to the bit."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def survives(bits, place, threshold):
    """Whether the numbers at these places survive dropout: the hash of `edgewise.kernels.operator.dropout`."""
    bits = bits.to(tl.uint64)
    place = place.to(tl.uint64)
    upper = (bits >> 32).to(tl.uint32) ^ ((place >> 32).to(tl.uint32) * 0x9E3779B9)
    x = place.to(tl.uint32) ^ bits.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16) ^ upper
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0xD35A2D97
    return (x ^ (x >> 15)) >= threshold.to(tl.uint32)


@triton.jit(do_not_specialize=["count", "threshold"])
def dropped(x, y, seed, count: tl.int64, threshold: tl.int64, keep: tl.float32, BLOCK: tl.constexpr):
    """y = x · keep where a number survives, else 0."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    scaled = tl.load(x + place, place < count, 0.0).to(tl.float32) * keep
    scaled = tl.where(survives(tl.load(seed), place, threshold), scaled, 0.0)
    tl.store(y + place, scaled, place < count)


def drop(x: torch.Tensor, p: float, seed: torch.Tensor) -> torch.Tensor:
    """Each number of x [*] zeroed with probability p < 1, the others divided by 1 - p."""
    x = x.contiguous()
    y = torch.empty_like(x)
    programs = -(-x.numel() // BLOCK)
    dropped[(programs,)](x, y, seed, x.numel(), int(p * 2**32), 1 / (1 - p), BLOCK)
    return y
