"""Charged particles in space: where will they be? Simulated as the EGNN paper does, once, and cached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.splits import Split, fixed
from edgewise.errors import ConfigError
from edgewise.files import Tensors, cached
from edgewise.graphs import Graph, complete
from edgewise.models.signature import MovingParticles
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch, check_values
from edgewise.tasks.core.subject import Subject, captured, movement
from edgewise.tasks.core.task import Device, NumberedExamples, Pattern, check_range

Floats = NDArray[np.float64]

STEP, LARGEST_FORCE, SPEED = 0.001, 100.0, 0.5
LENGTH, EVERY = 5_000, 100  # steps of a trajectory, and how many of them lie between two frames
POOL = 10_000  # training trajectories that are drawn before the validation ones, however many are used
AT_ONCE = 512  # trajectories integrated side by side: what fits into a core's cache
SPACE = 3


@dataclass(frozen=True)
class Trajectories:
    """M trajectories of N particles in float64: charges [M, N], positions and velocities [M, frames, N, 3]."""

    charges: Tensor
    positions: Tensor
    velocities: Tensor


def draw(count: int, particles: int, random: np.random.RandomState) -> tuple[Floats, Floats, Floats]:
    """Charges [M, N], and first positions and velocities [M, 3, N].

    Equation    q_i = ±1, each with probability 1/2;  x_i ~ N(0, (N/5)^(2/3) I);  v_i = 0.5 u_i/|u_i|, u_i ~ N(0, I)
    Cost        most of it goes into the noise of scale 0 that the source draws for every frame: skipping it would give
                other particles than the paper's
    Reference   Satorras, Hoogeboom & Welling, 2021, and their code's order of draws
    """
    charges, x, v = (np.empty((count, *shape)) for shape in ((particles,), *[(SPACE, particles)] * 2))
    unused = 2 * (LENGTH // EVERY - 1) * SPACE * particles
    for m in range(count):
        charges[m] = random.choice([-1.0, 0.0, 1.0], size=particles, p=[0.5, 0.0, 0.5])
        x[m] = random.randn(SPACE, particles) * (particles / 5) ** (1 / 3)
        v[m] = random.randn(SPACE, particles)
        random.randn(unused)
    return charges, x, v * SPEED / np.sqrt((v**2).sum(1, keepdims=True))


def simulate(charges: Floats, x: Floats, v: Floats, frames: tuple[int, ...]) -> Trajectories:
    """Let charged particles move, and keep some frames: frame f is the state after 100 (f + 1) steps.

    Equation    v ← v + dt F(x),  x ← x + dt v;  F_i = clip(Σ_j q_i q_j (x_i - x_j) / |x_i - x_j|³, ±100), dt = 0.001
    Shapes      charges [M, N], x and v [M, 3, N] -> positions and velocities [M, frames, N, 3]
    Cost        O(steps M N²) time; all trajectories at once, in blocks that fit into a core's cache
    Differs     the force of a pair is computed once for both, and |x_i - x_j|² is not |x_i|² + |x_j|² - 2 x_i·x_j. That
                the first half step of leap-frog is a whole one is the source's
    Reference   Satorras, Hoogeboom & Welling, 2021, §5.1; Kipf et al., 2018

    Example
        >>> apart = np.array([[[0.0, 1e6], [0.0, 0.0], [0.0, 0.0]]])  # too far apart to feel each other
        >>> simulate(np.ones((1, 2)), apart, np.ones((1, 3, 2)), (0,)).positions[0, 0, 0]  # 100 steps of 0.001
        tensor([0.1000, 0.1000, 0.1000], dtype=torch.float64)
    """
    if not frames or list(frames) != sorted(set(frames)) or frames[0] < 0:
        raise ConfigError(f"frames must be numbers from 0 on that rise, not {frames}")
    count, particles = charges.shape
    pairs = np.array(list(combinations(range(particles), 2))).reshape(-1, 2)
    difference = np.zeros((len(pairs), particles))  # x_i - x_j of every pair is difference @ x
    difference[np.arange(len(pairs)), pairs[:, 0]] = 1
    difference[np.arange(len(pairs)), pairs[:, 1]] = -1
    states = np.empty((2, count, len(frames), particles, SPACE))
    for block in np.array_split(np.arange(count), -(-count // AT_ONCE)):
        q = charges[block].T
        strength = q[pairs[:, 0]] * q[pairs[:, 1]]  # [pairs, M]
        here, speed = (np.ascontiguousarray(part[block].transpose(1, 2, 0)) for part in (x, v))  # [3, N, M]
        for step in range(1, EVERY * (frames[-1] + 1) + 1):
            speed += STEP * _force(here, strength, difference)
            here += STEP * speed
            if step % EVERY == 0 and step // EVERY - 1 in frames:
                frame = frames.index(step // EVERY - 1)
                states[0, block, frame], states[1, block, frame] = here.transpose(2, 1, 0), speed.transpose(2, 1, 0)
    return Trajectories(torch.from_numpy(charges.copy()), *torch.from_numpy(states))


def _force(x: Floats, strength: Floats, difference: Floats) -> Floats:
    """The clipped force on every particle, [3, N, M]."""
    r = difference @ x
    squared = np.einsum("spm,spm->pm", r, r)
    r *= strength / (squared * np.sqrt(squared))
    force: Floats = difference.T @ r
    return np.clip(force, -LARGEST_FORCE, LARGEST_FORCE, out=force)


def nbody(
    training: int = 3_000,
    held_out: int = 2_000,
    particles: int = 5,
    horizon: int = 10,
    seed: int = 43,
    turned: bool = False,
) -> Forecast:
    """Forecast where charged particles will be, from their positions, velocities and charges now.

    5 particles with charges ±1 attract and repel one another for 5,000 steps of 0.001, of which every hundredth is a
    frame. The model reads frame 30 and says the positions of frame 40; the measure is the mean squared error of a
    coordinate. Of 10,000 training trajectories the first 3,000 are used, as in the paper. The simulation takes some
    ten seconds, once: its frames are cached.

    Reference   Satorras, Hoogeboom & Welling, "E(n) equivariant graph neural networks", 2021, §5.1

    Args:
        training: Training trajectories, at most 10,000.
        held_out: Validation trajectories, and as many test trajectories.
        particles: Particles of a trajectory.
        horizon: Frames between what is read and what is forecast, at most 19.
        seed: Chooses the trajectories; 43 is the paper's.
        turned: Whether each training trajectory is turned, and mirrored or not, at random whenever it is read: for
            models that do not know that this changes nothing.
    """
    check_range(1, POOL, training=training, held_out=held_out)
    check_range(1, 1000, particles=particles)
    check_range(1, LENGTH // EVERY - 31, horizon=horizon)
    check_range(0, 2**32 - 1, seed=seed)
    frames = 30, 30 + horizon
    sizes: dict[Split, int] = {"train": training, "valid": held_out, "test": held_out}
    trajectories = _trajectories(sizes, particles, frames, seed)
    return Forecast("nbody", trajectories, fixed(training, held_out, held_out), turned)


def _trajectories(sizes: Mapping[Split, int], particles: int, frames: tuple[int, ...], seed: int) -> Trajectories:
    """Those of all splits."""
    key = sorted(sizes.items()), particles, frames, seed, STEP, LARGEST_FORCE, SPEED, LENGTH, EVERY, POOL

    def make() -> Tensors:
        random = np.random.RandomState(seed)
        drawn = [draw(POOL if split == "train" else size, particles, random) for split, size in sizes.items()]
        used = [[part[:size] for part in parts] for parts, size in zip(drawn, sizes.values(), strict=True)]
        charges, x, v = (np.concatenate(parts) for parts in zip(*used, strict=True))
        return vars(simulate(charges, x, v, frames))

    shape = sum(sizes.values()), len(frames), particles, SPACE
    return Trajectories(**cached("nbody", key, make, {"charges": shape[::2], "positions": shape, "velocities": shape}))


def _all_others(particles: int) -> Graph:
    return complete(particles).remove_self_loops()


class Forecast(NumberedExamples, Predicts):
    """Each trajectory is one example: the first frame is read, the positions of the last one are the target.

    The model reads x [B, N, 7] = position, velocity and charge on one shared graph; unless a pattern says otherwise,
    every particle attends to all others. With `turned`, training trajectories are turned at random.
    """

    metric = "mse"
    unit = "trajectories"

    def __init__(
        self, name: str, trajectories: Trajectories, splits: Mapping[Split, Tensor], turned: bool = False
    ) -> None:
        self.name, self.turned, self.splits = name, turned, splits
        first = trajectories.positions[:, 0], trajectories.velocities[:, 0], trajectories.charges[..., None]
        self.x = torch.cat(first, -1).float()
        self.target = trajectories.positions[:, -1].float()
        self.signature = MovingParticles(inputs=self.x.shape[-1], outputs=SPACE, space=SPACE)
        self.contents = f"trajectories of {self.x.shape[1]} particles"
        self.epoch_size = len(splits["train"])

    def graph(self, pattern: Pattern = None) -> Graph:
        """A pattern over the particles; the data's own graph lets every particle attend to all others."""
        return self.laid(pattern, _all_others, self.x.shape[1])

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """How far a particle is expected to move, by what the others send to it."""
        return movement(captured(model, lambda: self.predict(model, pattern, request, "cpu")), model, SPACE)

    def batch(self, numbers: Tensor, pattern: Pattern, generator: torch.Generator | None = None) -> Batch:
        now, target = (x.index_select(0, numbers) for x in (self.x, self.target))
        if self.turned and generator is not None:
            rotation, upper = torch.linalg.qr(torch.randn(len(numbers), SPACE, SPACE, generator=generator))
            turn = rotation * upper.diagonal(dim1=-2, dim2=-1).sign()[:, None]  # uniform over the orthogonal group
            x, v, q = now.split([SPACE, SPACE, now.shape[-1] - 2 * SPACE], -1)
            now, target = torch.cat([x @ turn, v @ turn, q], -1), target @ turn
        return Batch(self.graph(pattern), now, target)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        check_values(outputs, batch.target)
        return functional.mse_loss(outputs, batch.target)

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        squared = (outputs.detach().double() - batch.target).square().sum()
        count = torch.tensor(float(batch.size), dtype=torch.float64, device=squared.device)
        return {"loss": squared, "mse": squared, "count": count}

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The forecast of one trajectory, named by a split and a number as in "test:7", beside what happened."""
        number = self.example(request)
        batch = self.batch(number[None], pattern).to(device)
        forecast = model.eval()(batch.graph, batch.x)
        return {
            "trajectory": request,
            "charges": self.x[number, :, -1].tolist(),
            "forecast": forecast[0].tolist(),
            "truth": batch.target[0].tolist(),
            "mse": self.loss(forecast, batch).item(),
        }
