"""The first rows of a result at once, the others when they are read: of sampled batches only the first are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import ConfigError
from edgewise.interop.later.tensor import FLOATS, Later, Numbers, aten, ordinary
from edgewise.kernels.operator.gradients import gradients

Rest = Callable[..., Tensor]  # the other rows, of the leaves that they follow from
MOST = 0.9  # of the rows, above which all are computed at once
SPARED = 1 << 21  # products of numbers below which all are, too: 20 microseconds


class FirstRows(Numbers):
    """Numbers of which the first rows are there.

    Symbols     rest() -> the other rows; None where these are 0
    """

    def __init__(self, first: Tensor, count: int, rest: Callable[[], Tensor] | None) -> None:
        super().__init__(torch.Size((count, first.shape[1])), first.dtype)
        self.first, self.rest = first, rest

    @property
    def known(self) -> int:
        return len(self.first)

    def room(self) -> Tensor:
        """Memory for all rows, in which the first ones lie from now on; what is not written takes none."""
        count, width = self.shape
        beyond = self.first.untyped_storage().nbytes() // self.first.element_size() < count * width
        if beyond or self.first.storage_offset() or not self.first.is_contiguous():
            first, self.first = self.first, self.first.new_empty(count, width)[: self.known]
            self.first.copy_(first)
        return self.first.as_strided((count, width), (width, 1))

    def whole(self) -> Tensor:
        if self.known < self.shape[0]:
            room, rest = self.room(), self.rest
            others = room[self.known :]
            with torch.no_grad(), torch.autocast("cpu", enabled=False):  # whatever reads them
                others.zero_() if rest is None else others.copy_(rest())
            self.first, self.rest = room, None
        return self.first

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Beginning:
        """What a function of each number, and its place, makes of these."""
        known, made = self.known, FirstRows(function(self.first), self.shape[0], None)
        if self.rest is not None:
            made.rest = lambda: function(self.whole())[known:]
            self.read_by(made)
        return Beginning(made)


class Beginning(Later):
    """`FirstRows`."""

    numbers: FirstRows


def known_rows(x: Tensor) -> int:
    """How many of the first rows are there."""
    return x.numbers.known if type(x) is Beginning else len(x)


def pays(known: int, x: Tensor, *weights: Tensor) -> bool:
    """Whether to compute only so many rows of a product with weights at once."""
    if torch.is_inference_mode_enabled() or not torch.is_grad_enabled() or not 0 < known <= MOST * len(x):
        return False
    spared = (len(x) - known) * max(W.numel() for W in weights)
    return spared >= SPARED and x.dtype in FLOATS and all(W.requires_grad for W in weights)


def first_rows(x: Tensor, count: int) -> Tensor:
    """The first rows, which must be known; their gradient has no memory for the others."""
    if type(x) is not Beginning:
        return x[:count]
    y: Tensor = _First.apply(x, count)  # type: ignore[no-untyped-call]
    return y


class _First(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(x)
        numbers: FirstRows = x.numbers  # type: ignore[attr-defined]
        return numbers.first[:count]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors  # raises an error where it was written
        if torch.is_grad_enabled():
            return torch.cat([g, g.new_zeros(len(x) - len(g), g.shape[1])]), None
        return Beginning(FirstRows(g, len(x), None)), None


def begun(first: Tensor, count: int, rest: Rest, *leaves: Tensor | None) -> Tensor:
    """A result of `count` rows: the first are these, the others rest(*leaves) when they are read."""
    y: Tensor = _Begun.apply(first, count, rest, *leaves)  # type: ignore[no-untyped-call]
    return y


class _Begun(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, count: int, rest: Rest, *leaves: Tensor | None) -> Tensor:
        ctx.rest, ctx.first = rest, len(first)
        ctx.save_for_backward(*leaves)
        x, *weights = leaves
        assert x is not None
        kept = [None if t is None else t.detach().clone() for t in weights]  # an optimizer may change them before
        numbers = FirstRows(first.detach(), count, None)
        if isinstance(x, Later):
            source = x.numbers
            numbers.rest = lambda: rest(source.whole(), *kept)
            source.read_by(numbers)
        else:
            numbers.rest = _of_unwritten(x.detach(), lambda values: rest(values, *kept))
        return Beginning(numbers)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        leaves = ctx.saved_tensors
        read = read_rows(g)
        if read <= ctx.first and not torch.is_grad_enabled():
            return _first_of(g, ctx.first), *[None] * (2 + len(leaves))
        leaves = [ordinary(t) for t in leaves]
        others = g[ctx.first :]
        if torch.is_grad_enabled():
            return g[: ctx.first], None, None, *gradients(ctx.rest, leaves, [others])
        with torch.enable_grad():
            own = [t if t is None else t.detach().requires_grad_(t.requires_grad) for t in leaves]
            trained = [t for t in own if t is not None and t.requires_grad]
            found = iter(torch.autograd.grad(ctx.rest(*own), trained, others, allow_unused=True))
        given = [next(found) if t is not None and t.requires_grad else None for t in own]
        return g[: ctx.first], None, None, *given


def _first_of(g: Tensor, count: int) -> Tensor:
    """The first rows of a gradient, of which the others are 0."""
    if type(g) is not Beginning:
        return g[:count]
    numbers: FirstRows = g.numbers
    return numbers.first[:count] if numbers.known >= count else numbers.whole()[:count]


def _of_unwritten(x: Tensor, compute: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
    version = x._version

    def rest() -> Tensor:
        if x._version != version:
            raise ConfigError(
                "the features of a converted layer were written in place before all rows of its result were read: "
                "read them first, or write to a copy"
            )
        return compute(x)

    return rest


ROWS = 64  # that are looked at at first, from the end; then twice as many, and so on


def read_rows(g: Tensor) -> int:
    """How many rows there are up to the last one that is not 0."""
    if type(g) is Beginning and g.numbers.rest is None:
        g = g.numbers.first
    stop, step = g.shape[0], ROWS
    while stop > 0:
        start, step = max(0, stop - step), 2 * step
        there = g[start:stop].any(1)
        if bool(there[-1]):
            return stop
        if bool(there.any()):
            return start + int(there.nonzero()[-1]) + 1
        stop = start
    return 0


def _relu(x: Any) -> Any:
    return x.numbers.mapped(torch.relu)


def _relu_(x: Any) -> Any:
    numbers = x.numbers
    numbers.settle()
    torch.relu_(numbers.first)
    torch.autograd.graph.increment_version(numbers.first)
    if (rest := numbers.rest) is not None:
        numbers.rest = lambda: torch.relu(rest())
    return x


def _drop(x: Any, p: float, seed: Tensor) -> Any:
    kept = seed.clone()
    return x.numbers.mapped(lambda values: torch.ops.edgewise.drop(values, p, kept))


def _slice(x: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    first, last, numbers = start or 0, len(x) if end is None else end, x.numbers
    if axis not in (0, -2) or first < 0 or not 0 <= last <= numbers.known or step != 1:
        return NotImplemented
    numbers.settle()
    numbers.lent = True
    return numbers.room()[first:last]


def _threshold_backward(g: Any, result: Any, threshold: Any) -> Any:
    """Of a gradient whose other rows are 0, and of results whose first rows are known."""
    if type(g) is not Beginning or g.numbers.rest is not None:
        return NotImplemented
    numbers: FirstRows = g.numbers
    if type(result) is Beginning and known_rows(result) >= numbers.known:
        there = result.numbers.first
    else:
        there = result.numbers.whole() if isinstance(result, Later) else result
    there = there[: numbers.known]
    return numbers.mapped(lambda first: aten.threshold_backward(first, there, threshold))


Beginning.known = {
    aten.relu.default: _relu,
    aten.relu_.default: _relu_,
    aten.slice.Tensor: _slice,
    aten.threshold_backward.default: _threshold_backward,
    torch.ops.edgewise.drop.default: _drop,
}
