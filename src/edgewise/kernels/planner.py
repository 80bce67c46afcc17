"""The planner: predict every backend's time from bytes and operations, take the cheapest that does not refuse."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What a backend would spend on a call.

    Symbols     flops = multiplications and additions of PyTorch's matrix products, tiles = of our dense tiles, edges =
                of our kernels on edges; bytes = contiguous traffic; gathered = traffic of rows that PyTorch picks one
                by one, through temporaries of at most `largest` bytes; rows = traffic of rows that our kernels pick
                out of `held` bytes; launches = the fixed cost of a call, counted in PyTorch operations
    """

    flops: int = 0
    tiles: int = 0
    edges: int = 0
    bytes: int = 0
    gathered: int = 0
    largest: int = 0
    rows: int = 0
    held: int = 0
    launches: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """Speeds that turn a `Cost` into seconds: each per second, but launch, which is the seconds of one.

    Symbols     the names of `Cost`; temporaries beyond `reused` bytes are fresh memory every time, and gathering
                through them runs at `gather_fresh`; rows in the cache, which holds `cache` bytes, run at `rows`,
                others at `rows_far`
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


# What an ordinary machine does, for one that was not measured.
ASSUMED = {
    "cpu": Machine(
        flops=1.3e11, tiles=1.6e11, edges=4e10, bandwidth=2.5e10, gather=5e10, gather_fresh=5e9, rows=1.6e11,
        rows_far=2e10, launch=1.7e-5,
    ),
    "cuda": Machine(
        flops=3e13, tiles=3e13, edges=1e12, bandwidth=1e12, gather=4e11, gather_fresh=4e11, rows=1e12,
        rows_far=1e12, launch=6e-6,
    ),
}  # fmt: skip
MACHINES = dict(ASSUMED)  # by kind of device; `edgewise.kernels.calibration` puts what it measured in their place


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
