"""Clouds of points of one's own: a table of points with a column that groups them, or a file for each cloud."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from edgewise.data import record
from edgewise.data.columns import Array, Column, Encoding, Kind, features, fit, read_columns
from edgewise.data.examples import Asked, Examples, left_out, read_examples, read_members, strangers
from edgewise.data.record import Fitted, Settled, labels_in, names_in
from edgewise.data.splits import Splits
from edgewise.data.table import (
    ENDINGS,
    SHOWN,
    Called,
    Problems,
    Table,
    find_table,
    is_table,
    read_table,
    stacked,
    unread,
)
from edgewise.data.target import check_folders
from edgewise.errors import ConfigError, DataError
from edgewise.files import folder_name, spelt
from edgewise.graphs import k_nearest
from edgewise.tasks.core.task import Pattern, given, lay
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs, Member
from edgewise.tasks.own.examples import Files, OwnExamples, targets_of

AXES = (("x", "y", "z"), ("x", "y"))
MAX_FILES = 1 << 17


@dataclass(frozen=True)
class Points:
    """Points, the clouds one after the other: their coordinates, from which each cloud's mean is taken, and what else
    is known of them; how many each cloud has [G], and how many columns are coordinates."""

    columns: list[Column]
    sizes: Array
    axes: int

    @property
    def position(self) -> Array:
        """The coordinates [N, D]."""
        return np.stack([column.values for column in self.columns[: self.axes]], 1)


class OwnClouds(OwnExamples):
    """Clouds of one's own; a prediction is for one of the data, or for a file of points."""

    files = ENDINGS

    def reads(self, request: str) -> bool:
        return request.lower().endswith(ENDINGS)

    def read(self, request: str, pattern: Pattern) -> Member:
        """A cloud from a file of points."""
        if not self.reads(request):
            return super().read(request, pattern)
        one = self.elsewhere(Path(request))
        graph = one.graphs.members[0] if given(pattern) else lay(pattern, len(one.graphs.x))
        return Member(graph, one.graphs.x, None, None, None, {"cloud": request})


@dataclass(frozen=True)
class PointFiles(Files[Points, OwnClouds]):
    """Two tables, or a table for each cloud.

    Args:
        cloud: The column of points that names their cloud; empty: found.
        position: The columns with coordinates; empty: found.
        neighbors: To how many of the nearest points a point attends.
    """

    cloud: str = ""
    position: tuple[str, ...] = ()
    neighbors: int = 8

    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, Points]:
        problems, asked = list[str](), fitted.asked(self.asked) if fitted else self.asked
        clouds, points = (find_table(place, name) for name in ("clouds", "points")) if place.is_dir() else (None, None)
        if clouds and points:
            rows = read_examples(clouds, asked, problems, (points,))
            names = [rows.name(number) for number in range(len(rows))]
            members = read_members(points, names, "cloud", self.cloud, asked, problems)
            columns, sizes, present = members.columns, members.sizes, {*rows.header, *members.header}
            rows = replace(rows, notes=(*rows.notes, *members.notes, *unread(place, rows.files)))
        else:
            rows, columns, sizes, present = read_files(place, asked, problems)
        if asked.labelled:
            problems += strangers(place, asked.ignore, present, asked.known and asked.known[0])
        if problems:
            raise DataError(*problems)
        return replace(rows, counts={"points": int(sizes.sum())}), centred(rows, columns, sizes, self.position)

    def fit(self, inputs: Points, fitted: Fitted, splits: Splits) -> Fitted:
        owner = np.repeat(np.arange(len(inputs.sizes)), inputs.sizes)
        rows = np.flatnonzero(np.isin(owner, splits["train"].numpy()))
        radius = float(np.sqrt(np.square(inputs.position[rows]).sum(1).mean())) or 1.0
        axes = tuple(Encoding(axis.name, "number", deviation=radius) for axis in inputs.columns[: inputs.axes])
        return replace(fitted, columns=(*axes, *fit(inputs.columns[inputs.axes :], rows, scale=True)))

    def task(self, settled: Settled, inputs: Points) -> OwnClouds:
        rows, fitted, columns = settled.given, settled.fitted, inputs.columns
        if [column.name for column in columns] != [one.name for one in fitted.columns]:
            wanted, has = (", ".join(one.name for one in some) for some in (fitted.columns, columns))
            raise DataError(f"{rows.place}: points have {has}, and the run was trained with {wanted}")
        x = torch.from_numpy(features(columns, fitted.columns).astype(np.float32))
        parts = torch.from_numpy(inputs.position).split(inputs.sizes.tolist())
        members = tuple(k_nearest(part, self.neighbors) for part in parts)
        own = replace(settled, changes=(*settled.changes, *record.strange_levels(columns, fitted.columns)))
        graphs = Graphs(members, x, targets_of(settled), settled.splits)
        return OwnClouds(folder_name(rows.place), graphs, own, self)


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
    return PointFiles(asked, cloud, names_in(position), neighbors).settle(folder, like, target, fold)


def read_files(place: Path, asked: Asked, problems: list[str]) -> tuple[Examples, list[Column], Array, set[str]]:
    """A cloud for each file of a folder, in folders of their classes, or one from a file; and the names of all columns.

    Where nothing is known of the columns, all of the first file are read, which hold numbers; a file with others is
    refused."""
    labelled, known = asked.labelled, asked.known and asked.known[0]
    files = [place] if place.is_file() else sorted(filter(is_table, place.rglob("*")))
    files = [path for path in files if place.is_file() or len(path.relative_to(place).parts) <= 2]
    files = [path for path in files if path.parent != place] if labelled else files
    if not files:
        lacking = "it has no tables of points" if place.exists() else "no such file or folder"
        what = "clouds.csv and points.csv, or a folder for each class with tables of points"
        raise DataError(f"{place}: {lacking}: expected {what}")
    if len(files) > MAX_FILES:
        raise DataError(f"{place}: {len(files):,} tables of points, of at most {MAX_FILES:,}")
    tables, wrong = list[Table](), Problems()
    first = [name for name in read_table(files[0], whole=False).header if name and name not in asked.ignore]
    kinds: Mapping[str, Kind] = known or dict.fromkeys(first, "number")
    left, present, written = dict[str, None](), {*first}, dict[str, str]()
    for path in files:
        try:
            tables.append(table := read_table(path, [*kinds], whole=False))
        except DataError as error:
            wrong.add(str(error))
            continue
        others = [name for name in table.header if name and name not in {*kinds, *asked.ignore}]
        if others and known is None:
            lacks = f"which {files[0].relative_to(place)} lacks: give --task.ignore {','.join(others)}"
            wrong.add(f"{path}: it has the columns {', '.join(others)}, {lacks}")
        present |= {*table.header}
        left |= dict.fromkeys(others)
        if table.notes:
            written.setdefault(str(table.dialect), spelt(path.relative_to(place) if place.is_dir() else path.name))
        wrong.extend(table.problems)
    columns, mixed = read_columns(stacked(tables, kinds), [*kinds], kinds) if tables else ([], [])
    wrong.extend(mixed)
    problems += wrong.sentences()
    sizes = np.array([len(table) for table in tables], dtype=np.int64)
    called = [spelt(path.relative_to(place) if place.is_dir() else path.name) for path in files]
    labels = [[spelt(path.parent.name) for path in files]] if labelled else []
    check_folders(place, (label for each in labels for label in each))
    notes = [f"each file is a cloud, of the class that its folder is called; its columns are {', '.join(kinds)}"]
    notes += [f"{name}, and others alike: {how}" for how, name in [*written.items()][:SHOWN]]
    made = Examples(
        place if place.is_dir() else place.parent,
        tuple(files),
        "clouds",
        len(files),
        called,
        ("class",) * labelled,
        labels,
        notes=(*notes, *left_out(left)),
        at=lambda number: str(files[number]),
    )
    return made, columns, sizes, present


def centred(rows: Examples, columns: Sequence[Column], sizes: Array, position: Sequence[str]) -> Points:
    """Clouds from whose coordinates each cloud's mean is taken."""
    by_name, where = {column.name: column for column in columns}, rows.files[-1]
    lower = Called(where, by_name)
    axes = position or next(([lower[axis] for axis in some] for some in AXES if {*some} <= {*lower}), [])
    if not axes or not {*axes} <= {*by_name}:
        expected = ", ".join(position) or "x, y and perhaps z, or --task.position"
        raise DataError(f"{where}: its columns are {', '.join(by_name)}; expected coordinates {expected}")
    for axis in axes:
        if by_name[axis].kind not in ("number", "boolean"):
            raise DataError(f"{where}: {axis} must be a number in each row: it is a coordinate")
        if len(gaps := np.flatnonzero(~by_name[axis].present)):
            cloud = rows.name(int(np.searchsorted(np.cumsum(sizes), gaps[0], side="right")))
            what = f"{axis} must be a number in each row: it is a coordinate, which {cloud} lacks"
            raise DataError(f"{rows.place}: {what}")
    if empty := [rows.name(number) for number in np.flatnonzero(sizes == 0).tolist()]:
        raise DataError(f"{where}: {record.listed(empty)} has no points")
    starts, made = np.cumsum(sizes) - sizes, []
    for axis in axes:
        means = np.add.reduceat(by_name[axis].values, starts) / sizes
        made.append(Column(axis, "number", by_name[axis].values - np.repeat(means, sizes), by_name[axis].present))
    return Points([*made, *(column for column in columns if column.name not in axes)], sizes, len(axes))
