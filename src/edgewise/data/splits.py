"""Which examples train, choose the weights and test: every way in which a task cuts its data. The draws must never
change: the figures of docs/results.md rest on them."""

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import ConfigError, DataError, a_kind

Split = Literal["train", "valid", "test"]
Splits = dict[Split, Tensor]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
FOLDS = 10  # of those tasks that report a mean over folds
Array = np.ndarray[Any, np.dtype[Any]]


def cut(order: Tensor, ends: Sequence[int], dim: int = 0) -> Splits:
    """The examples in a given order, cut where training and validation end.

    Example
        >>> {split: part.tolist() for split, part in cut(torch.tensor([3, 1, 0, 2]), (2, 3)).items()}
        {'train': [3, 1], 'valid': [0], 'test': [2]}
    """
    return dict(zip(SPLITS, (part.flatten() for part in order.tensor_split(list(ends), dim)), strict=True))


def fixed(train: int, valid: int, test: int) -> Splits:
    """The first `train` examples, the next `valid` and the last `test`."""
    return cut(torch.arange(train + valid + test), (train, train + valid))


def shuffled(count: int, seed: int, ends: tuple[float, float] = (0.8, 0.9)) -> Splits:
    """All examples at random, by a seed alone; training and validation end at shares of them. Each part ascends.

    Example
        >>> {split: len(rows) for split, rows in shuffled(1128, 0).items()}
        {'train': 902, 'valid': 113, 'test': 113}
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return ascending(cut(order, [round(end * count) for end in ends]))


def by_time(times: Tensor, ends: tuple[float, float] = (0.6, 0.8)) -> Splits:
    """Examples by their time: the earliest train, the latest test; those of one time are in one part. Each ascends.

    Symbols     ends = shares of the examples at which training and validation end, at the latest
    Errors      DataError for fewer than three different times
    Edge cases  where one time alone has more than its share, a part ends later: each has one at least

    Example
        >>> {split: rows.tolist() for split, rows in by_time(torch.tensor([5, 1, 2, 9, 5, 1])).items()}
        {'train': [1, 2, 5], 'valid': [0, 4], 'test': [3]}
    """
    late = times.sort().values
    first, count = [int(torch.searchsorted(late, time)) for time in late.unique().tolist()], len(late)
    if len(first) < len(SPLITS):
        raise DataError(f"{len(first)} different times of {count} examples do not make three parts")
    train = max((place for place in first[1:-1] if place <= ends[0] * count), default=first[1])
    later = [place for place in first if place > train]
    valid = max((place for place in later if place <= ends[1] * count), default=later[0])
    return ascending(cut(times.argsort(stable=True), (train, valid)))


def by_class(labels: Tensor, seed: int, ends: tuple[float, float] = (0.6, 0.8)) -> Splits:
    """As `shuffled`, class by class: each part has its share of every class.

    Example
        >>> {split: len(chosen) for split, chosen in by_class(torch.tensor([0, 1] * 5), 0).items()}
        {'train': 6, 'valid': 2, 'test': 2}
    """
    generator = torch.Generator().manual_seed(seed)
    parts: list[Splits] = []
    for label in labels.unique().tolist():
        own = (labels == label).nonzero()[:, 0]
        own = own[torch.randperm(len(own), generator=generator)]
        parts.append(cut(own, [round(end * len(own)) for end in ends]))
    return ascending({split: torch.cat([part[split] for part in parts]) for split in SPLITS})


Cut = Literal["auto", "random", "stratified", "group", "time", "given"]
MoleculeCut = Literal["auto", "random", "stratified", "scaffold", "group", "time", "given"]
FEW, MANY = (0.6, 0.2, 0.2), (0.8, 0.1, 0.1)  # the parts' shares of one's own data
ENOUGH = 1000  # examples, so that a tenth of them measures something


@dataclass(frozen=True)
class How:
    """How examples of one's own are cut.

    Symbols     cut = "auto": as the files say, else by what is named, else stratified where there are classes, else at
                random; fold = seed of the draws; or of cross-validation in `folds` parts the part that tests, counted
                on through further draws: 7 of 5 folds is part 2 of the second; group, time = columns, empty: none, or
                of times the only one there is
    Errors      ConfigError for a cut that lacks its column, or that has no folds
    """

    cut: MoleculeCut = "auto"
    fold: int = 0
    folds: int = 0
    group: str = ""
    time: str = ""

    def __post_init__(self) -> None:
        columns: dict[str, Cut] = {"--task.group": "group", "--task.time": "time"}
        asked = [cut for name, cut in columns.items() if getattr(self, cut)]
        if len({*asked, self.cut} - {"auto"}) > 1:
            given = [f"--task.{cut}" for cut in asked] + [f"--task.cut {self.cut}"] * (self.cut != "auto")
            raise ConfigError(f"{' and '.join(given)} are different cuts: leave one out")
        object.__setattr__(self, "cut", asked[0] if asked else self.cut)
        if self.cut == "group" and not self.group:
            raise ConfigError("--task.cut group needs --task.group, the column of what stays together")
        if self.folds and (self.folds < 2 or self.fold < 0):
            raise ConfigError(f"task.folds must be at least 2 and task.fold 0, not {self.folds} and {self.fold}")
        if self.folds and self.cut in ("time", "given"):
            what = f"a cut {'by time' if self.cut == 'time' else 'that is given'} has one test part"
            raise ConfigError(f"{what}: no cross-validation tests each example once: leave out --folds")


def divided(
    how: How, count: int, units: Tensor | None = None, classes: Tensor | None = None, times: Tensor | None = None
) -> Splits:
    """Examples cut as is wanted: the one function by which all kinds of one's own data are cut. Each part ascends.

    Symbols     units [N] = those of one number are in one part, 0, 1, ... in order of their first examples; classes [N]
                = of each the class, for a stratified cut; times [N] = when each is: the earliest train, the latest test
    Errors      DataError for fewer units or times than parts
    Edge cases  60 % of fewer than 1,000 examples train, 20 % choose and 20 % test; of more 80, 10 and 10 %;
                units are stratified by the class of their first example, and dated by their last; classes of one unit
                train, unless there are many; parts by group or scaffold have their shares of examples as nearly as
                whole groups can

    Example
        >>> parts = [divided(How("stratified", fold, 5), 10, classes=torch.arange(10) % 2) for fold in range(5)]
        >>> sorted(row for part in parts for row in part["test"].tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    units = torch.arange(count) if units is None else units
    sizes = torch.bincount(units)
    shares, cards = (MANY, (0, 1, 0, 0, 0, 2, 0, 0, 0, 0)) if count >= ENOUGH else (FEW, (0, 1, 0, 2, 0))
    ends = (shares[0], 1 - shares[2])
    if times is not None:
        latest = times.new_zeros(len(sizes)).scatter_reduce(0, units, times, "amax", include_self=False)
        return by_time(latest[units], ends)
    grouped, wanted = how.cut in ("group", "scaffold"), how.folds or len(SPLITS)
    if len(sizes) < wanted:
        what = f"values of {how.group}" if how.group else "scaffolds" if grouped else "examples"
        raise DataError(f"{len(sizes)} different {what} do not make {wanted} {'folds' if how.folds else 'parts'}")
    draw, fold = divmod(how.fold, how.folds) if how.folds else (how.fold, 0)
    order, part_of = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(draw)), torch.zeros_like(sizes)
    keys = (sizes <= count / 10).long() if grouped else torch.zeros_like(sizes)  # large groups are dealt first
    if how.cut == "stratified" and classes is not None:
        first = torch.zeros_like(sizes).scatter_reduce(0, units, torch.arange(count), "amin", include_self=False)
        keys = classes[first]
        if not how.folds:
            alone = keys.bincount()[keys[order]] == 1
            order = order[~alone] if 5 * int(alone.sum()) < len(order) else order
    order = order[keys[order].argsort(stable=True)]

    def dealt_out(order: Tensor, shares: Sequence[float], cards: Sequence[int]) -> Tensor:
        if grouped:
            return _filled(sizes[order], shares)
        return torch.tensor(cards)[torch.arange(len(order)) % len(cards)]

    if how.folds:
        fold_of = dealt_out(order, [1 / how.folds] * how.folds, range(how.folds))
        part_of[order[fold_of == fold]], order = 2, order[fold_of != fold]
        part_of[order] = dealt_out(order, (0.8, 0.2), (0, 1, 0, 0, 0))
    elif how.cut == "random":
        for number, rows in enumerate(shuffled(len(sizes), draw, ends).values()):
            part_of[rows] = number
    else:
        part_of[order] = dealt_out(order, shares, cards)
    return {split: (part_of[units] == number).nonzero()[:, 0] for number, split in enumerate(SPLITS)}


def _filled(sizes: Tensor, shares: Sequence[float]) -> Tensor:
    """The part of each group, in order: the one that lacks most of its share, or of the empty while few are left."""
    lacking, made, empty = [share * int(sizes.sum()) for share in shares], list[int](), {*range(len(shares))}
    for left, size in zip(range(len(sizes), 0, -1), sizes.tolist(), strict=True):
        part = max(empty if left <= len(empty) else range(len(shares)), key=lambda one: (lacking[one], -one))
        lacking[part] -= size
        empty.discard(part)
        made.append(part)
    return torch.tensor(made)


def joined(*keys: Sequence[object]) -> Tensor:
    """The units of examples that share a key, of any kind, with one another: [N], in order of their first examples.

    Example
        >>> joined(["a", "b", "c", "d"], [1, 2, 1, 3]).tolist()
        [0, 1, 0, 2]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    coded = [_coded(one) for one in keys]
    units = coded[0]
    for other in coded[1:]:
        count = int(units.max()) + 1
        ends, places = (units.numpy(), other.numpy() + count), count + int(other.max()) + 1
        links = coo_array((np.ones(len(units)), ends), shape=(places, places))
        units = _coded(connected_components(links, directed=False)[1][units.numpy()].tolist())
    return units


def _coded(keys: Sequence[object]) -> Tensor:
    numbers: dict[object, int] = {}
    return torch.tensor([numbers.setdefault(key, len(numbers)) for key in keys], dtype=torch.int64)


def ascending(splits: Splits) -> Splits:
    """The same parts, each in ascending order."""
    return {split: rows.sort().values for split, rows in splits.items()}


def dealt(labels: Tensor, seed: int, folds: int = FOLDS) -> list[Tensor]:
    """Folds dealt out like cards, class after class, each shuffled by `numpy.random.RandomState(seed)`.

    Example
        >>> [len(fold) for fold in dealt(torch.arange(25) % 2, seed=0)]
        [3, 3, 3, 3, 3, 2, 2, 2, 2, 2]
    """
    random = np.random.RandomState(seed)
    classes = [np.flatnonzero(labels.numpy() == label) for label in labels.unique().tolist()]
    cards = np.concatenate([random.permutation(members) for members in classes])
    return [torch.from_numpy(np.sort(cards[fold::folds])) for fold in range(folds)]


def held_out(chosen: Tensor, labels: Array | None, fold: int, folds: int = FOLDS) -> tuple[Tensor, Tensor]:
    """Of the chosen examples all but one of the folds, and that fold: scikit-learn's, shuffled with seed 0.

    Symbols     labels = the class of every example, which each fold then has in proportion; None: no classes
    Errors      ConfigError for a fold that there is none of, DataError for too few examples
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    if not 0 <= fold < folds:
        raise ConfigError(f"task.fold must be one of 0 to {folds - 1}, not {fold}")
    make, numbers = KFold if labels is None else StratifiedKFold, chosen.numpy()
    try:
        parts = make(folds, shuffle=True, random_state=0).split(numbers, None if labels is None else labels[numbers])
        rest, held = list(parts)[fold]
    except ValueError as error:
        raise DataError(f"{len(chosen)} examples cannot be cut into {folds} folds: {error}") from error
    return chosen[torch.from_numpy(rest)], chosen[torch.from_numpy(held)]


def named(names: Sequence[str], place: Callable[[int], str]) -> Splits:
    """The examples by the name of their split; one without a name is in none.

    Symbols     place(n) = where the data says so of example n, for the DataError about a name that is no split
    """
    parts: dict[Split, list[int]] = {split: [] for split in SPLITS}
    for number, name in enumerate(names):
        if name in parts:
            parts[name].append(number)
        elif name:
            raise DataError(f"{place(number)}: the split {name[:40]!r} is none of {', '.join(SPLITS)}")
    return {split: torch.tensor(numbers, dtype=torch.int64) for split, numbers in parts.items()}


def check_splits(splits: Mapping[Any, Tensor], labels: Tensor, classes: bool, unit: str) -> None:
    """Refuse to train or choose the weights without examples, and any example of a split without a label.

    Symbols     labels = classes [N], below 0 where unknown; or values [N], NaN where unknown, of several targets [N, T]
    Errors      DataError that names the split and the first such example
    Edge cases  where all are empty, nothing trains
    """
    for split in ("train", "valid") if any(map(len, splits.values())) else ():
        if len(splits[split]) == 0:
            raise DataError(f"no {unit} is in the {split} split")
    unknown = labels < 0 if classes else labels.isnan()
    unknown = unknown.flatten(1).all(1) if labels.ndim > 1 else unknown
    for split, rows in splits.items():
        if bool((lacking := unknown[rows]).any()):
            raise DataError(f"{unit} {int(torch.as_tensor(rows)[lacking][0])} of the {split} split has no label")


def check_listed(splits: Mapping[Any, Tensor], count: int, unit: str, needed: Sequence[Split] = SPLITS) -> None:
    """Refuse splits that do not list examples by their numbers, which are below `count`, with a DataError."""
    for split in (*needed, *(other for other in splits if other not in needed)):
        if split not in splits:
            raise DataError(f"splits have no {split!r}: each of {', '.join(SPLITS)} lists its {unit}s")
        numbers = numbers_in(splits, split, unit)
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
            first, last = int(numbers.min()), int(numbers.max())
            raise DataError(f"the {split} split has {unit}s {first} to {last}, of 0 to {count - 1}")


def numbers_in(splits: Mapping[Any, Any], split: Split, unit: str) -> Tensor:
    """The numbers of a split's examples [M], given as a tensor, an array or a list; what lists none is a DataError."""
    rows = splits[split]
    try:
        numbers = torch.as_tensor(rows)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"the {split} split must list its {unit}s by their numbers, not as {a_kind(rows)}") from None
    if numbers.dtype == torch.bool:
        raise DataError(f"the {split} split is a mask: mask.nonzero()[:, 0] lists its {unit}s")
    if numbers.ndim != 1 or (len(numbers) and (numbers.is_floating_point() or numbers.is_complex())):
        what = f"{list(numbers.shape)} of {str(numbers.dtype).removeprefix('torch.')}"
        raise DataError(f"the {split} split must list its {unit}s by their numbers, [M] of int64, not {what}")
    return numbers.long()


def check_apart(splits: Mapping[Any, Tensor], unit: str, file: str = "") -> None:
    """Refuse an example that a split lists twice, as the numbers of a mask do, or that two splits list.

    Symbols     file = begins the DataError's message
    """
    parts = {split: torch.as_tensor(rows).long() for split, rows in splits.items()}
    numbers, times = torch.cat([torch.arange(0), *parts.values()]).unique(return_counts=True)
    if len(again := numbers[times > 1]) == 0:
        return
    found = {split: count for split, rows in parts.items() if (count := int((rows == again[0]).sum()))}
    for split, count in found.items():
        if count > 1:
            told = f"the {split} split lists {unit} {int(again[0])} {count} times: if it is a mask, it must be bool"
            raise DataError(f"{file}{told}")
    raise DataError(f"{file}{unit} {int(again[0])} is in two splits, {' and '.join(list(found)[:2])}")


def sizes(splits: Mapping[Any, Sized]) -> str:
    """How many examples each split has.

    Example
        >>> sizes({"train": range(1000), "valid": range(5)})
        '1,000 train, 5 valid'
    """
    return ", ".join(f"{len(examples):,} {split}" for split, examples in splits.items())
