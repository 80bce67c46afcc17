"""How sure a trained model is: temperatures, thresholds and intervals by the validation part, and what they change."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import ceil, exp
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.data.record import Sure
from edgewise.errors import ConfigError
from edgewise.tasks.core.measures import Answers, measures, of_classes
from edgewise.tasks.core.task import Task
from edgewise.tasks.own.several import Several, SeveralTargets
from edgewise.training.settings import EvaluationSettings

FEWEST = 10  # examples that a temperature or a threshold is fitted to
COLDEST, HOTTEST = -4.0, 4.0  # the logarithm of a temperature
THRESHOLDS = 100  # that are tried
OF_CLASSES = ("log_loss", "brier", "calibration_error")


def fitted(answers: Sequence[Answers], settings: EvaluationSettings) -> tuple[Sure, ...]:
    """How the answers of each target are to be read, by those for the validation part.

    Equation    T minimises -1/n Σ_i (s_i, log softmax(o_i / T)), s_i = (n y_i + 1) / (n + C) of C classes, y_i one-hot:
                as many examples that are all right do not make a model certain;
                half = the ⌈(n + 1) level⌉-th smallest of the errors |y_i - ŷ_i|
    Edge cases  without as many errors there is no interval, and of fewer than `FEWEST` examples no temperature
    Reference   Guo et al., "On calibration of modern neural networks", 2017; Platt, "Probabilistic outputs for support
                vector machines", 1999; Lei et al., "Distribution-free predictive inference for regression", 2018
    """
    return tuple(_of_classes(one, settings) if one.classes else _of_values(one, settings) for one in answers)


def _of_classes(one: Answers, settings: EvaluationSettings) -> Sure:
    from scipy.optimize import minimize_scalar

    rows = one.known()
    if len(rows) < FEWEST:
        return Sure()
    p, y = one.said[rows].double(), one.true[rows].long()
    logits, w = p.clamp(min=torch.finfo(p.dtype).tiny).log(), weights_of(one, rows)
    n, count = len(rows), p.shape[1]
    smooth = torch.full_like(p, 1 / (n + count)).scatter_(1, y[:, None], (n + 1) / (n + count))

    def loss(heat: float) -> float:
        return -float((smooth * (logits / exp(heat)).log_softmax(1)).sum(1) @ w)

    temperature = exp(minimize_scalar(loss, bounds=(COLDEST, HOTTEST), method="bounded").x)
    sure = Sure(temperature)
    if settings.threshold and count == 2:
        sure = replace(sure, threshold=_threshold((logits / temperature).softmax(1), y, w, settings.threshold))
    return sure


def _threshold(p: Tensor, y: Tensor, w: Tensor, measure: str) -> float:
    """The probability of the second class above which it is answered: that with the best measure, and of equally good
    ones the nearest to one half."""
    known = np.unique(p[:, 1].numpy())
    middles = (known[1:] + known[:-1]) / 2
    tried = middles[np.unique(np.linspace(0, len(middles) - 1, THRESHOLDS).astype(int))] if len(middles) else middles

    def merit(threshold: float) -> tuple[float, float]:
        return of_classes(p.numpy(), y.numpy(), w.numpy()[None], threshold)[measure][0], -abs(threshold - 0.5)

    return max((0.5, *tried.tolist()), key=merit)


def _of_values(one: Answers, settings: EvaluationSettings) -> Sure:
    rows = one.known()
    errors = (one.said[rows] - one.true[rows]).abs().double().sort().values
    place = ceil(round((len(errors) + 1) * settings.interval, 9))
    if not 0 < place <= len(errors):
        return Sure()
    return Sure(half=float(errors[place - 1]), level=settings.interval)


def weights_of(one: Answers, rows: Any) -> Tensor:
    """How much each of some examples counts."""
    return torch.ones(len(rows), dtype=torch.float64) if one.weights is None else one.weights[rows].double()


@dataclass(frozen=True)
class Softened:
    """What divides a model's outputs by temperatures, behind it: one factor for each, and 1 for those that follow."""

    factors: tuple[float, ...]

    def __call__(self, model: nn.Module, inputs: Any, outputs: Tensor) -> Tensor:
        more = outputs.shape[-1] - len(self.factors)
        return outputs * outputs.new_tensor([*self.factors, *[1.0] * more])


def soften(model: nn.Module, several: Several, sure: Sequence[Sure]) -> None:
    """Let a trained model's outputs be divided by the temperatures from now on."""
    each = zip(several.targets, sure, strict=True)
    factors = tuple(1 / one.temperature for target, one in each for _ in range(target.width))
    if any(factor != 1 for factor in factors):
        model.register_forward_hook(Softened(factors))


def calibrate(model: nn.Module, task: Task, sure: Sequence[Sure]) -> None:
    """The same, and let its task read its answers so; without any, it stays as it is."""
    if sure and isinstance(task, SeveralTargets):
        uncalibrate(model, task)
        task.read_by(tuple(sure))
        soften(model, task.several, sure)


def uncalibrate(model: nn.Module, task: Task) -> None:
    """Let a model's outputs be its own, and its task read its answers as they are: what `calibrate` changed."""
    hooks = model._forward_hooks
    for number in [number for number, hook in hooks.items() if isinstance(hook, Softened)]:
        del hooks[number]
    if isinstance(task, SeveralTargets):
        task.read_by(())


def check_threshold(task: Task, measure: str) -> None:
    """Refuse a threshold for a task without a target of two classes of one's own, as a ConfigError."""
    if measure and not (isinstance(task, SeveralTargets) and any(t.width == 2 for t in task.several.targets)):
        raise ConfigError(
            f"evaluation.threshold={measure} goes with two classes of your own data, not with {task.name}"
        )


def recorded(task: SeveralTargets, examples: int, answers: Sequence[Answers]) -> dict[str, Any]:
    """What a run records: how answers are read, and what the temperatures changed of those for the part that tests.

    Symbols     examples = how many it was fitted to; answers = calibrated ones
    """
    sure, targets = task.several.sure, task.several.targets
    after = measures(answers, intervals=False)
    before = measures([_heated(*pair) for pair in zip(answers, sure, strict=True)], intervals=False)
    names = [name for name in after if name.split(" ")[0] in OF_CLASSES]
    changes = {name: [before[name]["value"], after[name]["value"]] for name in names}
    each = [{"name": t.name, "classes": t.classes[:2], **asdict(one)} for t, one in zip(targets, sure, strict=True)]
    return {"targets": each, "unit": task.unit, "examples": examples, "changes": changes}


def _heated(one: Answers, sure: Sure) -> Answers:
    """The answers before they were calibrated."""
    if not one.classes:
        return one
    logits = one.said.double().clamp(min=torch.finfo(torch.float64).tiny).log()
    return replace(one, said=(logits * sure.temperature).softmax(-1), threshold=0.5)


def kept(record: Mapping[str, Any]) -> tuple[Sure, ...]:
    """How answers are read, by what a run recorded; nothing of a run that did not."""
    names, targets = [one.name for one in fields(Sure)], record.get("calibration", {}).get("targets", ())
    return tuple(Sure(**{name: one[name] for name in names}) for one in targets)


def told(record: Mapping[str, Any]) -> Iterator[str]:
    """What was fitted to the validation part and what it changed, in lines; nothing of a run that recorded nothing."""
    found, part = record.get("calibration", {"targets": ()}), "test" if "test" in record else "valid"
    for one, sure in zip(found["targets"], kept(record), strict=True):
        own = f" {one['name']}" if len(found["targets"]) > 1 else ""
        by = f"by {found['examples']:,} validation {found['unit']}"
        if one["classes"]:
            pairs = {name: found["changes"].get(name + own, [None]) for name in OF_CLASSES}
            made = [f"{name} {pair[0]:.4g} → {pair[1]:.4g}" for name, pair in pairs.items() if None not in pair]
            yield f"{one['name']}: temperature {sure.temperature:.3g} {by}: {part} {', '.join(made)}"
            if sure.threshold != 0.5:
                yield f"{one['name']}: {one['classes'][1]} where its probability is above {sure.threshold:.3g}, {by}"
        elif sure.half is not None:
            share = record.get("measures", {}).get(f"coverage{own}", {}).get("value")
            held = "" if share is None else f", which hold {100 * share:.1f} % of the {part} part"
            yield f"{one['name']}: {100 * sure.level:g} % intervals of ± {sure.half:.4g} {by}{held}"
