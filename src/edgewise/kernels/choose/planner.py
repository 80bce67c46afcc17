"""The planner: predict every backend's time from bytes and operations, take the cheapest that does not refuse."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Cost:
    """What a backend would spend on a call.

    Symbols     flops = multiplications and additions of PyTorch's matrix products, tiles = of our dense tiles, edges =
                of our kernels on edges; bytes = contiguous traffic; gathered = traffic of rows that PyTorch picks one
                by one, through temporaries of at most `largest` bytes; rows = traffic of rows that our kernels pick
                out of `held` bytes; launches = the fixed cost of a call, counted in PyTorch operations. On a GPU tiles
                are those of its matrix units, and edges the arithmetic outside of them
    """

    flops: int = 0
    tiles: int = 0
    edges: int = 0
    bytes: int = 0
    gathered: int = 0
    largest: int = 0
    rows: int = 0
    held: int = 0
    launches: float = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """Speeds that turn a `Cost` into seconds: each per second, but launch, which is the seconds of one.

    Symbols     the names of `Cost`; temporaries beyond `reused` bytes are fresh memory every time, and gathering
                through them runs at `gather_fresh`; rows in the cache, which holds `cache` bytes, run at `rows`,
                others at `rows_far`. On a GPU the cache is the L2, and temporaries beyond it go to its memory
    """

    flops: float
    tiles: float
    edges: float
    bandwidth: float
    gather: float
    gather_fresh: float
    rows: float
    rows_far: float
    launch: float
    reused: float = 32e6
    cache: float = 24e6

    def seconds(self, cost: Cost) -> float:
        """Predicted time of a forward pass."""
        far = max(0.0, 1 - self.cache / cost.held) if cost.held else 0.0  # the share of rows that are not in the cache
        return (
            cost.flops / self.flops
            + cost.tiles / self.tiles
            + cost.edges / self.edges
            + cost.bytes / self.bandwidth
            + cost.gathered / (self.gather if cost.largest <= self.reused else self.gather_fresh)
            + cost.rows * ((1 - far) / self.rows + far / self.rows_far)
            + cost.launches * self.launch
        )


# What an ordinary machine does, and an H200 as published: not measured, as everything else here is not until
# `edgewise.kernels.choose.measure` measures it. A GPU has other speeds in half precision than in full.
ASSUMED = {
    "cpu": Machine(
        flops=1.25e11, tiles=2e11, edges=7.4e10, bandwidth=3.3e10, gather=5e10, gather_fresh=5e9, rows=1e12,
        rows_far=2.5e10, launch=1.35e-5,
    ),
    "cuda": Machine(
        flops=3e13, tiles=6e13, edges=1.5e13, bandwidth=4.3e12, gather=4e12, gather_fresh=2.5e12, rows=6e12,
        rows_far=3e12, launch=6e-6, reused=32e6, cache=40e6,
    ),
    "cuda half": Machine(
        flops=4e14, tiles=2e14, edges=1.5e13, bandwidth=4.3e12, gather=4e12, gather_fresh=2.5e12, rows=6e12,
        rows_far=3e12, launch=6e-6, reused=32e6, cache=40e6,
    ),
}  # fmt: skip
MACHINES = dict(ASSUMED)  # by kind; `edgewise.kernels.choose.measure` puts what it measured in their place


def kind_of(device: torch.device, dtype: torch.dtype) -> str:
    """Which of MACHINES computes in a dtype on a device; one that nobody measured passes for a CPU.

    Example
        >>> kind_of(torch.device("cuda"), torch.bfloat16), kind_of(torch.device("cpu"), torch.bfloat16)
        ('cuda half', 'cpu')
    """
    if device.type != "cuda":
        return "cpu"
    return "cuda half" if dtype.itemsize < 4 else "cuda"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One backend's answer: predicted seconds, or its reason to refuse."""

    backend: str
    seconds: float | None
    refusal: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The candidates for one call, the cheapest first and the refusals last; printing it gives a table."""

    what: str
    candidates: tuple[Candidate, ...]

    @property
    def choice(self) -> str:
        """The backend that runs."""
        return self.candidates[0].backend

    def __str__(self) -> str:
        width = max(len(candidate.backend) for candidate in self.candidates)
        rows = [self.what]
        for candidate in self.candidates:
            mark = "→" if candidate is self.candidates[0] else " "
            if candidate.seconds is None:
                rows.append(f"{mark} {candidate.backend:<{width}}  {'refuses':>12}  {candidate.refusal}")
            else:
                rows.append(f"{mark} {candidate.backend:<{width}}  {candidate.seconds * 1e3:>9.3f} ms")
        return "\n".join(rows)
