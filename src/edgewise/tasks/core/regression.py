"""Tasks whose outputs are values: of graphs, of nodes."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.columns import scale_of
from edgewise.data.splits import Split
from edgewise.errors import DataError
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.classification import worst
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Device, Pattern


class Regression(Predicts):
    """Each target is a value: the mean squared error trains, its root in the data's own unit is reported.

    Equation    loss = 1/M Σ_m (y_m - (μ + σ f_m))² / σ², with μ, σ the mean and deviation of the training values;
                rmse = √(1/M Σ_m (y_m - ŷ_m)²) over a split, mae = 1/M Σ_m |y_m - ŷ_m|, in the unit of y
    Edge cases  training values that are all the same: σ = 1
    """

    metric = "rmse"
    maximise = False
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

    @torch.no_grad()
    def quality(self, model: nn.Module, split: Split, size: int, pattern: Pattern, device: Device) -> dict[str, Any]:
        """The examples with the largest errors, predicted and measured."""
        pairs = []
        for batch in self.batches(split, size, pattern):
            here = batch.to(device)
            values = self.mean + self.deviation * here.read(model(*here.inputs)).double().squeeze(-1).cpu()
            pairs.append(torch.stack([values, batch.target.double().flatten()]))
        predicted, measured = torch.cat(pairs, 1)
        numbers: Any = self.splits[split]
        made = [
            {"example": self.name_of(int(numbers[place])), "predicted": value, "measured": known}
            for place, value, known in worst(predicted, measured)
        ]
        return {"worst": made}

    def value(self, output: Tensor) -> float:
        """An output [1] in the unit of the data."""
        return self.mean + self.deviation * float(output[0])

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """The value, in the data's unit."""
        return of_value(super().subject(model, pattern, request), self.mean, self.deviation)

    def preprocessing(self) -> dict[str, Any]:
        return {"value": "mean + deviation * y", "mean": self.mean, "deviation": self.deviation}


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
    return replace(subject, number=lambda outputs: mean + deviation * outputs[index], what="the value")
