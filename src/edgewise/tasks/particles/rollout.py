"""What a learned simulator does by itself, beside the truth: measured, and drawn as films."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.tasks.core.drawing import Animation, Colour, Curve, Curves, Drawing, Films, Panel, Strip

SLOWER = 12  # times slower than life an animation plays
LAYERS = 4  # colours of discs, by how high they begin


@dataclass(frozen=True)
class Scene:
    """M films of N equal discs or balls in a box, whose one corner is the origin: centres [M, T, N, D], float64.

    Lengths, such as the `reach` up to which particles and walls act on a particle, are in metres, the time between two
    frames in seconds, gravity, downwards along the last axis, in metres per second²."""

    positions: Tensor
    box: tuple[float, ...]
    radius: float
    reach: float
    frame: float
    gravity: float = 0.0


@dataclass(frozen=True)
class Rollout:
    """Films that a model continued by itself, beside what happened: centres [M, T, N, D] in metres.

    Of both, the first `given` frames are the truth's."""

    scene: Scene
    forecast: Tensor
    truth: Tensor
    given: int

    def error(self) -> Tensor:
        """Root mean square distance between forecast and truth in each frame [T], in metres."""
        return (self.forecast - self.truth).square().sum(-1).mean((0, 2)).sqrt()

    def outside(self, positions: Tensor) -> float:
        """How far a particle's rim passes a wall at most, in metres; below 0 where none touches one."""
        box = positions.new_tensor(self.scene.box)
        return float(self.scene.radius - torch.minimum(positions, box - positions).min())

    def energy(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Kinetic and potential energy of a particle [M, T - 1] between each frame and the next, in J/kg: the mean."""
        moves, between = positions.diff(dim=1) / self.scene.frame, (positions[:, 1:] + positions[:, :-1]) / 2
        return 0.5 * moves.square().sum(-1).mean(-1), self.scene.gravity * between[..., -1].mean(-1)

    def momentum(self, positions: Tensor) -> Tensor:
        """Mean velocity of the particles [M, T - 1, D] between each frame and the next, in metres per second."""
        return positions.diff(dim=1).mean(2) / self.scene.frame

    def numbers(self) -> dict[str, Any]:
        """Errors, walls, energy and momentum, of forecast and truth, as JSON can hold them."""
        error, last = self.error(), self.forecast.shape[1] - self.given
        steps = sorted({min(step, last) for step in (1, 10, 50, 100, last)})
        numbers: dict[str, Any] = {
            "steps": last,
            "seconds": last * self.scene.frame,
            "distance_after_steps": {step: float(error[self.given - 1 + step]) for step in steps},
        }
        for name, positions in (("forecast", self.forecast), ("truth", self.truth)):
            kinetic, potential = self.energy(positions)
            numbers[name] = {
                "outside_the_walls": self.outside(positions),
                "energy_first": float((kinetic + potential)[:, self.given - 1].mean()),
                "energy_last": float((kinetic + potential)[:, -1].mean()),
                "momentum_last": self.momentum(positions)[:, -1].mean(0).tolist(),
            }
        return numbers

    def films(self) -> Films:
        """The first film from the last given frame on, truth and model, each particle coloured by its first height."""
        pairs = [("truth", self.truth), ("model", self.forecast)]
        rank = self.truth[0, 0, :, -1].argsort().argsort()
        films = [(name, positions[0, self.given - 1 :].numpy()) for name, positions in pairs]
        scene = self.scene
        return Films(films, (LAYERS * rank // len(rank)).numpy(), scene.box, scene.radius, scene.frame, SLOWER)

    def animation(self, name: str) -> Drawing:
        """The first film, moving."""
        return Drawing(name, Animation(self.films()), f"The first film, {SLOWER} times slower than life.")

    def drawings(self) -> list[Drawing]:
        """The first film, moving and at some moments, and what all films measure over the steps."""
        films, steps = len(self.forecast), self.forecast.shape[1] - self.given
        truth, model = (1000 * self.outside(positions) for positions in (self.truth, self.forecast))
        strip = (
            f"Above the truth, below the model, which read the first {self.given} frames and went on by itself. The "
            f"colour of a disc is how high it began. In {films} films of {steps} steps a rim passes a wall by at most "
            f"{truth:.1f} mm in truth and {model:.1f} mm in the model."
        )
        laws = (
            f"Means over {films} test films and their particles. The path of a single particle cannot be predicted for "
            "long: two films that begin a hair apart part as fast. What the particles do together can."
        )
        return [
            self.animation("animation"),
            Drawing("rollout", Strip(self.films()), strip),
            Drawing("laws", Curves(self.laws()), laws),
        ]

    def laws(self) -> list[Panel]:
        """Energy, momentum and distance over the steps, of truth and model."""
        steps = torch.arange(1, self.forecast.shape[1] - self.given + 1).tolist()
        energy, momentum = [], []
        films: list[tuple[str, Tensor, Colour]] = [("truth", self.truth, "warm"), ("model", self.forecast, "accent")]
        for name, positions, colour in films:
            seen = positions[:, self.given - 1 :]
            kinetic, potential = self.energy(seen)
            energy.append(Curve(name, steps, (kinetic + potential).mean(0).tolist(), colour))
            momentum.append(Curve(name, steps, self.momentum(seen)[..., -1].mean(0).tolist(), colour))
        distance = Curve("apart", steps, (100 * self.error()[self.given :]).tolist(), "accent")
        return [
            Panel("energy of a disc, J/kg", energy),
            Panel("upward momentum, m/s", momentum),
            Panel("distance, cm", [distance]),
        ]
