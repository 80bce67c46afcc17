"""A call with one argument changed at a time, and what comes of it: results and refusals, to be put on record."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from edgewise import Graph
from edgewise.errors import EdgewiseError
from recorded import summary


def misfits(x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of other shapes."""
    yield "less an axis", x[0]
    yield "a row more", torch.cat([x, x[-1:]])
    if x.ndim > 1:
        yield "a channel more", torch.cat([x, x[..., -1:]], -1)
        yield "a channel fewer", x[..., :-1]
    yield "in a batch", torch.stack([x, x])


def others(value: Any) -> Iterator[tuple[str, Any]]:
    """Other values of an argument, many of which it cannot have, each with its name."""
    if isinstance(value, torch.Tensor) and value.ndim:
        yield from misfits(value)
        if value.is_floating_point():
            yield "NaN", torch.full_like(value, float("nan"))
            yield "negative", -value.abs() - 1
    elif isinstance(value, Graph):
        yield "no edges", value.keep_edges(torch.zeros(value.num_edges, dtype=torch.bool))
        yield "a receiver less", value.rows(0, value.num_receivers - 1)
        yield (
            "parallel edges",
            Graph.from_edge_index(value.edge_index().repeat(1, 2), value.num_senders, value.num_receivers),
        )
        if value.is_square:
            yield "loops", value.add_self_loops()
    elif isinstance(value, bool):
        yield str(not value), not value
    elif isinstance(value, int | float):
        more = [1.5, float("nan"), float("inf")] if isinstance(value, float) else []
        yield from ((str(other), other) for other in [-1, 0, value + 1, *more])
    elif isinstance(value, str):
        yield "unheard-of", "unheard-of"
    elif value is None:
        yield "1", 1


def outcome(call: Callable[[], Any]) -> str:
    """The result in a line, or why there is none."""
    try:
        return summary(call())
    except EdgewiseError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"an error of Python's or PyTorch's: {type(error).__name__}"


def outcomes(name: str, call: Callable[..., Any], given: dict[str, Any]) -> Iterator[str]:
    """The call as given, then with each argument changed."""
    yield f"{name}: {outcome(lambda: call(**given))}"
    for argument, value in given.items():
        for what, other in others(value):
            options = given | {argument: other}
            yield f"{name}, {argument} {what}: {outcome(lambda options=options: call(**options))}"
