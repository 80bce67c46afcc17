"""Contexts that list the calls inside them: their plans, attention weights and messages; and attention as text."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from threading import RLock
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.checks import several, shown, whole_number
from edgewise.graphs.graph import picture
from edgewise.kernels.planning.planner import Plan
from edgewise.memory import check_fits

T = TypeVar("T")
SHADES = " .:-=+*#%@"


class Overlapping(Generic[T]):
    """Contexts that hold a setting of the process at a value; they may end in any order, as those of threads do.

    Symbols     exchange = sets a value and returns the one before
    Edge cases  the setting has the value of the last that was entered of those that are open; after all of them, what
                it had before

    Example
        >>> setting = [0]
        >>> def exchange(value):
        ...     setting.append(value)
        ...     return setting.pop(0)
        >>> one, two = (Overlapping(exchange).holding(number) for number in (1, 2))
        >>> with one, two:
        ...     setting
        [2]
        >>> setting
        [0]
    """

    def __init__(self, exchange: Callable[[T], T]) -> None:
        self.exchange = exchange
        self.open: dict[object, T] = {}
        self.lock = RLock()  # a context that is collected as garbage ends wherever its thread is

    @contextmanager
    def holding(self, value: T) -> Iterator[None]:
        """Within, the setting has this value, unless a context that was entered later has another."""
        entry = object()
        with self.lock:
            before = self.exchange(value)
            if not self.open:
                self.before = before
            self.open[entry] = value
        try:
            yield
        finally:
            with self.lock:
                del self.open[entry]
                self.exchange(next(reversed(self.open.values()), self.before))


def as_written() -> AbstractContextManager[None]:
    """Within, functions compiled by torch.compile run as they were written, on every thread."""
    if "torch._dynamo" not in sys.modules:  # which takes seconds to import
        return nullcontext()
    from torch._dynamo.eval_frame import DynamoStance

    return _stances.holding(DynamoStance("force_eager"))


def _exchange_stance(stance: Any) -> Any:
    from torch._dynamo.eval_frame import _set_stance

    return _set_stance(stance)


_stances = Overlapping(_exchange_stance)


listed_plans: ContextVar[list[Plan] | None] = ContextVar("plans", default=None)


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
    with _listing(listed_plans) as seen:
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
def _listing(variable: ContextVar[list[T] | None]) -> Iterator[list[T]]:
    """A list in a context variable, while the block runs as it was written."""
    seen: list[T] = []
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


def draw_attention(recorded: Recorded, labels: Sequence[str] | None = None, head: int | None = None) -> str:
    """The attention weights of a call as text: row = receiver, column = sender, the darker the more.

    Symbols     recorded = one call, from `record()`; labels = a name for each receiver, in front of its row; head =
                which of the heads, None: their mean, as over a leading batch
    Errors      ShapeError for another number of labels, or a head that there is not
    Edge cases  where there is no edge stands a blank; each tenth of a weight has its shade, from blank to @

    Example
        >>> import torch
        >>> from edgewise import attend, causal, record
        >>> q = torch.zeros(3, 1, 4)
        >>> with record() as seen:
        ...     y = attend(causal(3), q, q, q)
        >>> print(draw_attention(seen[0], ["the", "cat", "sat"]))
        the @
        cat ++
        sat ---
    """
    if not isinstance(recorded, Recorded):
        raise ShapeError(f"what is drawn is a call that edgewise.record() has recorded, not {shown(recorded)}")
    weights = recorded.matrix()
    if head is not None:
        head, heads = whole_number(head, "head"), weights.shape[-3]
        if not 0 <= head < heads:
            raise ShapeError(f"there is no head {head}: the call has {heads}, from 0 on")
        weights = weights[..., head : head + 1, :, :]
    weights = weights.reshape(-1, *weights.shape[-2:]).mean(0)
    rows = weights.clamp(0, 1).mul(len(SHADES)).long().clamp(max=len(SHADES) - 1).tolist()
    labels = None if labels is None else [str(label) for label in several(labels, "labels must be a list of texts")]
    if labels is not None and len(labels) != len(rows):
        raise ShapeError(f"there are {len(labels)} labels, but {len(rows)} receivers")
    width = max(map(len, labels), default=0) if labels else 0
    names = [f"{label:<{width}} " for label in labels] if labels is not None else [""] * len(rows)
    return "\n".join((name + "".join(SHADES[n] for n in row)).rstrip() for name, row in zip(names, rows, strict=True))
