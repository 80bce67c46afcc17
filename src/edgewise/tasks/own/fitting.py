"""What is fitted to examples, and their parts: anew, or as a run has kept them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from edgewise.errors import DataError
from edgewise.tables.table import numbers_of
from edgewise.tasks.core.splits import Splits
from edgewise.tasks.own import record
from edgewise.tasks.own.record import Examples, Fitted
from edgewise.tasks.own.target import UNKNOWN, Target, Wanted, target_of

MIXED = 0.5  # of the labels: where so many are numbers, with fractions, the others are mistakes
SHOWN = 10


def settle(
    given: Examples,
    like: str,
    wanted: Wanted,
    fold: int,
    same: Sequence[object] | None = None,
    times: Tensor | None = None,
    fit: Callable[[Fitted, Splits], Fitted] = lambda fitted, splits: fitted,
) -> tuple[Fitted, Splits, tuple[str, ...]]:
    """The targets, the parts and the scales of examples, and what has changed since a run kept them.

    Symbols     like = that run's folder, or empty; wanted = what labels are; fold = seed of the random cut; same = what
                must not be in two parts; times = when each example is: the earliest train, the latest test; fit = adds
                what else is fitted to the examples that train
    Errors      DataError for labels that may be either, and for parts that are empty
    """
    if like:
        run = Path(like).expanduser()
        fitted = record.read(run)
        splits, changes = record.parts(run, given, fitted)
    else:
        targets, changes = targets_of(given, wanted), list[str]()
        splits = given.splits or record.cut(record.known(targets, given), fold, same, times)
        fitted = fit(Fitted(targets, scales=record.scales(targets, given, splits["train"])), splits)
    record.check(given, fitted.targets, splits)
    return fitted, splits, tuple(changes)


def targets_of(given: Examples, wanted: Wanted) -> tuple[Target, ...]:
    """What each target's labels are; all that are doubtful are one DataError."""
    made, problems = [], []
    for name, labels in zip(given.called, given.targets, strict=True):
        where = f"{given.files[0]}: {name}"
        try:
            if isinstance(labels, list) and wanted != "class":
                problems += _mixed(where, labels, wanted)
            made.append(replace(target_of(labels, wanted, where, given.unit), name=name))
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise DataError(*problems)
    return tuple(made)


def _mixed(where: str, labels: Sequence[str], wanted: Wanted) -> list[str]:
    """The labels that are no numbers, in a column of which most are numbers with fractions."""
    known = [label for label in labels if label.strip().lower() not in UNKNOWN]
    values = numbers_of(known)
    numbers = values[values == values]
    fractions = bool((numbers != numbers.round()).any())
    if len(numbers) == len(known) or len(numbers) < MIXED * len(known) or not fractions:
        return []
    wrong = list(dict.fromkeys(label for label, value in zip(known, values, strict=True) if value != value))
    more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    shown = ", ".join(repr(label[:40]) for label in wrong[:SHOWN])
    return [f"{where} holds numbers with fractions, and {shown}{more}: empty such cells, or give --task.target class"]


def names_in(listed: str) -> tuple[str, ...]:
    """The names of a list with commas between them.

    >>> names_in("from, to"), names_in("")
    (('from', 'to'), ())
    """
    return tuple(name.strip() for name in listed.split(",") if name.strip())
