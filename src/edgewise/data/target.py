"""Whether labels are classes or a quantity: guessed from them with a reason, or asked for."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from edgewise.data.dialect import CODE, LARGEST, UNKNOWN, numbers_of
from edgewise.errors import DataError

MAX_CLASSES = 20  # whole numbers, or texts that hardly repeat: more may be something else, such as a quantity
WHOLE = re.compile(r"\+?(-?\d+)(\.0*)?", re.ASCII)
Wanted = Literal["auto", "class", "number"]
Kind = Literal["class", "number"]
Labels = list[str] | np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Target:
    """What is to be predicted: one of some classes, or a number."""

    kind: Kind
    classes: tuple[str, ...]
    why: str
    name: str = "label"

    def __str__(self) -> str:
        what = f"{len(self.classes)} classes" if self.kind == "class" else "a quantity"
        return f"{self.name}: {what} ({self.why})"

    @property
    def width(self) -> int:
        """How many outputs a model has for it."""
        return len(self.classes) or 1

    def to_plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"name": self.name, "kind": self.kind, "classes": list(self.classes), "why": self.why}

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Self:
        """What `to_plain` wrote."""
        name, why = str(content["name"]), str(content["why"])
        made = cls(content["kind"], tuple(map(str, content["classes"])), why, name)
        if made.kind not in get_args(Kind) or (made.kind == "class") != bool(made.classes):
            raise ValueError(f"the target {made}")
        return made

    def known(self, labels: Labels) -> Tensor:
        """Which examples have one, [N]."""
        values = self.values(labels)
        return values >= 0 if self.kind == "class" else ~values.isnan()

    def values(self, labels: Labels) -> Tensor:
        """The labels as classes [N], -1 where unknown or none of them; or as numbers [N] in float64, NaN where
        unknown: a date or a large number loses digits in float32, unless its mean is taken off before.

        Errors      DataError for a quantity in whole numbers of which some are below -1, which alone means unknown
        """
        if isinstance(labels, np.ndarray):
            if self.kind == "number" and labels.dtype.kind != "f" and bool((labels < -1).any()):
                what = f"whole numbers below 0, such as {labels.min()}"
                raise DataError(f"{self.name}: {what}: give them as floating numbers, NaN where unknown")
            numbers = labels if labels.dtype.kind == "f" else np.where(labels < 0, np.nan, labels)
            if self.kind == "number":
                return torch.from_numpy(numbers.astype(np.float64))
            known = (numbers >= 0) & (numbers < len(self.classes))
            return torch.from_numpy(np.where(known, np.nan_to_num(numbers), -1).astype(np.int64))
        names = _names(labels)
        if self.kind == "number":
            values = numbers_of(names)
            return torch.from_numpy(np.where(np.abs(values) <= LARGEST, values, np.nan))
        place = {name: number for number, name in enumerate(self.classes)}
        return torch.tensor([place.get(name, -1) for name in names], dtype=torch.int64)

    def strangers(self, labels: Labels) -> list[str]:
        """The labels that are none of the classes, or no numbers."""
        if isinstance(labels, np.ndarray):
            return [str(label) for label in np.unique(labels[labels >= len(self.classes)])] if self.classes else []
        names = sorted({*_names(labels)} - {""})
        return [name for name in names if (name not in self.classes if self.classes else _number(name) is None)]


def target_of(labels: Labels, wanted: Wanted, where: str, unit: str = "nodes", name: str = "label") -> Target:
    """The target that labels are: texts and few whole numbers are classes, fractions are a quantity.

    Symbols     wanted = "class" or "number": that is what they are; where = the file and the column, for errors; unit =
                what has labels, in the plural; name = the label's own
    Errors      DataError where nothing has a label, where one is no number that must be, and where "auto" would be a
                guess: more than `MAX_CLASSES` whole numbers, or as many texts of which most are there once
    """
    if isinstance(labels, np.ndarray):
        known: Any = labels[labels == labels] if labels.dtype.kind == "f" else labels[labels >= 0]
        order = np.unique(known).tolist()
        numbers, whole = known, bool((known == np.round(known)).all())
    else:
        known = [name for name in _names(labels) if name]
        order = sorted({*known})
        numbers = [_number(name) for name in order]
        if whole := None not in numbers and all(float(number or 0).is_integer() for number in numbers):
            order.sort(key=lambda name: _number(name) or 0)
    numeric = isinstance(labels, np.ndarray) or None not in numbers
    if not len(known):
        raise DataError(f"{where}: no {unit[:-1]} has a label")
    if wanted == "number" and not numeric:
        wrong = next(name for name, number in zip(order, numbers, strict=True) if number is None)
        raise DataError(f"{where} holds {wrong[:40]!r}, which is no number: give --task.target class")
    if wanted == "number" or (wanted == "auto" and numeric and not whole):
        why = "--task.target number" if wanted == "number" else "there are fractions; else give --task.target class"
        return Target("number", (), why, name)
    many = len(order) > MAX_CLASSES
    if wanted == "auto" and whole and many:
        what = f"{len(order)} different whole numbers in {len(known)} {unit}"
        raise DataError(f"{where}: {what}: classes or a quantity? Give --task.target class or --task.target number")
    if wanted == "auto" and many and 2 * len(order) > len(known):
        what = f"{len(order)} labels of {len(known)} {unit} differ"
        raise DataError(f"{where}: {what}: classes are few, and repeat; --task.target class takes them as they are")
    why = "few whole numbers; else give --task.target number" if whole else "texts that repeat"
    if isinstance(labels, np.ndarray):
        if not whole or order[0] < 0 or order[-1] >= len(labels):
            raise DataError(f"{where} must be 0, 1, ... to be classes, and go from {order[0]} to {order[-1]}")
        order = [f"class {number}" for number in range(int(order[-1]) + 1)]
    return Target("class", tuple(order), "--task.target class" if wanted == "class" else why, name)


def check_folders(place: Path, names: Iterable[str]) -> None:
    """Refuse folders of classes that are called as a label is that is unknown."""
    if wrong := sorted(name for name in {*names} if name.strip().lower() in UNKNOWN):
        raise DataError(f"{place}: the folder of a class is called {wrong[0]!r}, as an unknown label is: rename it")


def _names(labels: list[str]) -> list[str]:
    """Labels as texts, "" where unknown; a whole number has neither a plus nor a point, as a column with gaps gives it.

    >>> _names(["1", "1.0", "+1.", "-0", "a.0", "1.5", "+", "?"])
    ['1', '1', '1', '0', 'a.0', '1.5', '+', '']
    """
    known = ["" if label.strip().lower() in UNKNOWN else label.strip() for label in labels]
    return [_plain(name) if "." in name or name[:1] in ("+", "-") else name for name in known]


def _plain(name: str) -> str:
    whole = WHOLE.fullmatch(name)
    return name if whole is None else "0" if whole[1] == "-0" else whole[1]


def _number(name: str) -> float | None:
    """A label as a number, or None: a text, or a code such as 007."""
    if CODE.fullmatch(name.lstrip("+-")):
        return None
    number = float(numbers_of([name])[0])
    return number if abs(number) <= LARGEST else None


def scale_of(values: Tensor) -> tuple[float, float]:
    """The mean and the deviation of values; 1 in place of a deviation of 0, or of one that rounding made.

    >>> scale_of(torch.tensor([1.0, 3.0])), scale_of(torch.tensor([2.0, 2.0]))
    ((2.0, 1.0), (2.0, 1.0))
    """
    mean, deviation = float(values.double().mean()), float(values.double().std(correction=0))
    return mean, deviation if deviation > 1e-12 * abs(mean) else 1.0
