"""The edges of one's own graph: who attends to whom, and what is known of each edge, from one table or several."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgewise.data.ends import ENDS, ends_called
from edgewise.data.features import Array, Column, Kind, read_columns
from edgewise.data.lines import Problems
from edgewise.data.reading import File
from edgewise.data.table import SHOWN, Table
from edgewise.errors import DataError
from edgewise.files import spelt
from edgewise.graphs import Graph

RELATION = "relation"  # the feature that says which of several files an edge is from


def strangers(
    place: Path, ignore: Set[str], present: Set[str], edges: int = 0, *known: Iterable[str] | None
) -> list[str]:
    """A problem each where columns are to be ignored that no table has, or that a run to be like was trained with.

    Several files of edges have `relation` too.
    """
    problems = []
    if names := sorted(ignore - present - ({RELATION} if edges > 1 else set())):
        problems.append(f"{place}: no table has the columns {', '.join(names)} that are to be ignored")
    if names := sorted(ignore & {name for columns in known for name in columns or ()}):
        problems.append(f"{place}: the run was trained with the columns {', '.join(names)}: they cannot be ignored")
    return problems


class EdgeFile:
    """A table of edges: its two columns of ends are found by their names, or else by what they hold."""

    def __init__(self, path: Path, ends: Sequence[str]) -> None:
        self.file, self.path = File(path), path
        self.names = self.file.names
        self.ends = ends_called(path, self.names, ends, "--task.ends")
        self.guessed = not self.ends
        if not self.ends:
            self.ends = self.names[:2]
        if len(self.ends) != 2:
            raise DataError(f"{path}: its columns are {', '.join(self.names)}; expected {' and '.join(ENDS[0])}")
        self.table = self.file.table(self.ends, self.names if self.guessed else self.ends)

    def names_of(self, end: str) -> list[str]:
        """The nodes at an end."""
        return self.table.names(end)

    def look(
        self,
        known: Mapping[str, int],
        features: Collection[str] | None = None,
        kept: Mapping[str, str] | None = None,
    ) -> None:
        """Find the ends by what columns hold, where no name says which they are: nodes, in all cells of both.

        Symbols     features = columns that are known to be none; None: nothing is known of the others; kept = those
                    that a run found, as `found_ends` gives them: where they are there, they are the ends
        Errors      DataError for another number of such columns than two, and for two whose names are nodes, too
        Edge cases  where no two columns hold nodes alone, two that mostly do: the others of their cells are mistakes.
                    Two columns beside the features are the ends, and so are the only two of a file without rows
        """
        if not self.guessed:
            return
        ends, texts = [kept[end] for end in ENDS[0] if end in kept] if kept else [], self.table
        if ends and {*ends} <= {*self.names}:
            self._read(ends)
            return
        left = [name for name in self.names if name and name not in (features or ())]
        nodes = {name: sum(text in known for text in texts.texts(name)) for name in left}
        fitting = [name for name in left if nodes[name] == len(texts) > 0]
        if len(fitting) != 2:
            sure = len(left) == 2 and (features is not None or not len(texts))
            fitting = left if sure else [name for name in left if 2 * nodes[name] > len(texts)]
        if len(fitting) != 2:
            expected = " and ".join(ENDS[0])
            raise DataError(
                f"{self.path}: its columns are {', '.join(self.names)}; expected {expected}, or --task.ends"
            )
        if all(name in known for name in fitting):
            what = f"its first line must have the names of the columns, and {' and '.join(fitting)} are nodes"
            advice = f"put names such as {', '.join(ENDS[0])} above it, or give --task.ends {','.join(fitting)}"
            raise DataError(f"{self.path}: {what}: {advice}")
        self._read(fitting)

    def _read(self, ends: list[str]) -> None:
        """Take two columns for the ends, and read the others as what they hold."""
        self.ends = ends
        if {*self.names} != {*ends}:
            self.table = self.file.table(ends, ends)

    def note(self) -> tuple[str, ...]:
        """How the ends were found, where their names do not say it."""
        return (f"{self.path.name}: edges go from {self.ends[0]} to {self.ends[1]}",) if self.guessed else ()


def found_ends(edges: Sequence[EdgeFile]) -> dict[str, str]:
    """The columns of ends, by their meaning, of the first file whose names do not say which they are; or nothing."""
    return next((dict(zip(ENDS[0], one.ends, strict=True)) for one in edges if one.guessed), {})


def ends_of(edges: Sequence[EdgeFile], number_of: Mapping[str, int], problems: Problems) -> Array:
    """Senders and receivers of all files [2, E], by the nodes' rows; -1, and a problem, for a name that no node has."""
    parts = []
    for one in edges:
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


def columns_of(
    edges: Sequence[EdgeFile], ignored: set[str], known: Mapping[str, Kind] | None
) -> tuple[list[Column], list[str]]:
    """What is known of the edges, as columns over those of all files; and what is wrong with other columns.

    Symbols     known = the columns that are read and their kinds; None: all but the ends and those to be ignored
    Edge cases  a column that a file lacks holds no value there; one of 0 and 1 in a file holds numbers where it does in
                another; of several files, a category says which one an edge is from, unless `relation` is to be
                ignored; a column of that name is refused in several files, unless training read one
    """
    found, problems = [], list[str]()
    for one in edges:
        others = [name for name in one.names if name and name not in one.ends]
        names = [name for name in others if (name not in ignored if known is None else name in known)]
        columns, wrong = read_columns(one.file, one.table, names, known)
        found.append({column.name: column for column in columns})
        problems += wrong
    merged, there = [], dict.fromkeys(name for columns in found for name in columns)
    for name in there if known is None else [name for name in known if name in there]:  # as they were in training
        parts = [columns.get(name) or _absent(name, one.table) for columns, one in zip(found, edges, strict=True)]
        kinds = {part.kind for part in parts if part.present.any()}
        if kinds == {"boolean", "number"} and _all_numbers(edges, name):
            kinds = {"number"}
        if len(kinds) > 1:
            problems.append(
                f"{edges[0].path.parent}: {name} holds {' and '.join(sorted(kinds))}s: give --task.ignore {name}"
            )
            continue
        merged.append(joined(parts, kinds.pop() if kinds else parts[0].kind))
    own = [one.path for one in edges if RELATION in {*one.names} - {*one.ends, *ignored}]
    if known is None:
        made = len(edges) > 1 and RELATION not in ignored
        what = f"its column {RELATION} is called as the feature that says which file an edge is from"
        problems += [f"{path}: {what}: rename it, or give --task.ignore {RELATION}" for path in own if made]
    else:
        made = known.get(RELATION) == "category" and not own
    lacking = [name for name in known or () if name not in there and not (made and name == RELATION)]
    if lacking:
        problems.append(f"{edges[0].path}: it lacks the columns {', '.join(lacking)}, which the run was trained with")
    if made:
        levels, sizes = tuple(spelt(one.path.stem) for one in edges), [len(one.table) for one in edges]
        codes = np.repeat(np.arange(len(edges), dtype=np.int32), sizes)
        merged.append(Column(RELATION, "category", codes, np.ones(len(codes), dtype=bool), levels))
    return merged, problems


def _all_numbers(edges: Sequence[EdgeFile], name: str) -> bool:
    number: dict[str, Kind] = {name: "number"}
    return not any(read_columns(one.file, one.table, [name], number)[1] for one in edges if name in one.names)


def _absent(name: str, table: Table) -> Column:
    return Column(name, "number", np.zeros(len(table)), np.zeros(len(table), dtype=bool))


def joined(parts: Sequence[Column], kind: Kind) -> Column:
    """A column over the rows of several files, which hold values of this kind or none."""
    present = np.concatenate([part.present for part in parts])
    at = partial(_in_parts, [(len(part.values), part.at) for part in parts])
    if kind != "category":
        values = np.concatenate([part.values for part in parts])
        return replace(parts[0], kind=kind, values=values, present=present, at=at)
    levels = tuple(sorted({level for part in parts for level in part.levels}))
    place = {level: number for number, level in enumerate(levels)}
    codes = []
    for part in parts:
        own = np.array([*(place[level] for level in part.levels), -1], dtype=np.int32)
        codes.append(own[part.values] if part.kind == "category" else np.full(len(part.values), -1, dtype=np.int32))
    return Column(parts[0].name, kind, np.concatenate(codes), present, levels, at)


def _in_parts(parts: Sequence[tuple[int, Callable[[int], str]]], row: int) -> str:
    for size, at in parts:
        if row < size:
            return at(row)
        row -= size
    raise IndexError(f"no part of {len(parts)} has the row")


def with_features(edges: Tensor, e: Tensor, nodes: int, undirected: bool) -> tuple[Graph, Tensor]:
    """The graph of edges [2, E], and their features [E, D] in its order; both ways, parallel edges have their mean."""
    if undirected:
        both = torch.cat([edges, edges.flip(0)], 1)
        keys, edge_of = (both[0] * nodes + both[1]).unique(return_inverse=True)
        sums = torch.zeros(len(keys), e.shape[1]).index_add_(0, edge_of, e.repeat(2, 1))
        e = sums / torch.bincount(edge_of, minlength=len(keys))[:, None].clamp(min=1)
        edges = torch.stack([keys // max(1, nodes), keys % max(1, nodes)])
    graph = Graph.from_edge_index(edges, nodes)
    return graph, graph.sort_edges(e)
