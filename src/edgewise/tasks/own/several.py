"""One or several targets of an example, each a class or a number, some of them unknown."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.columns import Labels, Target
from edgewise.data.splits import Split
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch, DisjointBatch
from edgewise.tasks.core.classification import class_probabilities, of_value
from edgewise.tasks.core.measures import Answers
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Pattern


class Gapped(Batch):
    """A batch whose target is [M, T], NaN where it is unknown; the loss has a term for each known one."""

    @property
    def size(self) -> int:
        """The number of known targets."""
        return int((~self.target.isnan()).sum())

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
                l = ((y − μ) / σ − o)², μ and σ the mean and deviation of the values that train
    Symbols     weights = of each target's classes, by which their l are multiplied; empty: all are 1
    Shapes      outputs [M, O], one for each number and each class; targets y [M, T], NaN where unknown
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

    @property
    def width(self) -> int:
        """The number of outputs O."""
        return sum(target.width for target in self.targets)

    @property
    def metric(self) -> str:
        """What chooses the weights: of one target its accuracy or error, of several their loss."""
        return "loss" if len(self.targets) > 1 else "accuracy" if self.targets[0].kind == "class" else "rmse"

    def values(self, labels: Sequence[Labels]) -> Tensor:
        """The targets [N, T] of each target's labels."""
        made = []
        for target, known in zip(self.targets, labels, strict=True):
            values = target.values(known)
            made.append(torch.where(values < 0, torch.nan, values.double()) if target.kind == "class" else values)
        return torch.stack(made, -1)

    def parts(self, outputs: Tensor, y: Tensor) -> Iterator[tuple[Target, tuple[float, float], Tensor, Tensor]]:
        """Of each target its scale, and the outputs [K, width] and the targets [K] where it is known."""
        each = outputs.split([target.width for target in self.targets], -1)
        for number, (target, scale) in enumerate(zip(self.targets, self.scales, strict=True)):
            known = ~y[:, number].isnan()
            yield target, scale, each[number][known], y[known, number]

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The mean over all known targets."""
        total, each = outputs.sum() * 0.0, self.weights or ((),) * len(self.targets)
        for of_classes, (target, (mean, deviation), o, wanted) in zip(each, self.parts(outputs, y), strict=True):
            if target.kind == "class":
                weight = o.new_tensor(of_classes) if of_classes else None
                total = total + functional.cross_entropy(o, wanted.long(), weight, reduction="sum")
            else:
                total = total + (((wanted - mean) / deviation).to(o) - o[:, 0]).square().sum()
        return total / (~y.isnan()).sum().clamp(min=1)

    def score(self, outputs: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Sums over the known targets, and for each target those of its own measures; "count" is the number of all."""
        outputs, y = outputs.detach().double(), y.double()
        count = (~y.isnan()).sum().double()
        sums = {"loss": self.loss(outputs, y) * count, "count": count}
        for target, (mean, deviation), o, wanted in self.parts(outputs, y):
            sums[f"known {target.name}"] = torch.full_like(count, len(wanted))
            if target.kind == "class":
                sums[self.called("accuracy", target)] = (o.argmax(-1) == wanted).sum().double()
            else:
                error = mean + deviation * o[:, 0] - wanted
                sums[self.called("rmse", target)] = error.square().sum()
                sums[self.called("mae", target)] = error.abs().sum()
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
        each = output.double().split([target.width for target in self.targets])
        known = [None] * len(each) if y is None else [None if one != one else one for one in y.tolist()]
        made = {}
        for target, (mean, deviation), o, true in zip(self.targets, self.scales, each, known, strict=True):
            if target.kind == "class":
                p = class_probabilities(o, target.classes)
                own: dict[str, Any] = {"class": next(iter(p))}
                own |= {} if y is None else {"label": None if true is None else target.classes[int(true)]}
                own |= {"probabilities": {name: p[name] for name in target.classes}}
            else:
                own = {"value": mean + deviation * float(o[0])} | ({} if y is None else {"measured": true})
            made[target.name] = own
        return made if len(self.targets) > 1 else own

    def subject(self, whole: Subject) -> Subject:
        """What is explained of an example: a class, or a value in its own unit; of several targets each by its name."""
        parts: dict[str, Callable[[Subject], Subject]] = {}
        first = 0
        for target, scale in zip(self.targets, self.scales, strict=True):
            parts[target.name] = partial(_of_target, target=target, scale=scale, first=first)
            first += target.width
        return replace(whole, parts=parts) if len(parts) > 1 else parts[self.targets[0].name](whole)

    def answers(self, outputs: Tensor, y: Tensor) -> list[Answers]:
        """Of each target the probabilities or the values, beside what is known."""
        made, parts = [], outputs.detach().double().cpu().split([target.width for target in self.targets], -1)
        for target, (mean, deviation), o, true in zip(self.targets, self.scales, parts, y.cpu().T, strict=True):
            said = o.softmax(-1) if target.kind == "class" else mean + deviation * o[:, 0]
            made.append(Answers(said, true, target.classes, target.name if len(self.targets) > 1 else ""))
        return made


def _of_target(whole: Subject, target: Target, scale: tuple[float, float], first: int) -> Subject:
    """The subject where one target alone is explained, whose outputs begin at `first`."""
    one = replace(whole, first=first, classes=target.classes)
    return one if target.kind == "class" else of_value(one, *scale)


class SeveralTargets(Predicts):
    """A task whose examples have one target or several, some of which may be unknown.

    Equation    the loss is that of `Several`, over the known targets of a batch
    """

    several: Several
    splits: Mapping[Split, Tensor]

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return self.several.loss(batch.read(outputs, self.several.width), batch.target)

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return self.several.score(batch.read(outputs), batch.target)

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        return self.several.finish(means)

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """A class, or a value in its own unit; of several targets each by its name."""
        return self.several.subject(super().subject(model, pattern, request))

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answers]:
        """Those of each target, with gaps where it is unknown."""
        return self.several.answers(batch.read(outputs), batch.target)
