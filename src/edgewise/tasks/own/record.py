"""What a run keeps of one's own data: the part of each example by its name, and all that was fitted to them."""

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from edgewise.data.encoding import Encoding, from_plain, to_plain
from edgewise.data.features import Column
from edgewise.data.features import Kind as ColumnKind
from edgewise.data.lines import lines_of
from edgewise.data.splits import SPLITS, Split, Splits, by_time, shuffled
from edgewise.errors import DataError
from edgewise.files import read_bytes, read_json, reading, spelt, whole, write_file
from edgewise.tasks.core.regression import scale_of
from edgewise.tasks.own.target import Labels, Target

SPLIT, DATA = "split.csv", "data.json"
MAX_BYTES, MAX_DATA = 1 << 28, 1 << 27  # of the one and of the other
OF_FILE = 108  # bytes that data.json has of a file at least, beside its name
LISTED = 5  # examples or levels in a sentence
SHARES = (0.6, 0.8)  # where training and validation end


class Examples(Protocol):
    """What files hold, before anything is fitted to it: nodes, graphs, molecules, texts, ...

    Symbols     place, files = the folder, and those of its files that were read; names = the examples' names, None:
                they are their rows; unit = what they are, in the plural; called, targets = each target's name and
                labels; splits = the parts that the files name, or none; counts = what else is counted, by its name;
                number_of = each example's row by its name
    """

    @property
    def place(self) -> Path: ...
    @property
    def files(self) -> tuple[Path, ...]: ...
    @property
    def names(self) -> Sequence[str] | None: ...
    @property
    def unit(self) -> str: ...
    @property
    def called(self) -> tuple[str, ...]: ...
    @property
    def splits(self) -> Splits: ...
    @property
    def targets(self) -> Sequence[Labels]: ...
    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def number_of(self) -> Mapping[str, int]: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Fitted:
    """What was fitted to the data that trained a run: it is applied as it is to all later ones.

    Args:
        targets: What the labels are, of each target.
        columns: The encodings of the columns of nodes or examples; of an array there are none.
        edges: Those of the edges' columns.
        widths: The number of features of nodes and of edges.
        scales: Of each target the mean and the deviation of the values that train; 0 and 1 for classes.
        names: The columns that were found, by their meaning, such as that which names the nodes.
    """

    targets: tuple[Target, ...]
    columns: tuple[Encoding, ...] = ()
    edges: tuple[Encoding, ...] = ()
    widths: tuple[int, int] = (0, 0)
    scales: tuple[tuple[float, float], ...] = ()
    names: Mapping[str, str] | None = None

    @property
    def target(self) -> Target:
        """The first target."""
        return self.targets[0]

    @property
    def scale(self) -> tuple[float, float]:
        """The mean and the deviation of the first one."""
        return self.scales[0]

    @property
    def kinds(self) -> tuple[dict[str, ColumnKind], dict[str, ColumnKind]]:
        """The kinds of the columns of nodes and of edges, by name."""
        return {one.name: one.kind for one in self.columns}, {one.name: one.kind for one in self.edges}

    def known(self, given: Examples) -> Tensor:
        """Which examples have at least one label, [N]."""
        return known(self.targets, given)

    def to_plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        targets = [
            target.to_plain()
            | (dict(zip(("mean", "deviation"), scale, strict=True)) if target.kind == "number" else {})
            for target, scale in zip(self.targets, self.scales, strict=True)
        ]
        columns = {"columns": to_plain(self.columns), "edge_columns": to_plain(self.edges)}
        names = {} if self.names is None else {"names": dict(self.names)}
        return {"targets": targets, **columns, "features": list(self.widths), **names}

    @classmethod
    def from_plain(cls, content: dict[str, Any]) -> Self:
        """What `to_plain` wrote."""
        targets = content["targets"]
        scales = tuple((float(one.get("mean", 0.0)), float(one.get("deviation", 1.0))) for one in targets)
        if not all(isfinite(number) for scale in scales for number in scale):
            raise ValueError("the targets")
        made = tuple(Target.from_plain(one) for one in targets)
        nodes, edges = map(int, content["features"])
        names = {str(name): str(column) for name, column in content["names"].items()} if "names" in content else None
        columns, others = from_plain(content["columns"]), from_plain(content["edge_columns"])
        return cls(made, columns, others, (nodes, edges), scales, names)


def known(targets: Sequence[Target], given: Examples) -> Tensor:
    """Which examples have at least one label, [N]."""
    each = [target.known(labels) for target, labels in zip(targets, given.targets, strict=True)]
    return torch.stack(each).any(0) if each else torch.ones(len(given), dtype=torch.bool)


def cut(have: Tensor, fold: int, same: Sequence[object] | None = None, times: Tensor | None = None) -> Splits:
    """The examples that have a label, [N] of truth, cut at random; those that are the `same` are in one part.

    Symbols     times = when each is, [N]: the earliest train, the latest test
    """
    rows = have.nonzero()[:, 0]
    if times is not None:
        return {split: rows[chosen] for split, chosen in by_time(times[rows], SHARES).items()}
    if same is None:
        return {split: rows[chosen] for split, chosen in shuffled(len(rows), fold, SHARES).items()}
    groups = _groups(rows, same)
    return {split: _rows_of(groups, chosen) for split, chosen in shuffled(len(groups), fold, SHARES).items()}


def with_validation(train: Tensor, fold: int, same: Sequence[object]) -> Splits:
    """Of the examples that train a fifth at random for validation; those that are the `same` are in one part."""
    groups = _groups(train, same)
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(fold))
    fifth = len(order) // 5
    return {"train": _rows_of(groups, order[fifth:]), "valid": _rows_of(groups, order[:fifth])}


def _groups(rows: Tensor, same: Sequence[object]) -> list[list[int]]:
    groups: dict[object, list[int]] = {}
    for row in rows.tolist():
        groups.setdefault(same[row], []).append(row)
    return list(groups.values())


def _rows_of(groups: Sequence[Sequence[int]], chosen: Tensor) -> Tensor:
    return torch.tensor(sorted(row for group in chosen.tolist() for row in groups[group]), dtype=torch.int64)


def scales(targets: Sequence[Target], given: Examples, train: Tensor) -> tuple[tuple[float, float], ...]:
    """Of each target the mean and the deviation of the values that train; 0 and 1 of classes."""
    made = []
    for target, labels in zip(targets, given.targets, strict=True):
        values = target.values(labels)[train]
        values = values[~values.isnan()] if target.kind == "number" else values
        made.append(scale_of(values) if target.kind == "number" and len(values) else (0.0, 1.0))
    return tuple(made)


def check(given: Examples, targets: Sequence[Target], splits: Splits) -> None:
    """Refuse parts that are empty, or that have an example without a label."""
    have, unit = known(targets, given), given.unit[:-1]
    for split in SPLITS:
        rows = splits[split]
        if len(rows) == 0:
            every, at = sum(map(len, splits.values())), given.files[0] if len(given.files) == 1 else given.place
            raise DataError(f"{at}: no {unit} is in the {split} split, of {every:,} in all")
        if bool((~have[rows]).any()):
            blank = name(given, int(rows[~have[rows]][0]))
            raise DataError(f"{given.place}: {unit} {blank} of the {split} split has no label")


def name(given: Examples, number: int) -> str:
    """An example's name, or its row."""
    return str(number) if given.names is None else given.names[number]


def numbers(given: Examples) -> dict[str, int]:
    """Each example's row by its name."""
    return {one: row for row, one in enumerate(map(str, range(len(given))) if given.names is None else given.names)}


def write(run: Path, given: Examples, splits: Splits, fitted: Fitted) -> None:
    """Write both files into a run folder."""
    rows = ((name(given, row), split) for split in SPLITS for row in splits[split].tolist())
    write_parts(run, given, fitted, (given.unit[:-1], "part"), rows)


def write_parts(
    run: Path, given: Examples, fitted: Fitted, head: Sequence[str], parts: Iterable[Sequence[str]]
) -> None:
    """Write both files, the split as rows of these columns: names of examples, and the part that they are in.

    Errors      DataError for files that would be longer than those that are read
    """
    content = {"unit": given.unit, given.unit: len(given), **given.counts, "named": given.names is not None}
    files = {_place(given, file): about(file) for file in given.files}
    data = json.dumps(content | {"files": files} | fitted.to_plain(), indent=1, ensure_ascii=False).encode()
    _check_size(given.place, "files and columns", len(data), MAX_DATA)
    with whole(run / SPLIT, alone=True) as unfinished:
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(head)
            rows.writerows(parts)
        _check_size(given.place, "parts", unfinished.stat().st_size, MAX_BYTES)
    write_file(run / DATA, data)


def check_count(place: Path, names: Sequence[str]) -> None:
    """Refuse more files than a run can keep, before any is read.

    Symbols     names = those of the files, which are examples each
    """
    size = sum(len(name.encode()) for name in names) + OF_FILE * len(names)
    _check_size(place, f"{len(names):,} files", size, MAX_DATA)


def _check_size(place: Path, what: str, size: int, most: int) -> None:
    if size > most:
        raise DataError(f"{place}: what a run keeps of its {what} takes {size:,} bytes, of at most {most:,}")


def _place(given: Examples, file: Path) -> str:
    return spelt(file.relative_to(given.place) if file.is_relative_to(given.place) else file)


def about(file: Path) -> dict[str, Any]:
    """A file's size in bytes, and its sha256."""
    with file.open("rb") as content:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(content, "sha256").hexdigest()}


def read(run: Path) -> Fitted:
    """What a run folder keeps, but for the split."""
    content = read_json(run / DATA, "what a run keeps of its data", MAX_DATA)
    with reading(run / DATA, "what a run keeps of its data"):
        return Fitted.from_plain(content)


def changes_of(run: Path, given: Examples) -> list[str]:
    """What has changed in the files since a run kept what it was trained with, in sentences.

    Errors      DataError: a file that is no such record; data of another unit, or known in another way
    """
    content = read_json(run / DATA, "what a run keeps of its data", MAX_DATA)
    with reading(run / DATA, "what a run keeps of its data"):
        before = {str(file): (int(one["bytes"]), str(one["sha256"])) for file, one in content["files"].items()}
        named, unit = bool(content["named"]), str(content["unit"])
        count = int(content[unit])
    if unit != given.unit:
        raise DataError(f"{run}: it was trained on {unit}, not on {given.unit}")
    now = {_place(given, file): about(file) for file in given.files}
    changes = [
        f"{file} has changed since the run was trained ({before[file][0]:,} bytes then, {now[file]['bytes']:,} now)"
        for file in before
        if file in now and now[file]["sha256"] != before[file][1]
    ]
    changes += [f"{file} was read when the run was trained, and is not now" for file in before if file not in now]
    changes = [*changes[:LISTED], *([f"so have {len(changes) - LISTED:,} more files"] if len(changes) > LISTED else [])]
    if new_files := [file for file in now if file not in before]:
        changes.append(f"not there when the run was trained: {listed(new_files)}")
    if named != (given.names is not None):
        raise DataError(f"{given.place}: the run's {unit} were {'known by name' if named else 'rows without a name'}")
    if not named and len(given) != count:
        rows = f"{len(given):,} now, {count:,} then"
        changes.append(f"{unit} are known by their rows, which must not have moved: {rows}")
    return changes


def parts(run: Path, given: Examples, fitted: Fitted) -> tuple[Splits, list[str]]:
    """The run's split among the examples that are given now, and what has changed in the data since, in sentences.

    Errors      DataError: as of `changes_of`, for other targets, and for data without an example of a part
    """
    changes, unit = changes_of(run, given), given.unit
    if given.called != (called := tuple(target.name for target in fitted.targets)):
        was, now = ", ".join(called) or "none", ", ".join(given.called) or "none"
        raise DataError(f"{given.place}: the run was trained with the targets {was}, not {now}")
    splits, lacking = _splits(run, given)
    if not changes:
        return splits, []
    if lacking:
        changes.append(f"no longer there, of the run's split: {listed(lacking)}")
    have, inside = fitted.known(given), np.zeros(len(given), dtype=bool)
    for split, rows_of in splits.items():
        inside[rows_of.numpy()] = True
        if blank := [name(given, row) for row in rows_of[~have[rows_of]].tolist()]:
            changes.append(f"without a label now, of the {split} split: {listed(blank)}")
            splits[split] = rows_of[have[rows_of]]
    if new := int((have.numpy() & ~inside).sum()):
        changes.append(f"{unit} with a label in no part of the run's split, by which nothing is measured: {new:,}")
    for target, labels in zip(fitted.targets, given.targets, strict=True):
        if strange := target.strangers(labels):
            changes.append(f"{unit} with other labels than the run's count as unlabelled: {listed(strange)}")
    return splits, changes


def _splits(run: Path, given: Examples) -> tuple[Splits, list[str]]:
    """The examples of each part, and the names of those that are no longer there."""
    rows_of, lacking = given.number_of, list[str]()
    made: dict[Split, list[int]] = {split: [] for split in SPLITS}
    with reading(run / SPLIT, "the split of a run"):
        for one, part in read_parts(run):
            if one in rows_of:
                made[part].append(rows_of[one])  # type: ignore[index]
            else:
                lacking.append(one)
    return {split: torch.tensor(some, dtype=torch.int64) for split, some in made.items()}, lacking


def read_parts(run: Path) -> Iterator[list[str]]:
    """The rows that `write_parts` wrote, without their head."""
    rows = csv.reader(lines_of(run / SPLIT, read_bytes(run / SPLIT, MAX_BYTES)), strict=True)
    next(rows)
    yield from rows


def strange_levels(columns: Sequence[Column], encodings: Sequence[Encoding]) -> Iterator[str]:
    """In sentences, the categories that training never saw, and the gaps where it saw none."""
    for one, column in zip(encodings, columns, strict=True):
        if gaps := one.filled(column):
            yield f"{column.name}: missing in {gaps:,} rows, but in none that the model was trained on: its mean is set"
        if unknown := one.unknown(column):
            yield f"{column.name}: {listed(unknown)} did not occur when the model was trained: no level is set"


def listed(names: Sequence[str]) -> str:
    """Some names, the first ones in full."""
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(one[:40] for one in names[:LISTED]) + more
