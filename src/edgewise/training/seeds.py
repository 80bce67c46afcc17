"""Random numbers without a history: every step's seed follows from its number, so there is no state to save."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from edgewise.native import usable_threads

WARN, ERROR = 1, 2  # of torch.get_deterministic_debug_mode(); 0: any algorithm


def mix(*parts: int) -> int:
    """Hash integers to one 64-bit seed, so that (seed, step, rank) and its neighbours give unrelated random numbers.

    Equation    h ← splitmix64(h + part), from h = 0, for each part in turn (64-bit arithmetic, wrapping around).
    Reference   Steele, Lea and Flood (2014), "Fast splittable pseudorandom number generators".

    Example
        >>> mix(0, 1), mix(1, 0)
        (3069472533636442495, 6791897765849424158)
    """
    mask = 2**64 - 1
    h = 0
    for part in parts:
        h = (h + part + 0x9E3779B97F4A7C15) & mask
        h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & mask
        h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & mask
        h ^= h >> 31
    return h


def seed(value: int, device: torch.device) -> None:
    """Seed PyTorch's generators of the CPU and of one device: 1 µs, where `torch.manual_seed` visits every backend."""
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.manual_seed(value)
    elif device.type == "mps":
        torch.mps.manual_seed(value)


@contextmanager
def repeatable(deterministic: bool, threads: int) -> Iterator[None]:
    """Within, PyTorch uses its deterministic algorithms, and so many threads of the CPU; 0 leaves their number."""
    switches: Any = torch.utils.deterministic
    before = torch.get_deterministic_debug_mode(), torch.get_num_threads()
    filled = switches.fill_uninitialized_memory
    try:
        if deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS needs to repeat itself
            switches.fill_uninitialized_memory = False  # a guard for debugging, slow
        _use_deterministic_algorithms(ERROR if deterministic else 0)
        torch.set_num_threads(usable_threads(threads or before[1]))
        yield
    finally:
        _use_deterministic_algorithms(before[0])
        torch.set_num_threads(before[1])
        switches.fill_uninitialized_memory = filled


def _use_deterministic_algorithms(mode: int) -> None:
    """By the function of that name where the compiler, which it imports (4 s), is loaded; else by its other switch."""
    if "torch._dynamo" in sys.modules:
        torch.use_deterministic_algorithms(mode > 0, warn_only=mode == WARN)
    else:
        torch.set_deterministic_debug_mode(mode)
