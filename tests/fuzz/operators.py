"""The public operators of the C++ kernels, with arguments that the fuzzer spoils: right calls, and bytes.

An operator may return, or refuse; it never leaves its tensors' memory, which a kernel that trusts a bad index would.
"""

import random
from contextlib import suppress
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from edgewise.graphs import Graph, window
from edgewise.kernels import (
    Additive,
    Dot,
    EdgeBias,
    EdgeInput,
    EdgeNetwork,
    EdgeVectors,
    Filter,
    GatedAdditive,
    Score,
    aggregate,
    attend,
    collect,
)
from edgewise.kernels.operator.operator import Operator

NUMBERS = (0, 1, -1, 2, 3, 7, 64, 255, -(2**31), 2**31 - 1, 2**40)
FLOATS = (0.0, -1.0, 0.5, 1.0, 2.0, float("nan"), float("inf"), 1e38, 1e-45)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.bool)
LARGEST = 1 << 16  # numbers of a tensor that is made: a call stays a matter of milliseconds
MOST = 16  # arguments that are spoilt, each perhaps by a further axis, of which PyTorch allows 64


@cache
def examples(dtype: torch.dtype = torch.float32) -> list[tuple[str, list[Any]]]:
    """Calls of every operator of the C++ kernels, as the verbs make them, forward and backward."""
    made: dict[tuple[Any, ...], tuple[str, list[Any]]] = {}
    call = Operator.__call__

    def recorded(self: Any, arguments: Any) -> Any:
        values = [getattr(arguments, name) for name in self.names]
        kind = (self.overload.name(), *[value is None for value in values])
        made.setdefault(kind, (self.overload.name(), values))
        return call(self, arguments)

    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype).requires_grad_()

    graph = Graph.from_edge_index([[0, 1, 2, 3, 3, 0], [1, 2, 2, 0, 1, 3]], num_nodes=5)
    scores: list[Score] = [Dot(), Dot(biases=(EdgeBias(numbers(6, 2)),)), GatedAdditive(numbers(2, 4))]
    with patch.object(Operator, "__call__", recorded):
        for score in scores:
            q, k, v = numbers(5, 2, 4), numbers(5, 2, 4), numbers(5, 2, 3)
            attend(graph, q, k, v, score, backend="native").sum().backward()
        for reduce in ("sum", "mean", "max"):
            aggregate(graph, numbers(5, 2, 3), numbers(6, 2), reduce, backend="native").sum().backward()
        of_edges = EdgeInput((numbers(8, 3), None), numbers(6, 3))
        for score in (Dot(), GatedAdditive(numbers(2, 4)), Additive(0.2, numbers(2, 4), numbers(2, 4))):
            for vectors in (EdgeVectors(of_edges, of_edges), EdgeVectors(numbers(6, 2, 4), numbers(6, 2, 4))):
                attend(graph, *(numbers(5, 2, 4) for _ in range(3)), score + vectors, backend="native").sum().backward()
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        a, b, x, weight, e = (
            numbers(*shape).detach().to(wide).requires_grad_() for shape in ((5, 8),) * 3 + ((8, 3), (6, 3))
        )
        gate = EdgeNetwork(
            (), torch.sigmoid, receivers=a, senders=b, edges=EdgeInput((weight, None), e), activated=True
        )
        for message in (gate, Filter(gate, x)):
            collect(graph, message, backend="native").sum().backward()
        attend(window(9, 2), numbers(9, 2, 4), numbers(9, 2, 4), numbers(9, 2, 4), backend="tiled").sum().backward()
    return [(name, values) for name, values in made.values()]


def call_operator(content: bytes) -> None:
    """One call: the first byte chooses the operator, from 128 with its backward pass; three each spoil an argument."""
    first = content[0] if content else 0
    name, arguments = examples()[first % 128 % len(examples())]
    arguments = [value.detach().clone() if isinstance(value, Tensor) else value for value in arguments]
    for start in range(1, min(len(content) - 2, 3 * MOST), 3):
        place, kind, seed = content[start : start + 3]
        place %= len(arguments)
        arguments[place] = spoilt(arguments[place], kind, random.Random(seed))
    namespace, short = name.split("::")
    operator = getattr(getattr(torch.ops, namespace), short).default
    # RuntimeError: PyTorch's, of arguments that do not fit the schema, and of memory that there is not.
    with suppress(RuntimeError, TypeError):
        if first >= 128 and torch._C._dispatch_has_kernel_for_dispatch_key(name, "Autograd"):
            arguments = [_leaf(value) for value in arguments]
        results = operator(*arguments)
        totals = [result.double().sum() for result in ([results] if isinstance(results, Tensor) else results)]
        if learned := [total for total in totals if total.requires_grad]:
            torch.autograd.backward(learned)
        for total in totals:
            total.item()


def _leaf(value: Any) -> Any:
    """A tensor of real numbers requires a gradient, whatever its storage."""
    is_real = isinstance(value, Tensor) and value.is_floating_point()
    return value.detach().requires_grad_() if is_real else value


def spoilt(value: Any, kind: int, draw: random.Random) -> Any:
    """Another value in the place of an argument, mostly of the same type."""
    if isinstance(value, Tensor):
        return _spoilt_tensor(value, kind % 12, draw)
    if isinstance(value, list | tuple):
        items = list(value)
        if not items or kind % 8 == 0:
            return [*items, *items[:1]]
        if kind % 8 == 1:
            return items[: draw.choice([-1, 0])]
        place = draw.randrange(len(items))
        items[place] = spoilt(items[place], kind // 8, draw)
        return items
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice(NUMBERS)
    if isinstance(value, float):
        return draw.choice(FLOATS)
    return torch.zeros(draw.choice([(0,), (1, 5, 2, 4), (1, 6, 2), (2, 4)]))


def _spoilt_tensor(x: Tensor, kind: int, draw: random.Random) -> Tensor | None:
    if kind == 0:
        return None
    if kind < 4 and x.numel():
        x = x.contiguous().clone()
        to = draw.choice(FLOATS) if x.is_floating_point() else draw.choice(NUMBERS)
        x.view(-1)[draw.randrange(x.numel())] = max(min(to, 2**31 - 1), -(2**31)) if x.dtype == torch.int32 else to
        return x
    if kind == 4:
        return x.to(draw.choice(DTYPES))
    if not x.ndim:
        return x.reshape(1)
    axis = draw.randrange(x.ndim)
    if kind == 5:
        return x.narrow(axis, 0, draw.randrange(x.shape[axis] + 1))
    if kind == 6 and x.numel() < LARGEST:
        return torch.cat([x, x], axis)
    if kind == 7:
        return x.transpose(axis, -1)
    if kind == 8:
        return x.flip(axis)
    if kind == 9:
        return x.narrow(axis, 0, min(1, x.shape[axis])).expand(x.shape) if x.shape[axis] else x
    if kind == 10:
        return x.unsqueeze(axis)
    return x.flatten()
