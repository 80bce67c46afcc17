"""Learning to simulate, frame by frame: soft discs that fall, splash and settle in a box, as OpenMM simulates them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from edgewise.data.splits import Split, Splits
from edgewise.errors import ConfigError, DataError, installing
from edgewise.files import Tensors, cached
from edgewise.graphs import Graph
from edgewise.graphs.make.neighbors import radius_graph_in_members
from edgewise.kernels import gaussians
from edgewise.models.signature import MovingParticles
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch, check_values
from edgewise.tasks.core.drawing import Animation, Colour, Curve, Curves, Drawing, Films, Output, Panel, Section, Strip
from edgewise.tasks.core.subject import Subject, captured, movement
from edgewise.tasks.core.task import Device, NumberedExamples, Pattern, check_range, given

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
    maximise = False
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

    def features(self, history: Tensor, walls: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """What the model reads of [B, history + 1, N, D], the last frame being now: [B · N, inputs]; between `walls`,
        of each particle the low and the high ones [N, D], or else those of the box."""
        low, high = walls or (torch.zeros_like(self.box), self.box)
        moves, now = history.diff(dim=1).transpose(1, 2), history[:, -1]
        x = features_of(now, moves / self.velocity, moves[..., -1, :], torch.cat([now - low, high - now], -1))
        return x.flatten(0, 1).float()

    def numbers(self, split: Split) -> Tensor:
        return self.examples[split]

    def batch(self, numbers: Tensor, pattern: Pattern, generator: torch.Generator | None = None) -> Batch:
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


def features_of(now: Tensor, recent: Tensor, move: Tensor, near: Tensor) -> Tensor:
    """What a simulator reads of particles.

    Shapes      positions [*, N, D], moves in units of their deviation [*, N, H, D], the last move [*, N, D], distances
                from the low and the high walls [*, N, 2 D] -> [*, N, inputs], in units of the reach
    """
    soon = near + torch.cat([move, -move], -1)
    bells = gaussians(soon.clamp(min=0)[..., None], BELLS).flatten(-2)  # beyond a wall is at the wall
    return torch.cat([now, move, recent.flatten(-2), near.clamp(-1, 1), bells], -1)


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


Floats = NDArray[np.float64]

SIDE, RADIUS, REACH, GRAVITY = 1.0, 0.04, 0.12, 9.81  # metres, and metres per second²
STIFFNESS, FRICTION = 1e5, 200.0  # 1/s² and 1/s, because a disc's mass is 1
FRAME, SUBSTEPS = 0.0025, 20  # a contact lasts three frames
LONGEST_HISTORY = 5
FRAMES = LONGEST_HISTORY + 1 + LONGEST
MOST = 120  # discs


def draw(particles: int, random: np.random.Generator) -> tuple[Floats, Floats]:
    """First places and velocities [N, 2]: a block of 6 to 9 columns somewhere in the box, which moves as a whole.

    Equation    v_i = u + w_i, u_x ~ N(0, 1), u_y ~ N(0, 0.5²), w_i ~ N(0, 0.3²)
    """
    columns, gap = int(random.integers(6, 10)), 2.05 * RADIUS
    columns = max(columns, -(-particles // int((SIDE - 2.1 * RADIUS) / gap)))  # not higher than the box
    cells = np.stack([np.arange(particles) % columns, np.arange(particles) // columns], -1) * gap
    corner = random.uniform(size=2) * (SIDE - 2.1 * RADIUS - cells.max(0))
    places = 1.05 * RADIUS + cells + corner + random.uniform(-5e-4, 5e-4, (particles, 2))
    return places, random.normal(size=2) * [1, 0.5] + 0.3 * random.normal(size=(particles, 2))


def simulate(places: Floats, velocities: Floats, frames: int, substeps: int = SUBSTEPS) -> Floats:
    """Let soft discs fall and collide, as the discrete element method has them: centres in each frame [frames, N, 2].

    Equation    r_i'' = Σ_j [k (2R - r_ij)₊ - γ (1 - r_ij/L)₊² v_ij·n_ij] n_ij - g + walls
    Symbols     n_ij from j to i; a disc's mass is 1, k = STIFFNESS, γ = FRICTION, L = REACH; a wall pushes with 2 k
                times the overlap, as the disc's mirror image would
    Errors      `DataError` without OpenMM
    Cost        O(frames substeps N²): a second for 60 discs and 206 frames
    Reference   Cundall & Strack, 1979; the friction is that of dissipative particle dynamics, at temperature 0
    """
    try:
        import openmm
    except ImportError:
        raise DataError(f"this scene is simulated by OpenMM: {installing('physics')}") from None
    overlap = [f"max(0, {RADIUS} - {axis})^2 + max(0, {axis} - {SIDE - RADIUS})^2" for axis in "xy"]
    outside = openmm.CustomExternalForce(f"{GRAVITY} * y + {STIFFNESS} * ({' + '.join(overlap)})")
    pairs = openmm.CustomNonbondedForce(f"{STIFFNESS / 2} * max(0, {2 * RADIUS} - r)^2")
    system = openmm.System()  # its nanometres, picoseconds and daltons are our metres, seconds and masses
    for disc in range(len(places)):
        system.addParticle(1.0)
        pairs.addParticle([])
        outside.addParticle(disc, [])
    system.addForce(pairs)
    system.addForce(outside)
    steps = openmm.DPDIntegrator(0.0, FRICTION, REACH, FRAME / substeps)
    steps.setRandomNumberSeed(1)
    context = openmm.Context(system, steps, openmm.Platform.getPlatformByName("Reference"))  # in float64
    context.setPositions(np.pad(places, ((0, 0), (0, 1))))
    context.setVelocities(np.pad(velocities, ((0, 0), (0, 1))))
    film = np.empty((frames, len(places), 2))
    for frame in range(frames):
        if frame:
            steps.step(substeps)
        film[frame] = context.getState(getPositions=True).getPositions(asNumpy=True)._value[:, :2]
    return film


def granular(
    training: int = 100,
    held_out: int = 10,
    particles: int = 60,
    history: int = 3,
    noise: float = 0.06,
    seed: int = 0,
) -> Simulation:
    """Learn to simulate soft discs that fall, splash and settle in a box, frame by frame.

    A block of discs of 8 cm falls in a box of 1 m: 206 frames of 2.5 ms, simulated by OpenMM. The model reads the
    last moves and says the next; the measure is its squared error on all frames of the test films, over that of
    letting all go straight on. `edgewise predict RUN test:0` lets it go on by itself for 200 frames. The simulation
    takes two minutes, once: its films are cached.

    Reference   Sanchez-Gonzalez et al., "Learning to simulate complex physics with graph networks", 2020

    Args:
        training: Training films.
        held_out: Validation films, and as many test films.
        particles: Discs of a film, at most 120.
        history: Moves that are read, at most 5.
        noise: Noise on the moves that are read in training, in units of their deviation.
        seed: Chooses the films.
    """
    check_range(1, 100_000, training=training, held_out=held_out)
    if not 1 <= particles <= MOST:
        raise ConfigError(f"particles must be from 1 to {MOST}, not {particles}: the box has no room for more")
    check_range(2, LONGEST_HISTORY, history=history)
    check_range(0, 10, noise=noise)
    check_range(0, 2**32 - 1, seed=seed)
    films = _films(training + 2 * held_out, particles, seed)
    test, valid, train = torch.arange(len(films)).split([held_out, held_out, training])  # the first films are tests
    splits: Splits = {"test": test, "valid": valid, "train": train}
    scene = Scene(films, (SIDE, SIDE), RADIUS, REACH, FRAME, GRAVITY)
    return Simulation("granular", scene, splits, history, noise)


def _films(count: int, particles: int, seed: int) -> Tensor:
    """The films [M, frames, N, 2]."""
    scene = SIDE, RADIUS, REACH, GRAVITY, STIFFNESS, FRICTION, FRAME, SUBSTEPS, FRAMES

    def make() -> Tensors:
        starts = (draw(particles, np.random.default_rng((seed, film))) for film in range(count))
        return {"films": torch.from_numpy(np.stack([simulate(*start, FRAMES) for start in starts]))}

    return cached("granular", (count, particles, seed, scene), make, {"films": (count, FRAMES, particles, 2)})["films"]
