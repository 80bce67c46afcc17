"""Clouds of points of one's own: a table of points with a column that groups them, or a file for each cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from edgewise.data.encoding import Encoding, features, fit
from edgewise.data.features import Array, Column, Kind, read_columns
from edgewise.data.lines import Problems
from edgewise.data.reading import ENDINGS, File, find_table, is_table, unread
from edgewise.data.splits import Splits
from edgewise.data.table import SHOWN, Called
from edgewise.errors import ConfigError, DataError
from edgewise.files import folder_name, spelt
from edgewise.graphs import k_nearest
from edgewise.tasks.core.task import Pattern, given, lay
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs, Member
from edgewise.tasks.own import record
from edgewise.tasks.own.edges import joined, strangers
from edgewise.tasks.own.examples import Own, OwnExamples, targets_of
from edgewise.tasks.own.fitting import labels_in, names_in, settle
from edgewise.tasks.own.groups import read_members
from edgewise.tasks.own.record import Fitted
from edgewise.tasks.own.rows import Asked, Rows, read_rows
from edgewise.tasks.own.target import check_folders

AXES = (("x", "y", "z"), ("x", "y"))
MAX_FILES = 1 << 17


@dataclass(frozen=True)
class Manner:
    """How clouds are read.

    Args:
        asked: What of a table of clouds is wanted.
        cloud: The column of points that names their cloud; empty: found.
        position: The columns with coordinates; empty: found.
        neighbors: To how many of the nearest points a point attends.
    """

    asked: Asked
    cloud: str
    position: tuple[str, ...]
    neighbors: int


@dataclass(frozen=True)
class Clouds:
    """Points, the clouds one after the other: their coordinates [N, D], each cloud's mean taken off, and what else is
    known of them."""

    rows: Rows
    sizes: Array
    position: Array
    axes: tuple[str, ...]
    columns: list[Column]


class OwnClouds(OwnExamples):
    """Clouds of one's own; a prediction is for one of the data, or for a file of points."""

    files = ENDINGS
    manner: Manner

    def elsewhere(self, place: Path) -> OwnClouds:
        manner = replace(self.manner, asked=replace(self.manner.asked, labelled=False))
        return task_of(read_clouds(place, manner, self.own.fitted), self.own.fitted, {}, (), self.manner)

    def reads(self, request: str) -> bool:
        return request.lower().endswith(ENDINGS)

    def read(self, request: str, pattern: Pattern) -> Member:
        """A cloud from a file of points."""
        if not self.reads(request):
            return super().read(request, pattern)
        one = self.elsewhere(Path(request))
        graph = one.graphs.members[0] if given(pattern) else lay(pattern, len(one.graphs.x))
        return Member(graph, one.graphs.x, None, None, None, {"cloud": request})


def point_folder(
    folder: str = "clouds",
    label: str = "",
    target: Literal["auto", "class", "number"] = "auto",
    neighbors: int = 8,
    position: str = "",
    fold: int = 0,
    ignore: str = "",
    like: str = "",
    id: str = "",
    cloud: str = "",
) -> GraphClassification:
    """Guess a class or a quantity of each of your own clouds of points, or several of them: from a folder.

    Either two tables (CSV, TSV or Parquet):
        clouds.csv  a row for each cloud: a column that names it (`cloud` or `id`; else clouds are rows from 0), the
                    columns with targets and, if there is one, `split` ("train", "valid", "test" or nothing)
        points.csv  a row for each point: the column `cloud`, coordinates `x`, `y` and perhaps `z`, and other features
    or a folder for each class, with a table of points for each cloud in it.

    Each cloud's mean is taken off its coordinates, and all are divided by the root mean square of those that train, so
    that sizes and directions stay as they are. Without parts, the clouds are cut at random into 60 % to train, 20 % to
    choose the weights by and 20 % to test. A run keeps the parts, classes and scales, as with `node-folder`.

    Args:
        folder: Where the files lie.
        label: The columns with targets, with commas between them. Empty: those of `like`, else `label`,
            `target`, or the only one left.
        target: Whether labels are classes or numbers. "auto": numbers with fractions are a quantity, texts and up to 20
            different whole numbers classes; of more whole numbers it must be said.
        neighbors: To how many of the nearest points each point attends.
        position: The columns with coordinates, with commas between them. Empty: `x`, `y` and, where there is one, `z`.
        fold: Seed of the random cut: another number, another cut.
        ignore: Columns that are not read, with commas between them.
        like: A run folder: its parts, classes and scales are taken.
        id: The column that names the clouds. Empty: it is found.
        cloud: The column of points that names their cloud. Empty: it is found.

    Errors      files that are missing, malformed or do not fit each other are a `DataError` with all that is wrong
    """
    if neighbors < 1:
        raise ConfigError(f"task.neighbors must be at least 1, not {neighbors}")
    asked = Asked("clouds", label=labels_in(label, like), id=id, ignore=frozenset(names_in(ignore)))
    manner = Manner(asked, cloud, names_in(position), neighbors)
    read = read_clouds(Path(folder).expanduser(), manner, record.read(Path(like).expanduser()) if like else None)

    def fit_columns(fitted: Fitted, splits: Splits) -> Fitted:
        owner = np.repeat(np.arange(len(read.sizes)), read.sizes)
        rows = np.flatnonzero(np.isin(owner, splits["train"].numpy()))
        radius = float(np.sqrt(np.square(read.position[rows]).sum(1).mean())) or 1.0
        axes = tuple(Encoding(axis, "number", deviation=radius) for axis in read.axes)
        return replace(fitted, columns=(*axes, *fit(read.columns, rows, scale=True)))

    fitted, splits, changes = settle(read.rows, like, target, fold, fit=fit_columns)
    return task_of(read, fitted, splits, changes, manner)


def read_clouds(place: Path, manner: Manner, fitted: Fitted | None) -> Clouds:
    """The clouds of a folder, or the one of a file."""
    problems: list[str] = []
    known = None if fitted is None else fitted.kinds[0]
    clouds, points = (find_table(place, name) for name in ("clouds", "points")) if place.is_dir() else (None, None)
    if clouds and points:
        rows = read_rows(clouds, manner.asked, problems, (points,))
        names = [record.name(rows, number) for number in range(len(rows))]
        members = read_members(points, names, "cloud", manner.cloud, {*manner.asked.ignore}, known, problems)
        columns, sizes = members.columns, members.sizes
        rows = replace(rows, notes=(*rows.notes, *members.notes, *unread(place, rows.files)))
        present = {name for path in (clouds, points) for name in File(path).names}
    else:
        rows, columns, sizes, present = read_files(place, manner, known, problems)
    if manner.asked.labelled and manner.asked.ignore:
        problems += strangers(place, manner.asked.ignore, present, 0, known)
    if problems:
        raise DataError(*problems)
    return centred(replace(rows, counts={"points": int(sizes.sum())}), columns, sizes, manner.position)


def read_files(
    place: Path, manner: Manner, known: Mapping[str, Kind] | None, problems: list[str]
) -> tuple[Rows, list[Column], Array, set[str]]:
    """A cloud for each file of a folder, in folders of their classes, or one from a file; and the names of all columns.

    Symbols     known = the columns that are read and their kinds; None: all of the first file, which hold numbers; one
                with others is refused
    """
    files = [place] if place.is_file() else sorted(filter(is_table, place.rglob("*")))
    files = [path for path in files if place.is_file() or len(path.relative_to(place).parts) <= 2]
    labelled = manner.asked.labelled
    files = [path for path in files if path.parent != place] if labelled else files
    if not files:
        lacking = "it has no tables of points" if place.exists() else "no such file or folder"
        what = "clouds.csv and points.csv, or a folder for each class with tables of points"
        raise DataError(f"{place}: {lacking}: expected {what}")
    if len(files) > MAX_FILES:
        raise DataError(f"{place}: {len(files):,} tables of points, of at most {MAX_FILES:,}")
    found, tables, sizes = Problems(), list[list[Column]](), np.zeros(len(files), dtype=np.int64)
    first = [name for name in File(files[0]).names if name and name not in manner.asked.ignore]
    kinds: Mapping[str, Kind] = known or dict.fromkeys(first, "number")
    left, present, written = dict[str, None](), {*first}, dict[str, str]()
    for number, path in enumerate(files):
        try:
            file = File(path)
            present |= {*file.names}
            table = file.table([*kinds])
            columns, wrong = read_columns(file, table, [*kinds], kinds)
            others = [name for name in file.names if name and name not in {*kinds, *manner.asked.ignore}]
            if others and known is None:
                lacks = f"which {files[0].relative_to(place)} lacks: give --task.ignore {','.join(others)}"
                found.add(f"{path}: it has the columns {', '.join(others)}, {lacks}")
            left |= dict.fromkeys(others)
            if str(file.dialect or ""):
                written.setdefault(str(file.dialect), spelt(path.relative_to(place) if place.is_dir() else path.name))
        except DataError as error:
            found.add(str(error))
            continue
        for problem in (*table.problems, *wrong):
            found.add(problem)
        sizes[number] = len(table)
        tables.append(columns)
    problems += found.sentences()
    columns = [] if problems else [joined(parts, parts[0].kind) for parts in zip(*tables, strict=True)]
    called = [spelt(path.relative_to(place) if place.is_dir() else path.name) for path in files]
    labels = [[spelt(path.parent.name) for path in files]] if labelled else []
    check_folders(place, (label for each in labels for label in each))
    where = [str(path) for path in files]
    notes = [f"each file is a cloud, of the class that its folder is called; its columns are {', '.join(kinds)}"]
    notes += [f"{name}, and others alike: {how}" for how, name in [*written.items()][:SHOWN]]
    notes += [f"not read: the columns {', '.join(left)}"] if left else []
    root = place if place.is_dir() else place.parent
    made = Rows(root, tuple(files), "clouds", called, ("class",) * labelled, labels, {}, {}, {}, where, tuple(notes))
    return made, columns, sizes, present


def centred(rows: Rows, columns: Sequence[Column], sizes: Array, position: Sequence[str]) -> Clouds:
    """Clouds whose coordinates have each cloud's mean taken off."""
    by_name = {column.name: column for column in columns}
    lower = Called(rows.files[-1], by_name)
    axes = position or next(([lower[axis] for axis in some] for some in AXES if {*some} <= {*lower}), [])
    where = rows.files[-1]
    if not axes or not {*axes} <= {*by_name}:
        expected = ", ".join(position) or "x, y and perhaps z, or --task.position"
        raise DataError(f"{where}: its columns are {', '.join(by_name)}; expected coordinates {expected}")
    for axis in axes:
        if by_name[axis].kind not in ("number", "boolean"):
            raise DataError(f"{where}: {axis} must be a number in each row: it is a coordinate")
        if len(gaps := np.flatnonzero(~by_name[axis].present)):
            cloud = record.name(rows, int(np.searchsorted(np.cumsum(sizes), gaps[0], side="right")))
            raise DataError(
                f"{rows.place}: {axis} must be a number in each row: it is a coordinate, which {cloud} lacks"
            )
    if empty := [record.name(rows, number) for number in np.flatnonzero(sizes == 0).tolist()]:
        raise DataError(f"{where}: {record.listed(empty)} has no points")
    values = np.stack([by_name[axis].values for axis in axes], 1)
    starts = np.cumsum(sizes) - sizes
    means = np.add.reduceat(values, starts) / sizes[:, None]
    others = [column for column in columns if column.name not in axes]
    return Clouds(rows, sizes, values - np.repeat(means, sizes, axis=0), tuple(axes), others)


def task_of(read: Clouds, fitted: Fitted, splits: Splits, changes: tuple[str, ...], manner: Manner) -> OwnClouds:
    """The task of clouds whose features are those that were fitted."""
    there = np.ones(len(read.position), dtype=bool)
    axes = [Column(axis, "number", read.position[:, place], there) for place, axis in enumerate(read.axes)]
    columns = [*axes, *read.columns]
    if [column.name for column in columns] != [one.name for one in fitted.columns]:
        wanted = ", ".join(one.name for one in fitted.columns)
        has = ", ".join(column.name for column in columns)
        raise DataError(f"{read.rows.place}: points have {has}, and the run was trained with {wanted}")
    x: Tensor = torch.from_numpy(features(columns, fitted.columns).astype(np.float32))
    parts = torch.from_numpy(read.position).split(read.sizes.tolist())
    members = tuple(k_nearest(part, manner.neighbors) for part in parts)
    strange = record.strange_levels(columns, fitted.columns)
    own = Own(read.rows, fitted, (*changes, *strange))
    task = OwnClouds(folder_name(read.rows.place), Graphs(members, x, targets_of(read.rows, fitted), splits), own)
    task.manner = manner
    return task
