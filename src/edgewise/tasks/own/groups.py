"""Rows that belong to examples: the nodes of graphs, the points of clouds; and edges between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgewise.data.features import Array, Column, Kind, in_lines, read_columns
from edgewise.data.lines import Problems
from edgewise.data.reading import File
from edgewise.data.table import Called, Table
from edgewise.errors import DataError, counted
from edgewise.graphs import Graph
from edgewise.tasks.own.edges import EdgeFile, columns_of, ends_of, with_features

NODES = ("node", "id", "node_id", "nodeid", "name")  # the columns that name the rows of an example
MAX_MEMBERS = 1 << 22  # nodes of all graphs together


@dataclass(frozen=True)
class Members:
    """The nodes or points of examples, the examples one after the other.

    Args:
        columns: What is known of them.
        sizes: How many each example has [G].
        names: How an edge names them: a node's own name, or its row.
        group: The column that says which example a row belongs to.
        named_by: The column that names them, or nothing.
        groups: The name of the example that each belongs to.
        notes: How they were read, in lines.
    """

    columns: list[Column]
    sizes: Array
    names: Sequence[str]
    group: str
    named_by: str
    groups: Sequence[str]
    notes: tuple[str, ...]

    @property
    def owner(self) -> Array:
        """The example of each [N]."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def of(self, examples: Tensor) -> Array:
        """The rows of some examples."""
        return np.flatnonzero(np.isin(self.owner, examples.numpy()))


def group_column(file: File, unit: str, chosen: str) -> str:
    """The column that says which example a row belongs to, or nothing."""
    lower = Called(file.path, file.names)
    if chosen and chosen not in file.names:
        raise DataError(f"{file.path}: it has no column {chosen!r} that names its {unit}, only {', '.join(file.names)}")
    return chosen or next((lower[name] for name in (unit, f"{unit}_id", f"{unit}id") if name in lower), "")


def read_members(
    path: Path,
    examples: Sequence[str],
    unit: str,
    chosen: str,
    ignored: set[str],
    known: Mapping[str, Kind] | None,
    problems: list[str],
) -> Members:
    """The rows of a table, by the example that each belongs to; what is wrong with them is added to `problems`.

    Symbols     examples = their names, in order; unit = what an example is; chosen = the column that names it; known =
                the columns to be read, with their kinds; None: all that are left
    """
    file, found = File(path), Problems()
    group = group_column(file, unit, chosen)
    if not group:
        raise DataError(
            f"{path}: its columns are {', '.join(file.names)}: none is called {unit}. Give --task.{unit} NAME"
        )
    lower = Called(path, file.names, ignored)
    named_by = next((lower[name] for name in NODES if name in lower and lower[name] != group), "")
    table = file.table((group,), [name for name in (group, named_by) if name])
    if len(table) > MAX_MEMBERS:
        raise DataError(f"{path}: {len(table):,} rows, of at most {MAX_MEMBERS:,}")
    for problem in table.problems:
        found.add(problem)
    number_of, groups = {name: number for number, name in enumerate(examples)}, table.names(group)
    owner = np.fromiter((number_of.get(name, -1) for name in groups), np.int64, len(groups))
    for row in np.flatnonzero(owner < 0).tolist():
        found.add(f"{table.at(row)}: there is no {unit} {groups[row][:40]!r}")
    for number in np.flatnonzero(np.bincount(owner[owner >= 0], minlength=len(examples)) == 0).tolist():
        found.add(f"{path}: the {unit} {examples[number][:40]!r} has no rows")
    names = table.names(named_by) if named_by else [str(row) for row in range(len(table))]
    present, taken = {*file.names}, {*ignored, group, named_by, ""}
    features = [name for name in file.names if name not in taken]
    if known is not None:
        if lacking := [name for name in known if name not in present]:
            found.add(f"{path}: it lacks the columns {', '.join(lacking)}, which the run was trained with")
        features, left = [name for name in known if name in present], [n for n in features if n not in known]
    else:
        left = []
    rows = _distinct(table, groups, names, features, found) if named_by else np.arange(len(table))
    twice, rows = len(table) - len(rows), rows[owner[rows] >= 0]
    columns, wrong = read_columns(file, table, features, known)
    problems += [*wrong, *found.sentences()]
    order = rows[np.argsort(owner[rows], kind="stable")]
    notes = [*table.notes, *([f"{path.name}: {counted(twice, 'repeated row')}, read once"] if twice else [])]
    notes += [*in_lines(columns), *([f"not read: the columns {', '.join(left)}"] if left else [])]
    return Members(
        [column.taken(order) for column in columns],
        np.bincount(owner[rows], minlength=len(examples)),
        [names[row] for row in order.tolist()],
        group,
        named_by,
        [groups[row] for row in order.tolist()],
        tuple(notes),
    )


def _distinct(
    table: Table, groups: Sequence[str], names: Sequence[str], read: Sequence[str], problems: Problems
) -> Array:
    """The first row of each name in an example; a later one must be the same in the columns that are read."""
    first: dict[tuple[str, str], int] = {}
    for row, key in enumerate(zip(groups, names, strict=True)):
        before = first.setdefault(key, row)
        if not names[row]:
            problems.add(f"{table.at(row)}: the row of {groups[row][:40]!r} has no name")
        if before == row or not names[row]:
            continue
        if not table.same(row, before, read):
            twice = f"is there twice, with other cells in {table.rows[0]} {table.rows[1][before]}"
            problems.add(f"{table.at(row)}: {names[row][:40]!r} of {groups[row][:40]!r} {twice}")
    return np.fromiter(first.values(), np.int64, len(first))


class EdgesOfMembers(EdgeFile):
    """A table of edges, of which each is within one example: a column may say which, and then it names nodes there."""

    def __init__(self, path: Path, ends: Sequence[str], unit: str, chosen: str) -> None:
        super().__init__(path, ends)
        self.group = group_column(self.file, unit, chosen if chosen in self.file.names else "")
        if self.group in self.ends or (self.group and self.guessed):
            raise DataError(
                f"{path}: its columns are {', '.join(self.names)}: which are ends of edges? Give --task.ends"
            )
        if self.group:
            self.table = self.file.table(self.ends, [*self.ends, self.group])

    def names_of(self, end: str) -> list[str]:
        names = super().names_of(end)
        if not self.group:
            return names
        return [f"{one} / {name}" for one, name in zip(self.table.names(self.group), names, strict=True)]


def edges_of(
    links: Sequence[EdgesOfMembers],
    members: Members,
    ignored: set[str],
    known: Mapping[str, Kind] | None,
    problems: list[str],
    kept: Mapping[str, str] | None = None,
) -> tuple[Array, list[Column]]:
    """Senders and receivers [2, E] by the members' numbers, and what is known of the edges.

    Symbols     known, kept = the columns of features and of ends that a run read
    """
    found = Problems()
    number_of: dict[str, int] = {}
    for number, name in enumerate(members.names):
        if number_of.setdefault(name, number) != number:
            number_of[name] = -2  # there are several: an edge must say of which example
    first = np.cumsum(members.sizes) - members.sizes
    inside = (
        members.names
        if members.named_by
        else [str(number - first[owner]) for number, owner in enumerate(members.owner.tolist())]
    )
    number_of |= {
        f"{group} / {name}": number for number, (group, name) in enumerate(zip(members.groups, inside, strict=True))
    }
    for one in links:
        if not one.group and -2 in number_of.values():
            found.add(f"{one.path}: nodes of several examples have one name: it needs a column {members.group!r} too")
        if not one.group:
            one.look(number_of, known, kept)
        for problem in one.table.problems:
            found.add(problem)
    ends = ends_of(links, number_of, found)
    owner = np.append(members.owner, -1)
    crossing = np.flatnonzero((owner[ends[0]] != owner[ends[1]]) & (ends >= 0).all(0)).tolist()
    lines = [(one, row) for one in links for row in range(len(one.table))] if crossing else []
    for edge in crossing:
        one, row = lines[edge]
        found.add(
            f"{one.table.at(row)}: it joins nodes of {members.groups[ends[0][edge]][:40]!r} and "
            f"{members.groups[ends[1][edge]][:40]!r}"
        )
    groups = {one.group for one in links} - {""}
    columns, wrong = columns_of(links, {*ignored, *groups}, known)
    problems += [*wrong, *found.sentences()]
    return ends, columns


def graphs_of(edges: Array, sizes: Array, e: Array | None, undirected: bool) -> tuple[tuple[Graph, ...], Tensor | None]:
    """Each example's own graph, and the features of all edges in the graphs' own order."""
    pairs, nodes = torch.from_numpy(edges), int(sizes.sum())
    known: Tensor | None = None
    if e is None:
        whole = Graph.from_edge_index(pairs, nodes)
        whole = whole.symmetrise().coalesce() if undirected else whole
    else:
        whole, known = with_features(pairs, torch.from_numpy(e.astype(np.float32)), nodes, undirected)
    ends = torch.stack([whole.senders, whole.receivers])
    first = torch.from_numpy(np.cumsum(sizes) - sizes)
    owner = torch.repeat_interleave(torch.from_numpy(sizes), output_size=nodes)[ends[1]]
    each = (ends - first[owner]).split(torch.bincount(owner, minlength=len(sizes)).tolist(), dim=1)
    members = tuple(Graph.from_edge_index(pair, size) for pair, size in zip(each, sizes.tolist(), strict=True))
    if known is None:
        return members, None
    parts = known.split([pair.shape[1] for pair in each])
    return members, torch.cat([one.sort_edges(part) for one, part in zip(members, parts, strict=True)])
