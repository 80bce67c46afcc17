"""Columns as features: what is fitted to the rows that train, and applied alike to all rows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Self, get_args

import numpy as np

from edgewise.data.features import Array, Column, Kind
from edgewise.data.table import LARGEST
from edgewise.errors import DataError


@dataclass(frozen=True)
class Encoding:
    """How a column becomes features.

    Equation    of a number x: (x - shift) / deviation; of a truth value 0 or 1; of a category a feature for each of its
                `levels`, 1 for the cell's own
    Symbols     fill = what stands for a number or truth value that is missing; flagged = whether a further feature says
                that it was: where a row that trains lacks one; levels = those that a row that trains has
    Edge cases  a category that is missing or is none of the levels has zeros alone
    """

    name: str
    kind: Kind
    fill: float = 0.0
    shift: float = 0.0
    deviation: float = 1.0
    flagged: bool = False
    levels: tuple[str, ...] = ()

    @classmethod
    def fit(cls, column: Column, rows: Any, scale: bool) -> Self:
        """The encoding of a column by its cells in some rows, those that train.

        Symbols     scale: numbers have mean 0 and deviation 1 in these rows; those that are all the same are 0
        """
        known = column.values[rows][column.present[rows]]
        if column.kind == "category":
            return cls(column.name, column.kind, levels=tuple(column.levels[level] for level in np.unique(known)))
        mean, spread = (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)
        flagged = not bool(column.present[rows].all())
        if not scale or column.kind == "boolean":
            return cls(column.name, column.kind, mean, flagged=flagged)
        deviation = spread if spread > 1e-12 * abs(mean) else 1.0  # equal numbers: an error of rounding
        return cls(column.name, column.kind, mean, mean, deviation, flagged)

    @property
    def width(self) -> int:
        """How many features there are."""
        return len(self.levels) if self.kind == "category" else 1 + self.flagged

    def apply(self, column: Column) -> Array:
        """The features of all rows of a column of this kind, [N, width].

        Errors      DataError for a number so far from those that were fitted that no float32 holds it
        """
        if self.kind == "category":
            place = {level: number for number, level in enumerate(self.levels)}
            own = np.array([*(place.get(level, -1) for level in column.levels), -1])[column.values]
            ones, rows = np.zeros((len(own), len(self.levels))), np.flatnonzero(own >= 0)
            ones[rows, own[rows]] = 1.0
            return ones
        given = np.where(column.present, column.values, self.fill)
        with np.errstate(over="ignore"):
            values = (given - self.shift) / self.deviation
        if len(far := np.flatnonzero(np.abs(values) > LARGEST)):
            cell = f"{column.at(int(far[0]))}: {self.name} is {given[far[0]]:.4g}"
            usual = f"{self.shift:.4g} ± {self.deviation:.4g}"
            raise DataError(f"{cell}, too far from the {usual} of the rows that train")
        return np.stack([values, ~column.present] if self.flagged else [values], axis=1)

    def unknown(self, column: Column) -> list[str]:
        """The levels of a column that this encoding has no feature for."""
        return sorted({*column.levels} - {*self.levels}) if self.kind == "category" else []

    def filled(self, column: Column) -> int:
        """How many cells without a value no feature tells from those that have the mean."""
        return 0 if self.flagged or self.kind == "category" else int((~column.present).sum())


def fit(columns: Sequence[Column], rows: Any, scale: bool) -> tuple[Encoding, ...]:
    """The encodings of some columns, by the rows that train.

    Errors      DataError where no row that trains has a category, and there is nothing else
    """
    fitted = tuple(Encoding.fit(column, rows, scale) for column in columns)
    if columns and not width(fitted):
        names = ",".join(column.name for column in columns)
        raise DataError(f"no row that trains has a value of {names}: nothing can be learned of them; ignore them")
    return fitted


def width(encodings: Sequence[Encoding]) -> int:
    """How many features there are."""
    return sum(one.width for one in encodings)


def features(columns: Sequence[Column], encodings: Sequence[Encoding]) -> Array:
    """All columns side by side, [N, C], each by its own encoding."""
    return np.concatenate([one.apply(column) for one, column in zip(encodings, columns, strict=True)], axis=1)


def to_plain(encodings: Sequence[Encoding]) -> list[dict[str, Any]]:
    """Encodings as JSON holds them."""
    return [{name: value for name, value in asdict(one).items() if value != ()} for one in encodings]


def from_plain(content: Sequence[Mapping[str, Any]]) -> tuple[Encoding, ...]:
    """The encodings that `to_plain` wrote; whatever is none of them is a DataError."""
    try:
        return tuple(_checked(Encoding(**{**one, "levels": tuple(one.get("levels", ()))})) for one in content)
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"these are no encodings of columns: {error}") from error


def _checked(one: Encoding) -> Encoding:
    numbers = one.fill, one.shift, one.deviation
    texts = all(isinstance(text, str) for text in (one.name, *one.levels)) and len({*one.levels}) == len(one.levels)
    if one.kind not in get_args(Kind) or not texts or not all(isfinite(number) for number in numbers):
        raise ValueError(f"the column {one.name!r}")
    return one
