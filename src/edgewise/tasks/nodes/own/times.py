"""When a node or an edge is: a column of dates or numbers, by which parts are cut into past and future."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import torch
from torch import Tensor

from edgewise.data.features import Array, Column
from edgewise.data.splits import Splits
from edgewise.errors import DataError
from edgewise.tasks.nodes.own.given import Given
from edgewise.tasks.own.record import listed, name

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def times_of_edges(given: Given, column: str) -> tuple[Given, Column]:
    """When each edge is, and the data without that column, which is no feature then.

    Errors      DataError for a column that no table of edges has, that holds neither dates nor numbers, or has gaps
    """
    columns = given.e if isinstance(given.e, list) else []
    found = _found(given, columns, column, "edges")
    left = [one for one in columns if one is not found]
    return replace(given, e=left or None, notes=_without(given, f"of edges: {found}")), found


def times_of_nodes(given: Given, column: str) -> tuple[Given, Column]:
    """When each node is: by a column of the nodes, or where they have none that is called so, by its first edge."""
    columns = given.x if isinstance(given.x, list) else []
    if column in [one.name for one in columns]:
        found = _found(given, columns, column, "nodes")
        left = [one for one in columns if one is not found]
        return replace(given, x=left, notes=_without(given, str(found))), found
    given, found = times_of_edges(given, column)
    first = np.full(len(given), np.inf)
    for ends in given.edges:
        np.minimum.at(first, ends, found.values)
    if alone := [name(given, node) for node in np.flatnonzero(np.isinf(first)).tolist()]:
        raise DataError(f"{given.place}: {listed(alone)} have no edge, and so no {column}: give the column of nodes")
    return given, replace(found, values=first, present=np.ones(len(first), dtype=bool))


def times_of_links(edges: Array, times: Array, nodes: int) -> Tensor:
    """When each link is, [M] in the order of `links_of`: at its first edge, whichever way that leads."""
    low, high = edges.min(0), edges.max(0)
    apart = low < high
    codes, link = np.unique((low * nodes + high)[apart], return_inverse=True)
    first = np.full(len(codes), np.inf)
    np.minimum.at(first, link, times[apart])
    return torch.from_numpy(first)


def in_words(column: Column, times: Tensor, splits: Splits, what: str) -> str:
    """Which times train, choose the weights and test, in a line."""
    parts = {split: times[rows] for split, rows in splits.items()}
    ends = {split: (float(part.min()), float(part.max())) for split, part in parts.items()}
    shown = [f"{split} {_shown(column, least)} to {_shown(column, most)}" for split, (least, most) in ends.items()]
    return f"{what} by {column.name}: {', '.join(shown)}"


def _shown(column: Column, time: float) -> str:
    if column.kind == "date":
        return (BEGINNING + timedelta(days=time)).strftime("%Y-%m-%d" if time.is_integer() else "%Y-%m-%d %H:%M")
    return f"{time:g}"


def _without(given: Given, line: str) -> tuple[str, ...]:
    """The notes without the line that calls a column a feature."""
    return tuple(note for note in given.notes if note != line)


def _found(given: Given, columns: Sequence[Column], column: str, what: str) -> Column:
    found = next((one for one in columns if one.name == column), None)
    if found is None:
        has = ", ".join(one.name for one in columns) or "no column beside their ends"
        raise DataError(f"{given.place}: no column of {what} that is read is called {column!r}; they have {has}")
    if found.kind not in ("date", "number", "boolean"):
        raise DataError(f"{given.place}: {column} holds {found.kind} cells: a time is a date or a number")
    if gaps := int((~found.present).sum()):
        raise DataError(f"{given.place}: {column} is missing in {gaps:,} rows of {what}: each needs its time")
    return found
