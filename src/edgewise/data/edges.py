"""Edges from one table or several: which columns are their ends, what is known of them, and their graphs."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgewise.data.columns import ENDS, Array, Column, ends_called, read_columns
from edgewise.data.examples import Asked, Members, group_column
from edgewise.data.table import SHOWN, Problems, read_table, stacked
from edgewise.errors import DataError
from edgewise.files import spelt
from edgewise.graphs import Graph

RELATION = "relation"  # the feature that says which of several files an edge is from


class Edges:
    """A table of edges: its two columns of ends are found by their names, or else by what they hold.

    Symbols     unit = what its nodes belong to: each edge is then within one, and a column may say which, and names
                nodes there; chosen = that column; empty: found
    """

    def __init__(self, path: Path, ends: Sequence[str], unit: str = "", chosen: str = "") -> None:
        self.path, self.table, self.group = path, read_table(path, whole=False), ""
        self.names = self.table.header
        self.ends = ends_called(path, self.names, ends, "--task.ends")
        self.guessed = not self.ends
        self.ends = self.ends or list(self.names[:2])
        if len(self.ends) != 2:
            raise DataError(f"{path}: its columns are {', '.join(self.names)}; expected {' and '.join(ENDS[0])}")
        if unit:
            self.group = group_column(self.table, unit, chosen if chosen in self.names else "")
        if self.group in self.ends or (self.group and self.guessed):
            names = ", ".join(self.names)
            raise DataError(f"{path}: its columns are {names}: which are ends of edges? Give --task.ends")

    def names_of(self, end: str) -> list[str]:
        """The nodes at an end, where a column says so with what they belong to."""
        names = self.table.names(end)
        if not self.group:
            return names
        return [f"{one} / {name}" for one, name in zip(self.table.names(self.group), names, strict=True)]

    def look(self, known: Mapping[str, int], asked: Asked) -> None:
        """Find the ends by what columns hold, where no name says which they are: nodes, in all cells of both.

        Errors      DataError for another number of such columns than two, and for two whose names are nodes, too
        Edge cases  where no two columns hold nodes alone, two that mostly do: the others of their cells are mistakes.
                    Two columns beside the features are the ends, and so are the only two of a file without rows; and
                    those that a run found, where they are there
        """
        if not self.guessed:
            return
        features = asked.known and asked.known[1]
        kept, count = [asked.found[end] for end in ENDS[0] if end in asked.found], len(self.table)
        if kept and {*kept} <= {*self.names}:
            self.ends = kept
            return
        left = [name for name in self.names if name and name not in (features or ())]
        nodes = {name: sum(text in known for text in self.table.texts(name)) for name in left}
        fitting = [name for name in left if nodes[name] == count > 0]
        if len(fitting) != 2:
            sure = len(left) == 2 and (features is not None or not count)
            fitting = left if sure else [name for name in left if 2 * nodes[name] > count]
        if len(fitting) != 2:
            expected = " and ".join(ENDS[0])
            names = ", ".join(self.names)
            raise DataError(f"{self.path}: its columns are {names}; expected {expected}, or --task.ends")
        if all(name in known for name in fitting):
            what = f"its first line must have the names of the columns, and {' and '.join(fitting)} are nodes"
            advice = f"put names such as {', '.join(ENDS[0])} above it, or give --task.ends {','.join(fitting)}"
            raise DataError(f"{self.path}: {what}: {advice}")
        self.ends = fitting

    @property
    def notes(self) -> tuple[str, ...]:
        """How the file is written, and how the ends were found, where their names do not say it."""
        found = (f"{self.path.name}: edges go from {self.ends[0]} to {self.ends[1]}",) if self.guessed else ()
        return (*self.table.notes, *found)


def found_ends(edges: Sequence[Edges]) -> dict[str, str]:
    """The columns of ends, by their meaning, of the first file whose names do not say which they are; or nothing."""
    return next((dict(zip(ENDS[0], one.ends, strict=True)) for one in edges if one.guessed), {})


def ends_of(edges: Sequence[Edges], number_of: Mapping[str, int], problems: Problems) -> Array:
    """Senders and receivers of all files [2, E], by the nodes' rows; -1, and a problem, for a name that no node has."""
    parts = []
    for one in edges:
        problems.extend(one.table.problems)
        pair = []
        for end in one.ends:
            names = one.names_of(end)
            numbers = np.fromiter((number_of.get(name, -1) for name in names), np.int64, len(names))
            for row in np.flatnonzero(numbers < 0).tolist():
                meant = _meant(names[row], number_of) if problems.count < SHOWN else ""
                problems.add(f"{one.table.at(row)}: there is no node {names[row][:40]!r}{meant}")
            pair.append(numbers)
        parts.append(np.stack(pair))
    return np.concatenate(parts, axis=1)


def _meant(name: str, known: Collection[str]) -> str:
    """The node that another spelling of a name has: spreadsheets write 7 as 7.0 and 007 as 7."""
    if not name:
        return ""
    plain = name.removesuffix(".0").lstrip("0")
    digits = [plain.zfill(width) for width in range(1, 9)]
    spellings = (f"{name}.0", name.removesuffix(".0"), *digits, name.lower(), name.upper(), name.capitalize())
    return next((f"; did you mean {other[:40]!r}?" for other in spellings if other in known), "")


def ends_within(edges: Sequence[Edges], members: Members, asked: Asked, problems: Problems) -> Array:
    """Senders and receivers [2, E] by the members' numbers, where each edge is within one example."""
    number_of: dict[str, int] = {}
    for number, name in enumerate(members.names):
        if number_of.setdefault(name, number) != number:
            number_of[name] = -2  # there are several: an edge must say of which example
    several, owner = -2 in number_of.values(), members.owner
    first = np.cumsum(members.sizes) - members.sizes
    inside = members.names if members.named_by else map(str, (np.arange(len(owner)) - first[owner]).tolist())
    whole = (f"{group} / {name}" for group, name in zip(members.groups, inside, strict=True))
    number_of |= {name: number for number, name in enumerate(whole)}
    for one in edges:
        if not one.group and several:
            what = "nodes of several examples have one name"
            problems.add(f"{one.path}: {what}: it needs a column {members.group!r} too")
        if not one.group:
            one.look(number_of, asked)
    ends, owner = ends_of(edges, number_of, problems), np.append(owner, -1)
    crossing = np.flatnonzero((owner[ends[0]] != owner[ends[1]]) & (ends >= 0).all(0)).tolist()
    lines = [(one, row) for one in edges for row in range(len(one.table))] if crossing else []
    for edge in crossing:
        one, row = lines[edge]
        names = (repr(members.groups[end][:40]) for end in ends[:, edge])
        problems.add(f"{one.table.at(row)}: it joins nodes of {' and '.join(names)}")
    return ends


def columns_of(edges: Sequence[Edges], asked: Asked) -> tuple[list[Column], list[str]]:
    """What is known of the edges, as columns over those of all files; and what is wrong with other columns.

    Edge cases  a column that a file lacks holds no value there; of several files, a category says which one an edge is
                from, unless `relation` is to be ignored; a column of that name is refused in several files, unless
                training read one
    """
    known, problems = asked.known and asked.known[1], list[str]()
    there = dict.fromkeys(name for one in edges for name in one.names if name and name not in {*one.ends, one.group})
    names = [name for name in there if name not in asked.ignore] if known is None else [n for n in known if n in there]
    own = [one.path for one in edges if RELATION in {*one.names} - {*one.ends, *asked.ignore}]
    if known is None:
        made = len(edges) > 1 and RELATION not in asked.ignore
        what = f"its column {RELATION} is called as the feature that says which file an edge is from"
        problems += [f"{path}: {what}: rename it, or give --task.ignore {RELATION}" for path in own if made]
    else:
        made = known.get(RELATION) == "category" and not own
        if lacking := [name for name in known if name not in there and not (made and name == RELATION)]:
            what = f"it lacks the columns {', '.join(lacking)}, which the run was trained with"
            problems.append(f"{edges[0].path}: {what}")
    columns, wrong = read_columns(stacked([one.table for one in edges], names), names, known)
    if made:
        levels, sizes = tuple(spelt(one.path.stem) for one in edges), [len(one.table) for one in edges]
        codes = np.repeat(np.arange(len(edges), dtype=np.int32), sizes)
        columns.append(Column(RELATION, "category", codes, np.ones(len(codes), dtype=bool), levels))
    return columns, [*wrong, *problems]


def graph_of(edges: Array, e: Array | None, nodes: int, undirected: bool) -> tuple[Graph, Tensor | None]:
    """The graph of edges [2, E], and their features [E, D] in its order; both ways, parallel edges have their mean."""
    pairs = torch.from_numpy(edges)
    if e is None:
        graph = Graph.from_edge_index(pairs, nodes)
        return graph.symmetrise().coalesce() if undirected else graph, None
    known = torch.from_numpy(e.astype(np.float32))
    if undirected:
        both = torch.cat([pairs, pairs.flip(0)], 1)
        keys, edge_of = (both[0] * nodes + both[1]).unique(return_inverse=True)
        sums = torch.zeros(len(keys), known.shape[1]).index_add_(0, edge_of, known.repeat(2, 1))
        known = sums / torch.bincount(edge_of, minlength=len(keys))[:, None].clamp(min=1)
        pairs = torch.stack([keys // max(1, nodes), keys % max(1, nodes)])
    graph = Graph.from_edge_index(pairs, nodes)
    return graph, graph.sort_edges(known)


def graphs_of(edges: Array, sizes: Array, e: Array | None, undirected: bool) -> tuple[tuple[Graph, ...], Tensor | None]:
    """Each example's own graph, and the features of all edges in the graphs' own order."""
    nodes = int(sizes.sum())
    whole, known = graph_of(edges, e, nodes, undirected)
    ends = torch.stack([whole.senders, whole.receivers])
    first = torch.from_numpy(np.cumsum(sizes) - sizes)
    owner = torch.repeat_interleave(torch.from_numpy(sizes), output_size=nodes)[ends[1]]
    each = (ends - first[owner]).split(torch.bincount(owner, minlength=len(sizes)).tolist(), dim=1)
    members = tuple(Graph.from_edge_index(pair, size) for pair, size in zip(each, sizes.tolist(), strict=True))
    if known is None:
        return members, None
    parts = known.split([pair.shape[1] for pair in each])
    return members, torch.cat([one.sort_edges(part) for one, part in zip(members, parts, strict=True)])
