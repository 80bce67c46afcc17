"""Columns of a table as features: what each holds is read off its cells; all that cannot be read is said at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from edgewise.errors import DataError
from edgewise.tables.table import LARGEST, Table, numbers_of, read_table

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "?"))  # whatever their case
BOOLEAN = {"true": 1.0, "yes": 1.0, "t": 1.0, "y": 1.0, "false": 0.0, "no": 0.0, "f": 0.0, "n": 0.0}
MAX_LEVELS = 100  # of a category, each of which is a feature
SHOWN = 10  # problems of a file in one message

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Column:
    """What a column holds.

    Shapes      values [N, levels] of a category, a 1 in the level's place; else [N, 1]; present [N]: the cells that
                hold a value
    """

    name: str
    kind: Literal["number", "boolean", "category"]
    values: Array
    present: np.ndarray[Any, np.dtype[np.bool_]]
    levels: tuple[str, ...] = ()

    def __str__(self) -> str:
        missing = int((~self.present).sum())
        gaps = f", missing in {missing:,} rows" if missing else ""
        levels = f" of {len(self.levels)}" if self.levels else ""
        return f"{self.name} (a {self.kind}{levels}{gaps})"


def read_columns(table: Table, names: Sequence[str]) -> list[Column]:
    """What some columns hold: numbers, truth values, or categories.

    Errors      DataError that names each column which holds none of them, by its first wrong cell
    Edge cases  `MISSING` lists the cells that hold no value. A column of which at least half of the values are numbers
                is one of numbers, so that another cell of it is wrong; texts are categories where they repeat
    """
    doubtful = [name for name in names if name in table.wrong]
    texts = read_table(table.path, (), doubtful).columns if doubtful else {}
    found, problems = list[Column](), list[str]()
    for name in names:
        try:
            found.append(_column(table, name, texts.get(name, table.columns[name])))
        except DataError as error:
            problems.append(str(error))
    if problems:
        more = f"\nand {len(problems) - SHOWN} more columns" if len(problems) > SHOWN else ""
        raise DataError("\n".join(problems[:SHOWN]) + more)
    return found


def matrix(columns: Sequence[Column], rows: Any, scale: bool) -> Array:
    """All columns side by side, [N, C].

    Symbols     rows = those that training reads. scale: numbers have mean 0 and deviation 1 among them
    Edge cases  a number or truth value that is missing is the mean of `rows`, and a further feature says so; a category
                that is missing is none of the levels; numbers that are all the same are 0
    """
    parts = []
    for column in columns:
        values, present = column.values, column.present
        if column.kind != "category":
            known = values[rows][present[rows]]
            mean = known.mean() if len(known) else 0.0
            values = np.where(present[:, None], values, mean)
            if scale and column.kind == "number":
                deviation = known.std() if len(known) else 0.0
                values = (values - mean) / (deviation if deviation > 1e-12 * max(1.0, abs(mean)) else 1.0)
            if not present.all():
                values = np.concatenate([values, ~present[:, None]], axis=1)
        parts.append(values)
    return np.concatenate(parts, axis=1)


def _column(table: Table, name: str, cells: Any) -> Column:
    if isinstance(cells, np.ndarray):
        values = cells.astype(np.float64)
        present = ~np.isnan(values)
        _check_numbers(table, name, values, present, cells)
        return Column(name, "number", np.where(present, values, 0.0)[:, None], present)
    if isinstance(cells, str):
        raise DataError(f"{table.path}: the column {name!r} holds {cells}, not numbers or texts")
    texts = ["" if cell is None else cell.strip() for cell in cells]
    lower = [text.lower() for text in texts]
    present = np.array([text not in MISSING for text in lower], dtype=bool)
    values = numbers_of(texts)
    count, number = int(present.sum()), present & ~np.isnan(values)
    if 2 * number.sum() >= count:
        _check_numbers(table, name, values, present, texts)
        return Column(name, "number", np.where(present, values, 0.0)[:, None], present)
    levels = tuple(sorted({text for text, there in zip(texts, present.tolist(), strict=True) if there}))
    if all(level.lower() in BOOLEAN for level in levels):
        truth = np.array([BOOLEAN.get(text, 0.0) for text in lower])
        return Column(name, "boolean", truth[:, None], present)
    if len(levels) > MAX_LEVELS or len(levels) > max(2, count // 2):
        what = f"{len(levels):,} different texts in {count:,} rows"
        right = f"numbers, truth values, or texts that repeat, at most {MAX_LEVELS}, are features"
        raise DataError(f"{table.path}: {name} holds {what}: {right}; give ignore={name!r}")
    number_of = {level: place for place, level in enumerate(levels)}
    ones = np.zeros((len(texts), len(levels)))
    rows = np.flatnonzero(present)
    ones[rows, [number_of[texts[row]] for row in rows.tolist()]] = 1.0
    return Column(name, "category", ones, present, levels)


def _check_numbers(table: Table, name: str, values: Array, present: Any, cells: Any) -> None:
    if not present.any():
        raise DataError(f"{table.path}: {name} holds no value at all: give ignore={name!r}")
    wrong = np.flatnonzero(present & ~(np.abs(values) <= LARGEST))
    if len(wrong):
        raise DataError(f"{table.at(int(wrong[0]))}: {name} is {str(cells[wrong[0]])[:40]!r}, not a finite number")
