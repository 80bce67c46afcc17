"""The planner: predict every backend's time from bytes and operations, take the cheapest that does not refuse."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What a backend would spend on a call.

    Symbols     flops = multiplications and additions; bytes = contiguous traffic; gathered = traffic of rows picked
                one by one; launches = PyTorch operations
    """

    flops: int = 0
    bytes: int = 0
    gathered: int = 0
    launches: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """Speeds that turn a `Cost` into seconds: per second for flops and bytes, seconds for a launch."""

    flops: float
    bandwidth: float
    gather: float
    launch: float

    def seconds(self, cost: Cost) -> float:
        """Predicted time of a forward pass."""
        return (
            cost.flops / self.flops
            + cost.bytes / self.bandwidth
            + cost.gathered / self.gather
            + cost.launches * self.launch
        )


MACHINES = {
    "cpu": Machine(flops=6e10, bandwidth=8e9, gather=3e9, launch=5e-6),
    "cuda": Machine(flops=3e13, bandwidth=1e12, gather=4e11, launch=6e-6),
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
