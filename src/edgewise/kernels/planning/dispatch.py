"""From a call to a backend: the choice, and the context that overrides it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import torch
from torch import Tensor

from edgewise.errors import BackendRefusal
from edgewise.graphs import Graph, Partition
from edgewise.graphs.derived import cached
from edgewise.graphs.partition import check_partitioned
from edgewise.graphs.tracing import is_real, is_transformed
from edgewise.kernels import partitioned
from edgewise.kernels.backend import EVERYTHING, Backend
from edgewise.kernels.backends import BACKENDS
from edgewise.kernels.call import Aggregate, Attend, Call
from edgewise.kernels.planning.planner import at_sight, cheapest, explain
from edgewise.kernels.planning.recording import Overlapping, listed_plans

ANY_CALL = next(name for name, backend in BACKENDS.items() if backend.takes is EVERYTHING)  # and on any device

_forced: ContextVar[str | Backend | None] = ContextVar("forced backend", default=None)
_forced_for_compiler: str | Backend | None = (
    None  # the same: torch.compile can read and watch a global, but no ContextVar
)


@contextmanager
def use_backend(name: str | Backend | None) -> Iterator[None]:
    """Run every call inside the block on one backend, which raises its reason where it refuses.

    Symbols     name = of `BACKENDS`; or a record that is not among them, which runs whatever it is given

    Errors      BackendRefusal for an unknown name, and from the calls that the backend refuses
    Edge cases  it holds for the calls of its own thread; what torch.compile compiles obeys the block that any thread
                entered last
    Example
        >>> import torch
        >>> from edgewise import Uniform, attend, causal, use_backend
        >>> with use_backend("reference"):
        ...     attend(causal(2), None, None, torch.tensor([[[1.0]], [[3.0]]]), Uniform()).flatten().tolist()
        [1.0, 2.0]
    """
    if not isinstance(name, Backend):
        _check_name(name)
    token = _forced.set(name)
    try:
        with _forcing.holding(name):
            yield
    finally:
        _forced.reset(token)


def _force(name: str | Backend | None) -> str | Backend | None:
    global _forced_for_compiler
    before, _forced_for_compiler = _forced_for_compiler, name
    return before


_forcing = Overlapping(_force)


def forced_backend() -> str | Backend | None:
    """The backend of an enclosing `use_backend`, or None."""
    return _forced_for_compiler if torch.compiler.is_compiling() else _forced.get()


def run(call: Call, backend: str | None = None) -> Tensor | tuple[Tensor, ...]:
    """Run a call on the named backend, else on the forced one, else on the cheapest that does not refuse."""
    device = call.graph.device.type
    if torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):  # the dtypes are settled: a backend computes in those it is given
            return run(call, backend)
    if isinstance(call.graph, Partition):
        return partitioned.run(call, partial(_run, backend=backend), named=(backend or forced_backend()) is not None)
    check_partitioned(call.graph)
    return _run(call, backend)


def _run(call: Call, backend: str | None = None) -> Tensor | tuple[Tensor, ...]:
    """Run a call on edges that this rank has."""
    compiling = torch.compiler.is_compiling()
    traced = compiling or is_transformed()
    if not compiling:
        call.graph.check_unwritten()
        if (made := listed_plans.get()) is not None:
            made.append(explain(call))
    name = forced_backend() if backend is None else backend
    if name is None:
        lowered = call.lowered()
        chosen = BACKENDS[_choice_compiled(lowered) if compiling else _choice_once(lowered, traced)]
        return chosen.run(lowered) if chosen.spreads is None or traced else _isolated(chosen, lowered)
    if isinstance(name, Backend):
        return name.run(call)
    _check_name(name)
    named = BACKENDS[name]
    call = call.lowered() if named.lowered else call
    reason = named.refusal(call)
    if reason is not None:
        raise BackendRefusal(f"backend {name!r} cannot run this call: {reason}")
    return BACKENDS[ANY_CALL].run(call) if _is_empty(call) else _isolated(named, call)


def _isolated(backend: Backend, call: Call) -> Tensor | tuple[Tensor, ...]:
    """What a backend computes; where NaN or infinities may have spread in it to other receivers, what another does."""
    result = backend.run(call)
    y = result if isinstance(result, Tensor) else result[0]
    if backend.spreads is None or not backend.spreads(call) or y.device.type != "cpu" or not is_real(y):
        return result
    wide = torch.float32 if y.dtype == torch.float16 else None  # whose finite numbers may have a sum that is not
    finite = y.detach().sum(dtype=wide).isfinite().item()
    return result if finite else BACKENDS[cheapest(call, isolating=True)].run(call)


def _is_empty(call: Call) -> bool:
    """Whether there is nothing to compute: no node, head, channel or member. Kernels never see such a call."""
    return not all(x.numel() for x in call.tensors()) or not (call.graph.num_receivers and call.graph.num_senders)


def _choice(call: Call) -> str:
    return ANY_CALL if _is_empty(call) else cheapest(call)


def _choice_compiled(call: Call) -> str:
    """The same where torch.compile reads it: what it makes serves any number of nodes and edges. So that it takes heads
    and channels as numbers, not as symbols, they are looked up, in a table of nothing."""
    axis = -3 if isinstance(call, Attend) else call.node_axis if isinstance(call, Aggregate) else -2
    structure = tuple(n for x in call.tensors() for n in x.shape[axis + 1 :])
    return _NOTHING.get(structure) or _choice(call)


_NOTHING: dict[tuple[int, ...], str] = {}
REMEMBERED = 256  # choices for a graph and verb, of which the oldest go first; assumed


def _choice_once(call: Call, traced: bool) -> str:
    """The same, remembered by all shapes unless it is seen at once."""
    if not traced and (name := at_sight(call)) is not None:
        return name
    choices, signature = _choices(call.graph, type(call), traced), call.signature()
    choice = choices.get(signature)
    if choice is None:
        while len(choices) >= REMEMBERED:
            choices.pop(next(iter(choices)), None)
        choices[signature] = choice = _choice(call)
    return choice


@cached
def _choices(graph: Graph, kind: type[Call], traced: bool) -> dict[tuple[object, ...], str]:
    """The backends chosen for calls of one verb by their signatures: shapes and kinds, on which alone a choice depends.

    It fills up as calls are made, to `REMEMBERED` of them: a function made anew for each call is new each time.
    """
    return {}


def _check_name(name: str | None) -> None:
    if name is not None and (not isinstance(name, str) or name not in BACKENDS):
        raise BackendRefusal(f"there is no backend {name!r}: choose one of {', '.join(BACKENDS)}")
