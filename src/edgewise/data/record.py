"""What a run keeps of the data that it trains on: each example's part by its name, and all that was fitted to them."""

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from edgewise.configuration import build, plain
from edgewise.data.columns import Column, Encoding, Target, Wanted, from_plain, scale_of, target_of, to_plain
from edgewise.data.examples import Asked, Examples, Kinds, OneGraph, Parallel, in_words
from edgewise.data.splits import SPLITS, How, Split, Splits, divided, joined, sizes
from edgewise.data.table import LARGEST, SHOWN, lines_of, numbers_of
from edgewise.data.words import UNKNOWN
from edgewise.errors import ConfigError, DataError, counted
from edgewise.files import folder_name, read_bytes, read_json, reading, spelt, whole, write_file
from edgewise.graphs import Graph
from edgewise.graphs.make.links import LinkCut, links_of

SPLIT, DATA, SKIPPED = "split.csv", "data.json", "skipped.csv"
FILES = SPLIT, DATA
KEPT = "data"  # the folder of a run with what it keeps of the files themselves
FEW = 3  # examples of each part that it keeps
MAX_KEPT = 1 << 26  # bytes of the files of one graph that it keeps
MAX_BYTES, MAX_DATA = 1 << 28, 1 << 27  # of the one and of the other
OF_FILE = 108  # bytes that data.json has of a file at least, beside its name
LISTED = 5  # examples or levels in a sentence
MIXED = 0.5  # of the labels: where so many are numbers, with fractions, the others are mistakes
PARTS = ("train", "valid", "valid_none", "test", "test_none")  # of links, as a `LinkCut` calls them


@dataclass(frozen=True)
class Sure:
    """How sure a model is of one target, by what it said of the validation part.

    Equation    p = softmax(o / T); of two classes the second is answered where its p is above t; of a number the
                interval is the value ± half
    Symbols     temperature = T, which the model's outputs are divided by; threshold = t; half = of an interval that is
                to hold a share `level` of the values; None: there are too few examples to say
    """

    temperature: float = 1.0
    threshold: float = 0.5
    half: float | None = None
    level: float = 0.9

    def to_plain(self) -> dict[str, Any]:
        """What of it is not as usual, for those who read outputs elsewhere: the temperature is in these already."""
        threshold = {} if self.threshold == 0.5 else {"threshold": self.threshold}
        return threshold if self.half is None else {**threshold, "half": self.half, "level": self.level}


@dataclass(frozen=True)
class Fitted:
    """What was fitted to the data that trained a run: it is applied as it is to all later ones."""

    targets: tuple[Target, ...]  # what the labels are, of each target
    columns: tuple[Encoding, ...] = ()  # the encodings of the columns of nodes or examples; of an array there are none
    edges: tuple[Encoding, ...] = ()  # those of the edges' columns
    # of each target the mean and the deviation of the values that train; 0 and 1 for classes
    scales: tuple[tuple[float, float], ...] = ()
    # the columns that were found, by their meaning, such as that which names the nodes
    names: dict[str, str] = field(default_factory=dict)
    parallel: Parallel = "keep"  # what became of features of parallel edges
    sure: tuple[Sure, ...] = ()  # how each target's answers are read; empty: as usual

    @property
    def target(self) -> Target:
        """The first target."""
        return self.targets[0]

    @property
    def kinds(self) -> tuple[Kinds, Kinds]:
        """The kinds of the columns of nodes and of edges, by name."""
        return {one.name: one.kind for one in self.columns}, {one.name: one.kind for one in self.edges}

    @property
    def weight(self) -> str:
        """The column that says how much each edge counts, or nothing."""
        return self.names.get("weight", "")

    def asked(self, asked: Asked) -> Asked:
        """What is wanted of tables that are read as those that trained."""
        return replace(asked, known=self.kinds, found=self.names)

    def to_plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        read_by = self.sure or (Sure(),) * len(self.targets)
        targets = [
            plain(target)
            | (dict(zip(("mean", "deviation"), scale, strict=True)) if target.kind == "number" else {})
            | sure.to_plain()
            for target, scale, sure in zip(self.targets, self.scales, read_by, strict=True)
        ]
        columns = {"columns": to_plain(self.columns), "edge_columns": to_plain(self.edges)}
        return {"targets": targets, **columns, "names": self.names, "parallel": self.parallel}

    @classmethod
    def from_plain(cls, content: dict[str, Any]) -> Self:
        """What `to_plain` wrote."""
        scales = [(one.pop("mean", 0.0), one.pop("deviation", 1.0)) for one in content["targets"]]
        columns, edges = from_plain(content["columns"]), from_plain(content["edge_columns"])
        rest = {name: content[name] for name in ("targets", "names", "parallel") if name in content or edges}
        try:
            made = build(cls, rest | {"scales": scales}, "data")
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if any((one.kind == "class") != bool(one.classes) for one in made.targets):
            raise ValueError("the targets")
        return replace(made, columns=columns, edges=edges)


@dataclass(frozen=True)
class Settled:
    """Examples with what was fitted to them, their parts, and what is to be said of them.

    Symbols     changes = what has changed since a run kept them, or which classes no example teaches, in sentences;
                few = whether they are but the few that the run keeps; files = what it is to keep: by the name of each
                file, under one folder or alone, what it holds or where it is copied from
    """

    given: Examples
    fitted: Fitted
    splits: Splits
    changes: tuple[str, ...] = ()
    few: bool = False
    files: Mapping[str, bytes | Path] = field(default_factory=dict)

    @property
    def weights(self) -> Tensor | None:
        """How much each example counts [N], with a mean of 1 among those that train; None: all alike.

        Errors      DataError where none that trains counts
        """
        if self.given.weights is None:
            return None
        counts, train = torch.from_numpy(self.given.weights), self.splits.get("train", torch.empty(0))
        mean = float((counts[train] if len(train) else counts).mean())
        if not mean > 0:
            what = f"the weight of all {self.given.unit} that train is 0: nothing would count"
            raise DataError(f"{self.given.place}: {what}")
        return counts / mean

    @property
    def first(self) -> list[int]:
        """The first examples of each part, in their order: those that a run keeps."""
        return sorted(row for split in SPLITS for row in self.splits[split][:FEW].tolist())

    def keep(self, run: Path) -> None:
        """Write what the run keeps of them."""
        rows = ((self.given.name(row), split) for split in SPLITS for row in self.splits[split].tolist())
        few = {} if isinstance(self.given, OneGraph) else {"few": [self.given.name(row) for row in self.first]}
        write(run, self.given, self.fitted, (self.given.unit[:-1], "part"), rows, **few)
        keep_files(run, self.files)


def settle(
    given: Examples,
    like: str,
    wanted: Wanted,
    how: How,
    same: Sequence[object] | None = None,
    fit: Callable[[Fitted, Splits], Fitted] = lambda fitted, splits: fitted,
) -> Settled:
    """The targets, the parts and the scales of examples: fitted anew, or as a run has kept them.

    Symbols     like = that run's folder, or empty; wanted = what labels are; how = the cut; same = what must not be in
                two parts; fit = adds what else is fitted to the examples that train
    Errors      DataError for labels that may be either, for parts that are empty, and for a target that is the same in
                all examples or unknown in all that train; for a cut of examples whose files name the parts
    """
    few = list[str]()
    if like:
        run = Path(like).expanduser()
        fitted, few = read(run), few_of(run, given.place)
        given = replace(given, names=few) if few else given
        splits, changes = parts(run, given, fitted)
        told = list[str]()
    else:
        targets = targets_of(given, wanted)
        splits, told = cut(targets, given, how, same)
        changes = untaught(targets, given, splits["train"])
        fitted = fit(Fitted(targets, scales=_scales(targets, given, splits["train"])), splits)
    _check(given, fitted.targets, splits)
    if blank := int((~known(fitted.targets, given)).sum()):
        told.append(f"{counted(blank, given.unit[:-1])} without a label, in no part")
    return Settled(replace(given, notes=(*given.notes, *told)), fitted, splits, tuple(changes), bool(few))


def targets_of(given: Examples, wanted: Wanted) -> tuple[Target, ...]:
    """What each target's labels are; all that are doubtful are one DataError."""
    made, problems = [], []
    for name, labels in zip(given.called, given.targets, strict=True):
        where = f"{given.files[0]}: {name}"
        try:
            if isinstance(labels, list) and wanted != "class":
                problems += _mixed(where, labels)
            made.append(target_of(labels, wanted, where, given.unit, name))
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise DataError(*problems)
    return tuple(made)


def _mixed(where: str, labels: Sequence[str]) -> list[str]:
    """The labels that are no numbers, in a column of which most are numbers with fractions."""
    present = [label for label in labels if label.strip().lower() not in UNKNOWN]
    values = numbers_of(present)
    finite = np.abs(values) <= LARGEST
    numbers = values[finite]
    fractions = bool((numbers != numbers.round()).any())
    if len(numbers) == len(present) or len(numbers) < MIXED * len(present) or not fractions:
        return []
    wrong = list(dict.fromkeys(label for label, number in zip(present, finite, strict=True) if not number))
    shown = listed([repr(label[:40]) for label in wrong], SHOWN)
    return [f"{where} holds numbers with fractions, and {shown}: empty such cells, or give --task.target class"]


def untaught(targets: Sequence[Target], given: Examples, train: Tensor) -> list[str]:
    """The classes that none of the examples that train is of, in a line for each target.

    Errors      DataError for a target that has one class, or that is unknown in all examples that train
    """
    said, unit = [], given.unit[:-1]
    for target, labels in zip(targets, given.targets, strict=True):
        if len(target.classes) == 1:
            only = target.classes[0][:40]
            raise DataError(f"{given.place}: {target.name}: all labels are {only!r}: one class leaves nothing to learn")
        there = target.known(labels)[train]
        if len(train) and not bool(there.any()):
            raise DataError(f"{given.place}: {target.name}: no {unit} that trains has a label")
        taught = target.values(labels)[train][there].unique().tolist() if target.kind == "class" else []
        lacking = [name for number, name in enumerate(target.classes) if number not in taught]
        if lacking and len(train):
            said.append(f"{target.name}: no {unit} that trains is of the class {listed(lacking, SHOWN)}")
    return said


def known(targets: Sequence[Target], given: Examples) -> Tensor:
    """Which examples have at least one label, [N]."""
    each = [target.known(labels) for target, labels in zip(targets, given.targets, strict=True)]
    return torch.stack(each).any(0) if each else torch.ones(len(given), dtype=torch.bool)


def cut(
    targets: Sequence[Target], given: Examples, how: How, same: Sequence[object] | None = None
) -> tuple[Splits, list[str]]:
    """The parts of the examples that have a label, those that are the `same` in one; and how they were cut, in lines.

    Errors      DataError for examples whose files name the parts, or do not; ConfigError for a stratified cut of what
                has no classes
    """
    rows = known(targets, given).nonzero()[:, 0]
    classes = targets[0].values(given.targets[0])[rows] if len(targets) == 1 and targets[0].classes else None
    if given.splits and how.cut in ("auto", "given") and not how.folds:
        return given.splits, _twice(given, same)
    if given.splits or how.cut == "given":
        what = "the files name no parts: a column split with train, valid and test does"
        if given.splits:
            asked = "--folds" if how.folds else f"--task.{'' if how.cut in ('group', 'time') else 'cut '}{how.cut}"
            what = f"the files name the parts, and {asked} makes others: give --task.ignore split, or leave out {asked}"
        raise DataError(f"{given.place}: {what}")
    if how.cut == "stratified" and classes is None:
        raise ConfigError("--task.cut stratified is by classes of one target: choose random, or leave it out")
    how = replace(how, cut="random" if classes is None else "stratified") if how.cut == "auto" else how
    keys = [[one[row] for row in rows.tolist()] for one in (same, given.groups) if one is not None]
    units, times = joined(*keys) if keys else None, torch.empty(0)
    if given.times is not None:
        times = torch.from_numpy(given.times.values)
    made = divided(how, len(rows), units, classes, times[rows] if how.cut == "time" else None)
    splits = {split: rows[chosen] for split, chosen in made.items()}
    if given.times is not None and how.cut == "time":
        return splits, [in_words(given.times, times, splits, given.unit)]
    told = {"random": "at random", "stratified": f"with equal shares of each {targets[0].name if targets else ''}"}
    if given.groups is not None:
        groups = {split: {given.groups[row] for row in chosen.tolist()} for split, chosen in splits.items()}
        told[how.cut] = f"by {how.group or how.cut}, of which there are {sizes(groups)}"
    fold = f", fold {how.fold % how.folds} of {how.folds} tests" if how.folds else ""
    return splits, [f"{given.unit} cut {told[how.cut]}{fold}"]


def _twice(given: Examples, same: Sequence[object] | None) -> list[str]:
    """A line for each held-out part whose examples are there in training too, where the files name the parts."""
    if same is None:
        return []
    train = {same[row] for row in given.splits["train"].tolist()}
    found = [(split, sum(same[row] in train for row in given.splits[split].tolist())) for split in SPLITS[1:]]
    return [f"{counted(count, given.unit[:-1])} of the {split} part train too" for split, count in found if count]


def with_validation(splits: Splits, fold: int, same: Sequence[object]) -> Splits:
    """Parts that are named but for validation: a fifth of what trains, at random, examples that are the `same` in one
    part. Any others stay as they are."""
    if not splits or len(splits["valid"]) or not len(splits["train"]):
        return splits
    rows = splits["train"]
    units = joined([same[row] for row in rows.tolist()])
    order = torch.randperm(int(units.max()) + 1, generator=torch.Generator().manual_seed(fold))
    held = torch.isin(units, order[: len(order) // 5])
    return splits | {"train": rows[~held], "valid": rows[held]}


def _scales(targets: Sequence[Target], given: Examples, train: Tensor) -> tuple[tuple[float, float], ...]:
    """Of each target the mean and the deviation of the values that train; 0 and 1 of classes."""
    made = []
    for target, labels in zip(targets, given.targets, strict=True):
        values = target.values(labels)[train]
        values = values[~values.isnan()] if target.kind == "number" else values[:0]
        made.append(scale_of(values) if len(values) else (0.0, 1.0))
    return tuple(made)


def _check(given: Examples, targets: Sequence[Target], splits: Splits) -> None:
    """Refuse parts that are empty, or that have an example without a label."""
    have, unit = known(targets, given), given.unit[:-1]
    for split in SPLITS:
        rows = splits[split]
        if len(rows) == 0:
            every, at = sum(map(len, splits.values())), given.files[0] if len(given.files) == 1 else given.place
            raise DataError(f"{at}: no {unit} is in the {split} split, of {every:,} in all")
        if bool((~have[rows]).any()):
            blank = given.name(int(rows[~have[rows]][0]))
            raise DataError(f"{given.place}: {unit} {blank} of the {split} split has no label")


def labels_in(names: str, like: str) -> tuple[str, ...]:
    """The columns with targets that are listed, or else those of the run in a folder, if there is one; empty: found."""
    kept = read(Path(like).expanduser()).targets if like else ()
    return names_in(names) or tuple(target.name for target in kept)


def names_in(names: str) -> tuple[str, ...]:
    """The names of a list with commas between them, each once.

    >>> names_in("from, to"), names_in("to,to"), names_in("")
    (('from', 'to'), ('to',), ())
    """
    return tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def write(
    run: Path,
    given: Examples,
    fitted: Fitted,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    **names: Sequence[str],
) -> None:
    """Write both files into a run folder, the split as rows of these columns: names of examples, and their part.

    Symbols     names = what else is kept in order, by what it is, such as entities
    Errors      DataError for files that would be longer than those that are read
    """
    content = {"unit": given.unit, given.unit: len(given), **given.counts, "named": given.names is not None, **names}
    files = {_place(given, file): about(file) for file in given.files}
    data = json.dumps(content | {"files": files} | fitted.to_plain(), indent=1, ensure_ascii=False).encode()
    _check_size(given.place, "files and columns", len(data), MAX_DATA)
    with whole(run / SPLIT, alone=True) as unfinished:
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *rows])
        _check_size(given.place, "parts", unfinished.stat().st_size, MAX_BYTES)
    write_file(run / DATA, data)
    if given.skipped:
        with whole(run / SKIPPED, alone=True) as place, place.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("reason",), *((one,) for one in given.skipped)])


def check_count(place: Path, names: Sequence[str]) -> None:
    """Refuse more files, examples each, than a run can keep, before any is read."""
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


def keep_files(run: Path, files: Mapping[str, bytes | Path]) -> None:
    """Write files into the folder of a run that stands in for its data where these are gone.

    Errors      ConfigError where the run has something else that is called so
    """
    if not files:
        return
    if (run / KEPT).exists():
        raise ConfigError(f"{run / KEPT} is there already, where the run would keep data: name another run folder")
    unfinished = run / f".writing-{KEPT}"
    rmtree(unfinished, ignore_errors=True)
    for name, content in files.items():
        write_file(unfinished / name, content if isinstance(content, bytes) else content.read_bytes())
    unfinished.rename(run / KEPT)


def files_of(given: Examples) -> dict[str, bytes | Path]:
    """The files of one graph, to be kept whole; none of those that are too large."""
    size = sum(file.stat().st_size for file in given.files)
    folder = folder_name(given.place) or KEPT
    return {f"{folder}/{file.name}": file for file in given.files} if size <= MAX_KEPT else {}


def few_of(run: Path, place: Path) -> list[str]:
    """The names of the examples that a run keeps, in order, where these are the data; else none."""
    if not place.resolve().is_relative_to((run / KEPT).resolve()):
        return []
    return names_kept(run, "few")


def names_kept(run: Path, what: str) -> list[str]:
    """Names that `write` was given; none where it was given none."""
    content = read_json(run / DATA, "what a run keeps of its data", MAX_DATA)
    with reading(run / DATA, f"what a run keeps of its data, with {what}"):
        return [*map(str, content.get(what, []))]


def write_pairs(
    run: Path,
    files: Sequence[Path],
    unit: str,
    splits: Splits,
    columns: Mapping[str, str],
    names: Mapping[str, Sequence[str]],
    fitted: Fitted = Fitted(()),
) -> None:
    """Write what a run keeps of tuples of names, such as facts, as `write`: the tuples of each part, and all names.

    Symbols     splits = tuples of numbers [M, K]; columns = for each place in a tuple what is there, and of which
                names; fitted = what was fitted to what is known of those with these names
    """
    place = files[0].parent if files else run
    given = Examples(place, tuple(files), unit, sum(map(len, splits.values())), names=[])
    rows = ((split, row) for split in SPLITS for row in splits[split].tolist())
    each = [names[of] for of in columns.values()]
    named = ((*(own[one] for own, one in zip(each, row, strict=True)), split) for split, row in rows)
    write(run, given, fitted, (*columns, "part"), named, **names)


def read_pairs(
    run: Path, files: Sequence[Path], unit: str, of: Sequence[str]
) -> tuple[list[list[str]], Splits, list[str]]:
    """What `write_pairs` wrote: the names that are each place's, the parts, and what has changed in the files since.

    Symbols     files = those that are there today; of = of which names each place of a tuple is
    """
    known = {what: names_kept(run, what) for what in of}
    numbers = [{name: number for number, name in enumerate(known[what])} for what in of]
    made: dict[Any, list[list[int]]] = {split: [] for split in SPLITS}
    with reading(run / SPLIT, "the split of a run"):
        for *row, part in rows_kept(run):
            made[part].append([own[name] for own, name in zip(numbers, row, strict=True)])
    there = [file for file in files if file.is_file()]
    changes = ["its files are gone: what it recorded of them is read"]
    if there and (changes := changes_of(run, Examples(there[0].parent, tuple(there), unit, 0, names=[]))):
        changes.append(f"{unit} that are new are in no part of the run's split, and read by no model")
    splits: Splits = {split: torch.tensor(rows, dtype=torch.int64).reshape(-1, len(of)) for split, rows in made.items()}
    return [known[what] for what in of], splits, changes


def to_measure(
    place: Path,
    unit: str,
    rows: Sequence[Sequence[str]],
    of: Sequence[Mapping[str, int]],
    known: Tensor,
    pairs: bool = False,
) -> tuple[Tensor, tuple[str, ...]]:
    """Tuples of names in other files as numbers [M, K], each once; and which of them are left out, in sentences.

    Symbols     of = the numbers of the names at each place of a tuple; known = tuples that trained or chose the
                weights; pairs = whether tuples are pairs without an order
    Errors      DataError where none is left
    """
    strange = dict.fromkeys(name for row in rows for name, own in zip(row, of, strict=True) if name not in own)
    numbers = [tuple(own.get(name, -1) for name, own in zip(row, of, strict=True)) for row in rows]
    before, within = {*map(tuple, known.tolist())}, [row for row in numbers if -1 not in row]
    found = dict.fromkeys(tuple(sorted(row)) for row in within) if pairs else dict.fromkeys(within)
    made, told = [row for row in found if row not in before], list[str]()
    if lost := len(rows) - len(within):
        what = f"with names that the run has not: {listed([*strange])}"
        told.append(f"{place}: left out {lost:,} of {len(rows):,} {unit}, {what}")
    if trained := len(found) - len(made):
        told.append(f"{place}: left out {trained:,} of {len(rows):,} {unit}, which trained or chose the weights")
    if not made:
        raise DataError(*told, f"{place}: nothing can be measured: no {unit} are {'left' if told else 'there'}")
    return torch.tensor(made, dtype=torch.int64), tuple(told)


def stand_in(run: Path) -> Path | None:
    """What stands in for a run's data where these are gone: the folder or table that it keeps, if there is one."""
    there = sorted((run / KEPT).iterdir()) if (run / KEPT).is_dir() else []
    return next((place for place in there if not place.name.startswith(".")), None)


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
    changes, unit = [] if few_of(run, given.place) else changes_of(run, given), given.unit
    if given.called != (called := tuple(target.name for target in fitted.targets)):
        was, now = ", ".join(called) or "none", ", ".join(given.called) or "none"
        raise DataError(f"{given.place}: the run was trained with the targets {was}, not {now}")
    made, lacking = {split: list[int]() for split in SPLITS}, list[str]()
    with reading(run / SPLIT, "the split of a run"):
        for name, part in rows_kept(run):
            if name in given.number_of:
                made[part].append(given.number_of[name])  # type: ignore[index]
            else:
                lacking.append(name)
    splits: dict[Split, Tensor] = {split: torch.tensor(rows, dtype=torch.int64) for split, rows in made.items()}
    if not changes:
        return splits, []
    if lacking:
        changes.append(f"no longer there, of the run's split: {listed(lacking)}")
    have, inside = known(fitted.targets, given), np.zeros(len(given), dtype=bool)
    for split, rows in splits.items():
        inside[rows.numpy()] = True
        if blank := [given.name(row) for row in rows[~have[rows]].tolist()]:
            changes.append(f"without a label now, of the {split} split: {listed(blank)}")
            splits[split] = rows[have[rows]]
    if new := int((have.numpy() & ~inside).sum()):
        changes.append(f"{unit} with a label in no part of the run's split, by which nothing is measured: {new:,}")
    for target, labels in zip(fitted.targets, given.targets, strict=True):
        if strange := target.strangers(labels):
            changes.append(f"{unit} with other labels than the run's count as unlabelled: {listed(strange)}")
    return splits, changes


def rows_kept(run: Path) -> Iterator[list[str]]:
    """The rows of the split that `write` wrote, without their head."""
    rows = csv.reader(lines_of(run / SPLIT, read_bytes(run / SPLIT, MAX_BYTES)), strict=True)
    next(rows)
    yield from rows


def write_cut(run: Path, given: Examples, cut: LinkCut, fitted: Fitted) -> None:
    """Write the parts of links, and the pairs without a link, by the names of their nodes; and the rest as `write`."""
    rows = ((part, pair) for part in PARTS for pair in getattr(cut, part).T.tolist())
    named = ((given.name(i), given.name(j), part) for part, (i, j) in rows)
    write(run, given, fitted, ("source", "target", "part"), named)


def read_cut(run: Path, given: Examples, graph: Graph) -> tuple[LinkCut, list[str]]:
    """The run's cut among the links that there are now, and what has changed in the data since, in sentences.

    Symbols     graph = all links of today
    Errors      DataError: files that are no such record, or no link of a part that is still there
    Edge cases  a link that is no longer there leaves its part, a pair that has become linked too; new links are in no
                part, and in no graph that the model reads
    """
    changes, rows_of, nodes = changes_of(run, given), given.number_of, len(given)
    ends: dict[str, list[tuple[int, int]]] = {part: [] for part in PARTS}
    lacking: set[str] = set()
    with reading(run / SPLIT, "the cut of a run's links"):
        for i, j, part in rows_kept(run):
            if i in rows_of and j in rows_of:
                ends[part].append((rows_of[i], rows_of[j]))
            else:
                lacking.update({i, j} - rows_of.keys())
    if lacking:
        changes.append(f"no longer there, of the run's split: {listed(sorted(lacking))}")
    pairs = {part: torch.tensor(some, dtype=torch.int64).reshape(-1, 2).sort(1).values.T for part, some in ends.items()}
    if changes:
        now = _codes(links_of(graph), nodes)
        for part, those in pairs.items():
            linked = torch.isin(_codes(those, nodes), now)
            pairs[part] = those[:, ~linked if part.endswith("_none") else linked]
            if gone := those.shape[1] - pairs[part].shape[1]:
                what, now_are = ("pair", "linked now") if part.endswith("_none") else ("link", "no longer there")
                changes.append(f"left out of {part.removesuffix('_none')}: {counted(gone, what)}, {now_are}")
        own = torch.cat([_codes(pairs[part], nodes) for part in ("train", "valid", "test")])
        if new := int((~torch.isin(now, own)).sum()):
            changes.append(f"{counted(new, 'link')} in no part of the run's split, read by no model")
    for part in PARTS:
        if not pairs[part].shape[1]:
            what = "pairs without a link" if part.endswith("_none") else "links"
            split = part.removesuffix("_none")
            raise DataError(f"{given.place}: of the {what} of {run}, none of the {split} split is there")
    train = pairs["train"]
    seen = Graph.from_edge_index(torch.cat([train, train.flip(0)], 1), nodes)
    return LinkCut(seen, *(pairs[part] for part in PARTS)), changes


def _codes(pairs: Tensor, nodes: int) -> Tensor:
    """A number for each pair of a low and a high one."""
    return pairs[0] * nodes + pairs[1]


def strange_levels(columns: Sequence[Column], encodings: Sequence[Encoding]) -> Iterator[str]:
    """In sentences, the categories that training never saw, and the gaps where it saw none."""
    for one, column in zip(encodings, columns, strict=True):
        if gaps := one.filled(column):
            yield f"{column.name}: missing in {gaps:,} rows, but in none that the model was trained on: its mean is set"
        if unknown := one.unknown(column):
            yield f"{column.name}: {listed(unknown)} did not occur when the model was trained: no level is set"


def listed(names: Sequence[str], most: int = LISTED) -> str:
    """Some names, the first ones in full."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(one[:42] for one in names[:most]) + more
