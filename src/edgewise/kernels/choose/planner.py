"""The planner: predict every backend's time from bytes and operations, take the cheapest that does not refuse."""

from dataclasses import dataclass
from html import escape

from edgewise.kernels.backends import BACKENDS
from edgewise.kernels.call import Call
from edgewise.kernels.choose.machines import speeds


@dataclass(frozen=True, slots=True)
class Candidate:
    """One backend: its predicted seconds, or why it refuses; by_name = the planner leaves the call to others."""

    backend: str
    seconds: float | None
    refusal: str | None
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The candidates for one call, the cheapest first and the refusals last; printing it gives a table."""

    what: str
    candidates: tuple[Candidate, ...]

    @property
    def choice(self) -> str:
        """The backend that runs."""
        return self.candidates[0].backend

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        width = max(len(candidate.backend) for candidate in self.candidates)
        rows = [self.what]
        for candidate in self.candidates:
            mark = "→" if candidate is self.candidates[0] else " "
            if candidate.seconds is None:
                rows.append(f"{mark} {candidate.backend:<{width}}  {'refuses':>12}  {candidate.refusal}")
            else:
                note = "  runs only by name" if candidate.by_name else ""
                rows.append(f"{mark} {candidate.backend:<{width}}  {candidate.seconds * 1e3:>9.3f} ms{note}")
        return "\n".join(rows)


def candidates(call: Call) -> list[Candidate]:
    """Every backend's prediction or refusal: the cheapest first, then what runs only by name, then the refusals."""
    call = call.lowered()
    machine = speeds(call.graph.device, call.dtype)
    listed = []
    for name, backend in BACKENDS.items():
        reason = backend.refusal(call)
        seconds = None if reason is not None else machine.seconds(backend.cost(call))
        listed.append(Candidate(name, seconds, reason, reason is None and not backend.is_chosen_for(call)))
    return sorted(listed, key=lambda one: (one.seconds is None, one.by_name, one.seconds))


def cheapest(call: Call, isolating: bool = False) -> str:
    """The backend for a call in the algebra's simplest terms; it warns where one that is not installed is faster.

    Symbols     isolating = only those in which no receiver meets the NaN of a node that it has no edge to
    """
    best = next(one for one in candidates(call) if not (isolating and _spreads(one.backend, call)))
    for backend in BACKENDS.values():
        need = backend.need
        if need is None or need.warn is None or need.present() or backend.refusal_but_need(call) is not None:
            continue
        if speeds(call.graph.device, call.dtype).seconds(backend.cost(call)) < (best.seconds or 0.0):
            need.warn()
    return best.backend


def _spreads(backend: str, call: Call) -> bool:
    spreads = BACKENDS[backend].spreads
    return spreads is not None and spreads(call)


def explain(call: Call) -> Plan:
    """The candidates as a printable plan."""
    return Plan(f"{call.graph}: {call}", tuple(candidates(call)))
