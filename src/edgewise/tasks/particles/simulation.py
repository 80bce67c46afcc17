"""Learning to simulate: from a short history of particles in a box to the next frame, and on from there by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from edgewise.data.splits import Split
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.graphs.make.neighbors import radius_graph_in_members
from edgewise.kernels import gaussians
from edgewise.models.signature import MovingParticles
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch, check_values
from edgewise.tasks.core.drawing import Animation, Colour, Curve, Curves, Drawing, Films, Output, Panel, Section, Strip
from edgewise.tasks.core.examples import NumberedExamples
from edgewise.tasks.core.subject import Subject, captured, movement
from edgewise.tasks.core.task import Device, Pattern, given

BELLS = 32  # Gaussians in which the distance from a wall is expressed
LONGEST = 200  # frames of a roll-out


class Simulation(NumberedExamples, Predicts):
    """Each frame of a film is one example: the history before it is read, the positions in it are the target.

    The model reads [x ‖ v ‖ c] in units of the reach: position, last move, and what else is known: the last `history`
    moves in units of their deviation, the clipped distances from the walls, and in Gaussians what those distances would
    be a frame later without a force. Its graph joins all particles within reach of each other, anew for each frame.

    Equation    loss = mean |x' - x_target|² / σ² with σ the deviation of accelerations x_{t+1} - 2 x_t + x_{t-1};
                ratio = Σ |x' - x_target|² / Σ |x + v - x_target|²: 1 is as good as going straight on
                noise: the moves of a training history get a random walk whose last step has the deviation `noise` σ_v;
                the target moves along with the last position, so that the model learns to undo wrong velocities
    Errors      ConfigError for films that are too short, or a pattern: the graph follows from the positions
    Cost        a batch of B frames: O(B N²) for up to 1,024 particles, O(B N log N) above
    Reference   Sanchez-Gonzalez et al., "Learning to simulate complex physics with graph networks", 2020, §4
    """

    signature: MovingParticles
    metric = "ratio"
    unit = "frames"

    def __init__(
        self, name: str, scene: Scene, splits: Mapping[Split, Tensor], history: int = 5, noise: float = 0.0
    ) -> None:
        frames, space = scene.positions.shape[1], scene.positions.shape[-1]
        if frames < history + 2 or history < 2:
            raise ConfigError(f"{name} has films of {frames} frames: too few for a history of {history} moves")
        self.name, self.scene, self.splits, self.history, self.noise = name, scene, splits, history, noise
        self.films = scene.positions / scene.reach
        self.box = self.films.new_tensor(scene.box) / scene.reach
        training = self.films[splits["train"]]
        self.velocity = float(training.diff(dim=1).std(correction=0)) or 1.0
        self.acceleration = float(training.diff(n=2, dim=1).std(correction=0)) or 1.0
        known = history * space + 2 * space * (1 + BELLS)
        self.signature = MovingParticles(2 * space + known, space, space=space, acceleration=self.acceleration)
        last = torch.arange(history + 1, frames)  # an example is a film and the frame to forecast
        self.examples = {split: torch.cartesian_prod(some, last).reshape(-1, 2) for split, some in splits.items()}
        self.epoch_size = len(self.examples["train"])
        self.contents = f"films of {frames} frames of {scene.positions.shape[2]} particles"

    def frames_graph(self, positions: Tensor) -> Graph:
        """Who is within reach of whom in each frame: positions [B, N, D] -> a disjoint graph of B members."""
        count, particles = positions.shape[:2]
        sizes = torch.full((count,), particles)
        return radius_graph_in_members(positions.flatten(0, 1), sizes, 1.0)

    def features(self, history: Tensor) -> Tensor:
        """What the model reads of [B, history + 1, N, D], the last frame being now: [B · N, inputs]."""
        moves, now = history.diff(dim=1), history[:, -1]
        later = now + moves[:, -1]
        near, soon = (torch.cat([place, self.box - place], -1) for place in (now, later))
        bells = gaussians(soon.clamp(min=0)[..., None], BELLS).flatten(2)  # beyond a wall is at the wall
        recent = (moves / self.velocity).transpose(1, 2).flatten(2)
        return torch.cat([now, moves[:, -1], recent, near.clamp(-1, 1), bells], -1).flatten(0, 1).float()

    def numbers(self, split: Split) -> Tensor:
        """The frames of a split's films."""
        return self.examples[split]

    def batch(self, numbers: Tensor, pattern: Pattern, generator: torch.Generator | None = None) -> Batch:
        """Those frames; in training, their histories are disturbed."""
        if not given(pattern):
            raise ConfigError(f"{self.name} makes its graph from positions: it takes no other")
        film, frame = numbers.T
        history = self.films[film[:, None], frame[:, None] + torch.arange(-self.history - 1, 0)]
        target = self.films[film, frame]
        if generator is not None and self.noise:
            walk = random_walk(history.shape, self.noise * self.velocity, generator)
            history, target = history + walk, target + walk[:, -1]
        graph, rows = self.frames_graph(history[:, -1]), torch.arange(target.shape[0] * target.shape[1])
        return Batch(graph, self.features(history), target.flatten(0, 1).float(), rows)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Mean squared error of an acceleration, in units of its deviation."""
        check_values(outputs, batch.target)
        return ((outputs - batch.target) / self.acceleration).square().mean()

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        assert isinstance(batch.x, Tensor)
        place, move = batch.x[:, : 2 * self.signature.space].double().chunk(2, -1)
        errors = {"loss": outputs.detach().double(), "constant_velocity": place + move}
        scores = {name: ((x - batch.target) / self.acceleration).square().sum() for name, x in errors.items()}
        return scores | {"count": torch.tensor(float(batch.size), dtype=torch.float64, device=outputs.device)}

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        return means | {"ratio": means["loss"] / means["constant_velocity"]}

    @torch.no_grad()
    def roll_out(self, model: nn.Module, films: Tensor, steps: int = LONGEST) -> Rollout:
        """Let a model go on by itself from the first frames of some films, which it reads side by side.

        Shapes      films [M] -> `Rollout` of history + 1 given frames and `steps` more, fewer where a film is shorter
        Cost        `steps` evaluations, one after the other; the graph is built anew for each
        """
        start = self.history + 1
        steps = min(steps, self.films.shape[1] - start)
        frames, device = list(self.films[films, :start].unbind(1)), next(model.parameters()).device
        model.eval()
        for _ in range(steps):
            history = torch.stack(frames[-start:], 1)
            graph, x = self.frames_graph(history[:, -1]).to(device), self.features(history).to(device)
            frames.append(model(graph, x).double().cpu().view_as(frames[-1]))
        forecast = torch.stack(frames, 1) * self.scene.reach
        return Rollout(self.scene, forecast, self.scene.positions[films, : start + steps], start)

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """How far a particle moves in the first step of a roll-out, by what its neighbours send to it."""
        inputs = captured(model, lambda: self.roll_out(model, self.example(request, "films")[None], steps=1))
        return movement(inputs, model, self.signature.space)

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Roll-out", lambda: self.roll_out(model, self.splits["test"]).drawings())

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """A roll-out of one film, named by a split and a number as in "test:7", measured beside what happened."""
        return self.examine(model, pattern, request, device).values

    def examine(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> Output:
        """As `predict`, and the film beside the truth as an animation."""
        rollout = self.roll_out(model, self.example(request, "films")[None])
        name = f"rollout-{request.strip().replace(':', '-')}"
        return Output({"trajectory": request} | rollout.numbers(), {"animation": rollout.animation(name)})


def random_walk(shape: torch.Size, deviation: float, generator: torch.Generator) -> Tensor:
    """What disturbs the positions of histories [B, H + 1, N, D]: the first stays, and the moves between them get noise
    that adds up from move to move, to the given deviation at the last.

    Reference   Sanchez-Gonzalez et al., 2020, §4.2 and their code
    """
    count, frames, particles, space = shape
    steps = torch.randn(count, frames - 1, particles, space, generator=generator, dtype=torch.float64)
    moves = steps.cumsum(1) * (deviation / (frames - 1) ** 0.5)
    return pad(moves.cumsum(1), (0, 0, 0, 0, 1, 0))


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
