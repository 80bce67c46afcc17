"""Messages that are made, collected and forgotten a few thousand edges at a time, in training too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.kernels.operator.second_derivatives import creates_graph
from edgewise.kernels.verbs import collect

BLOCK = 8192  # edges at a time: enough that starting an operation costs little
BACK = "sum to senders"
REDUCTIONS = ("sum", "mean", BACK)

Message = Callable[..., tuple[Tensor, ...]]


def collect_messages(
    graph: Graph,
    layer: nn.Module,
    message: Message,
    receivers: Sequence[Tensor] = (),
    senders: Sequence[Tensor] = (),
    edges: Sequence[Tensor] = (),
    reduce: Sequence[str] = ("sum",),
) -> tuple[Tensor, ...]:
    """Collect what a function makes of both ends of every edge: `collect` for messages that are many and wide.

    Equation    (m_ij, n_ij, ...) = message(a_i, ..., b_j, ..., e_ij, ...);  y_i = ⊕_{j ∈ N(i)} m_ij, z_i = ⊕ n_ij, ...
    Symbols     receivers = a, ...; senders = b, ...; edges = e, ...; layer = the module whose weights `message` uses;
                reduce = ⊕ for each result: "sum", "mean", or "sum to senders" for y_j = Σ_{i: j ∈ N(i)} m_ij
    Shapes      receivers [*, I, A], senders [*, J, B], edges [*, E, C] in the graph's edge order -> [*, I or J, M] each
    Errors      ShapeError where a tensor does not fit or a reduction does not exist
    Edge cases  a node that nothing arrives at gives 0; `message` must treat edges alike and draw no random numbers
    Cost        on a CPU, for one graph of some thousand edges or more: memory of a block of 8,192 edges, beside the
                tensors given and returned, and a second call of `message` in the backward pass. Otherwise, and under
                torch.compile or autocast: all edges at once. Second derivatives: all edges at once too

    Example
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> x = torch.tensor([[1.0], [10.0], [100.0]])
        >>> double = nn.Linear(1, 1, bias=False)
        >>> _ = double.weight.data.fill_(2.0)
        >>> collect_messages(graph, double, lambda x_i, x_j: (double(x_i - x_j),), [x], [x])[0].flatten().tolist()
        [0.0, 0.0, 378.0]
    """
    call = _Call(graph, layer, message, len(receivers), len(senders), tuple(reduce))
    given = (*receivers, *senders, *edges)
    call.check(given)
    if not call.suits_blocks(given):
        return call.at_once(given)
    weights = {name: weight for name, weight in layer.named_parameters() if weight.requires_grad}
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in (*given, *weights.values())):
        return call.by_blocks(given)
    found: tuple[Tensor, ...] = _Collect.apply(call, tuple(weights), *given, *weights.values())  # type: ignore[no-untyped-call]
    return found


@dataclass(frozen=True)
class _Block:
    """Receivers start, ..., stop - 1 with their edges first, ..., last - 1."""

    graph: Graph
    start: int
    stop: int
    first: int
    last: int


def _blocks(graph: Graph) -> list[_Block]:
    number = graph.offsets[:-1] // BLOCK  # a receiver's edges stay together
    counts = number.unique_consecutive(return_counts=True)[1]
    bounds = [0, *counts.cumsum(0).tolist()]
    edge = graph.offsets[bounds].tolist()
    rows = zip(bounds, bounds[1:], edge, edge[1:], strict=False)
    return [_Block(graph.rows(start, stop), start, stop, first, last) for start, stop, first, last in rows]


class _Held(nn.Module):
    """A layer, while its weights are for once the given tensors."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, run: Callable[[], Any]) -> Any:
        return run()


@dataclass(frozen=True)
class _Call:
    graph: Graph
    layer: nn.Module
    message: Message
    receivers: int
    senders: int
    reduce: tuple[str, ...]

    def check(self, given: Sequence[Tensor]) -> None:
        """Errors by name, before anything is computed."""
        for name in self.reduce:
            if name not in REDUCTIONS:
                raise ShapeError(f"there is no reduction {name!r} of messages: choose one of {', '.join(REDUCTIONS)}")
        graph, to_senders = self.graph, self.receivers + self.senders
        sizes = [graph.num_receivers] * self.receivers + [graph.num_senders] * self.senders
        for number, t in enumerate(given):
            rows = sizes[number] if number < to_senders else graph.num_edges
            if t.ndim < 2 or t.shape[-2] != rows:
                raise ShapeError(f"tensor {number} of the messages is {list(t.shape)}, but must be [*, {rows}, C]")

    def suits_blocks(self, given: Sequence[Tensor]) -> bool:
        """Whether there are edges enough for blocks to pay."""
        if torch.compiler.is_compiling() or self.graph.num_edges < 2 * BLOCK or self.graph.device.type != "cpu":
            return False
        return all(t.ndim == 2 for t in given) and not torch.is_autocast_enabled("cpu")

    def at_once(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """All edges together, by differentiable operations."""
        graph, middle, last = self.graph, self.receivers, self.receivers + self.senders
        a_i = (t.index_select(-2, graph.receivers) for t in given[:middle])
        b_j = (t.index_select(-2, graph.senders) for t in given[middle:last])
        found = zip(self.message(*a_i, *b_j, *given[last:]), self.reduce, strict=True)
        return tuple(collect(graph, m, how) if how != BACK else _to_senders(graph, m) for m, how in found)

    def gathered(self, block: _Block, given: Sequence[Tensor]) -> Iterator[Tensor]:
        """What a block's messages read."""
        edge = slice(block.first, block.last)
        for number, t in enumerate(given):
            index = self.index(number)
            yield t[edge] if index is None else t.index_select(0, index[edge])

    def index(self, number: int) -> Tensor | None:
        """The nodes that a tensor's rows are gathered from; None for a tensor of edges."""
        if number < self.receivers:
            return self.graph.receivers
        return self.graph.senders if number < self.receivers + self.senders else None

    def by_blocks(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The same without the gradient, a block after the other."""
        found: list[Tensor] = []
        for block in self.graph.memo(("message blocks", BLOCK), lambda: _blocks(self.graph)):
            parts = self.message(*self.gathered(block, given))
            for number, (m, how) in enumerate(zip(parts, self.reduce, strict=True)):
                if len(found) == number:
                    rows = self.graph.num_senders if how == BACK else self.graph.num_receivers
                    found.append(m.new_zeros(rows, m.shape[-1]))
                if how == BACK:
                    found[number].index_add_(0, self.graph.senders[block.first : block.last], m)
                else:
                    found[number][block.start : block.stop] = collect(block.graph, m, how)
        return tuple(found)

    def gradients(
        self, given: Sequence[Tensor], weights: Sequence[Tensor], wanted: Sequence[bool], dy: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """Gradients to the wanted ones of the given tensors and weights, a block after the other."""
        totals = [torch.zeros_like(t) if want else None for t, want in zip((*given, *weights), wanted, strict=True)]
        for block in self.graph.memo(("message blocks", BLOCK), lambda: _blocks(self.graph)):
            edge = slice(block.first, block.last)
            leaves = [t.requires_grad_(w) for t, w in zip(self.gathered(block, given), wanted, strict=False)]
            with torch.enable_grad():
                parts = self.message(*leaves)
            made = [(m, d, how) for m, d, how in zip(parts, dy, self.reduce, strict=True) if d is not None]
            made = [one for one in made if one[0].requires_grad]
            ends_of = (self.graph.senders[edge] if how == BACK else self.graph.receivers[edge] for _, _, how in made)
            dm = [d.index_select(0, index) for (_, d, _), index in zip(made, ends_of, strict=True)]
            inputs = [(n, t) for n, t in enumerate((*leaves, *weights)) if wanted[n]]
            grads = torch.autograd.grad([m for m, *_ in made], [t for _, t in inputs], dm, allow_unused=True)
            for (number, _), grad in zip(inputs, grads, strict=True):
                total = totals[number]
                if grad is None or total is None:
                    continue
                if number >= len(given):
                    total += grad
                elif (index := self.index(number)) is None:
                    total[edge] = grad
                else:
                    total.index_add_(0, index[edge], grad)
        return totals


class _Collect(torch.autograd.Function):
    """`by_blocks` with its gradient, which makes the messages anew."""

    @staticmethod
    def forward(ctx: Any, call: _Call, names: tuple[str, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.call, ctx.names = call, names
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return call.by_blocks(tensors[: len(tensors) - len(names)])

    @staticmethod
    def backward(ctx: Any, *dy: Tensor | None) -> tuple[Tensor | None, ...]:
        call, tensors, wanted = ctx.call, ctx.saved_tensors, ctx.needs_input_grad[2:]
        count = len(tensors) - len(ctx.names)
        again = creates_graph(*dy, *tensors)
        # Fresh names, so that a tensor used twice has two gradients.
        fresh = [t.view_as(t) if again else t.detach() for t in tensors]
        weights = fresh[count:] if again else [t.requires_grad_() for t in fresh[count:]]
        swapped = {f"layer.{name}": weight for name, weight in zip(ctx.names, weights, strict=True)}

        def once_more() -> list[Tensor | None]:
            made = [(y, d) for y, d in zip(call.at_once(fresh[:count]), dy, strict=True) if d is not None]
            inputs = [t for t, want in zip(fresh, wanted, strict=True) if want]
            y, d = zip(*made, strict=True)
            found = iter(torch.autograd.grad(y, inputs, d, create_graph=True, allow_unused=True))
            return [next(found) if want else None for want in wanted]

        def first_time() -> list[Tensor | None]:
            shares = [_share(call.graph, d, how) for d, how in zip(dy, call.reduce, strict=True)]
            return call.gradients(fresh[:count], weights, wanted, shares)

        found = functional_call(_Held(call.layer), swapped, (once_more if again else first_time,))
        return None, None, *found


def _share(graph: Graph, dy: Tensor | None, how: str) -> Tensor | None:
    """What of dL/dy each message gets."""
    if dy is None or how != "mean":
        return dy
    degree = graph.memo("degree or one", lambda: graph.in_degrees().clamp(min=1))
    return dy / degree.unsqueeze(-1)


def _to_senders(graph: Graph, m_ij: Tensor) -> Tensor:
    transpose, order = graph.transpose()
    return collect(transpose, m_ij.index_select(-2, order))
