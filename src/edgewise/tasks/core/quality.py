"""How good predictions are beyond one figure: each class for itself, the calibration, the largest errors."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

BINS = 10  # of equal width, from 0 to 1
WORST = 10


class Quality:
    """Precision, recall and calibration, added up over batches.

    Equation    precision_c = n_cc / Σ_a n_ac, recall_c = n_cc / Σ_b n_cb, F1 their harmonic mean, n_ab the examples of
                class a that were taken for b; expected calibration error Σ_k n_k/n |accuracy_k - confidence_k| over
                bins k of the likeliest class's probability
    Edge cases  a class that is never predicted has no precision, and one without examples no recall: None
    Reference   Guo et al., "On calibration of modern neural networks", 2017 (the error)
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = classes
        self.counts = torch.zeros(len(classes), len(classes), dtype=torch.int64)
        self.bins = torch.zeros(3, BINS, dtype=torch.float64)  # examples, correct ones, confidence

    def add(self, probabilities: Tensor, target: Tensor) -> None:
        """Some examples: probabilities [M, classes], target [M]."""
        confidence, predicted = probabilities.double().max(-1)
        self.counts.index_put_((target, predicted), torch.ones_like(target), accumulate=True)
        number = (confidence * BINS).long().clamp(max=BINS - 1)
        here = torch.stack([torch.ones_like(confidence), (predicted == target).double(), confidence])
        self.bins.index_add_(1, number, here)

    def of_classes(self) -> dict[str, dict[str, Any]]:
        """Each class's examples, precision, recall and F1."""
        right, of_class, taken = (
            self.counts.diagonal().tolist(),
            self.counts.sum(1).tolist(),
            self.counts.sum(0).tolist(),
        )
        table = {}
        for name, hits, count, predicted in zip(self.classes, right, of_class, taken, strict=True):
            both = count + predicted
            figures = _ratio(hits, predicted), _ratio(hits, count), _ratio(2 * hits, both)
            table[name] = {"count": count} | dict(zip(("precision", "recall", "f1"), figures, strict=True))
        return table

    def calibration(self) -> dict[str, Any]:
        """The expected calibration error, and the bins that hold examples."""
        total = float(self.bins[0].sum())
        rows = [row for row in self.bins.T.tolist() if row[0]]
        error = sum(abs(correct - confidence) for _, correct, confidence in rows) / max(total, 1.0)
        made = [{"count": int(n), "confidence": sum_ / n, "accuracy": correct / n} for n, correct, sum_ in rows]
        return {"error": error, "bins": made}

    def to_plain(self) -> dict[str, Any]:
        """Both, as JSON can hold them."""
        return {"classes": self.of_classes(), "calibration": self.calibration()}


def worst(predicted: Tensor, measured: Tensor) -> Iterator[tuple[int, float, float]]:
    """The places of the largest errors, the largest first, with what was predicted and measured.

    >>> list(worst(torch.tensor([1.0, 5.0]), torch.tensor([1.5, 2.0])))
    [(1, 5.0, 2.0), (0, 1.0, 1.5)]
    """
    for place in (predicted - measured).abs().argsort(descending=True, stable=True)[:WORST].tolist():
        yield place, float(predicted[place]), float(measured[place])


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
