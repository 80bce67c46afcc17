"""Atoms in motion, simulated through ASE: frames of a trajectory, and how well its energy is conserved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import ConfigError, EdgewiseError, installing

KINETIC = 103.642696526805  # eV in 1 u Å²/fs²
STEP, FRICTION = 5.0, 0.01  # fs; 1/fs
MOVING = ("positions", "velocities", "forces", "energies")  # what differs from frame to frame
Ase = Any  # ase is optional, so its types cannot be named


@dataclass(frozen=True)
class Frames:
    """States of N atoms in float64, what acts on them, and the energy: [*] frames, of one trajectory or of several.

    Shapes      numbers [N] (of the elements), masses [N] u, cell [3] Å (0: open along that axis),
                positions [*, N, 3] Å, velocities [*, N, 3] Å/fs, forces [*, N, 3] eV/Å, energies [*] eV (potential)
    """

    numbers: Tensor
    masses: Tensor
    cell: Tensor
    positions: Tensor
    velocities: Tensor
    forces: Tensor
    energies: Tensor

    @property
    def kinetic(self) -> Tensor:
        """Kinetic energies [*] in eV: Σ_i ½ m_i |v_i|²."""
        return 0.5 * KINETIC * (self.masses[:, None] * self.velocities.square()).sum((-1, -2))

    @staticmethod
    def stacked(trajectories: list[Frames]) -> Frames:
        """Trajectories [M, T] of the same atoms."""
        parts = {name: torch.stack([getattr(part, name) for part in trajectories]) for name in MOVING}
        return replace(trajectories[0], **parts)

    def since(self, frame: int) -> Frames:
        """A trajectory from one of its frames on."""
        return replace(self, **{name: getattr(self, name)[frame:] for name in MOVING})

    def atoms(self, *index: int) -> Ase:
        """One frame as ASE's `Atoms`, with its velocities."""
        ase = import_ase()
        body = ase.Atoms(self.numbers.tolist(), self.positions[index].numpy(), masses=self.masses.numpy())
        body.cell, body.pbc = self.cell.tolist(), (self.cell > 0).tolist()
        body.set_velocities(self.velocities[index].numpy() / ase.units.fs)
        return body


def simulate(
    atoms: Ase, calculator: Ase, frames: int, every: int = 1, step: float = STEP,
    temperature: float | None = None, seed: int = 0,
) -> Frames:  # fmt: skip
    """Let atoms move as any ASE calculator wants: at constant energy, or in a bath of some temperature.

    Equation    m_i x_i'' = F_i = -∂E/∂x_i, by velocity Verlet;
                with a temperature m_i x_i'' = F_i - γ m_i x_i' + √(2 γ m_i k T) η_i, η_i white noise
    Symbols     atoms = an `ase.Atoms`, which stays as it is; calculator = any ASE calculator; step in fs; frames = how
                many are recorded, the first of them now, the next after `every` steps each; temperature = T in K;
                γ = 0.01/fs
    Shapes      N atoms -> `Frames` [frames]
    Errors      ConfigError for a number that cannot be, or a cell that is no box along the axes
    Edge cases  the same seed, the same trajectory
    Cost        (frames - 1) · every force evaluations
    Reference   Verlet, 1967; Vanden-Eijnden & Ciccotti, 2006 (ASE's Langevin)
    """
    ase = import_ase()
    if frames < 1 or every < 1 or not 0 < step < np.inf or (temperature is not None and not 0 <= temperature < np.inf):
        raise ConfigError(f"impossible: frames={frames}, every={every}, step={step} fs, temperature={temperature} K")
    body, cell = atoms.copy(), box(atoms)
    body.calc = calculator
    if temperature is None:
        from ase.md.verlet import VelocityVerlet

        motion = VelocityVerlet(body, step * ase.units.fs)
    else:
        from ase.md.langevin import Langevin

        bath = {"temperature_K": temperature, "friction": FRICTION / ase.units.fs, "fixcm": False}
        motion = Langevin(body, step * ase.units.fs, rng=np.random.RandomState(seed), **bath)
    states: list[tuple[Any, ...]] = []
    for frame in range(frames):
        if frame:
            motion.run(every)
        velocities = body.get_velocities() * ase.units.fs
        states.append((body.get_positions(), velocities, body.get_forces(), body.get_potential_energy()))
    still = torch.from_numpy(body.numbers).long(), torch.from_numpy(body.get_masses()).double(), cell
    return Frames(*still, *(torch.from_numpy(np.stack(values)).double() for values in zip(*states, strict=True)))


def box(atoms: Ase) -> Tensor:
    """The edges [3] of ASE atoms' periodic cell in Å, 0 along an open axis; a skewed cell is a `ConfigError`."""
    cell = np.asarray(atoms.cell)
    periodic = np.asarray(atoms.pbc)
    skewed = np.abs(cell - np.diag(np.diag(cell))) > 1e-9 * np.abs(cell).max(initial=1.0)
    if (skewed & (periodic[:, None] | periodic[None])).any() or (np.diag(cell)[periodic] <= 0).any():
        raise ConfigError(f"a periodic cell must be a box along the axes, not {cell.tolist()}")
    return torch.from_numpy(np.where(periodic, np.diag(cell), 0.0))


@dataclass(frozen=True)
class Drift:
    """How the total energy E of a simulation changed, in eV; what should stay the same, stays.

    Symbols     largest = max_t |E(t) - E(0)|; trend = slope of the line through E(t), times the whole duration;
                kinetic = its mean, the stricter measure for atoms that hardly move beside how firmly they hold;
                total = |E(0)|, which depends on where energy is counted from"""

    largest: float
    trend: float
    kinetic: float
    total: float


def drift(trajectory: Frames) -> Drift:
    """The drift of the total energy over a trajectory [T]."""
    kinetic = trajectory.kinetic
    total = trajectory.energies + kinetic
    t = torch.linspace(-0.5, 0.5, len(total), dtype=torch.float64)
    slope = (t * (total - total.mean())).sum() / t.square().sum().clamp(min=1e-300)
    change = (total - total[0]).abs().max()
    return Drift(float(change), float(slope), float(kinetic.mean()), float(total[0].abs()))


def import_ase() -> Any:
    """The package ase, or an error that says how to install it."""
    try:
        import ase
        import ase.units
    except ImportError as error:
        raise EdgewiseError(f"atoms are moved by ASE: {installing('atoms')}") from error
    return ase
