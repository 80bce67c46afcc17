"""Tasks that choose one class per output, or whose outputs are values: of nodes, images, graphs, or the next token."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import exp, inf
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.columns import scale_of
from edgewise.errors import ConfigError, DataError, ShapeError
from edgewise.layers import probabilities
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.drawing import Confusion, Drawing, Section
from edgewise.tasks.core.measures import Answers
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Pattern


def cross_entropy(
    outputs: Tensor, target: Tensor, reduction: Literal["mean", "sum"] = "mean", smoothing: float = 0.0
) -> Tensor:
    """PyTorch's, of outputs [M, classes] and targets [M]; ShapeError for a target beyond the outputs."""
    try:
        return functional.cross_entropy(outputs, target, reduction=reduction, label_smoothing=smoothing)
    except IndexError as error:
        what = f"a target is class {int(target.max())}, and the model has {outputs.shape[-1]} outputs in each row"
        raise ShapeError(f"{what}: it needs one for each class") from error


@dataclass(frozen=True)
class Objective:
    """What the outputs for M targets are trained to be: the logarithms of probabilities, or the one-hot targets.

    Equation    cross-entropy: -1/M Σ_m (y_m, log ŷ_m),  ŷ_m = softmax(o_m / T)    (3.9)-(3.11), footnote 2
                squared: 1/M Σ_m ‖y_m - o_m‖²,  y_m the one-hot target    (3.7)
    Symbols     error = which of the two; temperature = T, of the cross-entropy alone
    Shapes      outputs [M, classes], target [M]
    Reference   Baggag & Saad, §3.2
    """

    error: Literal["cross-entropy", "squared"] = "cross-entropy"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.error not in ("cross-entropy", "squared"):
            raise ConfigError(f"unknown error {self.error!r}; known are cross-entropy, squared")
        if not 0 < self.temperature < inf:
            raise ConfigError(f"temperature must be above 0 and finite, not {self.temperature}")
        if self.error == "squared" and self.temperature != 1:
            raise ConfigError("the squared error has no temperature: leave it out")

    def loss(self, outputs: Tensor, target: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
        """The mean loss of M outputs, or its sum; targets that are no whole numbers are a DataError.

        >>> Objective("squared").loss(torch.tensor([[0.0, 0.5]]), torch.tensor([1])).item()
        0.25
        """
        if target.is_floating_point():
            kind = str(target.dtype).removeprefix("torch.")
            raise DataError(
                f"the targets of a classification are whole numbers, int64, not {kind}: give targets.long()"
            )
        if self.error != "squared":
            return cross_entropy(outputs / self.temperature, target, reduction)
        each = (functional.one_hot(target, outputs.shape[-1]).to(outputs) - outputs).square().sum(-1)
        return each.mean() if reduction == "mean" else each.sum()

    def probabilities(self, outputs: Tensor) -> Tensor:
        """ŷ of outputs [*, classes]; of outputs near one-hot targets, what of them is positive, with sum 1."""
        if self.error == "squared":
            positive = outputs.clamp(min=torch.finfo(outputs.dtype).tiny)
            return positive / positive.sum(-1, keepdim=True)
        return probabilities(outputs, self.temperature)


class Classification(Predicts):
    """A task that chooses one class per output: trained on the cross-entropy, measured by the accuracy.

    Equation    loss = -1/M Σ_m log softmax(o_m)[t_m], or another `objective`;  accuracy = 1/M Σ_m [argmax o_m = t_m]
    Edge cases  without names of classes (`classes` is empty), no confusion matrix is drawn
    """

    metric = "accuracy"
    classes: tuple[str, ...] = ()
    objective = Objective()

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return self.objective.loss(batch.read(outputs, len(self.classes) or None), batch.target.reshape(-1))

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return classification_score(outputs, batch, self.objective)

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answers]:
        """The probabilities of the classes, where these have names."""
        if not self.classes:
            return []
        p = self.objective.probabilities(batch.read(outputs.detach()).float())
        return [Answers(p.cpu(), batch.target.reshape(-1).cpu(), tuple(self.classes))]

    def predicted(self, outputs: Tensor) -> Tensor:
        """The classes that are answered for outputs [M, classes]."""
        return outputs.argmax(-1)

    def labels_in(self, batch: Batch) -> Tensor:
        """The classes that a batch's examples are of, [M]."""
        return batch.target.reshape(-1)

    def preprocessing(self) -> dict[str, Any]:
        return {"classes": list(self.classes)} if self.classes else {}

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        if self.classes and self.has_test:
            yield Section("Confusion matrix", lambda: [self.confusion(model, pattern)])

    @torch.no_grad()
    def confusion(self, model: nn.Module, pattern: Pattern) -> Drawing:
        """How the test examples of each class were classified."""
        counts = torch.zeros(len(self.classes), len(self.classes), dtype=torch.int64)
        for batch in self.batches("test", 500, pattern):
            predicted = self.predicted(batch.read(model(*batch.inputs)))
            counts.index_put_((self.labels_in(batch), predicted), torch.ones_like(predicted), accumulate=True)
        correct = f"{int(counts.trace()):,} of {int(counts.sum()):,} test examples are classified correctly (diagonal)."
        return Drawing("confusion", Confusion(counts.numpy(), self.classes), correct)


PLAIN = Objective()


def classification_score(outputs: Tensor, batch: Batch, objective: Objective = PLAIN) -> dict[str, Tensor]:
    """Sums over the batch: the objective as "loss", correct predictions as "accuracy", and how many as "count".

    Example
        >>> from edgewise.graphs import complete
        >>> batch = Batch(complete(1), torch.zeros(2, 3), target=torch.tensor([2, 0]))
        >>> score = classification_score(torch.tensor([[0.0, 0.0, 9.0], [0.0, 9.0, 0.0]]), batch)
        >>> score["accuracy"].item(), score["count"].item()
        (1.0, 2.0)
    """
    logits, target = batch.read(outputs.detach()).double(), batch.target.reshape(-1)
    return {
        "loss": objective.loss(logits, target, "sum"),
        "accuracy": (logits.argmax(-1) == target).sum().double(),
        "count": torch.tensor(float(batch.size), dtype=torch.float64, device=logits.device),
    }


def with_perplexity(means: dict[str, float]) -> dict[str, float]:
    """Scores with e to the loss, which is a mean over tokens."""
    return means | {"perplexity": exp(min(means["loss"], 700.0))}


def class_probabilities(outputs: Tensor, classes: tuple[str, ...], objective: Objective = PLAIN) -> dict[str, float]:
    """Each class with its probability, the likeliest first."""
    p = objective.probabilities(outputs.double())
    return {classes[c]: p[c].item() for c in p.argsort(descending=True, stable=True).tolist()}


class Regression(Predicts):
    """Each target is a value: the mean squared error trains, its root in the data's own unit is reported.

    Equation    loss = 1/M Σ_m (y_m - (μ + σ f_m))² / σ², with μ, σ the mean and deviation of the training values;
                rmse = √(1/M Σ_m (y_m - ŷ_m)²) over a split, mae = 1/M Σ_m |y_m - ŷ_m|, in the unit of y
    Edge cases  training values that are all the same: σ = 1
    """

    metric = "rmse"
    mean: float
    deviation: float

    def fit(self, values: Tensor) -> None:
        """Take μ and σ from the values that train."""
        self.mean, self.deviation = scale_of(values)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        read, wanted = batch.read(outputs, 1).squeeze(-1), (batch.target.flatten() - self.mean) / self.deviation
        return functional.mse_loss(read, wanted.to(read))

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        values = self.mean + self.deviation * batch.read(outputs.detach()).double().squeeze(-1)
        error = values - batch.target.double().flatten()
        squares = error.square().sum()
        count = torch.tensor(float(batch.size), dtype=torch.float64, device=error.device)
        return {"loss": squares / self.deviation**2, "rmse": squares, "mae": error.abs().sum(), "count": count}

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        """The root is taken of the mean over the whole split, not batch by batch."""
        return means | {"rmse": means["rmse"] ** 0.5}

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answers]:
        """The values, in the unit of the data."""
        values = self.mean + self.deviation * batch.read(outputs.detach()).double().squeeze(-1)
        return [Answers(values.cpu(), batch.target.double().flatten().cpu())]

    def value(self, output: Tensor) -> float:
        """An output [1] in the unit of the data."""
        return self.mean + self.deviation * float(output[0])

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        return of_value(super().subject(model, pattern, request), self.mean, self.deviation)

    def preprocessing(self) -> dict[str, Any]:
        return {"targets": [{"name": "value", "kind": "number", "mean": self.mean, "deviation": self.deviation}]}


def one_each(values: Tensor) -> Tensor:
    """The value of each example [N], which may be given in a column [N, 1].

    Edge cases  values of other types than float32 and float64 become float64, which keeps their digits
    Errors      DataError for several values of an example
    """
    if values.numel() != len(values):
        raise DataError(f"a regression has one value for each example, [N] or [N, 1], not {list(values.shape)}")
    return values.flatten() if values.dtype in (torch.float32, torch.float64) else values.flatten().double()


def of_value(subject: Subject, mean: float, deviation: float) -> Subject:
    """A subject whose output is a value."""
    index = (*subject.row, subject.first)
    number = lambda outputs: mean + deviation * outputs[index]  # noqa: E731
    return replace(subject, number=number, what="the value", unit="in its own unit")
