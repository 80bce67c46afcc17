"""New examples as rows: objects of JSON, which are tables in a folder for as long as the readers of files read them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from edgewise.data.columns import Column, read_columns
from edgewise.data.examples import DEGREE, Asked, Edges, Kinds, OneGraph, columns_of, ends_of, lacks
from edgewise.data.record import Fitted
from edgewise.data.table import Problems, read_table
from edgewise.data.words import ENDS
from edgewise.errors import DataError, a_kind

NEW = "new"  # what a new node is called that has no name

Row = Mapping[str, Any]


def as_text(row: object) -> str:
    """A row as a request: an object as JSON, also what says of itself what it is (`todict`), anything else as written.

    >>> as_text({"age": np.float32(3)}), as_text(7), as_text("a.png")
    ('{"age": 3.0}', '7', 'a.png')
    """
    row = row.todict() if hasattr(row, "todict") else row
    if not isinstance(row, Mapping):
        return str(row)

    def plain(value: Any) -> Any:
        made = getattr(value, "tolist", lambda: str(value))()  # of arrays and their numbers; a date is a text
        return made if made is not value else str(value)

    return json.dumps(dict(row), default=plain, ensure_ascii=False)


def listed_in(row: Row, name: str, form: str) -> list[Any]:
    """The list that a row has under a name."""
    made = row.get(name, [])
    if not isinstance(made, list):
        raise DataError(f"{name!r} is {a_kind(made)} in place of a list: give {form}")
    return made


def named(values: Sequence[Any], names: Sequence[str], what: str) -> list[Row]:
    """Objects as they are, and lists as objects with these names."""
    rows = list[Row]()
    for number, value in enumerate(values):
        if isinstance(value, Mapping):
            rows.append(value)
        elif isinstance(value, list) and 0 < len(value) <= len(names):
            rows.append(dict(zip(names, value, strict=False)))
        else:
            right = f"an object, or a list of {' and '.join(names[:3]) or 'nothing'}"
            raise DataError(f"{what}: row {number} is no row: give {right}")
    return rows


@contextmanager
def as_tables(tables: Mapping[str, Sequence[Row]], names: Sequence[str] = ()) -> Iterator[Path]:
    """A folder with a table of each name, for as long as it is read; an error calls them by these names alone.

    Symbols     names = the columns of a table without rows
    """
    with TemporaryDirectory(prefix="edgewise-") as folder:
        for name, rows in tables.items():
            place = Path(folder, f"{name}.{'jsonl' if rows else 'csv'}")
            with place.open("w", encoding="utf-8", newline="") as file:
                if rows:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
                else:
                    csv.writer(file).writerow(names)
        try:
            yield Path(folder)
        except DataError as error:
            told = (str(one).replace(f"{folder}/", "") for one in error.args)
            raise DataError(*(one.replace(".jsonl:", ":").replace(".csv:", ":") for one in told)) from error


def ends_in(asked: Asked, edges: Sequence[Any]) -> Sequence[str]:
    """What the columns of the ends of edges are called where some are lists, without names."""
    told = {name for edge in edges if isinstance(edge, Mapping) for name in edge}
    usual = next((pair for pair in ENDS if {*pair} <= told), ENDS[0])
    return asked.ends or tuple(asked.found.get(end, name) for end, name in zip(ENDS[0], usual, strict=True))


def cells_of(row: Row, kinds: Kinds, what: str) -> list[Column]:
    """What a row says in the columns of these kinds.

    Errors      DataError for a column that it lacks, and for cells of another kind
    """
    if lacking := [name for name in kinds if name not in row]:
        raise DataError(lacks(Path(what), lacking))
    with as_tables({what: [row]}) as folder:
        columns, wrong = read_columns(read_table(folder / f"{what}.jsonl"), [*kinds], kinds)
        if wrong:
            raise DataError(*wrong)
    return columns


def with_node(given: OneGraph, row: Row, fitted: Fitted, asked: Asked, form: str) -> tuple[OneGraph, str]:
    """A graph with one node more, of which a row tells, and the request that names it.

    Errors      DataError for cells that are not as those that trained, for ends that are no nodes, and for a name that
                a node of the graph has
    """
    asked, problems, (of_nodes, of_edges) = fitted.asked(asked), Problems(), fitted.kinds
    degrees = [*of_nodes] == [DEGREE]
    (node,) = named([row["node"]], [*of_nodes], "node")
    own, e, ends = str(node.get(given.found.get("node", ""), NEW)), given.e, given.edges
    if given.names is not None and own in given.number_of:
        raise DataError(f"there is a node {own[:40]!r} already: ask for it by its name, or give the new one another")
    edges = listed_in(row, "edges", form)
    edges = named(edges, [*ends_in(asked, edges), *of_edges], "edges")
    x = [] if degrees else _more(given.x, cells_of(node, of_nodes, "node"))
    with as_tables({"edges": edges} if edges else {}) as folder:
        if edges:
            one = Edges(folder / "edges.jsonl", asked.ends)
            one.look(given.number_of | {own: len(given)}, asked)
            new = ends_of([one], given.number_of | {own: len(given)}, problems)
            columns, wrong = columns_of([one], asked)
            problems.extend(wrong)
            problems.check()
            ends, e = np.concatenate([ends, new], axis=1), _more(e, columns)
    names, request = (None, str(len(given))) if given.names is None else ([*given.names, own], own)
    made = replace(given, count=len(given) + 1, names=names, targets=(), splits={}, edges=ends, x=x, e=e)
    return made.described(ends), request


def _more(known: Sequence[Column], columns: Sequence[Column]) -> list[Column]:
    """What is known of rows, and of those after them."""
    later = {column.name: column for column in columns}
    return [column.with_rows(later[column.name]) for column in known if column.name in later]
