"""Examples from tables: rows, the nodes and edges within them or between them; all problems are one message."""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from edgewise.data.columns import EPOCH, NODES, Array, Column, Kind, Labels, ends_called, in_lines, read_columns
from edgewise.data.splits import Splits, named
from edgewise.data.table import (
    ENDINGS,
    LARGEST,
    SHOWN,
    Called,
    Problems,
    Table,
    is_table,
    numbers_of,
    read_table,
    stacked,
    unread,
)
from edgewise.data.words import ENDS
from edgewise.errors import DataError, counted
from edgewise.files import spelt
from edgewise.graphs import Graph

IDS = ("id", "name")  # beside that of the unit, as graph, molecule, text
LABELS = ("label", "target", "class", "y", "value")
MEMBERS = ("node", "id", "node_id", "nodeid", "name")  # the columns that name the nodes or points of an example
MAX_ROWS = 1 << 20
MAX_MEMBERS = 1 << 22  # nodes of all graphs together

Kinds = Mapping[str, Kind]


@dataclass(frozen=True)
class Asked:
    """What of tables is wanted."""

    unit: str  # what the examples are, in the plural
    # the columns with inputs: for each, by its meaning, the names that it may have
    inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)  # those of them that are chosen by name
    label: tuple[str, ...] = ()  # the columns with targets; empty: found
    id: str = ""  # the column that names the examples; "row": they are their numbers from 0; empty: found
    ignore: frozenset[str] = frozenset()  # columns that are not read
    labelled: bool = True  # whether targets must be there; if not, neither they nor parts are read
    targets: bool = True  # whether there are columns with targets at all
    blank: bool = False  # whether inputs may be empty
    skip: bool = False  # whether rows that cannot be read are left out, and listed
    ends: tuple[str, ...] = ()  # the columns of edges with senders and receivers; empty: found
    group: str = ""  # the column that says which examples are in one part; empty: none
    weights: str = ""  # the column that says how much each example counts; empty: none
    time: str | None = None  # the column that says when an example is; empty: the only one with dates; None: none
    # the kinds of the columns of features that a run read, of nodes and of edges; None: all that are left
    known: tuple[Kinds, Kinds] | None = None
    # the columns that a run found, by their meaning: they are not looked for where they are there
    found: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Examples:
    """What files hold, before anything is fitted to it: nodes, graphs, molecules, texts, ..."""

    place: Path  # the folder of the files
    files: tuple[Path, ...]  # those that were read
    unit: str  # what the examples are, in the plural
    count: int  # how many there are
    names: Sequence[str] | None = None  # their names; None: they are their rows
    called: tuple[str, ...] = ()  # the targets' names
    # the labels of each target: texts, "" where unknown; of arrays numbers. None where they were not read
    targets: Sequence[Labels] = ()
    splits: Splits = field(default_factory=dict)  # the parts that the files name; empty: none
    inputs: Mapping[str, list[str]] = field(default_factory=dict)  # the texts of each input, by its meaning
    found: Mapping[str, str] = field(default_factory=dict)  # the columns that were found, by their meaning
    notes: tuple[str, ...] = ()  # how the files were read, in lines
    counts: Mapping[str, int] = field(default_factory=dict)  # what else is counted, by its name
    at: Callable[[int], str] = "row {}".format  # what the row of an example is called in a message
    header: Sequence[str] = ()  # the names of all columns of their table
    groups: Sequence[object] | None = None  # of each what it belongs to, where examples are cut by that
    times: Column | None = None  # when each is, where they are cut by that
    weights: Array | None = None  # how much each counts in the loss and the measures; None: all alike
    skipped: tuple[str, ...] = ()  # the rows that were left out since they cannot be read, each with the reason

    def without(self, bad: Mapping[int, str]) -> Self:
        """The examples but for some, of each of which a sentence says why it is left out."""
        if not bad:
            return self
        return self.only([number for number in range(self.count) if number not in bad]).skipping(bad.values())

    def only(self, left: list[int]) -> Self:
        """Some of the examples, in their order."""
        at = self.at
        place = {number: new for new, number in enumerate(left)}
        splits = {
            split: rows.new_tensor([place[row] for row in rows.tolist() if row in place])
            for split, rows in self.splits.items()
        }
        return replace(
            self,
            count=len(left),
            names=[self.name(number) for number in left],
            files=tuple(self.files[number] for number in left) if len(self.files) == self.count > 1 else self.files,
            targets=[
                [labels[number] for number in left] if isinstance(labels, list) else labels[left]
                for labels in self.targets
            ],
            splits=splits,
            inputs={meaning: [texts[number] for number in left] for meaning, texts in self.inputs.items()},
            at=lambda number: at(left[number]),
            groups=self.groups and [self.groups[number] for number in left],
            times=self.times and self.times.taken(np.array(left)),
            weights=None if self.weights is None else self.weights[left],
        )

    def skipping(self, reasons: Iterable[str]) -> Self:
        """The same, with more sentences on what was left out, and their number among the notes."""
        if not (more := tuple(reasons)):
            return self
        note = f"{counted(len(more), 'row')} that cannot be read left out (skipped.csv of the run): {more[0]}"
        return replace(self, skipped=(*self.skipped, *more), notes=(*self.notes, note))

    def __len__(self) -> int:
        return self.count

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Each example's row by its name."""
        return {self.name(number): number for number in range(self.count)}

    def name(self, number: int) -> str:
        """An example's name, or its row."""
        return str(number) if self.names is None else self.names[number]


def table_of(columns: Mapping[str, Sequence[str]]) -> bytes:
    """A CSV file of columns of texts: with marks around each cell, it can be read in one way only."""
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows([[*columns], *zip(*columns.values(), strict=True)])
    return file.getvalue().encode()


def few_rows(given: Examples, rows: Sequence[int], ignored: Iterable[str] = ()) -> bytes:
    """A table of some examples, with the columns that were read; those that are ignored are empty."""
    every: dict[str, Any] = {name: [""] * len(given) for name in sorted(ignored)}
    every |= {given.found.get(meaning, meaning): texts for meaning, texts in given.inputs.items()}
    every |= {given.found["id"]: given.names} if "id" in given.found and given.names else {}
    every |= dict(zip(given.called, given.targets, strict=True))
    every |= {} if given.weights is None else {given.found["weights"]: given.weights.tolist()}
    return table_of({name: [str(cells[row]) for row in rows] for name, cells in every.items()})


def given_table(file: str, unit: str) -> Path:
    """The table that `--task.file` names."""
    path = Path(file).expanduser()
    if not path.exists():
        raise DataError(f"{path}: no such file: give --task.file, a table of {unit}")
    return path


def read_examples(path: Path, asked: Asked, problems: list[str], beside: Sequence[Path] = ()) -> Examples:
    """The examples of a table; what is wrong with single rows is added to `problems`.

    Symbols     beside = other files of its folder that are read too
    Errors      DataError for a column that is not there, or that may be one of several
    Edge cases  rows that are there twice are read once: of the same name, or without names with the same inputs and
                labels; rows without either all stay, and so do those without names of a table to be predicted, since
                their order alone says whose they are
    """
    if not is_table(path):
        raise DataError(f"{path}: {asked.unit} are read from a table that ends with {', '.join(ENDINGS)}")
    table = read_table(path, whole=False)
    wrong, lower = Problems(() if asked.skip else table.problems), Called(path, table.header, asked.ignore)
    columns, named_by = columns_of_inputs(table, asked)
    apart, when = columns_of_parts(table, asked, lower), None
    taken = {*columns.values(), named_by, *apart.values(), *asked.ignore}
    if asked.labelled and asked.time is not None:
        others = [name for name in table.header if name and name not in {*taken, *asked.label}]
        when = the_time(
            path, read_columns(table, [asked.time] * (asked.time in others) or others)[0], asked.time, asked.unit
        )
        taken.add(when.name)
    label = _labels(table, asked, lower, [name for name in table.header if name and name not in taken])
    read = [name for name in (*columns.values(), named_by, *apart.values(), *label) if name]
    if len(table) > MAX_ROWS:
        raise DataError(f"{path}: {len(table):,} rows, of at most {MAX_ROWS:,}")
    if not len(table) and not table.problems:
        wrong.add(f"{path}: it has no {asked.unit}")
    names = table.names(named_by) if named_by else [str(row) for row in range(len(table))]
    rows, cells = np.arange(len(table)), {name: table.texts(name) for name in read}
    if named_by:
        remedy = "; give --task.id row where they are no names"
        rows = distinct(table, names, read, wrong, "it has no name", lambda row: repr(names[row][:40]), remedy)
    elif asked.labelled and asked.inputs:
        rows = distinct(table, [*zip(*cells.values(), strict=True)], (), wrong)
    where = rows_at(table, rows)
    bad = {
        number: f"{where(number)}: {column} has no {meaning}"
        for meaning, column in (columns.items() if not asked.blank else ())
        for number, row in enumerate(rows.tolist())
        if not cells[column][row]
    }
    wrong.extend(() if asked.skip else bad.values())
    parts = parted(table, rows, apart, wrong)
    problems += wrong.sentences()
    if asked.labelled and not beside:
        problems += strangers(path, asked.ignore, {*table.header})
    notes = [*table.notes, *(f"{column} has the {what}" for what, column in columns.items() if column.lower() != what)]
    notes += repeated(table, rows)
    known = {*read, *asked.ignore, *([when.name] if when else [])}
    notes += left_out(name or "without a name" for name in table.header if name not in known)
    labels = {name: labels_of(table, name, cells[name]) for name in label}
    made = Examples(
        path.parent,
        (path, *beside),
        asked.unit,
        len(rows),
        [names[row] for row in rows.tolist()] if named_by or len(rows) < len(table) else None,
        label,
        [[labels[name][row] for row in rows.tolist()] for name in label],
        inputs={meaning: [cells[column][row] for row in rows.tolist()] for meaning, column in columns.items()},
        found=columns | {what: name for what, name in (("id", named_by), ("weights", apart["weights"])) if name},
        notes=tuple(notes),
        at=where,
        header=table.header,
        times=when and when.taken(rows),
        **parts,
    )
    return made.without(bad).skipping(table.problems) if asked.skip else made


def columns_of_inputs(table: Table, asked: Asked) -> tuple[dict[str, str], str]:
    """The columns of the inputs, by their meaning, and the one that names the examples, or nothing."""
    lower = Called(table.path, table.header, asked.ignore)
    columns = {meaning: _input(table, meaning, asked, lower) for meaning in asked.inputs}
    return columns, _named_by(table, asked, lower, {*columns.values()})


def columns_of_parts(table: Table, asked: Asked, lower: Called) -> dict[str, str]:
    """The columns that name the parts of examples, say which are in one part, and how much each counts; or nothing."""
    if not asked.labelled:
        return dict.fromkeys(("splits", "groups", "weights"), "")
    chosen = {"groups": asked.group, "weights": asked.weights}
    found = {what: table.chosen(name, f"of {what} of {asked.unit}") for what, name in chosen.items()}
    return {"splits": lower.first(("split",)), **found}


def parted(table: Table, rows: Array, columns: Mapping[str, str], problems: Problems) -> dict[str, Any]:
    """What these columns say of some rows, as fields of `Examples`; cells that say nothing are problems."""
    made, where = dict[str, Any](), rows_at(table, rows)
    cells = {what: np.array(table.texts(name), dtype=object)[rows].tolist() for what, name in columns.items() if name}
    if "splits" in cells:
        made["splits"] = parts_of(cells["splits"], where, problems)
    if "groups" in cells:
        made["groups"] = cells["groups"]
        for number in (number for number, group in enumerate(cells["groups"]) if not group):
            problems.add(f"{where(number)}: {columns['groups']} is empty: each needs what it belongs to")
    if "weights" in cells:
        weights = made["weights"] = numbers_of(cells["weights"])
        for number in np.flatnonzero(~((weights >= 0) & (weights <= LARGEST))).tolist():
            cell = f"{columns['weights']} is {cells['weights'][number][:40]!r}"
            problems.add(f"{where(number)}: {cell}: a weight is a number from 0 on")
    return made


def _input(table: Table, meaning: str, asked: Asked, lower: Called) -> str:
    """The column of an input, by the name that is chosen or one that it usually has."""
    if chosen := table.chosen(asked.chosen.get(meaning, ""), f"with the {meaning}"):
        return chosen
    names = ", ".join(table.header)
    found = [lower[name] for name in asked.inputs[meaning] if name in lower]
    if len(found) != 1:
        which = f"{' or '.join(found)}, which has the {meaning}?" if found else f"none is called {meaning}."
        raise DataError(f"{table.path}: its columns are {names}: {which} Give --task.{meaning} NAME")
    return found[0]


def chosen_id(table: Table, asked: Asked) -> str:
    """The column that is chosen to name the examples, or nothing."""
    return table.chosen("" if asked.id == "row" else asked.id, f"that names the {asked.unit}")


def _named_by(table: Table, asked: Asked, lower: Called, inputs: Set[str]) -> str:
    """The column that names the rows, or nothing."""
    usual = (asked.unit[:-1], f"{asked.unit[:-1]}_id", *IDS) if not asked.id else ()
    taken = {*inputs, *asked.label}
    found = (lower[name] for name in usual if name in lower)
    return chosen_id(table, asked) or next((name for name in found if name not in taken), "")


def _labels(table: Table, asked: Asked, lower: Called, others: Sequence[str]) -> tuple[str, ...]:
    """The columns with targets."""
    if not (asked.labelled and asked.targets):
        return ()
    if asked.label:
        if lacking := [name for name in asked.label if name not in table.header]:
            raise DataError(
                f"{table.path}: it lacks the columns {', '.join(lacking)}; it has {', '.join(table.header)}"
            )
        return asked.label
    found = [lower[name] for name in LABELS if name in lower and lower[name] in others]
    if len(found) == 1 or len(others) == 1:
        return (found[0] if len(found) == 1 else others[0],)
    which = ", ".join(others) or "none is left"
    raise DataError(f"{table.path}: which columns are to be predicted, of {which}? Give --task.label NAME or NAME,NAME")


def distinct(
    table: Table,
    keys: Iterable[object],
    compared: Sequence[str],
    problems: Problems,
    nameless: str = "",
    called: Callable[[int], str] = str,
    remedy: str = "",
) -> Array:
    """The first row of each key; a later one must be the same in the columns that are compared.

    Symbols     nameless = the problem of a row whose key is "" or ends with one; called = how a message names a row
    """
    first: dict[object, int] = {}
    for row, key in enumerate(keys):
        before = first.setdefault(key, row)
        if nameless and not (key[-1] if isinstance(key, tuple) else key):
            problems.add(f"{table.at(row)}: {nameless}")
        elif before != row and not table.same(row, before, compared):
            twice = f"is there twice, with other cells in {table.rows[0]} {table.rows[1][before]}"
            problems.add(f"{table.at(row)}: {called(row)} {twice}{remedy}")
    return np.fromiter(first.values(), np.int64, len(first))


def parts_of(cells: Sequence[str], at: Callable[[int], str], problems: Problems) -> Splits:
    """The examples by the name of their part; a name that is none is a problem."""
    try:
        return named(cells, at)
    except DataError as error:
        problems.add(str(error))
        return {}


def rows_at(table: Table, rows: Array) -> Callable[[int], str]:
    """What some rows of a table are called, by their place among these."""
    prefix, lines = f"{table.path}: {table.rows[0]}", table.rows[1]
    return lambda number: f"{prefix} {lines[int(rows[number])]}"


def labels_of(table: Table, name: str, cells: list[str]) -> list[str]:
    """Labels without decimal commas, where their column has some."""
    if name not in table.commas:
        return cells
    values = table.values(name)
    return [cell if np.isnan(value) else repr(float(value)) for cell, value in zip(cells, values, strict=True)]


def repeated(table: Table, rows: Array) -> list[str]:
    """A line about the rows that are there again, if there are any."""
    twice = len(table) - len(rows)
    return [f"{table.path.name}: {counted(twice, 'repeated row')}, read once"] if twice else []


def left_out(names: Iterable[str]) -> list[str]:
    """A line about columns that are not read, if there are any."""
    listed = ", ".join(dict.fromkeys(names))
    return [f"not read: the columns {listed}"] if listed else []


def strangers(place: Path, ignore: Set[str], present: Set[str], *known: Iterable[str] | None) -> list[str]:
    """A problem each where columns are to be ignored that no table has, or that a run to be like was trained with."""
    problems = []
    if names := sorted(ignore - present):
        problems.append(f"{place}: no table has the columns {', '.join(names)} that are to be ignored")
    if names := sorted(ignore & {name for columns in known for name in columns or ()}):
        problems.append(f"{place}: the run was trained with the columns {', '.join(names)}: they cannot be ignored")
    return problems


def lacks(path: Path, names: Iterable[str]) -> str:
    """The problem of a table without columns that a run read."""
    return f"{path}: it lacks the columns {', '.join(names)}, which the run was trained with"


def features_in(table: Table, taken: Set[str], known: Kinds | None, problems: Problems) -> tuple[list[str], list[str]]:
    """The columns of features, all that are not taken or those that a run read; and the others that are left out."""
    others = [name for name in table.header if name and name not in taken]
    if known is None:
        return others, []
    if lacking := [name for name in known if name not in table.header]:
        problems.add(lacks(table.path, lacking))
    return [name for name in known if name in table.header], [name for name in others if name not in known]


@dataclass(frozen=True)
class Members:
    """The nodes or points of examples, the examples one after the other."""

    columns: list[Column]  # what is known of them
    sizes: Array  # how many each example has [G]
    names: Sequence[str]  # how an edge names them: a node's own name, or its row
    group: str  # the column that says which example a row belongs to
    named_by: str  # the column that names them, or nothing
    groups: Sequence[str]  # the name of the example that each belongs to
    notes: tuple[str, ...]  # how they were read, in lines
    header: Sequence[str]  # the names of all columns of their table

    @property
    def owner(self) -> Array:
        """The example of each [N]."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def group_column(table: Table, unit: str, chosen: str) -> str:
    """The column that says which example a row belongs to, or nothing."""
    chosen = table.chosen(chosen, f"that names its {unit}")
    return chosen or Called(table.path, table.header).first((unit, f"{unit}_id", f"{unit}id"))


def read_members(
    path: Path, examples: Sequence[str], unit: str, chosen: str, asked: Asked, problems: list[str]
) -> Members:
    """The rows of a table, by the example that each belongs to; what is wrong with them is added to `problems`.

    Symbols     examples = their names, in order; unit = what an example is; chosen = the column that names it
    """
    table = read_table(path, whole=False)
    found, group, known = Problems(table.problems), group_column(table, unit, chosen), asked.known and asked.known[0]
    if not group:
        has = ", ".join(table.header)
        raise DataError(f"{path}: its columns are {has}: none is called {unit}. Give --task.{unit} NAME")
    if len(table) > MAX_MEMBERS:
        raise DataError(f"{path}: {len(table):,} rows, of at most {MAX_MEMBERS:,}")
    named_by = Called(path, table.header, {*asked.ignore, group}).first(MEMBERS)
    number_of, groups = {name: number for number, name in enumerate(examples)}, table.names(group)
    owner = np.fromiter((number_of.get(name, -1) for name in groups), np.int64, len(groups))
    for row in np.flatnonzero(owner < 0).tolist():
        found.add(f"{table.at(row)}: there is no {unit} {groups[row][:40]!r}")
    for number in np.flatnonzero(np.bincount(owner[owner >= 0], minlength=len(examples)) == 0).tolist():
        found.add(f"{path}: the {unit} {examples[number][:40]!r} has no rows")
    names = table.names(named_by) if named_by else [str(row) for row in range(len(table))]
    features, left = features_in(table, {*asked.ignore, group, named_by}, known, found)
    rows = np.arange(len(table))
    if named_by:

        def called(row: int) -> str:
            return f"{names[row][:40]!r} of {groups[row][:40]!r}"

        rows = distinct(table, zip(groups, names, strict=True), features, found, "the row has no name", called)
    columns, wrong = read_columns(table, features, known)
    problems += [*wrong, *found.sentences()]
    notes = (*table.notes, *repeated(table, rows), *in_lines(columns), *left_out(left))
    rows = rows[owner[rows] >= 0]
    order = rows[np.argsort(owner[rows], kind="stable")]
    return Members(
        [column.taken(order) for column in columns],
        np.bincount(owner[rows], minlength=len(examples)),
        [names[row] for row in order.tolist()],
        group,
        named_by,
        [groups[row] for row in order.tolist()],
        notes,
        table.header,
    )


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
    """The columns of ends, by their meaning: of the first file whose names do not say which they are, or of any."""
    one = next((one for one in edges if one.guessed), edges[0])
    return dict(zip(ENDS[0], one.ends, strict=True))


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
    wanted = there if known is None else [*known, *([asked.time] if asked.time and asked.time not in known else [])]
    names = [name for name in wanted if name in there and not (known is None and name in asked.ignore)]
    own = [one.path for one in edges if RELATION in {*one.names} - {*one.ends, *asked.ignore}]
    if known is None:
        made = len(edges) > 1 and RELATION not in asked.ignore
        what = f"its column {RELATION} is called as the feature that says which file an edge is from"
        problems += [f"{path}: {what}: rename it, or give --task.ignore {RELATION}" for path in own if made]
    else:
        made = known.get(RELATION) == "category" and not own
        if lacking := [name for name in known if name not in there and not (made and name == RELATION)]:
            problems.append(lacks(edges[0].path, lacking))
    columns, wrong = read_columns(stacked([one.table for one in edges], names), names, known)
    if made:
        levels, sizes = tuple(spelt(one.path.stem) for one in edges), [len(one.table) for one in edges]
        codes = np.repeat(np.arange(len(edges), dtype=np.int32), sizes)
        columns.append(Column(RELATION, "category", codes, np.ones(len(codes), dtype=bool), levels))
    return columns, [*wrong, *problems]


Parallel = Literal["keep", "mean"]


def graph_of(
    edges: Array, e: Array | None, nodes: int, undirected: bool, parallel: Parallel = "keep"
) -> tuple[Graph, Tensor | None]:
    """The graph of edges [2, E], and their features [E, D] in its order.

    Edge cases  with features each edge stays, parallel or not, and `undirected` adds the opposite of those that have
                none; to have the "mean", both directions and parallel edges are one
    """
    pairs = torch.from_numpy(edges)
    if e is None:
        graph = Graph.from_edge_index(pairs, nodes)
        return graph.symmetrise().coalesce() if undirected else graph, None
    known = torch.from_numpy(e.astype(np.float32))
    if parallel == "mean":
        pairs, known = (torch.cat([pairs, pairs.flip(0)], 1), known.repeat(2, 1)) if undirected else (pairs, known)
        keys, edge_of = (pairs[0] * nodes + pairs[1]).unique(return_inverse=True)
        sums = torch.zeros(len(keys), known.shape[1]).index_add_(0, edge_of, known)
        known = sums / torch.bincount(edge_of, minlength=len(keys))[:, None].clamp(min=1)
        pairs = torch.stack([keys // max(1, nodes), keys % max(1, nodes)])
    elif undirected:
        alone = ~torch.isin(pairs[1] * nodes + pairs[0], pairs[0] * nodes + pairs[1])
        pairs, known = torch.cat([pairs, pairs[:, alone].flip(0)], 1), torch.cat([known, known[alone]])
    graph = Graph.from_edge_index(pairs, nodes)
    return graph, graph.sort_edges(known)


def apart(edges: Array, nodes: int, undirected: bool, parallel: Parallel) -> list[str]:
    """A line about edges [2, E] with features that lead both ways or are parallel: whether these stay or are one."""
    codes = edges[0] * nodes + edges[1]
    back = int((np.isin(edges[1] * nodes + edges[0], codes) & (edges[0] != edges[1])).sum()) if undirected else 0
    again = len(codes) - len(np.unique(codes))
    found = [f"{counted(back, 'edge')} with an opposite"] * (back > 0)
    found += [f"{counted(again, 'edge')} parallel to another"] * (again > 0)
    what = "their features are their mean"
    if parallel == "keep":
        what = "each keeps its own features (--task.parallel mean takes their mean)"
    return [f"{', '.join(found)}: {what}"] if found else []


def graphs_of(
    edges: Array, sizes: Array, e: Array | None, undirected: bool, parallel: Parallel = "keep"
) -> tuple[tuple[Graph, ...], Tensor | None]:
    """Each example's own graph, and the features of all edges in the graphs' own order."""
    nodes = int(sizes.sum())
    whole, known = graph_of(edges, e, nodes, undirected, parallel)
    ends = torch.stack([whole.senders, whole.receivers])
    first = torch.from_numpy(np.cumsum(sizes) - sizes)
    owner = torch.repeat_interleave(torch.from_numpy(sizes), output_size=nodes)[ends[1]]
    each = (ends - first[owner]).split(torch.bincount(owner, minlength=len(sizes)).tolist(), dim=1)
    members = tuple(Graph.from_edge_index(pair, size) for pair, size in zip(each, sizes.tolist(), strict=True))
    if known is None:
        return members, None
    parts = known.split([pair.shape[1] for pair in each])
    return members, torch.cat([one.sort_edges(part) for one, part in zip(members, parts, strict=True)])


@dataclass(frozen=True)
class Described:
    """What a table says of some that have names, such as users: a row each."""

    path: Path
    names: Sequence[str]
    columns: list[Column]
    notes: tuple[str, ...]

    def of(self, names: Sequence[str]) -> list[Column]:
        """The columns over those with these names; who has no row has no value."""
        number_of = {name: number for number, name in enumerate(self.names)}
        rows = np.array([number_of.get(name, -1) for name in names], dtype=np.int64)
        there = rows >= 0
        return [
            replace(one, values=np.where(there, one.values[rows], -1), present=there & one.present[rows])
            for one in self.columns
        ]


def read_described(path: Path, unit: str, usual: Sequence[str], ignore: Set[str], known: Kinds | None) -> Described:
    """A table whose rows say something of those that a column names; all that is wrong is one DataError.

    Symbols     unit = what they are, in the plural; usual = what that column may be called; known = as `features_in`
    """
    table = read_table(path, whole=False)
    problems, called = Problems(table.problems), Called(path, table.header, ignore)
    if not (named_by := called.first((unit, *usual, *IDS))):
        raise DataError(
            f"{path}: its columns are {', '.join(table.header)}: none is called {usual[0]}, and names {unit}"
        )
    features, left = features_in(table, {named_by, *ignore}, known, problems)
    names = table.names(named_by)
    rows = distinct(table, names, features, problems, f"it has no {usual[0]}", lambda row: repr(names[row][:40]))
    columns, wrong = read_columns(table, features, known)
    if not features and not wrong:
        problems.add(f"{path}: it says nothing of {unit}: its only column is {named_by}")
    if wrong := [*wrong, *problems.sentences()]:
        raise DataError(*wrong)
    notes = (*table.notes, *repeated(table, rows), *in_lines(columns, f"of {unit}: "), *left_out(left))
    return Described(path, [names[row] for row in rows.tolist()], [one.taken(rows) for one in columns], notes)


TIMES = ("time", "timestamp", "date", "datetime", "year")
MAX_NODES = 1 << 21  # of a table: each has a name
ARRAYS = "graph.npz"  # what a graph that is too large for tables is read from
DEGREE = "log(1 + degree)"  # the feature of nodes of which nothing else is known


@dataclass(frozen=True)
class OneGraph(Examples):
    """The nodes of one graph, and its edges."""

    # senders and receivers [2, E], by the nodes' rows
    edges: Array = field(default_factory=lambda: np.zeros((2, 0), dtype=np.int64))
    x: list[Column] = field(default_factory=list)  # what is known of the nodes
    e: list[Column] = field(default_factory=list)  # what is known of the edges
    when: Array | None = None  # when each edge is [E], where the nodes are cut by time

    def described(self, edges: Array) -> Self:
        """The same, with each node's degree among edges [2, E] where nothing else is known of the nodes."""
        if self.x:
            return self
        degrees = np.log1p(np.bincount(edges.reshape(-1), minlength=len(self)))
        column = Column(DEGREE, "number", degrees, np.ones(len(self), dtype=bool))
        return replace(self, x=[column], notes=(*self.notes, f"each node has {DEGREE}: nothing else is known of it"))

    @property
    def scaled(self) -> bool:
        """Whether its numbers may be scaled: arrays are read as they are."""
        return self.files[0].suffix.lower() != ".npz"


def read_tables(nodes: Path, edges: Sequence[Path], asked: Asked) -> OneGraph:
    """The nodes and edges of tables.

    Errors      DataError with all that is wrong: rows, cells, columns and names that do not fit
    """
    table, links = read_table(nodes, whole=False), [Edges(path, asked.ends) for path in edges]
    problems, lower = Problems(() if asked.skip else table.problems), Called(nodes, table.header, asked.ignore)
    known = asked.known[0] if asked.known else None
    labels = [lower.meant(name) for name in asked.label]
    named_by, apart = _named(table, asked, lower), columns_of_parts(table, asked, lower)
    needed = labels if asked.labelled else []
    table.need(needed)
    if not len(table) and not table.problems:
        raise DataError(f"{nodes}: it has no nodes: no line follows the columns' names")
    if len(table) > MAX_NODES:
        raise DataError(f"{nodes}: {len(table):,} nodes, of at most {MAX_NODES:,}: such a graph is read from {ARRAYS}")
    notes, left = [*table.notes], {lower.get("split", "split"), *apart.values()}
    if not named_by and asked.id != "row":
        named_by = _covering(table, links, {*asked.ignore, *labels, *left, *(known or ())})
        notes += [f"{named_by} names the nodes: each end of an edge is one of its cells"] if named_by else []
    names = table.names(named_by) if named_by else [str(row) for row in range(len(table))]
    degrees = known is not None and [*known] == [DEGREE]
    taken = {*asked.ignore, named_by, *labels, *left}
    features, new = features_in(table, taken, {} if degrees else known, problems)
    features += [name for name in new if name == asked.time]
    read = [*features, *needed, *filter(None, apart.values())]

    def called(row: int) -> str:
        return f"the node {names[row][:40]!r}"

    rows = distinct(table, names, read, problems, "the node has no name", called)
    notes += repeated(table, rows)
    names = [names[row] for row in rows.tolist()] if len(rows) < len(names) else names
    number_of = {name: number for number, name in enumerate(names)}
    for one in links:
        one.look(number_of, asked)
        notes += one.notes
    problems.extend(_misfits(table, links, asked, {named_by, *labels}))
    x, wrong_cells = read_columns(table, features, known)
    e, wrong_edges = columns_of(links, asked)
    stray = Problems()
    ends = ends_of(links, number_of, stray)
    if asked.skip and stray.count:
        kept = np.flatnonzero((ends >= 0).all(0))
        ends, e = ends[:, kept], [column.taken(kept) for column in e]
    problems.extend(() if asked.skip else stray.first)
    parts = parted(table, rows, apart, problems)
    if all_wrong := [*wrong_cells, *wrong_edges, *problems.sentences()]:
        raise DataError(*all_wrong)
    of_targets = [labels_of(table, name, table.texts(name)) for name in needed]
    new += [n for one in links for n in one.names if asked.known and n not in {*one.ends, *asked.known[1]}]
    new += ["without a name"] * ("" in table.header)
    notes += [*in_lines(x), *in_lines(e, "of edges: "), *left_out(new), *unread(nodes.parent, (nodes, *edges))]
    made = OneGraph(
        nodes.parent,
        (nodes, *edges),
        "nodes",
        len(rows),
        names if named_by else None,
        tuple(needed),
        [[cells[row] for row in rows.tolist()] for cells in of_targets],
        found=({"node": named_by} if named_by else {}) | found_ends(links),
        notes=tuple(notes),
        counts={"edges": ends.shape[1]},
        edges=ends,
        x=[column.taken(rows) for column in x],
        e=e,
        **parts,
    )
    return made.skipping((*table.problems, *stray.first)) if asked.skip else made


def _named(table: Table, asked: Asked, lower: Called) -> str:
    """The column that is chosen to name the nodes, or that is called so; or nothing."""
    if asked.id:
        return chosen_id(table, asked)
    if asked.found.get("node") in table.header:
        return asked.found["node"]
    found = [lower[name] for name in NODES if name in lower]
    if len(found) > 1:
        which = f"{' or '.join(found)}, which names the nodes?"
        raise DataError(f"{table.path}: {which} Give --task.id, or --task.ignore the other")
    return found[0] if found else ""


def _covering(table: Table, links: Sequence[Edges], left_out: set[str]) -> str:
    """The one column of which each cell is another, and that has all ends of edges; nothing: nodes are their rows.

    Errors      DataError where it may be one of several, or rows: also where a column has most of the ends, and the
                others may be mistakes or be spelt in another way
    Edge cases  a column that has most of the ends, where these are no rows, names the nodes: the others are mistakes
    """
    ends = {name for one in links for end in one.ends for name in one.names_of(end)}
    in_order = [str(row) for row in range(len(table))]
    rows = {*in_order}
    fitting, near = list[str](), dict[str, set[str]]()
    for name, cells in table.columns.items():
        if ends and name not in left_out and cells.n_unique() == len(table):  # before texts are made of them
            cells = [*table.texts(name)]
            texts = {*cells}
            if len(texts) == len(table) and cells != in_order:  # rows in another order are names, too
                if ends <= texts:
                    fitting.append(name)
                elif _mostly(ends, texts):
                    near[name] = texts
    as_rows = ends <= rows or (not fitting and bool(near) and _mostly(ends, rows))
    if len(found := fitting or [*near]) > 1 or (found and as_rows):
        choice = ", ".join([*found, *(["row"] if as_rows else [])])
        told = ""
        if not fitting:
            stray = min(ends - near[found[0]])
            told = f" An end of an edge is {stray[:40]!r}, no cell of {found[0]}{_meant(stray, near[found[0]])}."
        raise DataError(f"{table.path}: what names the nodes?{told} Give --task.id, one of {choice}")
    return found[0] if found else ""


def _mostly(ends: Set[str], names: Set[str]) -> bool:
    """Whether more than half of the ends are among the names, or would be if they were spelt as these are."""
    if 2 * len(ends & names) > len(ends):
        return True
    plain = {_plain(name) for name in names}
    return 2 * sum(_plain(end) in plain for end in ends) > len(ends)


def _plain(name: str) -> str:
    return name.removesuffix(".0").lstrip("0").lower()


def _misfits(table: Table, links: Sequence[Edges], asked: Asked, needed: set[str]) -> list[str]:
    """What is wrong with the names of columns."""
    problems, place = [], table.path.parent
    present = {*table.header, *(name for one in links for name in one.names), *([RELATION] if len(links) > 1 else [])}
    if needless := asked.ignore & (needed | {end for one in links for end in one.ends}):
        names = ", ".join(sorted(needless))
        problems.append(f"{place}: the columns {names} are needed: they cannot be ignored")
    split = next((name for name in table.header if name.lower() == "split"), "")
    if split and not asked.labelled and asked.known is None and split not in asked.ignore:
        problems.append(
            f"{table.path}: nothing reads its column {split}, which parts nodes: give --task.ignore {split}"
        )
    return problems + (strangers(place, asked.ignore, present, *(asked.known or ())) if asked.labelled else [])


def times_of_edges(given: OneGraph, column: str) -> tuple[OneGraph, Column]:
    """When each edge is, and the data without that column, which is no feature then.

    Errors      DataError for a column that no table of edges has, that holds neither dates nor numbers, or has gaps
    """
    found = the_time(given.place, given.e, column, "edges")
    left = [one for one in given.e if one is not found]
    return replace(given, e=left, notes=_without(given, f"of edges: {found}")), found


def times_of_nodes(given: OneGraph, column: str) -> OneGraph:
    """The data with when each node is: by a column of the nodes, or where they have none that is called so, by its
    first edge. That column is no feature then."""
    if column in [one.name for one in given.x] or (not column and dates_among(given.x)):
        found = the_time(given.place, given.x, column, "nodes")
        left, when = [one for one in given.x if one is not found], found.values[given.edges].max(0)
        given = replace(given, x=left, notes=_without(given, str(found)), found={**given.found, "time": found.name})
        return replace(given, times=found, when=when)
    given, found = times_of_edges(given, column)
    first = np.full(len(given), np.inf)
    for ends in given.edges:
        np.minimum.at(first, ends, found.values)
    if len(alone := np.flatnonzero(np.isinf(first))):
        shown = ", ".join(given.name(int(node))[:40] for node in alone[:5])
        more = f" and {len(alone) - 5:,} more" if len(alone) > 5 else ""
        raise DataError(f"{given.place}: {shown}{more} have no edge, and so no {found.name}: give the column of nodes")
    times = replace(found, values=first, present=np.ones(len(first), dtype=bool))
    return replace(given, times=times, when=found.values, found={**given.found, "time": found.name})


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

    def shown(time: float) -> str:
        if column.kind == "date":
            return (EPOCH + timedelta(days=time)).strftime("%Y-%m-%d" if time.is_integer() else "%Y-%m-%d %H:%M")
        return f"{time:g}"

    parts = {split: times[rows] for split, rows in splits.items()}
    ends = [f"{split} {shown(float(part.min()))} to {shown(float(part.max()))}" for split, part in parts.items()]
    return f"{what} by {column.name}: {', '.join(ends)}"


def _without(given: OneGraph, line: str) -> tuple[str, ...]:
    """The notes without the line that calls a column a feature."""
    return tuple(note for note in given.notes if note != line)


def dates_among(columns: Sequence[Column]) -> list[str]:
    """The columns that hold dates, or else the numbers that are called as times are."""
    dates = [one.name for one in columns if one.kind == "date"]
    return dates or [one.name for one in columns if one.kind == "number" and one.name.lower() in TIMES]


def the_time(place: Path, columns: Sequence[Column], column: str, what: str) -> Column:
    """The column that says when each is: that of the name, or the only one that holds dates where there is none."""
    called = column or (dates[0] if len(dates := dates_among(columns)) == 1 else "")
    found = next((one for one in columns if one.name == called), None)
    if found is None and not column:
        has = f"the columns {', '.join(dates)} hold dates" if dates else "no column that is read holds dates"
        raise DataError(f"{place}: when is each of the {what}? {has}: give --task.time NAME")
    if found is None:
        has = ", ".join(one.name for one in columns) or "no column beside their ends"
        raise DataError(f"{place}: no column of {what} that is read is called {column!r}; they have {has}")
    if found.kind not in ("date", "number", "boolean"):
        raise DataError(f"{place}: {called} holds {found.kind} cells: a time is a date or a number")
    if gaps := int((~found.present).sum()):
        raise DataError(f"{place}: {called} is missing in {gaps:,} rows of {what}: each needs its time")
    return found
