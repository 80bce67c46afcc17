"""One or several targets of an example, each a class or a number, some of them unknown."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.columns import Labels, Target
from edgewise.data.record import Fitted, Settled, Sure
from edgewise.data.splits import Split
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch, DisjointBatch
from edgewise.tasks.core.classification import of_value
from edgewise.tasks.core.measures import Answers
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Pattern

NONE = -100  # in place of a class that is unknown


class Gapped(Batch):
    """A batch whose target is [M, T + 1], NaN where it is unknown, the last column how much each example counts; the
    loss has a term for each known one."""

    @property
    def size(self) -> int:
        """The number of known targets."""
        return known_terms(self.target)

    def read(self, outputs: Tensor, width: int | None = None) -> Tensor:
        """The outputs of each example, [M, O]."""
        return self.chosen(outputs, len(self.target), width)


class GappedBatch(Gapped, DisjointBatch):
    """Graphs side by side with several targets."""

    shared = True


@dataclass(frozen=True)
class Several:
    """What a model's outputs say of T targets: for a class the logarithms of probabilities, for a number the number.

    Equation    loss = 1/K Σ_k l_k over the K known targets: of a class l = −log softmax(o)[y], of a number
                l = ((y − μ) / σ − o)², μ and σ the mean and deviation of the values that train; with weights of
                examples each l is multiplied by that of its own
    Symbols     weights = of each target's classes, by which their l are multiplied; empty: all are 1; sure = of each
                target, what a trained model's answers are read by; empty: the likeliest class, and no interval
    Shapes      outputs [M, O], one for each number and each class, perhaps followed by as many deviations; targets y
                [M, T], NaN where unknown, or [M, T + 1], the last of which is the example's weight
    Edge cases  a part of a batch without a known target has a loss of 0

    Example
        >>> targets = Target("class", ("a", "b"), ""), Target("number", (), "", "mass")
        >>> both = Several(targets, ((0.0, 1.0), (5.0, 2.0)))
        >>> y = torch.tensor([[1.0, float("nan")], [float("nan"), 9.0]])
        >>> round(both.loss(torch.tensor([[0.0, 0.0, 3.0], [1.0, 0.0, 1.0]]), y).item(), 4)  # (log 2 + 1) / 2
        0.8466
    """

    targets: tuple[Target, ...]
    scales: tuple[tuple[float, float], ...]
    weights: tuple[tuple[float, ...], ...] = ()
    sure: tuple[Sure, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sure", self.sure or (Sure(),) * len(self.targets))

    @classmethod
    def of(cls, fitted: Fitted) -> Self:
        """By what was fitted to the data that trained."""
        return cls(fitted.targets, fitted.scales, sure=fitted.sure)

    @property
    def width(self) -> int:
        """The number of outputs O."""
        return sum(target.width for target in self.targets)

    @property
    def metric(self) -> str:
        """What chooses the weights: of one target its accuracy or error, of several their loss."""
        return "loss" if len(self.targets) > 1 else "accuracy" if self.targets[0].kind == "class" else "rmse"

    def weighted(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """Targets and, where there are any, the weights of the examples [M]."""
        return (y[:, :-1], y[:, -1]) if y.shape[1] > len(self.targets) else (y, None)

    def values(self, labels: Sequence[Labels], weights: Tensor | None = None, count: int = 0) -> Tensor:
        """The targets of each target's labels, and how much each example counts, [N, T + 1]; NaN of N = `count`
        examples without labels."""
        if not labels:
            return torch.full((count, len(self.targets) + 1), torch.nan)
        made = []
        for target, known in zip(self.targets, labels, strict=True):
            values = target.values(known)
            made.append(torch.where(values < 0, torch.nan, values.double()) if target.kind == "class" else values)
        return torch.stack([*made, torch.ones(len(made[0])) if weights is None else weights], -1)

    def split(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs [*, width] of each target."""
        return outputs[..., : self.width].split([target.width for target in self.targets], -1)

    def answered(self, outputs: Tensor) -> Iterator[Tensor]:
        """The classes that are answered for outputs [M, O], or the values, of each target."""
        each = zip(self.targets, self.scales, self.split(outputs), self.sure, strict=True)
        for target, (mean, deviation), o, sure in each:
            if target.kind == "number":
                yield mean + deviation * o[..., 0]
            elif target.width == 2 and sure.threshold != 0.5:
                yield (o.softmax(-1)[..., 1] > sure.threshold).long()
            else:
                yield o.argmax(-1)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The mean over all known targets."""
        total, weights = outputs.sum() * 0.0, self.weights or ((),) * len(self.targets)
        y, counts = self.weighted(y)
        each = zip(self.targets, self.scales, weights, self.split(outputs), y.unbind(1), strict=True)
        for target, (mean, deviation), of_classes, o, wanted in each:
            known = ~wanted.isnan()
            if target.kind == "class":
                weight = o.new_tensor(of_classes) if of_classes else None
                wanted = torch.where(known, wanted, NONE).long()
                loss = functional.cross_entropy(o, wanted, weight, ignore_index=NONE, reduction="none")
            else:
                loss = torch.where(known, ((wanted - mean) / deviation).to(o) - o[:, 0], 0).square()
            total = total + (loss if counts is None else loss * counts.to(o)).sum()
        return total / (~y.isnan()).sum().clamp(min=1)

    def score(self, outputs: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Sums over the known targets, and for each target those of its own measures; "count" is the number of all."""
        outputs = outputs.detach().double()
        loss, (y, counts) = self.loss(outputs, y.double()), self.weighted(y.double())
        known = ~y.isnan()
        w = known.double() if counts is None else known * counts[:, None]
        sums = {"loss": loss * known.sum(), "count": w.sum()}
        for number, (target, said) in enumerate(zip(self.targets, self.answered(outputs), strict=True)):
            own, error = w[:, number], torch.where(known[:, number], said - y[:, number], 0)
            sums[f"known {target.name}"] = own.sum()
            if target.kind == "class":
                sums[self.called("accuracy", target)] = own @ (error == 0).double()
            else:
                sums[self.called("rmse", target)] = own @ error.square()
                sums[self.called("mae", target)] = own @ error.abs()
        return sums

    def finish(self, means: Mapping[str, float]) -> dict[str, float]:
        """The scores from means over all known targets: each target's measures are over its own, if it has any."""
        made = {"loss": means["loss"]}
        for target in self.targets:
            share = means[f"known {target.name}"]
            for measure in (self.called(name, target) for name in ("accuracy", "rmse", "mae")):
                if share and measure in means:
                    mean = means[measure] / share
                    made[measure] = mean**0.5 if measure.startswith("rmse") else mean
        return made

    def called(self, measure: str, target: Target) -> str:
        """A measure's name, with that of its target where there are several."""
        return f"{measure} {target.name}" if len(self.targets) > 1 else measure

    def named(self, output: Tensor, y: Tensor | None = None) -> dict[str, Any]:
        """What the outputs [O] of an example say, of several targets each by its name.

        Symbols     y [T] = what is known of it, which stands beside them, None for NaN; None: it has no place there
        """
        return next(self.table(output[None], None if y is None else y[None]))

    def table(self, outputs: Tensor, y: Tensor | None = None) -> Iterator[dict[str, Any]]:
        """The same of several examples, [M, O] and [M, T]."""
        outputs = outputs.double()
        more, known = outputs[:, self.width :], [None] * len(self.targets)
        known = known if y is None else self.weighted(y)[0].T.tolist()
        spread = self.split(more) if more.shape[1] else [None] * len(self.targets)
        each, parts = (self.targets, self.scales, self.sure, self.split(outputs), spread, known), list[Any]()
        for said, (target, (_, unit), sure, o, deviations, true) in zip(
            self.answered(outputs), zip(*each, strict=True), strict=True
        ):
            own: dict[str, Any] = {}
            if target.kind == "class":
                own["class"] = [target.classes[one] for one in said.tolist()]
                if true is not None:
                    own["label"] = [None if one != one else target.classes[int(one)] for one in true]
                own["probabilities"] = [dict(zip(target.classes, p, strict=True)) for p in o.softmax(-1).tolist()]
                of_said = None if deviations is None else deviations.gather(1, said[:, None])[:, 0]
            else:
                own["value"] = said.tolist()
                if sure.half is not None:
                    own |= {"low": (said - sure.half).tolist(), "high": (said + sure.half).tolist()}
                if true is not None:
                    own["measured"] = [None if one != one else one for one in true]
                of_said = None if deviations is None else unit * deviations[:, 0]
            own |= {} if of_said is None else {"deviation": of_said.tolist()}
            parts.append([dict(zip(own, row, strict=True)) for row in zip(*own.values(), strict=True)])
        for row in zip(*parts, strict=True):
            yield {target.name: one for target, one in zip(self.targets, row, strict=True)} if len(row) > 1 else row[0]

    def subject(self, whole: Subject) -> Subject:
        """What is explained of an example: a class, or a value in its own unit; of several targets each by its name."""
        parts: dict[str, Callable[[Subject], Subject]] = {}
        first = 0
        for target, scale, sure in zip(self.targets, self.scales, self.sure, strict=True):
            parts[target.name] = partial(_of_target, target=target, scale=scale, first=first, sure=sure)
            first += target.width
        return replace(whole, parts=parts) if len(parts) > 1 else parts[self.targets[0].name](whole)

    def answers(self, outputs: Tensor, y: Tensor) -> list[Answers]:
        """Of each target the probabilities or the values, beside what is known."""
        made, parts = [], self.split(outputs.detach().double().cpu())
        y, counts = self.weighted(y.cpu())
        each = zip(self.targets, self.scales, parts, y.T, self.sure, strict=True)
        for target, (mean, deviation), o, true, sure in each:
            said = o.softmax(-1) if target.kind == "class" else mean + deviation * o[:, 0]
            name = target.name if len(self.targets) > 1 else ""
            made.append(Answers(said, true, target.classes, name, counts, threshold=sure.threshold, half=sure.half))
        return made


def _of_target(whole: Subject, target: Target, scale: tuple[float, float], first: int, sure: Sure) -> Subject:
    """The subject where one target alone is explained, whose outputs begin at `first`."""
    one = replace(whole, first=first, classes=target.classes, threshold=sure.threshold)
    return one if target.kind == "class" else replace(of_value(one, *scale), what=target.name)


def known_terms(targets: Tensor) -> int:
    """How many of some targets [M, T + 1] are known, the last column of which is the examples' weights."""
    return int((~targets[:, :-1].isnan()).sum())


def known_in(batch: Batch) -> Tensor:
    """The targets of a batch, NaN where unknown; they may be the classes or values [M] of one."""
    y = batch.target if batch.target.ndim > 1 else batch.target[:, None]
    return y if y.is_floating_point() else torch.where(y < 0, torch.nan, y.double())


class SeveralTargets(Predicts):
    """A task whose examples have one target or several, some of which may be unknown.

    Equation    the loss is that of `Several`, over the known targets of a batch
    """

    several: Several
    own: Settled
    splits: Mapping[Split, Tensor]

    def read_by(self, sure: tuple[Sure, ...]) -> None:
        """Read each target's answers so from now on, also those of other data."""
        self.own = replace(self.own, fitted=replace(self.own.fitted, sure=sure))
        self.several = replace(self.several, sure=sure)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return self.several.loss(batch.read(outputs, self.several.width), known_in(batch))

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return self.several.score(batch.read(outputs), known_in(batch))

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        return self.several.finish(means)

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """A class, or a value in its own unit; of several targets each by its name."""
        return self.several.subject(super().subject(model, pattern, request))

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answers]:
        """Those of each target, with gaps where it is unknown."""
        return self.several.answers(batch.read(outputs), known_in(batch))

    def predicted(self, outputs: Tensor) -> Tensor:
        """The classes of the first target that are answered."""
        return next(self.several.answered(outputs))

    def labels_in(self, batch: Batch) -> Tensor:
        return known_in(batch)[:, 0].long()
