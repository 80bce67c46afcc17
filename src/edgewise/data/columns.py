"""Columns of a table: what they hold, features and targets, is read off their cells, fitted to the rows that train."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from edgewise.data.table import CODE, LARGEST, SHOWN, Called, Table, numbers_of, wrong
from edgewise.data.words import BOOLEAN, ENDS, EUROPEAN, ISO, MISSING, SLASHED, TOKEN, TRUTHS, UNKNOWN, day_of, tfidf
from edgewise.errors import DataError

LISTED = 100  # columns that have a line of their own
MAX_LEVELS = 100  # of a category, each of which is a feature
MAX_WORDS = 300  # of texts, likewise: the commonest
WORDS = 3  # that a text has at least: shorter ones are names
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NODES = ("node", "id", "node_id", "nodeid")  # the columns that name the nodes

Array = np.ndarray[Any, np.dtype[Any]]
Kind = Literal["number", "boolean", "date", "category", "text"]
CODED = ("category", "text")  # whose values are places among levels


@dataclass(frozen=True)
class Column:
    """What a column holds.

    Symbols     at = what a row is called in a message
    Shapes      values [N]: numbers, of dates days since 1970, or of a category or text the level's place, -1 where
                there is none; present [N]: the cells that hold a value
    """

    name: str
    kind: Kind
    values: Array
    present: np.ndarray[Any, np.dtype[np.bool_]]
    levels: tuple[str, ...] = ()
    at: Callable[[int], str] = field(default="row {}".format, repr=False, compare=False)

    def taken(self, rows: Array) -> Self:
        """Some of its rows, in that order."""
        if len(rows) == len(self.values) and bool((rows[:-1] < rows[1:]).all()):
            return self
        at = self.at
        return replace(self, values=self.values[rows], present=self.present[rows], at=lambda n: at(int(rows[n])))

    def with_rows(self, later: Self) -> Self:
        """Its rows, and after them those of a column of the same kind."""
        levels = tuple(dict.fromkeys((*self.levels, *later.levels)))
        values = later.values
        if self.kind in CODED:
            values = np.array([*(levels.index(level) for level in later.levels), -1], dtype=np.int32)[values]
        values, present = np.append(self.values, values), np.append(self.present, later.present)
        return replace(self, values=values, present=present, levels=levels)

    def texts(self, rows: Array) -> list[str]:
        """Some of its cells as texts that are read as what they are, "" where there is no value."""
        as_text: Callable[[float], str] = repr
        if self.kind in CODED:
            as_text = lambda level: self.levels[int(level)]  # noqa: E731
        elif self.kind == "date":
            as_text = lambda day: (EPOCH + timedelta(day)).isoformat()  # noqa: E731
        cells = zip(self.values[rows].tolist(), self.present[rows].tolist(), strict=True)
        return [as_text(value) if present else "" for value, present in cells]

    def __str__(self) -> str:
        missing = int((~self.present).sum())
        gaps = f", missing in {missing:,} rows" if missing else ""
        levels = (
            f" of {len(self.levels)}" if self.kind == "category" else ", TF-IDF of its words" * (self.kind == "text")
        )
        return f"{self.name} (a {self.kind}{levels}{gaps})"


def in_lines(columns: Sequence[Column], prefix: str = "") -> list[str]:
    """How columns were read, a line for each; of more than `LISTED` how many there are beside the first ones."""
    more = [f"{prefix}and {len(columns) - LISTED:,} more columns, which are read too"] if len(columns) > LISTED else []
    return [*(f"{prefix}{column}" for column in columns[:LISTED]), *more]


def read_columns(
    table: Table, names: Sequence[str], known: Mapping[str, Kind] | None = None
) -> tuple[list[Column], list[str]]:
    """What some columns of a table hold: numbers, truth values, dates, categories or texts; and what is wrong with
    others.

    Symbols     known = the kinds of columns that are not guessed, since they were read before
    Edge cases  `MISSING` lists the cells that hold no value. A column of which at least half of the values are numbers
                is one of numbers, so that other cells of it are wrong, and so with dates; texts are categories where
                they repeat, else texts of words where most have at least `WORDS`; numbers with zeros before them, as
                007, are texts
    """
    found, problems = list[Column](), list[tuple[str, ...]]()
    at = replace(table, columns={}).at  # without the columns, which need not stay in memory
    for name in names:
        try:
            found.append(replace(_column(table, name, (known or {}).get(name)), at=at))
        except DataError as error:
            problems.append(error.args)
    more = [f"{table.path}: and {len(problems) - SHOWN} more columns"] if len(problems) > SHOWN else []
    return found, [*(line for lines in problems[:SHOWN] for line in lines), *more]


def _column(table: Table, name: str, known: Kind | None) -> Column:
    values = table.values(name) if known in (None, "number", "boolean") else np.empty(0)
    if known in (None, "number", "boolean") and not _is_mixed(table, name, values):
        return _numbers(table, name, values, ~np.isnan(values), known)
    levels, place = table.levels(name)
    here = [level for level in levels if level.lower() not in MISSING]
    number_of = {level: number for number, level in enumerate(here)}
    codes = np.array([*(number_of.get(level, -1) for level in levels), -1], dtype=np.int32)[place]
    present = codes >= 0
    if not here and known is None:
        raise DataError(f"{table.path}: {name} holds no value at all: give --task.ignore {name}")
    kind = known or _guess(here, codes[present], name in table.commas)
    if kind == "category" and known is None:
        count = int(present.sum())
        if len(here) > MAX_LEVELS or len(here) > max(2, count // 2):
            kind = "text"
            if 2 * sum(len(TOKEN.findall(level)) >= WORDS for level in here) < len(here):
                what = f"{len(here):,} different texts in {count:,} rows"
                kinds = f"texts that repeat, at most {MAX_LEVELS}, or that have {WORDS} words and more"
                right = f"numbers, truth values, dates, {kinds} are features"
                raise DataError(f"{table.path}: {name} holds {what}: {right}; give --task.ignore {name}")
    if kind in CODED:
        return Column(name, kind, codes, present, tuple(here))
    if kind == "number":
        return _numbers(table, name, np.append(numbers_of(here, name in table.commas), np.nan)[codes], present, kind)
    if kind == "boolean":
        numbers = zip(here, _truth(numbers_of(here, name in table.commas)).tolist(), strict=True)
        of_levels = [BOOLEAN.get(level.lower(), number) for level, number in numbers]
        what = "a truth value such as yes or no"
    else:
        of_levels, what = dates_of(here, f"{table.path}: {name}"), "a date such as 2024-12-31"
    values = np.array([*of_levels, np.nan])[codes]
    _check(table, name, values, present, what)
    return Column(name, kind, np.where(present, values, 0.0), present)


def _is_mixed(table: Table, name: str, values: Array) -> bool:
    """Whether a column of texts holds a code such as 007, or cells with a value that are no numbers."""
    column = table.columns[name]
    if column.dtype.is_numeric():
        return False
    texts = column.str.strip_chars().fill_null("")
    others = texts.filter(~(np.abs(values) <= LARGEST)).str.to_lowercase().unique().to_list()
    return bool({*others} - MISSING) or bool(texts.str.contains(f"^{CODE.pattern}$".replace(r"\d", "[0-9]")).any())


def _guess(levels: Sequence[str], codes: Array, comma: bool) -> Kind:
    """What most of the cells are, by the levels that they hold."""
    often = np.bincount(codes, minlength=len(levels))
    half = int(often.sum()) / 2
    if any(map(CODE.fullmatch, levels)):
        return "category"
    if often[~np.isnan(numbers_of(levels, comma))].sum() >= half:
        return "number"
    words = {level.lower() for level in levels}
    whole = all(words.isdisjoint(pair) or words.issuperset(pair) for pair in TRUTHS)  # N and F are two letters, no pair
    if words <= {*BOOLEAN} and (whole or len(words) == 1):
        return "boolean"
    dated = [bool(ISO.fullmatch(one) or EUROPEAN.fullmatch(one) or SLASHED.fullmatch(one)) for one in levels]
    return "date" if often[np.array(dated)].sum() >= half else "category"


def _numbers(table: Table, name: str, values: Array, present: Any, known: Kind | None) -> Column:
    if known is None and not present.any():
        raise DataError(f"{table.path}: {name} holds no value at all: give --task.ignore {name}")
    _check(table, name, values, present, "a finite number")
    if known == "boolean":
        _check(table, name, _truth(values), present, "a truth value")
    two = (
        known is None
        and bool(((values == 0) | (values == 1) | ~present).all())
        and len(np.unique(values[present])) == 2
    )
    return Column(name, known or ("boolean" if two else "number"), np.where(present, values, 0.0), present)


def _truth(values: Array) -> Array:
    """Numbers as truth values, NaN for all but 0 and 1."""
    return np.where((values == 0) | (values == 1), values, np.nan)


def _check(table: Table, name: str, values: Array, present: Any, what: str) -> None:
    """Name the first cells that are not what they should be, and how many there are."""
    rows = np.flatnonzero(present & ~(np.abs(values) <= LARGEST)).tolist()
    if rows:
        cells = [(row, str(table.columns[name][row]).strip()[:40]) for row in rows[:SHOWN]]
        lines = [f"{table.at(row)}: {name} is {cell!r}, {wrong(values[row], what)}" for row, cell in cells]
        more = [f"and {len(rows) - SHOWN:,} more cells of {name}"] if len(rows) > SHOWN else []
        raise DataError(*lines, *more)


def dates_of(texts: Sequence[str], where: str) -> list[float]:
    """Days since 1970 of dates and times, NaN for what is none.

    Errors      DataError where a date may be day or month first: 3/4/2024, unless another one of them decides it
    """
    slashed = [match for match in map(SLASHED.fullmatch, texts) if match]
    day_first = any(int(match[1]) > 12 for match in slashed)
    if slashed and day_first == any(int(match[2]) > 12 for match in slashed):
        shown = slashed[0][0]
        raise DataError(f"{where} is {shown!r}: is the day first, or the month? Write dates as 2024-12-31")
    return [day_of(text, day_first) for text in texts]


@dataclass(frozen=True)
class Encoding:
    """How a column becomes features.

    Equation    of a number x: (x - shift) / deviation; of a truth value 0 or 1; of a category a feature for each of its
                `levels`, 1 for the cell's own; of a text one for each of some words: `tfidf`
    Symbols     fill = what stands for a number or truth value that is missing; flagged = whether a further feature says
                that it was: where a row that trains lacks one; levels = those that a row that trains has, of texts
                words, and weights = their idf
    Edge cases  a category that is missing or is none of the levels has zeros alone, and so has a missing text
    """

    name: str
    kind: Kind
    fill: float = 0.0
    shift: float = 0.0
    deviation: float = 1.0
    flagged: bool = False
    levels: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    @classmethod
    def fit(cls, column: Column, rows: Any, scale: bool) -> Self:
        """The encoding of a column by its cells in some rows, those that train.

        Symbols     scale: numbers have mean 0 and deviation 1 in these rows; those that are all the same are 0
        """
        known = column.values[rows][column.present[rows]]
        if column.kind == "category":
            return cls(column.name, column.kind, levels=tuple(column.levels[level] for level in np.unique(known)))
        if column.kind == "text":
            words, weights = _words([column.levels[level] for level in known])
            return cls(column.name, column.kind, levels=words, weights=weights)
        mean, spread = (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)
        flagged = not bool(column.present[rows].all())
        if not scale or column.kind == "boolean":
            return cls(column.name, column.kind, mean, flagged=flagged)
        deviation = spread if spread > 1e-12 * abs(mean) else 1.0  # equal numbers: an error of rounding
        return cls(column.name, column.kind, mean, mean, deviation, flagged)

    @property
    def width(self) -> int:
        """How many features there are."""
        return len(self.levels) if self.kind in CODED else 1 + self.flagged

    def apply(self, column: Column) -> Array:
        """The features of all rows of a column of this kind, [N, width].

        Errors      DataError for a number so far from those that were fitted that no float32 holds it
        """
        if self.kind == "text":
            return tfidf([*column.levels, ""], self.levels, self.weights)[column.values]
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

    def says(self, features: Sequence[float]) -> str:
        """What the features [width] of a cell say of it, unless it is a text; zeros are what stands for nothing that is
        known.

        >>> Encoding("height", "number", shift=1.7, deviation=0.1).says([-2.0])
        '1.5'
        """
        if self.kind == "category":
            return next((level for level, there in zip(self.levels, features, strict=True) if there), "none")
        if self.flagged and features[1]:
            return "missing"
        value = self.shift + self.deviation * features[0]
        if self.kind == "date":
            when = EPOCH + timedelta(minutes=round(value * 1440))  # float32 knows no seconds
            return when.isoformat(" ", "minutes").removesuffix("+00:00").removesuffix(" 00:00")
        return {0.0: "no", 1.0: "yes"}.get(value, f"{value:.6g}") if self.kind == "boolean" else f"{value:.6g}"

    def unknown(self, column: Column) -> list[str]:
        """The levels of a column that this encoding has no feature for."""
        return sorted({*column.levels} - {*self.levels}) if self.kind == "category" else []

    def filled(self, column: Column) -> int:
        """How many cells without a value no feature tells from those that have the mean."""
        return 0 if self.flagged or self.kind in CODED else int((~column.present).sum())


def _words(texts: Sequence[str]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The commonest words of some texts, each in two at least, and their idf."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        fitted = TfidfVectorizer(max_features=MAX_WORDS, min_df=min(2, len(texts))).fit(texts)
    except ValueError:  # no word is in two of them
        return (), ()
    return tuple(fitted.get_feature_names_out().tolist()), tuple(fitted.idf_.tolist())


def fit(columns: Sequence[Column], rows: Any, scale: bool) -> tuple[Encoding, ...]:
    """The encodings of some columns, by the rows that train.

    Errors      DataError where no row that trains has a category, and there is nothing else
    """
    fitted = tuple(Encoding.fit(column, rows, scale) for column in columns)
    if columns and not width(fitted):
        names = ",".join(column.name for column in columns)
        raise DataError(f"no row that trains has a value of {names}: nothing can be learned of them; ignore them")
    return fitted


def weights_in(columns: Sequence[Column], name: str, place: Path) -> Column:
    """The column that says how much each edge counts, which is all that is known of them.

    Errors      DataError where it is not, or is not a number of at least 0 in each row
    """
    others = [one.name for one in columns if one.name != name]
    column = next((one for one in columns if one.name == name), None)
    if column is None or column.kind not in ("number", "boolean"):
        what = (
            f"a {column.kind}" if column else f"none of the columns of edges, {', '.join(others) or 'which have none'}"
        )
        raise DataError(f"{place}: --task.edge_weight {name} is to name numbers of edges, and is {what}")
    if others:
        right = f"give --task.ignore {','.join(others)}; without --task.edge_weight all are features"
        raise DataError(f"{place}: nothing reads {', '.join(others)} of edges beside their weights {name}: {right}")
    if len(rows := np.flatnonzero(~column.present | (column.values < 0))):
        cell = f"{column.values[rows[0]]:g}" if column.present[rows[0]] else "missing"
        raise DataError(f"{column.at(int(rows[0]))}: {name} is {cell}: the weight of an edge is a number of at least 0")
    return column


def fit_weights(column: Column, rows: Any, scale: bool) -> tuple[Encoding]:
    """The encoding of weights of edges: divided by their mean in the rows that train, if they are to be scaled."""
    made = Encoding.fit(column, rows, False)
    return (replace(made, deviation=made.fill if scale and made.fill else 1.0),)


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
        read = ({**one, **{name: tuple(one.get(name, ())) for name in ("levels", "weights")}} for one in content)
        return tuple(_checked(Encoding(**one)) for one in read)
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"these are no encodings of columns: {error}") from error


def _checked(one: Encoding) -> Encoding:
    numbers = one.fill, one.shift, one.deviation, *one.weights
    texts = all(isinstance(text, str) for text in (one.name, *one.levels)) and len({*one.levels}) == len(one.levels)
    texts = texts and len(one.weights) == len(one.levels) * (one.kind == "text")
    if one.kind not in get_args(Kind) or not texts or not all(isfinite(number) for number in numbers):
        raise ValueError(f"the column {one.name!r}")
    return one


def ends_called(path: Path, names: Sequence[str], chosen: Sequence[str], option: str) -> list[str]:
    """The columns of a table of edges that are called senders and receivers, or those that are chosen; else none.

    Symbols     names = all columns; option = that of the command line by which they are chosen
    Errors      DataError: several pairs are called so, or those that are chosen are not there
    """
    lower = Called(path, names)
    pairs = [pair for pair in ENDS if {*pair} <= {*lower}]
    if not chosen and len(pairs) > 1:
        expected = "; ".join(" and ".join(pair) for pair in pairs)
        raise DataError(f"{path}: its columns are {', '.join(names)}; expected one of {expected}: give {option}")
    if chosen and (len(chosen) != 2 or not {*chosen} <= {*names}):
        raise DataError(f"{path}: its columns are {', '.join(names)}; expected {' and '.join(chosen)}")
    return list(chosen) or [lower[end] for end in (pairs[0] if pairs else ())]


MAX_CLASSES = 20  # whole numbers, or texts that hardly repeat: more may be something else, such as a quantity
WHOLE = re.compile(r"\+?(-?\d+)(\.0*)?", re.ASCII)
Wanted = Literal["auto", "class", "number"]
Labels = list[str] | np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Target:
    """What is to be predicted: one of some classes, or a number."""

    kind: Literal["class", "number"]
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

    def known(self, labels: Labels) -> Tensor:
        """Which examples have one, [N]."""
        values = self.values(labels)
        return values >= 0 if self.kind == "class" else ~values.isnan()

    def values(self, labels: Labels) -> Tensor:
        """The labels as classes [N], -1 where unknown or none of them; or as numbers [N] in float64, NaN where
        unknown: a date or a large number loses digits in float32, unless its mean is taken off before.
        """
        names = _names(labels)
        if self.kind == "number":
            values = numbers_of(names)
            return torch.from_numpy(np.where(np.abs(values) <= LARGEST, values, np.nan))
        place = {name: number for number, name in enumerate(self.classes)}
        return torch.tensor([place.get(name, -1) for name in names], dtype=torch.int64)

    def balanced(self, values: Tensor) -> tuple[float, ...]:
        """How much an example of each class counts where all classes count alike; nothing for a number.

        Equation    w_c = n / (K n_c), whose mean over the n examples with a known class is 1

        >>> Target("class", ("a", "b"), "").balanced(torch.tensor([0, 0, 0, 1, -1]))
        (0.6666666666666666, 2.0)
        """
        if self.kind == "number":
            return ()
        counts = torch.bincount(values[values >= 0], minlength=len(self.classes)).clamp(min=1)
        return tuple((int((values >= 0).sum()) / (len(self.classes) * counts.double())).tolist())

    def strangers(self, labels: Labels) -> list[str]:
        """The labels that are none of the classes, or no numbers."""
        names = sorted({*_names(labels)} - {""})
        return [name for name in names if (name not in self.classes if self.classes else _number(name) is None)]


def target_of(labels: Labels, wanted: Wanted, where: str, unit: str = "nodes", name: str = "label") -> Target:
    """The target that labels are: texts and few whole numbers are classes, fractions are a quantity.

    Symbols     wanted = "class" or "number": that is what they are; where = the file and the column, for errors; unit =
                what has labels, in the plural; name = the label's own
    Errors      DataError where nothing has a label, where one is no number that must be, and where "auto" would be a
                guess: more than `MAX_CLASSES` whole numbers, or as many texts of which most are there once
    """
    known = [name for name in _names(labels) if name]
    order = sorted({*known})
    numbers = [_number(name) for name in order]
    numeric = None not in numbers
    if whole := numeric and all(float(number or 0).is_integer() for number in numbers):
        order.sort(key=lambda name: _number(name) or 0)
    if not known:
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
    return Target("class", tuple(order), "--task.target class" if wanted == "class" else why, name)


def check_folders(place: Path, names: Iterable[str]) -> None:
    """Refuse folders of classes that are called as a label is that is unknown."""
    if wrong := sorted(name for name in {*names} if name.strip().lower() in UNKNOWN):
        raise DataError(f"{place}: the folder of a class is called {wrong[0]!r}, as an unknown label is: rename it")


def _names(labels: Labels) -> list[str]:
    """Labels as texts, "" where unknown; a whole number has neither a plus nor a point, as a column with gaps gives it.

    Edge cases  of an array whole numbers below 0 are unknown, and of another one NaN

    >>> _names(["1", "1.0", "+1.", "-0", "a.0", "1.5", "+", "?"])
    ['1', '1', '1', '0', 'a.0', '1.5', '+', '']
    """
    if isinstance(labels, np.ndarray):
        whole = labels.dtype.kind != "f"
        labels = ["" if whole and number < 0 else repr(number) for number in labels.tolist()]
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
