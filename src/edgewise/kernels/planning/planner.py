"""The planner: predict every backend's time from bytes and operations, take the cheapest that does not refuse."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import torch

from edgewise.graphs.tracing import is_traced
from edgewise.kernels.backend import Backend, is_few
from edgewise.kernels.backends import BACKENDS
from edgewise.kernels.call import Call
from edgewise.kernels.planning.machines import Machine, speeds


@dataclass(frozen=True, slots=True)
class Candidate:
    """One backend: its predicted seconds, or why it refuses; by_name = the planner leaves the call to others, and need
    not know how long it takes."""

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
                time = "" if math.isinf(candidate.seconds) else f"{candidate.seconds * 1e3:.3f} ms"
                note = "  runs only by name" if candidate.by_name else ""
                rows.append(f"{mark} {candidate.backend:<{width}}  {time:>12}{note}")
        return "\n".join(rows)


def candidates(call: Call) -> list[Candidate]:
    """Every backend's prediction or refusal: the cheapest first, then what runs only by name, then the refusals."""
    call = call.lowered()
    machine = speeds(call.graph.device, call.dtype)
    listed = []
    for name, backend in BACKENDS.items():
        reason = backend.refusal(call)
        seconds = None if reason is not None else _seconds(backend, call, machine)
        listed.append(Candidate(name, seconds, reason, reason is None and not backend.is_chosen_for(call)))
    return sorted(listed, key=lambda one: (one.seconds is None, one.by_name, one.seconds))


SMALL = 1 << 13, 1 << 17  # edges, and numbers that a call reads, up to which the fastest backend is known: assumed
AT_SIGHT = {kind: backend for backend in BACKENDS.values() for kind in backend.small}
KNOWN = len(BACKENDS)  # one that is added later may be faster


def at_sight(call: Call) -> str | None:
    """The backend of a call on a small sparse list of edges, which predictions would only confirm; else None."""
    graph, (edges, numbers) = call.graph, SMALL
    most = min(edges, graph.num_receivers * graph.num_senders // 2)
    if len(BACKENDS) > KNOWN or not graph.is_list or not 0 < graph.num_edges <= most:
        return None
    sizes = [x.numel() for x in call.tensors()]
    if not all(sizes) or sum(sizes) > numbers:
        return None
    backend = AT_SIGHT.get("few" if is_few(call) else call.verb)
    return None if backend is None or backend.refusal(call) is not None else backend.name


def cheapest(call: Call, isolating: bool = False) -> str:
    """The backend for a call in the algebra's simplest terms; it warns where one that is not installed is faster.

    Symbols     isolating = only those in which no receiver meets the NaN of a node that it has no edge to
    """
    machine = speeds(call.graph.device, call.dtype)
    device = call.graph.device.type
    able: list[tuple[float, str]] = []
    missed: list[tuple[float, str]] = []  # that are not installed, and say so
    for name, backend in BACKENDS.items():
        need = backend.need
        absent = need is not None and not need.present()
        if not getattr(backend.takes, call.verb) or (absent and (need is None or need.warn is None)):
            continue
        if (absent or backend.is_chosen_on(device)) and backend.refusal_at_sight(call) is None:
            seconds, among = _seconds(backend, call, machine), missed if absent else able
            # A sort that the compiler can follow where the seconds depend on a size that it does not know.
            among.insert(sum(1 for other, _ in among if other <= seconds), (seconds, name))
    best = _first(able, call, isolating)
    for seconds, name in missed:
        warn = None if (need := BACKENDS[name].need) is None else need.warn
        if warn is not None and seconds < best[0] and not BACKENDS[name].cannot_count(call.graph):
            warn()
    return best[1]


def _seconds(backend: Backend, call: Call, machine: Machine) -> float:
    """What a call is predicted to take; of a backend without costs what it takes, or ∞ where nothing can be run."""
    if backend.cost is not None:
        return machine.seconds(backend.cost(call))
    device = call.graph.device
    absent = backend.need is not None and not backend.need.present()
    if absent or not backend.is_chosen_on(device.type) or is_traced() or any(x.is_meta for x in call.tensors()):
        return math.inf
    cuda = device.type == "cuda"
    with torch.no_grad(), torch.random.fork_rng([device] if cuda else []):
        for _ in range(2):  # the first may compile
            start = time.perf_counter()
            backend.run(call)
            if cuda:
                torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _first(able: Sequence[tuple[float, str]], call: Call, isolating: bool) -> tuple[float, str]:
    """The first backend that the planner may choose; parallel edges and kernels are checked where it matters alone."""
    for seconds, name in able:
        backend = BACKENDS[name]
        if not backend.is_chosen_for(call) or (isolating and _spreads(name, call)) or backend.cannot_count(call.graph):
            continue
        if backend.distrusted is None or backend.distrusted(call) is None:
            return seconds, name
    best = next(one for one in candidates(call) if not (isolating and _spreads(one.backend, call)))
    return best.seconds or 0.0, best.backend


def _spreads(backend: str, call: Call) -> bool:
    spreads = BACKENDS[backend].spreads
    return spreads is not None and spreads(call)


def explain(call: Call) -> Plan:
    """The candidates as a printable plan."""
    return Plan(f"{call.graph}: {call}", tuple(candidates(call)))
