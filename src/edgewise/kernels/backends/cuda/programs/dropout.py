"""Dropout by counter on a GPU: the mask of `edgewise.kernels.operator.dropout`, to the bit."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl


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
