"""A layer: a module whose annotations say what it takes, checked before its equation runs, and which has an example."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from edgewise.configuration import Bounds, known, require
from edgewise.graphs import Graph
from edgewise.kernels.call import check_graph

# check(layer, graph, name, value) raises an error that names the value; it may return what stands in the place of None
Check = Callable[[Any, Any, str, Any], Any]
F = TypeVar("F", bound=Callable[..., Any])
MISSING = inspect.Parameter.empty


class Layer(nn.Module):
    """A module whose `__init__` and `forward` are checked by their annotations, so that equations stay bare.

    Symbols     inputs: Count, dropout: Share = numbers within bounds; reduce: Literal["mean", "max"] = one of these
                names; graph: Graph = a graph; x: Annotated[Tensor, Rows()] = whatever the check in it says
    Errors      ConfigError for an argument of `__init__`, GraphError or ShapeError for one of `forward`

    Example
        >>> from edgewise.layers import GCN
        >>> GCN(2, 0)
        Traceback (most recent call last):
        edgewise.errors.ConfigError: GCN: outputs must be a whole number, at least 1, not 0
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("__init__", "forward"):
            if name in vars(cls):
                setattr(cls, name, checked(vars(cls)[name]))


def checked(function: F) -> F:
    """A method or function that checks its arguments by their annotations before it runs."""
    try:
        hints, parameters = get_type_hints(function, include_extras=True), inspect.signature(function).parameters
    except NameError:  # of a user's class, whose annotations are text and name what is not in its module
        return function
    checks = [
        (place, name, parameter.default, check)
        for place, (name, parameter) in enumerate(parameters.items())
        for check in _checks(hints.get(name))
    ]
    own = int("self" in parameters)  # of a method
    reads_graph = hints.get("graph") is Graph
    if not checks and not reads_graph:
        return function

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        graph = (args[own] if own < len(args) else kwargs.get("graph", MISSING)) if reads_graph else None
        if reads_graph and graph is not MISSING:
            check_graph(graph, *args[own + 1 :], *kwargs.values())
        for place, name, default, check in checks:
            value = args[place] if place < len(args) else kwargs.get(name, default)
            if value is MISSING or (found := check(args[0] if own else function, graph, name, value)) is None:
                continue
            if place < len(args):
                args = (*args[:place], found, *args[place + 1 :])
            else:
                kwargs[name] = found
        return function(*args, **kwargs)

    return cast(F, run)


def _checks(hint: Any) -> Iterator[Check]:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        for mark in hint.__metadata__:
            yield functools.partial(_number, hint) if isinstance(mark, Bounds) else mark
    elif origin is Literal:
        yield functools.partial(_name, inner)
    elif origin in (Union, UnionType):
        yield from (functools.partial(_unless_none, check) for one in inner for check in _checks(one))
    elif origin is Sequence or (isinstance(origin, type) and issubclass(origin, Sequence)):
        yield from (functools.partial(_each, check) for check in _checks(inner[0]))


def _number(kind: Any, layer: Any, graph: Any, name: str, value: Any) -> None:
    require(layer, kind, **{name: value})


def _name(names: tuple[str, ...], layer: Any, graph: Any, name: str, value: Any) -> None:
    known(name, value, names)


def _unless_none(check: Check, layer: Any, graph: Any, name: str, value: Any) -> None:
    if value is not None:
        check(layer, graph, name, value)


def _each(check: Check, layer: Any, graph: Any, name: str, values: Any) -> None:
    for place, value in enumerate(values):
        check(layer, graph, f"{name}[{place}]", value)


Example = tuple[nn.Module, Graph, tuple[Tensor, ...]]  # layer(graph, *inputs)


def example_graph() -> Graph:
    """Five nodes: a triangle in both directions, a self-loop and an isolated node.

    Example
        >>> example_graph().in_degrees().tolist()
        [2, 2, 2, 1, 0]
    """
    return Graph.from_edge_index([[0, 1, 1, 2, 2, 0, 3], [1, 0, 2, 1, 0, 2, 3]], num_nodes=5)


def small_example(layer: nn.Module, channels: int = 3) -> Example:
    """A layer of node features alone, on that graph."""
    return layer, example_graph(), (torch.randn(5, channels),)
