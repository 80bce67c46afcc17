"""What is fitted to examples, and their parts: anew, or as a run has kept them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor

from edgewise.data.splits import Splits
from edgewise.data.table import LARGEST, UNKNOWN, numbers_of
from edgewise.errors import DataError
from edgewise.tasks.own import record
from edgewise.tasks.own.record import Examples, Fitted
from edgewise.tasks.own.target import Target, Wanted, target_of

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
    """The targets, the parts and the scales of examples, and what is to be said of them: what has changed since a run
    kept them, or which classes no example teaches.

    Symbols     like = that run's folder, or empty; wanted = what labels are; fold = seed of the random cut; same = what
                must not be in two parts; times = when each example is: the earliest train, the latest test; fit = adds
                what else is fitted to the examples that train
    Errors      DataError for labels that may be either, for parts that are empty, and for a target that is the same in
                all examples or unknown in all that train; for times of examples whose files name the parts
    """
    if like:
        run = Path(like).expanduser()
        fitted = record.read(run)
        splits, changes = record.parts(run, given, fitted)
    else:
        targets = targets_of(given, wanted)
        if times is not None and given.splits:
            advice = "give --task.ignore split, or leave out --task.time"
            raise DataError(f"{given.place}: the parts are named by a column, and cut by --task.time: {advice}")
        splits = given.splits or record.cut(record.known(targets, given), fold, same, times)
        changes = untaught(targets, given, splits["train"])
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


def untaught(targets: Sequence[Target], given: Examples, train: Tensor) -> list[str]:
    """The classes that none of the examples that train is of, in a line for each target.

    Errors      DataError for a target that has one class, or that is unknown in all examples that train
    """
    said, unit = [], given.unit[:-1]
    for target, labels in zip(targets, given.targets, strict=True):
        if len(target.classes) == 1:
            only = target.classes[0][:40]
            raise DataError(f"{given.place}: {target.name}: all labels are {only!r}: one class leaves nothing to learn")
        known = target.known(labels)[train]
        if len(train) and not bool(known.any()):
            raise DataError(f"{given.place}: {target.name}: no {unit} that trains has a label")
        taught = target.values(labels)[train][known].unique().tolist() if target.kind == "class" else []
        lacking = [name for number, name in enumerate(target.classes) if number not in taught]
        if lacking and len(train):
            more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
            said.append(f"{target.name}: no {unit} that trains is of the class {', '.join(lacking[:SHOWN])}{more}")
    return said


def _mixed(where: str, labels: Sequence[str], wanted: Wanted) -> list[str]:
    """The labels that are no numbers, in a column of which most are numbers with fractions."""
    known = [label for label in labels if label.strip().lower() not in UNKNOWN]
    values = numbers_of(known)
    finite = np.abs(values) <= LARGEST
    numbers = values[finite]
    fractions = bool((numbers != numbers.round()).any())
    if len(numbers) == len(known) or len(numbers) < MIXED * len(known) or not fractions:
        return []
    wrong = list(dict.fromkeys(label for label, number in zip(known, finite, strict=True) if not number))
    more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    shown = ", ".join(repr(label[:40]) for label in wrong[:SHOWN])
    return [f"{where} holds numbers with fractions, and {shown}{more}: empty such cells, or give --task.target class"]


def labels_in(listed: str, like: str) -> tuple[str, ...]:
    """The columns with targets that are listed, or else those of the run in a folder, if there is one; empty: found."""
    kept = record.read(Path(like).expanduser()).targets if like else ()
    return names_in(listed) or tuple(target.name for target in kept)


def names_in(listed: str) -> tuple[str, ...]:
    """The names of a list with commas between them, each once.

    >>> names_in("from, to"), names_in("to,to"), names_in("")
    (('from', 'to'), ('to',), ())
    """
    return tuple(dict.fromkeys(name.strip() for name in listed.split(",") if name.strip()))
