"""A table of examples: its columns with names, inputs, targets and parts are found; all problems are one message."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from edgewise.data.lines import Problems
from edgewise.data.reading import ENDINGS, File, is_table
from edgewise.data.splits import Splits, named
from edgewise.data.table import Called, Table, numbers_of
from edgewise.errors import DataError, counted
from edgewise.tasks.own.edges import strangers
from edgewise.tasks.own.record import numbers

IDS = ("id", "name")  # beside that of the unit, as graph, molecule, text
LABELS = ("label", "target", "class", "y", "value")
MAX_ROWS = 1 << 20


@dataclass(frozen=True)
class Asked:
    """What of a table is wanted.

    Args:
        unit: What its rows are, in the plural.
        inputs: The columns with inputs: for each, by its meaning, the names that it may have.
        chosen: Those of them that are chosen by name.
        label: The columns with targets; empty: found.
        id: The column that names the rows; "row": they are their numbers from 0; empty: found.
        ignore: Columns that are not read.
        labelled: Whether targets must be there; if not, neither they nor parts are read.
        targets: Whether there are columns with targets at all.
        blank: Whether inputs may be empty.
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


@dataclass(frozen=True)
class Rows:
    """The examples of a table, before anything is fitted to them.

    Args:
        place: The folder of its file.
        files: The files that were read.
        unit: What the examples are, in the plural.
        names: Their names; None: they are their rows.
        called: The targets' names.
        targets: The labels of each target, "" where unknown.
        inputs: The texts of each input, by its meaning.
        columns: The column of each input and of the names, by its meaning.
        splits: The parts that the file names; empty: none.
        where: What each example's line is called in a message.
        notes: How it was read, in lines.
        counts: What else is counted.
    """

    place: Path
    files: tuple[Path, ...]
    unit: str
    names: Sequence[str] | None
    called: tuple[str, ...]
    targets: list[list[str]]
    inputs: dict[str, list[str]]
    columns: dict[str, str]
    splits: Splits
    where: Sequence[str]
    notes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.where)

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Each example's row by its name."""
        return numbers(self)


def given_table(file: str, unit: str) -> Path:
    """The table that `--task.file` names."""
    path = Path(file).expanduser()
    if not path.exists():
        raise DataError(f"{path}: no such file: give --task.file, a table of {unit}")
    return path


def read_rows(path: Path, asked: Asked, problems: list[str], beside: Sequence[Path] = ()) -> Rows:
    """The examples of a table; what is wrong with single rows is added to `problems`.

    Symbols     beside = other files of its folder that are read too
    Errors      DataError for a column that is not there, or that may be one of several
    Edge cases  rows that are there twice are read once: of the same name, or without names with the same inputs and
                labels; rows without either all stay, and so do those without names of a table to be predicted, since
                their order alone says whose they are
    """
    if not is_table(path):
        raise DataError(f"{path}: {asked.unit} are read from a table that ends with {', '.join(ENDINGS)}")
    file, found = File(path), Problems()
    lower = Called(path, file.names, asked.ignore)
    columns = {meaning: _column(path, file, meaning, asked, lower) for meaning in asked.inputs}
    named_by = _named_by(path, file, asked, lower, {*columns.values()})
    split = lower["split"] if asked.labelled and "split" in lower else ""
    taken = {*columns.values(), named_by, split, *asked.ignore}
    label = _labels(path, file, asked, lower, [name for name in file.names if name and name not in taken])
    texts = [name for name in (*columns.values(), named_by, split, *label) if name]
    table = file.table(texts, texts)
    if len(table) > MAX_ROWS:
        raise DataError(f"{path}: {len(table):,} rows, of at most {MAX_ROWS:,}")
    for problem in table.problems:
        found.add(problem)
    if not len(table) and not table.problems:
        found.add(f"{path}: it has no {asked.unit}")
    names = table.names(named_by) if named_by else [str(row) for row in range(len(table))]
    cells = {name: table.texts(name) for name in texts}
    if named_by or (asked.labelled and asked.inputs):
        remedy = "; give --task.id row where they are no names" if named_by else ""
        keys = names if named_by else [*zip(*cells.values(), strict=True)]
        rows = _distinct(table, keys, cells, found, remedy)
    else:
        rows = [*range(len(table))]
    notes = [*table.notes]
    notes += [f"{column} has the {meaning}" for meaning, column in columns.items() if column.lower() != meaning]
    if twice := len(names) - len(rows):
        notes.append(f"{path.name}: {counted(twice, 'repeated row')}, read once")
    where = [f"{path}: {table.rows[0]} {table.rows[1][row]}" for row in rows]
    for meaning, column in columns.items():
        for place, row in zip(where, rows, strict=True):
            if not asked.blank and not cells[column][row]:
                found.add(f"{place}: {column} has no {meaning}")
    splits: Splits = {}
    try:
        splits = named([cells[split][row] for row in rows], where.__getitem__) if split else {}
    except DataError as error:
        found.add(str(error))
    problems += found.sentences()
    if asked.labelled and not beside:
        problems += strangers(path, asked.ignore, {*file.names})
    taken = {*texts, *asked.ignore}
    left = [name for name in file.names if name not in taken]
    notes += [f"not read: the columns {', '.join(name or 'without a name' for name in left)}"] if left else []
    files = (path, *beside)
    of_targets = [labels_of(file, name, cells[name]) for name in label]
    targets = [[labels[row] for row in rows] for labels in of_targets]
    return Rows(
        path.parent,
        files,
        asked.unit,
        [names[row] for row in rows] if named_by or len(rows) < len(names) else None,
        label,
        targets,
        {meaning: [cells[column][row] for row in rows] for meaning, column in columns.items()},
        columns | ({"id": named_by} if named_by else {}),
        splits,
        where,
        tuple(notes),
    )


def _column(path: Path, file: File, meaning: str, asked: Asked, lower: Mapping[str, str]) -> str:
    """The column of an input, by the name that is chosen or one that it usually has."""
    chosen = asked.chosen.get(meaning)
    if chosen:
        if chosen not in file.names:
            raise DataError(f"{path}: it has no column {chosen!r} with the {meaning}, only {', '.join(file.names)}")
        return chosen
    found = [lower[name] for name in asked.inputs[meaning] if name in lower]
    if len(found) != 1:
        which = f"{' or '.join(found)}, which has the {meaning}?" if found else f"none is called {meaning}."
        raise DataError(f"{path}: its columns are {', '.join(file.names)}: {which} Give --task.{meaning} NAME")
    return found[0]


def _named_by(path: Path, file: File, asked: Asked, lower: Mapping[str, str], inputs: set[str]) -> str:
    """The column that names the rows, or nothing."""
    if asked.id and asked.id != "row":
        if asked.id not in file.names:
            unit, names = asked.unit, ", ".join(file.names)
            raise DataError(f"{path}: it has no column {asked.id!r} that names the {unit}, only {names}")
        return asked.id
    usual = (asked.unit[:-1], f"{asked.unit[:-1]}_id", *IDS) if not asked.id else ()
    taken = {*inputs, *asked.label}
    return next((lower[name] for name in usual if name in lower and lower[name] not in taken), "")


def _labels(path: Path, file: File, asked: Asked, lower: Mapping[str, str], others: Sequence[str]) -> tuple[str, ...]:
    """The columns with targets."""
    if not (asked.labelled and asked.targets):
        return ()
    if asked.label:
        if lacking := [name for name in asked.label if name not in file.names]:
            raise DataError(f"{path}: it lacks the columns {', '.join(lacking)}; it has {', '.join(file.names)}")
        return asked.label
    found = [lower[name] for name in LABELS if name in lower and lower[name] in others]
    if len(found) == 1 or len(others) == 1:
        return (found[0] if len(found) == 1 else others[0],)
    which = ", ".join(others) or "none is left"
    raise DataError(f"{path}: which columns are to be predicted, of {which}? Give --task.label NAME or NAME,NAME")


def _distinct(
    table: Table, keys: Sequence[object], cells: Mapping[str, list[str]], problems: Problems, remedy: str
) -> list[int]:
    """The first row of each key; a later one must be the same."""
    first: dict[object, int] = {}
    for row, key in enumerate(keys):
        before = first.setdefault(key, row)
        if before != row and any(column[row] != column[before] for column in cells.values()):
            twice = f"is there twice, with other cells in {table.rows[0]} {table.rows[1][before]}"
            problems.add(f"{table.at(row)}: {str(key)[:40]!r} {twice}{remedy}")
        elif key == "":
            problems.add(f"{table.at(row)}: it has no name")
    return list(first.values())


def labels_of(file: File, name: str, cells: list[str]) -> list[str]:
    """Labels without decimal commas, where their column has some."""
    if file.dialect is None or name not in file.dialect.commas:
        return cells
    values = numbers_of(cells, comma=True)
    return [cell if np.isnan(value) else repr(float(value)) for cell, value in zip(cells, values, strict=True)]
