"""From a call to a backend: the table, the choice, and the two contexts that look at or override it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from edgewise.errors import BackendRefusal
from edgewise.graphs import Graph
from edgewise.kernels.backends.cpu import native, tiled
from edgewise.kernels.backends.cuda import bitmap, ragged, triton
from edgewise.kernels.backends.torch import dense, factored, flex, reference, segment
from edgewise.kernels.call import Aggregate, Attend, Call
from edgewise.kernels.choose import measure as calibration
from edgewise.kernels.choose.planner import MACHINES, Candidate, Cost, Machine, Plan, kind_of
from edgewise.native import say_if_missing


class Backend(Protocol):
    """One file with three functions."""

    def refuses(self, call: Call) -> str | None:
        """Why this backend cannot run the call, or None if it can."""

    def cost(self, call: Call) -> Cost:
        """What a forward pass would spend; asked only of a backend that does not refuse."""

    def run(self, call: Call) -> Tensor | tuple[Tensor, Tensor]:
        """Compute the call."""


BACKENDS: dict[str, Backend] = {
    "dense": dense,
    "factored": factored,
    "flex": flex,
    "native": native,
    "ragged": ragged,
    "segment": segment,
    "tiled": tiled,
    "bitmap": bitmap,
    "triton": triton,
    "reference": reference,
}

calibration.remember()

ON_GPU = ("bitmap", "flex", "ragged", "triton")  # those that run on a GPU
WITH_VECTORS = ("segment", "triton", "reference")  # those that read a score's vectors of edges
ORACLE = "reference"  # what the others are tested against: it runs only when asked for by name

_forced: ContextVar[str | None] = ContextVar("forced backend", default=None)
_forced_for_compiler: str | None = None  # the same: torch.compile can read and watch a global, but no ContextVar


@contextmanager
def use_backend(name: str | None) -> Iterator[None]:
    """Run every call inside the block on one backend, which raises its reason where it refuses.

    Errors      BackendRefusal for an unknown name, and from the calls that the backend refuses
    Example
        >>> import torch
        >>> from edgewise import Uniform, attend, causal, use_backend
        >>> with use_backend("reference"):
        ...     attend(causal(2), None, None, torch.tensor([[[1.0]], [[3.0]]]), Uniform()).flatten().tolist()
        [1.0, 2.0]
    """
    global _forced_for_compiler
    _check_name(name)
    token, before = _forced.set(name), _forced_for_compiler
    _forced_for_compiler = name
    try:
        yield
    finally:
        _forced.reset(token)
        _forced_for_compiler = before


def forced_backend() -> str | None:
    """The backend that `use_backend` asks for, where the code runs."""
    return _forced_for_compiler if torch.compiler.is_compiling() else _forced.get()


def run(call: Call, backend: str | None = None) -> Tensor | tuple[Tensor, Tensor]:
    """Run a call on the named backend, else on the forced one, else on the cheapest that does not refuse."""
    device = call.graph.device.type
    if torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):  # the dtypes are settled: a backend computes in those it is given
            return run(call, backend)
    name = backend or forced_backend()
    if name is None:
        lowered = call.lowered()
        # The choice depends on shapes and kinds only: it is made once for each graph and signature.
        key = ("backend", type(call), *call.signature())
        return BACKENDS[call.graph.memo(key, lambda: _cheapest(lowered))].run(lowered)
    _check_name(name)
    call = call if name == ORACLE else call.lowered()
    reason = _refusal(name, call)
    if reason is not None:
        raise BackendRefusal(f"backend {name!r} cannot run this call: {reason}")
    return BACKENDS[name].run(call)


def candidates(call: Call) -> list[Candidate]:
    """Every backend's prediction or refusal: the cheapest first, then the oracle, then the refusals."""
    call = call.lowered()
    machine = machine_of(call)
    found = []
    for name, backend in BACKENDS.items():
        reason = _refusal(name, call)
        seconds = None if reason is not None else machine.seconds(backend.cost(call))
        found.append(Candidate(name, seconds, reason))
    return sorted(found, key=lambda one: (one.seconds is None, by_name_only(one.backend, call), one.seconds))


def _refusal(name: str, call: Call) -> str | None:
    if isinstance(call, Attend) and call.score.vectors is not None and name not in WITH_VECTORS:
        return "it adds no vectors of edges to keys and values"
    return BACKENDS[name].refuses(call)


def by_name_only(backend: str, call: Call) -> bool:
    """Whether a backend runs only where it is asked for: the oracle, and Triton's interpreter on the CPU."""
    return backend == ORACLE or (backend in ON_GPU and call.graph.device.type == "cpu")


def machine_of(call: Call) -> Machine:
    """The speeds of the device that a call's graph is on, in the call's dtype."""
    x = call.v if isinstance(call, Attend) else call.x if isinstance(call, Aggregate) else call.m_ij
    kind = kind_of(call.graph.device, x.dtype)
    if kind != "cpu":
        calibration.recall("cuda")
    return MACHINES[kind]


def explain(call: Call, what: str) -> Plan:
    """The candidates as a printable plan."""
    return Plan(what, tuple(candidates(call)))


def _cheapest(call: Call) -> str:
    found = candidates(call)
    if any(one.refusal == native.MISSING for one in found):
        machine = machine_of(call)
        if machine.seconds(native.cost(call)) < (found[0].seconds or 0.0):
            say_if_missing()
    return found[0].backend


def _check_name(name: str | None) -> None:
    if name is not None and name not in BACKENDS:
        raise BackendRefusal(f"there is no backend {name!r}: choose one of {', '.join(BACKENDS)}")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One call of `attend`: the graph and the attention weights [*, E, H] in its edge order, before dropout."""

    graph: Graph
    weights: Tensor


_recording: ContextVar[list[Recorded] | None] = ContextVar("recording", default=None)


@contextmanager
def record() -> Iterator[list[Recorded]]:
    """Keep the attention weights of every `attend` inside the block, in the order of the calls.

    Edge cases  functions compiled by torch.compile run as they were written
    Cost        O(E·H) memory for each call; calls run on a backend that can return its weights
    Example
        >>> import torch
        >>> from edgewise import Dot, attend, causal, record
        >>> q = torch.zeros(2, 1, 4)
        >>> with record() as seen:
        ...     y = attend(causal(2), q, q, q, Dot())
        >>> seen[0].weights.flatten().tolist()
        [1.0, 0.5, 0.5]
    """
    seen: list[Recorded] = []
    token = _recording.set(seen)
    try:
        with torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext():
            yield seen
    finally:
        _recording.reset(token)


def recording() -> list[Recorded] | None:
    """The list that an enclosing `record` fills, or None."""
    return None if torch.compiler.is_compiling() else _recording.get()
