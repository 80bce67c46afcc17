"""Examples from a table: the columns that name them, are inputs, targets or parts; all problems are one message."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from edgewise.data.columns import Array, Column, Kind, in_lines, read_columns
from edgewise.data.splits import Splits, named
from edgewise.data.table import ENDINGS, Called, Problems, Table, is_table, read_table
from edgewise.data.target import Labels
from edgewise.errors import DataError, counted

IDS = ("id", "name")  # beside that of the unit, as graph, molecule, text
LABELS = ("label", "target", "class", "y", "value")
MEMBERS = ("node", "id", "node_id", "nodeid", "name")  # the columns that name the nodes or points of an example
MAX_ROWS = 1 << 20
MAX_MEMBERS = 1 << 22  # nodes of all graphs together

Kinds = Mapping[str, Kind]


@dataclass(frozen=True)
class Asked:
    """What of tables is wanted.

    Args:
        unit: What the examples are, in the plural.
        inputs: The columns with inputs: for each, by its meaning, the names that it may have.
        chosen: Those of them that are chosen by name.
        label: The columns with targets; empty: found.
        id: The column that names the examples; "row": they are their numbers from 0; empty: found.
        ignore: Columns that are not read.
        labelled: Whether targets must be there; if not, neither they nor parts are read.
        targets: Whether there are columns with targets at all.
        blank: Whether inputs may be empty.
        ends: The columns of edges with senders and receivers; empty: found.
        known: The kinds of the columns of features that a run read, of nodes and of edges; None: all that are left.
        found: The columns that a run found, by their meaning: they are not looked for where they are there.
    """

    unit: str
    inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    label: tuple[str, ...] = ()
    id: str = ""
    ignore: frozenset[str] = frozenset()
    labelled: bool = True
    targets: bool = True
    blank: bool = False
    ends: tuple[str, ...] = ()
    known: tuple[Kinds, Kinds] | None = None
    found: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Examples:
    """What files hold, before anything is fitted to it: nodes, graphs, molecules, texts, ...

    Args:
        place: The folder of the files.
        files: Those that were read.
        unit: What the examples are, in the plural.
        count: How many there are.
        names: Their names; None: they are their rows.
        called: The targets' names.
        targets: The labels of each target: texts, "" where unknown; of arrays numbers. None where they were not read.
        splits: The parts that the files name; empty: none.
        inputs: The texts of each input, by its meaning.
        found: The columns that were found, by their meaning.
        notes: How the files were read, in lines.
        counts: What else is counted, by its name.
        at: What the row of an example is called in a message.
        header: The names of all columns of their table.
    """

    place: Path
    files: tuple[Path, ...]
    unit: str
    count: int
    names: Sequence[str] | None = None
    called: tuple[str, ...] = ()
    targets: Sequence[Labels] = ()
    splits: Splits = field(default_factory=dict)
    inputs: Mapping[str, list[str]] = field(default_factory=dict)
    found: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    at: Callable[[int], str] = "row {}".format
    header: Sequence[str] = ()

    def __len__(self) -> int:
        return self.count

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Each example's row by its name."""
        return {self.name(number): number for number in range(self.count)}

    def name(self, number: int) -> str:
        """An example's name, or its row."""
        return str(number) if self.names is None else self.names[number]


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
    wrong, lower = Problems(table.problems), Called(path, table.header, asked.ignore)
    columns = {meaning: _input(table, meaning, asked, lower) for meaning in asked.inputs}
    named_by = _named_by(table, asked, lower, {*columns.values()})
    split = lower["split"] if asked.labelled and "split" in lower else ""
    taken = {*columns.values(), named_by, split, *asked.ignore}
    label = _labels(table, asked, lower, [name for name in table.header if name and name not in taken])
    read = [name for name in (*columns.values(), named_by, split, *label) if name]
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
    for meaning, column in columns.items() if not asked.blank else ():
        for number in [number for number, row in enumerate(rows.tolist()) if not cells[column][row]]:
            wrong.add(f"{where(number)}: {column} has no {meaning}")
    splits = parts_of([cells[split][row] for row in rows.tolist()], where, wrong) if split else {}
    problems += wrong.sentences()
    if asked.labelled and not beside:
        problems += strangers(path, asked.ignore, {*table.header})
    notes = [*table.notes, *(f"{column} has the {what}" for what, column in columns.items() if column.lower() != what)]
    notes += repeated(table, rows)
    known = {*read, *asked.ignore}
    notes += left_out(name or "without a name" for name in table.header if name not in known)
    labels = {name: labels_of(table, name, cells[name]) for name in label}
    return Examples(
        path.parent,
        (path, *beside),
        asked.unit,
        len(rows),
        [names[row] for row in rows.tolist()] if named_by or len(rows) < len(table) else None,
        label,
        [[labels[name][row] for row in rows.tolist()] for name in label],
        splits,
        {meaning: [cells[column][row] for row in rows.tolist()] for meaning, column in columns.items()},
        columns | ({"id": named_by} if named_by else {}),
        tuple(notes),
        at=where,
        header=table.header,
    )


def _input(table: Table, meaning: str, asked: Asked, lower: Called) -> str:
    """The column of an input, by the name that is chosen or one that it usually has."""
    chosen, names = asked.chosen.get(meaning), ", ".join(table.header)
    if chosen:
        if chosen not in table.header:
            raise DataError(f"{table.path}: it has no column {chosen!r} with the {meaning}, only {names}")
        return chosen
    found = [lower[name] for name in asked.inputs[meaning] if name in lower]
    if len(found) != 1:
        which = f"{' or '.join(found)}, which has the {meaning}?" if found else f"none is called {meaning}."
        raise DataError(f"{table.path}: its columns are {names}: {which} Give --task.{meaning} NAME")
    return found[0]


def chosen_id(table: Table, asked: Asked) -> str:
    """The column that is chosen to name the examples, or nothing."""
    if asked.id in ("", "row"):
        return ""
    if asked.id not in table.header:
        names = ", ".join(table.header)
        raise DataError(f"{table.path}: it has no column {asked.id!r} that names the {asked.unit}, only {names}")
    return asked.id


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
        header: The names of all columns of their table.
    """

    columns: list[Column]
    sizes: Array
    names: Sequence[str]
    group: str
    named_by: str
    groups: Sequence[str]
    notes: tuple[str, ...]
    header: Sequence[str]

    @property
    def owner(self) -> Array:
        """The example of each [N]."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def group_column(table: Table, unit: str, chosen: str) -> str:
    """The column that says which example a row belongs to, or nothing."""
    if chosen and chosen not in table.header:
        names = ", ".join(table.header)
        raise DataError(f"{table.path}: it has no column {chosen!r} that names its {unit}, only {names}")
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
    present, taken = {*table.header}, {*asked.ignore, group, named_by, ""}
    features, left = [name for name in table.header if name not in taken], list[str]()
    if known is not None:
        if lacking := [name for name in known if name not in present]:
            found.add(f"{path}: it lacks the columns {', '.join(lacking)}, which the run was trained with")
        features, left = [name for name in known if name in present], [n for n in features if n not in known]
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
