"""How good answers are: measures of classes, values and ranks, weighted, with gaps, and with intervals by bootstrap."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

MEASURES = (
    *("accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision", "mcc", "log_loss", "brier"),
    *("calibration_error", "rmse", "mae", "r2", "spearman", "relative_error", "perplexity", "loss"),
)
BINS = 10  # of the calibration: of equal width, from 0 to 1
WORST = 10  # the largest errors that are listed
DRAWS, FEWEST = 1000, 40  # of the bootstrap, at most and at least
CELLS, AT_ONCE = 1 << 25, 1 << 21  # examples x classes x draws: all of them, and in memory at once
MOST = 1 << 27  # numbers of a split's answers that are kept
Array = np.ndarray[Any, Any]
Row = dict[str, float | None]


@dataclass(frozen=True)
class Answers:
    """What a model says of M examples beside what is known: of classes, of values, or of places in lists.

    Symbols     said = probabilities [M, classes], or values [M]; true = classes or values [M], NaN where unknown;
                weights [M] = how much each example counts, None: all alike; target = its name, where there are several;
                threshold = above which probability the second of two classes is answered; half = of an interval around
                each value, None: there is none; figures = instead of both, what each example has of measures that are
                means, such as 1 / rank
    """

    said: Tensor = field(default_factory=lambda: torch.empty(0))
    true: Tensor = field(default_factory=lambda: torch.empty(0))
    classes: tuple[str, ...] = ()
    target: str = ""
    weights: Tensor | None = None
    figures: Mapping[str, Tensor] = field(default_factory=dict)
    threshold: float = 0.5
    half: float | None = None

    def __len__(self) -> int:
        return len(next(iter(self.figures.values()), self.true))

    @property
    def cells(self) -> int:
        """How many numbers they are."""
        return max(self.said.numel(), len(self))

    def known(self) -> Array:
        """Which examples are known, by their numbers."""
        return np.flatnonzero(~np.isnan(self.true.double().numpy()))

    def measured(self, w: Array) -> dict[str, Array]:
        """Each measure under each of B weightings w [B, M], NaN where it is undefined."""
        if self.figures:
            return {name: _mean(one.double().numpy(), w) for name, one in self.figures.items()}
        rows = self.known()
        said, true = (part.double().numpy()[rows] for part in (self.said, self.true))
        if self.classes:
            return of_classes(said, true.astype(int), w[:, rows], self.threshold)
        held = {} if self.half is None else {"coverage": _mean(np.abs(said - true) <= self.half, w[:, rows])}
        return of_values(said, true, w[:, rows]) | held

    def details(self, name: Callable[[int], str]) -> dict[str, Any]:
        """Of classes the precision and recall of each, and the calibration; of values the largest errors."""
        rows = self.known()
        said, true = (part.double().numpy()[rows] for part in (self.said, self.true))
        if not self.classes:
            far = np.argsort(-np.abs(said - true), kind="stable")[:WORST]
            found = ((name(int(rows[n])), float(said[n]), float(true[n])) for n in far)
            return {"worst": [dict(zip(("example", "predicted", "measured"), one, strict=True)) for one in found]}
        table = table_of(self.classes, said, true.astype(int), self.threshold)
        return {"classes": table, "calibration": calibration(said, true)}


def joined(batches: Sequence[Sequence[Answers]]) -> list[Answers]:
    """The answers of several batches as those of one."""
    return [
        replace(
            parts[0],
            said=torch.cat([one.said for one in parts]),
            true=torch.cat([one.true for one in parts]),
            weights=None if parts[0].weights is None else torch.cat([one.weights for one in parts]),
            figures={name: torch.cat([one.figures[name] for one in parts]) for name in parts[0].figures},
        )
        for parts in zip(*batches, strict=True)
    ]


def measures(answers: Sequence[Answers], intervals: bool = True) -> dict[str, Row]:
    """Every measure's value and, between the 2.5th and the 97.5th percentile of a bootstrap, its interval.

    Equation    each draw weighs an example by how often it is among M that are drawn with replacement, with one seed
    Edge cases  a value that is undefined, as the ROC AUC of one class, is None, and so is an interval that more than
                half of the draws lack, or where there are too many numbers to draw; of several targets
                each has its own measures, named after it, and each measure's mean over the targets that have it
    """
    found: dict[str, Array] = {}
    means: dict[str, list[Array]] = {}
    several = sum(not one.figures for one in answers) > 1
    for one in answers:
        for name, values in _drawn(one, intervals).items():
            own = several and not one.figures
            found[f"{name} {one.target}" if own else name] = values
            if own and not np.isnan(values[0]):
                means.setdefault(name, []).append(values)
    for name, each in means.items():
        longest = max(map(len, each))
        found[name] = np.mean([one for one in each if len(one) == longest], 0)
    return {name: _row(values) for name, values in found.items()}


def _drawn(one: Answers, intervals: bool) -> dict[str, Array]:
    count, cells = len(one), max(one.cells, 1)
    draws = min(DRAWS, CELLS // cells) if intervals and count > 1 else 0
    draws = draws if draws >= FEWEST else 0
    own = np.ones(count) if one.weights is None else one.weights.double().numpy()
    draw, parts = np.random.default_rng(0), [one.measured(own[None])]
    for start in range(0, draws, step := max(1, AT_ONCE // cells)):
        drawn = [draw.integers(0, count, count) for _ in range(min(step, draws - start))]
        parts.append(one.measured(own * np.stack([np.bincount(rows, minlength=count) for rows in drawn])))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _row(values: Array) -> Row:
    drawn = values[1:][~np.isnan(values[1:])]
    low, high = np.percentile(drawn, (2.5, 97.5)).tolist() if 2 * len(drawn) > len(values) else (None, None)
    return {"value": None if np.isnan(values[0]) else float(values[0]), "low": low, "high": high}


def predicted(p: Array, threshold: float = 0.5) -> Array:
    """The likeliest classes by probabilities p [M, C], or of two the second where it is above a threshold."""
    found: Array = (p[:, 1] > threshold).astype(int) if p.shape[1] == 2 and threshold != 0.5 else p.argmax(1)
    return found


def of_classes(p: Array, y: Array, w: Array, threshold: float = 0.5) -> dict[str, Array]:
    """Measures of probabilities p [M, C] for classes y [M] under weightings w [B, M], as scikit-learn defines them.

    Edge cases  ROC AUC and average precision are of two classes the second one's, else means over those classes that
                some examples are of and others not; the Brier score of two classes is the second one's
    """
    count, said = p.shape[1], predicted(p, threshold)
    eye = np.eye(count)
    truth, right, total = eye[y], p.argmax(1) == y, w.sum(1)
    of, taken, hits = w @ truth, w @ eye[said], (w * (said == y)) @ truth
    curves = [_curves(p[:, c], truth[:, c], w) for c in ((1,) if count == 2 else range(count))]
    confidence = p.max(1)
    bins = np.eye(BINS)[np.minimum((confidence * BINS).astype(int), BINS - 1)]
    likely = np.clip(p[np.arange(len(y)), y], np.finfo(float).eps, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = (total**2 - (of**2).sum(1)) * (total**2 - (taken**2).sum(1))
        mcc = (hits.sum(1) * total - (of * taken).sum(1)) / np.sqrt(spread)
        return {
            "accuracy": hits.sum(1) / total,
            "balanced_accuracy": _over_known(hits / of),
            "f1": _over_known(2 * hits / (of + taken)),
            "roc_auc": _over_known(np.stack([auc for auc, _ in curves], 1)),
            "average_precision": _over_known(np.stack([ap for _, ap in curves], 1)),
            "mcc": np.where(spread > 0, mcc, 0.0),
            "log_loss": _mean(-np.log(likely), w),
            "brier": _mean(((p - truth) ** 2).sum(1) / (2 if count == 2 else 1), w),
            "calibration_error": np.abs((w * (right - confidence)) @ bins).sum(1) / total,
        }


def of_values(said: Array, y: Array, w: Array) -> dict[str, Array]:
    """Measures of values said [M] for y [M] under weightings w [B, M]; Spearman's correlation of weighted ranks.

    Edge cases  without a relative error, the mean of |said - y| / |y|, where a y is 0
    """
    error, middle = said - y, y - y.mean() if len(y) else y
    squares = _mean(error**2, w)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = _mean(middle**2, w) - _mean(middle, w) ** 2
        relative = _mean(np.abs(error / y), w) if np.all(y != 0) else np.full(len(w), np.nan)
        return {
            "rmse": np.sqrt(squares),
            "mae": _mean(np.abs(error), w),
            "r2": np.where(spread > 0, 1 - squares / spread, np.nan),
            "spearman": _correlation(_ranks(said, w), _ranks(y, w), w),
            "relative_error": relative,
        }


def _mean(values: Array, w: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Array = (w @ values) / w.sum(1)
    return mean


def _over_known(values: Array) -> Array:
    """The mean of each row's numbers that are known."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        mean: Array = np.where(known, values, 0).sum(1) / known.sum(1)
    return mean


def _curves(score: Array, truth: Array, w: Array) -> tuple[Array, Array]:
    """The areas under the curves of hits over false alarms, and of precision over recall, by thresholds; [B] each."""
    order = np.argsort(-score, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(score[order]) != 0, True)) if len(order) else order
    above, hits = (part[:, order].cumsum(1)[:, ends] for part in (w, w * truth))
    false, more = above - hits, np.diff(hits, prepend=0, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        area = (np.diff(false, prepend=0, axis=1) * (hits - more / 2)).sum(1)
        auc = area / (hits[:, -1] * false[:, -1]) if len(ends) else np.full(len(w), np.nan)
        precision = np.divide(hits, above, out=np.zeros_like(hits), where=above > 0)
        ap = (more * precision).sum(1) / hits[:, -1] if len(ends) else auc
    return auc, ap


def _ranks(values: Array, w: Array) -> Array:
    """The rank of each value among weighted ones [B, M], those that are equal at their middle."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    mass = np.add.reduceat(w[:, order], starts, axis=1) if len(starts) else w
    ranks: Array = (mass.cumsum(1) - mass / 2)[:, group]
    return ranks


def _correlation(a: Array, b: Array, w: Array) -> Array:
    """Pearson's, of rows under weights; all three [B, M]."""
    total = w.sum(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = (one - (w * one).sum(1, keepdims=True) / total for one in (a, b))
        size = (w * a * a).sum(1) * (w * b * b).sum(1)
        found: Array = np.where(size > 0, (w * a * b).sum(1) / np.sqrt(size), np.nan)
    return found


def table_of(classes: Sequence[str], p: Array, y: Array, threshold: float = 0.5) -> dict[str, dict[str, Any]]:
    """Each class's examples, precision, recall and F1; None where a class is never predicted, or has no examples.

    Equation    precision_c = n_cc / Σ_a n_ac, recall_c = n_cc / Σ_b n_cb, F1 their harmonic mean, n_ab the examples of
                class a that were taken for b
    """
    said = predicted(p, threshold)
    of, taken, hits = (np.bincount(some, minlength=len(classes)) for some in (y, said, y[said == y]))
    parts = [[float(n) / m if m else None for n, m in zip(*pair, strict=True)]
             for pair in ((hits, taken), (hits, of), (2 * hits, of + taken))]  # fmt: skip
    rows = zip(of.tolist(), *parts, strict=True)
    return {
        name: dict(zip(("count", "precision", "recall", "f1"), row, strict=True))
        for name, row in zip(classes, rows, strict=True)
    }


def calibration(p: Array, y: Array) -> dict[str, Any]:
    """The expected calibration error, and the bins of the likeliest class's probability that hold examples.

    Equation    Σ_k n_k/n |accuracy_k - confidence_k|
    Reference   Guo et al., "On calibration of modern neural networks", 2017
    """
    confidence, right = p.max(1), p.argmax(1) == y
    number = np.minimum((confidence * BINS).astype(int), BINS - 1)
    sums = np.stack([np.bincount(number, one, BINS) for one in (np.ones(len(y)), confidence, right)], 1)
    bins = [{"count": int(n), "confidence": c / n, "accuracy": a / n} for n, c, a in sums.tolist() if n]
    error = sum(one["count"] * abs(one["accuracy"] - one["confidence"]) for one in bins) / max(len(y), 1)
    return {"error": error, "bins": bins}


def quality(answers: Sequence[Answers], name: Callable[[int], str]) -> dict[str, Any]:
    """All that is said of how good a split's answers are, as JSON can hold it; `name` is how an example is called."""
    own = {one.target: one.details(name) for one in answers if not one.figures}
    details = {"targets": own} if len(own) > 1 else next(iter(own.values()), {})
    return {"measures": measures(answers), **details} if answers else {}


def in_rows(found: Mapping[str, Row]) -> Iterator[tuple[str, str, str]]:
    """Measures as rows of a table: the name, the value and its interval."""
    for name, row in found.items():
        value, low, high = (None if row[part] is None else f"{row[part]:.4g}" for part in ("value", "low", "high"))
        yield name, value or "undefined", f"{low} to {high}" if low is not None else "-"
