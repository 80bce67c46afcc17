"""A curve from noisy points: what is the function between the measurements?"""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.data.splits import fixed
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph
from edgewise.models.signature import Features
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.drawing import Colour, Curve, Curves, Drawing, Panel, Section
from edgewise.tasks.core.task import Device, OneGraph, Pattern

END, VALID, TEST = 3.0, 50, 200


class CurveRegression(OneGraph, Predicts):
    """Noisy measurements of sin 2πx on [0, 3]; every node may use the training points' values, but not its own.

    The nodes are `points` training points, 50 validation points, both at random places and with noise, and 200 test
    points, evenly spaced and without noise: the test error is how far the fit is from the function itself. A node's
    features are its place and its measured value, 0 where it is not for training.

    Errors      fewer than two points, or a noise that is negative or not finite, is a `ConfigError`.

    Example
        >>> task = CurveRegression(points=10, noise=0.0, seed=0)
        >>> task.graph().num_edges, task.splits["train"].tolist() == list(range(10))
        (2590, True)
    """

    metric = "loss"
    name = "curve"
    unit = "points"
    contents = "noisy values of a function"

    def __init__(self, points: int, noise: float, seed: int) -> None:
        if points < 2 or not 0 <= noise < float("inf"):
            raise ConfigError(f"a curve needs at least 2 points and a finite noise, not {points} and {noise}")
        generator = torch.Generator().manual_seed(seed)
        places = torch.rand(points + VALID, generator=generator) * END
        self.place = torch.cat([places, torch.linspace(0, END, TEST)])
        error = noise * torch.randn(points + VALID, generator=generator)
        self.value = truth(self.place) + torch.cat([error, torch.zeros(TEST)])
        self.signature = Features(inputs=2, outputs=1, classes=False)
        everyone = torch.arange(len(self.place))
        x = torch.stack([self.place, torch.where(everyone < points, self.value, 0)], -1)
        senders, receivers = everyone[:points].repeat(len(everyone)), everyone.repeat_interleave(points)
        index = torch.stack([senders, receivers])[:, senders != receivers]
        graph = Graph.from_edge_index(index, len(self.place))
        super().__init__(graph, x, self.value, fixed(points, VALID, TEST))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The mean squared error."""
        return (batch.read(outputs, 1)[:, 0] - batch.target).square().mean()

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Summed squared errors as "loss", and how many as "count"."""
        errors = (batch.read(outputs.detach())[:, 0] - batch.target).double().square()
        return {"loss": errors.sum(), "count": torch.tensor(float(batch.size), dtype=torch.float64)}

    def cubic(self, places: Tensor) -> Tensor:
        """The least-squares cubic through the training points, at other places: what one would try first."""
        train = self.splits["train"]
        powers = [x.double()[:, None] ** torch.arange(4) for x in (self.place[train], places)]
        return (powers[1] @ torch.linalg.lstsq(powers[0], self.value[train].double()[:, None]).solution)[:, 0]

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Fit", lambda: [self.fit(model, pattern)])

    @torch.no_grad()
    def fit(self, model: nn.Module, pattern: Pattern) -> Drawing:
        """The model's curve beside the function, the best cubic and the training points."""
        train, test, batch = self.splits["train"], self.splits["test"], self.batch("test", pattern)
        places, function = self.place[test], self.value[test]
        fitted, cubic = batch.read(model(batch.graph, batch.x))[:, 0], self.cubic(places)
        lines: list[tuple[str, Tensor, Colour]]
        lines = [("cubic", cubic, "muted"), ("function", function, "warm"), ("attention", fitted, "accent")]
        curves = [Curve(name, places.tolist(), values.tolist(), colour) for name, values, colour in lines]
        points = self.place[train].tolist(), self.value[train].tolist()
        near, far = ((values - function).square().mean().item() for values in (fitted, cubic))
        caption = f"Mean squared error: attention {near:.3f}, the best cubic {far:.3f}."
        return Drawing("fit", Curves([Panel("", curves, "x", points)]), caption)

    @property
    def typical(self) -> str:
        return "0.25"

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The fit at the test point nearest to each requested place, as in "0.25, 1.5"."""
        batch = self.batch("test", pattern).to(device)
        fit = model.eval()(batch.graph, batch.x)[self.splits["test"].to(device), 0].cpu()
        grid, fits = self.place[self.splits["test"]], []
        for part in request.split(","):
            try:
                place = float(part)
            except ValueError:
                place = float("nan")
            if not isfinite(place) or not 0 <= place <= END:
                raise DataError(
                    f"no place {part.strip()[:80]!r} on the curve: give numbers from 0 to {END:g} as in '0.5,1'"
                )
            nearest = int((grid - place).abs().argmin())
            fits.append({"x": grid[nearest].item(), "fit": fit[nearest].item(), "truth": truth(grid[nearest]).item()})
        return {"places": fits}


def truth(x: Tensor) -> Tensor:
    """sin 2πx."""
    return torch.sin(2 * torch.pi * x)


def curve(points: int = 150, noise: float = 0.5, seed: int = 0) -> CurveRegression:
    """Recover a periodic function from noisy measurements. Simulated.

    Reference   Baggag and Saad, §4.1, Fig. 5

    Args:
        points: How many training points there are.
        noise: The standard deviation of the measurements; the function itself has 0.71.
        seed: Draws places and noise.
    """
    return CurveRegression(points, noise, seed)
