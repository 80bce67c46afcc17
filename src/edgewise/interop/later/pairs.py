"""Inner products of pairs of rows, z[i] * z[j] summed: neither rows nor products are written down."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.tracing import is_traced
from edgewise.interop.later.tensor import LARGE, Later, Numbers, aten, is_worth_it
from edgewise.kernels.operator.operator import DTYPES
from edgewise.native import library, threads


def table(y: Tensor, bias: Tensor | None = None) -> Tensor:
    """y + bias, whose rows are not copied where only the inner products of pairs of them are read.

    Edge cases  y is written: it must be fresh, and saved by no backward pass
    """
    if is_traced() or torch.is_autocast_enabled("cpu") or not is_worth_it(y):
        return y if bias is None else y + bias
    result: Tensor = _Table.apply(y, bias)  # type: ignore[no-untyped-call]
    return result


class _Table(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor | None) -> Tensor:
        return Table(Known((y if bias is None else y.add_(bias)).detach()))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return g, g.sum(0) if ctx.needs_input_grad[1] else None


class Known(Numbers):
    """Numbers that are there."""

    def __init__(self, values: Tensor) -> None:
        super().__init__(values.shape, values.dtype)
        self.values = values.contiguous()

    def whole(self) -> Tensor:
        return self.values


class Picked(Numbers):
    """The rows of a table at an index; others = the index of each that they met, and its table's shape."""

    def __init__(self, rows: Known, index: Tensor) -> None:
        super().__init__(torch.Size((len(index), rows.shape[1])), rows.dtype)
        self.rows, self.index = rows, index.clone()
        self.values: Tensor | None = None
        self.others: list[tuple[Tensor, torch.Size]] = []
        rows.read_by(self)

    def whole(self) -> Tensor:
        if self.values is None:
            self.values = self.rows.values.index_select(0, self.index)
        return self.values


class Pairs(Numbers):
    """The products of two picked rows each."""

    def __init__(self, first: Picked, second: Picked) -> None:
        super().__init__(first.shape, first.dtype)
        self.first, self.second = first, second
        self.values: Tensor | None = None
        first.read_by(self)
        second.read_by(self)

    def whole(self) -> Tensor:
        if self.values is None:
            self.values = self.first.whole() * self.second.whole()
        return self.values

    def dots(self) -> Tensor:
        """The sum of each."""
        first, second = self.first, self.second
        first.others.append((second.index, second.rows.shape))
        second.others.append((first.index, first.rows.shape))
        x, z = first.rows.values, second.rows.values
        out = x.new_empty(len(first.index))
        places = (t.data_ptr() for t in (first.index, second.index, x, z, out))
        library.pair_dots(DTYPES[x.dtype], threads(), len(out), x.shape[1], *places)
        return out


class Scaled(Numbers):
    """g_p times picked rows: the gradient of inner products to the rows of the other side."""

    def __init__(self, g: Tensor, rows: Picked) -> None:
        super().__init__(rows.shape, rows.dtype)
        self.g, self.rows = g.clone(memory_format=torch.contiguous_format), rows
        self.values: Tensor | None = None
        rows.read_by(self)

    def whole(self) -> Tensor:
        if self.values is None:
            self.values = self.g.unsqueeze(1) * self.rows.whole()
        return self.values

    def spread(self, index: Tensor, y: Tensor) -> Tensor:
        """y, and each of them added to its row at an index."""
        y, rows = y.clone(memory_format=torch.contiguous_format), self.rows
        places = (t.data_ptr() for t in (index, rows.index, rows.rows.values, self.g, y))
        library.pair_spread(DTYPES[y.dtype], threads(), len(index), *y.shape, *places)
        return y


class Table(Later):
    """The result of a layer: an ordinary tensor, but for what z[index] returns."""

    numbers: Known


class Rows(Later):
    """`Picked` rows."""

    numbers: Picked


class Products(Later):
    """`Pairs`."""

    numbers: Pairs


class Scales(Later):
    """`Scaled` rows."""

    numbers: Scaled


def _picked(z: Any, indices: Any) -> Any:
    index = indices[0] if len(indices) == 1 else None
    if type(z) is not Table or z.numbers.lent or type(index) is not Tensor or index.dtype != torch.int64:
        return NotImplemented
    if index.dim() != 1 or len(index) * z.shape[1] < LARGE:
        return NotImplemented
    low, high = index.aminmax()
    if int(low) < 0 or int(high) >= len(z):
        return NotImplemented
    return Rows(Picked(z.numbers, index))


def _product(a: Any, b: Any) -> Any:
    if type(a) is Rows and type(b) is Rows and a.shape == b.shape and a.dtype == b.dtype:
        settled = any(t.numbers.values is not None for t in (a, b))
        return NotImplemented if settled else Products(Pairs(a.numbers, b.numbers))
    g, rows = (b, a) if type(a) is Rows else (a, b)
    if type(rows) is not Rows or rows.numbers.values is not None or type(g) is not Tensor or g.shape != rows.shape:
        return NotImplemented
    if g.dtype != rows.dtype or (g.stride(1) != 0 and g.shape[1] > 1):
        return NotImplemented
    return Scales(Scaled(g[:, 0], rows.numbers))


def _sum(pairs: Any, axes: Any, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if type(pairs) is not Products or dtype is not None or list(axes or []) not in ([1], [-1]):
        return NotImplemented
    own: Pairs = pairs.numbers
    if any(there.values is not None for there in (own, own.first, own.second)):
        return NotImplemented
    y = own.dots()
    return y.unsqueeze(1) if keepdim else y


def _put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    if type(values) is not Scales or type(x) is not Tensor or not accumulate or len(indices) != 1:
        return NotImplemented
    scaled: Scaled = values.numbers
    if scaled.values is not None or scaled.rows.values is not None or x.dtype != values.dtype:
        return NotImplemented
    known = (index for index, shape in scaled.rows.others if x.shape == shape and torch.equal(index, indices[0]))
    index = next(known, None)  # of numbers that x has rows for
    return NotImplemented if index is None else scaled.spread(index, x)


Table.known = {aten.index.Tensor: _picked}
Rows.known = {aten.mul.Tensor: _product}
Products.known = {aten.sum.dim_IntList: _sum}
Scales.known = {aten.index_put.default: _put}
