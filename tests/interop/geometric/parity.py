"""A layer beside its twin: the same results and gradients, in both widths of numbers, on graphs of every kind."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.interop import conversion, convert

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def graphs() -> dict[str, tuple[Tensor, int]]:
    """edge_index tensors, and how many nodes each is of."""
    generator = torch.Generator().manual_seed(1)
    plain = torch.randint(0, 12, (2, 40), generator=generator)
    return {
        "edges in any order, parallel ones, self-loops and isolated nodes": (plain, 15),
        "no edges": (torch.zeros(2, 0, dtype=torch.int64), 3),
        "no nodes": (torch.zeros(2, 0, dtype=torch.int64), 0),
        "parallel self-loops": (torch.tensor([[0, 0, 1, 1, 2, 0], [0, 0, 1, 1, 0, 2]]), 4),
        "already in order": (torch.tensor([[1, 2, 0, 1], [0, 0, 1, 2]]), 3),
    }


def outputs(y: Any) -> list[Tensor]:
    if isinstance(y, Tensor):
        return [y]
    if y is None:
        return []
    return [t for part in (y.values() if isinstance(y, dict) else y) for t in outputs(part)]


def check(layer: nn.Module, *inputs: Any, **named: Any) -> None:
    """The twin of a layer gives what the layer gives, at the first call and at the next, and the same gradients."""
    for dtype, tolerance in TOLERANCE.items():
        ours = deepcopy(layer).to(dtype)
        theirs = deepcopy(ours)
        convert(ours)
        assert not conversion(ours).others
        assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
        seen = []
        for module in (theirs, ours, ours):
            made = [_prepared(value, dtype) for value in (*inputs, *named.values())]
            y = outputs(module(*made[: len(inputs)], **dict(zip(named, made[len(inputs) :], strict=True))))
            leaves = [t for value in made for t in _leaves(value)] + list(module.parameters())
            torch.manual_seed(2)
            loss = sum((t * torch.randn(t.shape, dtype=t.dtype)).sum() for t in y if t.requires_grad)
            grads = torch.autograd.grad(loss, leaves, allow_unused=True) if isinstance(loss, Tensor) else ()
            seen.append((y, grads))
        (y, grads), *twins = seen
        for other_y, other_grads in twins:
            for a, b in zip(other_y, y, strict=True):
                torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)
            for a, b in zip(other_grads, grads, strict=True):
                if a is not None or b is not None:
                    a, b = (torch.zeros_like(a if b is None else b) if t is None else t for t in (a, b))
                    torch.testing.assert_close(a, b, atol=10 * tolerance, rtol=10 * tolerance)


def _prepared(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to(dtype).requires_grad_() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _prepared(part, dtype) for key, part in value.items()}
    return tuple(_prepared(part, dtype) for part in value) if isinstance(value, tuple) else value


def _leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.requires_grad else []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return [t for part in parts for t in _leaves(part)]
