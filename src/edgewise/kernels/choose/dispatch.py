"""From a call to a backend: the choice, and the two contexts that look at or override it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from edgewise.errors import BackendRefusal
from edgewise.graphs import Graph, Partition
from edgewise.graphs.derived import cached
from edgewise.graphs.graph import picture
from edgewise.graphs.partition.partition import check_partitioned
from edgewise.graphs.tracing import is_real, is_transformed
from edgewise.kernels import partitioned
from edgewise.kernels.backend import EVERYTHING, Backend
from edgewise.kernels.backends import BACKENDS
from edgewise.kernels.call import Aggregate, Attend, Call
from edgewise.kernels.choose.overlapping import Overlapping, as_written
from edgewise.kernels.choose.planner import Plan, cheapest, explain
from edgewise.memory import check_fits

Seen = TypeVar("Seen")
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
        if (made := _planning.get()) is not None:
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
    """The same, remembered by all shapes."""
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


_planning: ContextVar[list[Plan] | None] = ContextVar("planning", default=None)


@contextmanager
def plans() -> Iterator[list[Plan]]:
    """List the plan of every call inside the block, which runs as always: all calls of a layer or model.

    Edge cases  functions compiled by torch.compile run as they were written
    Example
        >>> import torch
        >>> from edgewise import causal, plans
        >>> from edgewise.layers import EGNN
        >>> with plans() as seen:
        ...     y = EGNN(8, 16)(causal(64), torch.randn(64, 8), torch.randn(64, 3))
        >>> [made.what for made in seen]
        ['Graph(64 receivers, 64 senders, Causal()): collect (mean), EdgeReadout 16 → 16 → 16 → 1, silu']
    """
    with _listing(_planning) as seen:
        yield seen


@dataclass(frozen=True, slots=True)
class Recorded:
    """One call of `attend`: the graph and the attention weights [*, E, H] in its edge order, before dropout."""

    graph: Graph
    weights: Tensor

    def matrix(self) -> Tensor:
        """The weights as a dense matrix [*, H, I, J], 0 where there is no edge; those of parallel edges are summed.

        Errors      GraphError where it would not fit in memory
        """
        graph, pairs = self.graph, self.graph.num_receivers * self.graph.num_senders
        shape = (*self.weights.shape[:-2], pairs, self.weights.shape[-1])
        size = self.weights.element_size() * self.weights.shape[:-2].numel() * pairs * shape[-1]
        check_fits(size, "attention as matrices {}", list(shape))
        dense = self.weights.new_zeros(shape).index_add(
            -2, graph.receivers * graph.num_senders + graph.senders, self.weights
        )
        return dense.transpose(-1, -2).unflatten(-1, (graph.num_receivers, graph.num_senders))

    def _repr_html_(self) -> str:
        """What a notebook shows: the mean over heads."""
        graph, weights = self.graph, lambda: self.matrix().flatten(0, -3).mean(0)
        return picture(weights, graph.num_receivers, graph.num_senders, f"attention on {graph}")


@dataclass(frozen=True, slots=True)
class RecordedMessages:
    """One call of `collect` with a record: the graph and the messages [*, E, C] of each result in its edge order."""

    graph: Graph
    messages: tuple[Tensor, ...]


_recording: ContextVar[list[Recorded] | None] = ContextVar("recording", default=None)
_recording_messages: ContextVar[list[RecordedMessages] | None] = ContextVar("recording messages", default=None)


@contextmanager
def record() -> Iterator[list[Recorded]]:
    """List the attention weights of every `attend` inside the block, in the order of the calls.

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
    with _listing(_recording) as seen:
        yield seen


@contextmanager
def record_messages() -> Iterator[list[RecordedMessages]]:
    """List the messages of every `collect` of a record inside the block, in the order of the calls.

    Edge cases  as `record`; messages that are a tensor are the caller's already
    Cost        O(E·C) time and memory for each call: the messages are made once more, by their equation
    Example
        >>> import torch
        >>> from edgewise import Filter, causal, collect, record_messages
        >>> with record_messages() as seen:
        ...     y = collect(causal(2), Filter(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[1.0], [10.0]])))
        >>> seen[0].messages[0].flatten().tolist()
        [1.0, 2.0, 30.0]
    """
    with _listing(_recording_messages) as seen:
        yield seen


@contextmanager
def _listing(variable: ContextVar[list[Seen] | None]) -> Iterator[list[Seen]]:
    """A list in a context variable, while the block runs as it was written."""
    seen: list[Seen] = []
    token = variable.set(seen)
    try:
        with as_written():
            yield seen
    finally:
        variable.reset(token)


def recording() -> list[Recorded] | None:
    """The list that an enclosing `record` fills, or None."""
    return None if torch.compiler.is_compiling() else _recording.get()


def recording_messages() -> list[RecordedMessages] | None:
    """The list that an enclosing `record_messages` fills, or None."""
    return None if torch.compiler.is_compiling() else _recording_messages.get()
