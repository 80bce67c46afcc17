"""The planner: predict every backend's time from bytes and operations, take the cheapest that does not refuse."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What a backend would spend on a call.

    Symbols     flops = multiplications and additions; bytes = contiguous traffic; gathered = traffic of rows picked
                one by one, through temporaries of at most `largest` bytes; launches = PyTorch operations
    """

    flops: int = 0
    bytes: int = 0
    gathered: int = 0
    largest: int = 0
    launches: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """Speeds that turn a `Cost` into seconds: per second for flops and bytes, seconds for a launch.

    Temporaries beyond `reused` bytes are fresh memory every time: gathering through them runs at `gather_fresh`.
    """

    flops: float
    bandwidth: float
    gather: float
    gather_fresh: float
    reused: int
    launch: float

    def seconds(self, cost: Cost) -> float:
        """Predicted time of a forward pass."""
        return (
            cost.flops / self.flops
            + cost.bytes / self.bandwidth
            + cost.gathered / (self.gather if cost.largest <= self.reused else self.gather_fresh)
            + cost.launches * self.launch
        )


MACHINES = {
    "cpu": Machine(flops=7e10, bandwidth=1e10, gather=1.8e10, gather_fresh=3.5e9, reused=32_000_000, launch=8e-6),
    "cuda": Machine(flops=3e13, bandwidth=1e12, gather=4e11, gather_fresh=4e11, reused=0, launch=6e-6),
}


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
