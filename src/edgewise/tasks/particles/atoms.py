"""Atoms in motion, simulated through ASE once, and cached: the energy, the forces, and how well energy is conserved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.configuration import chosen
from edgewise.data.splits import Split, fixed
from edgewise.errors import ConfigError, EdgewiseError, installing
from edgewise.files import Tensors
from edgewise.files import cached as stored
from edgewise.graphs import Graph, radius_graph
from edgewise.graphs.derived import cached
from edgewise.kernels import aggregate
from edgewise.models.particles.potential import ELEMENTS
from edgewise.models.signature import Atoms
from edgewise.tasks.core.abilities import Alone, Predicts
from edgewise.tasks.core.batch import Batch, NodeTargets, batch_of, check_outputs
from edgewise.tasks.core.drawing import Content, Drawing, Parity, Section
from edgewise.tasks.core.subject import Subject, captured, on_graph
from edgewise.tasks.core.task import Device, NumberedExamples, Pattern, check_range, given, lay

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


SPACE = 3
FORM = '{"symbols": ["H", ...], "positions": [[X, Y, Z], ...], "cell": [[X, Y, Z], ...], "pbc": [true, ...]}'
EVERY = 10  # steps between two frames
DRAWN = 2_000  # components of forces, at most
WARM_UP = 20  # frames that are thrown away until the temperature is reached


def _emt() -> Ase:
    from ase.calculators.emt import EMT

    return EMT()


def _icosahedron(element: str, size: int) -> Ase:
    """`size` shells of atoms, one inside the other: 1, 13, 55, 147, ... atoms."""
    ase = import_ase()
    from ase.cluster import Icosahedron

    made = Icosahedron(element, noshells=size)
    return ase.Atoms(made.numbers, made.positions)


def _crystal(element: str, size: int) -> Ase:
    """`size` cubic cells along each axis, without an end: 4, 32, 108, ... atoms."""
    from ase.build import bulk

    return bulk(element, "fcc", cubic=True).repeat(size)


CALCULATORS: dict[str, Callable[[], Ase]] = {"emt": _emt}
BODIES: dict[str, Callable[[str, int], Ase]] = {"icosahedron": _icosahedron, "crystal": _crystal}
METALS = {symbol: symbol for symbol in ("Al", "Ni", "Cu", "Pd", "Ag", "Pt", "Au")}


def molecular_dynamics(
    body: str = "icosahedron",
    size: int = 2,
    element: str = "Cu",
    calculator: str = "emt",
    temperatures: tuple[float, ...] = (300.0, 400.0, 500.0, 600.0),
    training: int = 16,
    held_out: int = 4,
    frames: int = 100,
    radius: float = 5.5,
    seed: int = 0,
) -> EnergiesAndForces:
    """Learn the energy of atoms and the forces on them, along trajectories simulated by ASE; by default copper, Cu13.

    Each trajectory is a run of its own in a heat bath (Langevin, steps of 5 fs), with a seed of its own; after 1 ps of
    warming up a frame is taken every 50 fs. Training, validation and test trajectories are different ones, at the same
    temperatures in turn. The targets are the energy in eV, and the force on every atom in eV/Å. The default takes about
    a minute, once: the frames are cached. It needs the extra `atoms`.

    Reference   Jacobsen, Stoltze & Nørskov, 1996 (effective medium theory, EMT); Larsen et al., 2017 (ASE)

    Args:
        body: icosahedron, a free cluster; or crystal, a periodic one.
        size: Shells of the icosahedron, or cubic cells of the crystal along each axis.
        element: A metal that EMT knows: Al, Ni, Cu, Pd, Ag, Pt or Au.
        calculator: Where forces come from: emt.
        temperatures: Of the heat bath in K; the trajectories take them in turn.
        training: Training trajectories.
        held_out: Validation trajectories, and as many test trajectories.
        frames: Frames of each trajectory.
        radius: Distance in Å up to which atoms attend to one another.
        seed: Chooses the trajectories.
    """
    check_range(1, 1_000_000, training=training, held_out=held_out, frames=frames)
    check_range(1, 20, size=size)
    check_range(0, 2**31 - 1, seed=seed)
    if not temperatures or not all(0 < temperature <= 10_000 for temperature in temperatures):
        raise ConfigError(f"temperatures must be above 0 and at most 10000 K, not {list(temperatures)}")
    build, force = chosen("body", body, BODIES), chosen("calculator", calculator, CALCULATORS)
    chosen("element", element, METALS)
    count = training + 2 * held_out
    key = (body, size, element, calculator, temperatures, count, frames, seed, STEP, EVERY, FRICTION, WARM_UP)

    def run(number: int) -> Frames:
        at, own = temperatures[number % len(temperatures)], (seed * 1_000_003 + number) % 2**32
        moving = _warm(build(element, size), at, own)
        return simulate(moving, force(), WARM_UP + frames, EVERY, STEP, at, own).since(WARM_UP)

    def make() -> Tensors:
        stacked = Frames.stacked([run(number) for number in range(count)])
        return {field.name: getattr(stacked, field.name) for field in fields(Frames)}

    trajectories = Frames(**stored("molecular-dynamics", key, make, {"energies": (count, frames)}))
    return EnergiesAndForces("molecular-dynamics", trajectories, fixed(training, held_out, held_out), radius)


def _warm(atoms: Ase, temperature: float, seed: int) -> Ase:
    """The atoms with velocities of some temperature (Maxwell and Boltzmann's), the whole at rest."""
    m, random = atoms.get_masses()[:, None], np.random.RandomState(seed)
    p = random.standard_normal((len(atoms), SPACE)) * np.sqrt(m * import_ase().units.kB * temperature)
    still = p - m * p.sum(0) / m.sum()
    if len(atoms) > 1:
        still *= np.sqrt((p**2 / m).sum() / (still**2 / m).sum())
    atoms.set_momenta(still)
    return atoms


class InElectronvolts(nn.Module):
    """A potential whose energies of atoms are in eV and forces in eV/Å, as a file of it gives them, in float64: the sum
    of energies of 1,000 eV would lose meV in float32."""

    differentiates: ClassVar[bool] = True
    atomic: Tensor

    def __init__(self, model: nn.Module, scale: float, atomic: Tensor) -> None:
        super().__init__()
        self.model, self.signature, self.scale = model, model.signature, scale
        self.register_buffer("atomic", atomic)

    def forward(self, graph: Graph, features: Tensor, *e: Tensor) -> Tensor:
        energies, forces = (self.scale * self.model(graph, features, *e).double()).split([1, SPACE], -1)
        return torch.cat([energies + self.atomic[features[..., -1:].long()], forces], -1)


class EnergiesAndForces(NumberedExamples, Predicts):
    """Each frame is one example, a graph of the atoms near one another: what is its energy, which force on every atom?

    Equation    loss = 1/G Σ_g ((ΔE_g/N_g)/σ_e)² w + 1/3N Σ_i |ΔF_i|²/σ_F²;
                force_error = √(Σ_i |ΔF_i|² / Σ_i |F_i|²), which is the root mean square error over the deviation of the
                forces, as those of a frame sum to 0; energy_error likewise, over the deviation of the energy per atom
    Symbols     w = ENERGY; σ_e, σ_F = deviations over the training frames; the energy of an atom is counted from their
                mean, `zero` (eV)
    Shapes      the model reads x [N, 7] = position (Å), cell (Å, 0: open), atomic number, and gives [N, 4] = the energy
                of each atom (eV), whose sum counts, and the force on it (eV/Å)
    Errors      ConfigError for outputs of another shape
    Cost        radius graphs are built once for each frame, when it is first read
    """

    metric = "force_error"
    unit = "frames"
    replacement = False
    stored = True
    scale = 1.0  # eV/Å, and eV, of what the model says
    signature: Atoms
    elements: set[int]
    atomic: Tensor  # the energy in eV from which that of an atom of each element is counted
    ENERGY = 0.1

    def __init__(self, name: str, frames: Frames, splits: Mapping[Split, Tensor], radius: float) -> None:
        trajectories, length, atoms, _ = frames.positions.shape
        self.name, self.frames, self.radius = name, frames, radius
        self.elements = set(frames.numbers.tolist())
        numbers = torch.arange(trajectories * length).unflatten(0, (trajectories, length))
        self.splits = {split: numbers[chosen].flatten() for split, chosen in splits.items()}
        self.places = frames.positions.flatten(0, 1)
        self.cell = torch.where(frames.cell > 0, frames.cell, torch.inf).tolist()
        still = torch.cat([frames.cell.expand(atoms, SPACE), frames.numbers[:, None]], -1)
        self.x = torch.cat([self.places, still.expand(len(self.places), -1, -1)], -1).float()
        energies, forces = frames.energies.flatten() / atoms, frames.forces.flatten(0, 1)
        train = self.splits["train"]
        self.zero = float(energies[train].mean())
        self.atomic = torch.full((ELEMENTS,), self.zero, dtype=torch.float64)
        self.energy_scale = float(energies[train].std(correction=0)) or 1.0
        self.force_scale = float(forces[train].square().mean().sqrt()) or 1.0
        relative = (energies - self.zero)[:, None, None].expand(-1, atoms, 1)
        self.target = torch.cat([relative, forces], -1).float()
        self.signature = Atoms(2 * SPACE + 1, 1 + SPACE, space=SPACE, radius=radius)
        self.epoch_size = len(train)
        self.contents = f"{len(self.x):,} frames of {atoms} atoms"

    def frame_graph(self, number: int, pattern: Pattern = None) -> Graph:
        """Who is within the radius of whom in a frame; or a pattern over the atoms."""
        return self._within_radius(number) if given(pattern) else lay(pattern, self.x.shape[1])

    @cached
    def _within_radius(self, number: int) -> Graph:
        return radius_graph(self.places[number], self.radius, cell=self.cell)

    def batch(self, numbers: Tensor, pattern: Pattern, generator: torch.Generator | None = None) -> Batch:
        members = tuple(self.frame_graph(number, pattern) for number in numbers.tolist())
        x, target = (x.index_select(0, numbers).flatten(0, 1) for x in (self.x, self.target))
        return NodeTargets.of(members, x, target)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        energy, force = self._errors(outputs, batch)
        return self.ENERGY * energy.mean() / self.energy_scale**2 + force.mean() / self.force_scale**2

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        energy, force = self._errors(outputs.detach().double(), batch)
        wanted = self._by_frame(batch, batch.target.double())
        loss = self.ENERGY * energy / self.energy_scale**2 + force / self.force_scale**2
        strength = self._by_frame(batch, batch.target.double().square())[:, 1:].mean(-1)
        parts = {"loss": loss, "energy": energy, "force": force, "strength": strength}
        parts |= {"depth": wanted[:, 0], "depth²": wanted[:, 0].square(), "count": torch.ones_like(energy)}
        return {name: part.sum() for name, part in parts.items()}

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        """Errors in eV/Å and eV per atom, and as shares of the deviations over the split."""
        force, energy = means["force"] ** 0.5, means["energy"] ** 0.5
        deviation = max(means["depth²"] - means["depth"] ** 2, 0.0) ** 0.5
        return {
            "loss": means["loss"],
            "force_error": force / (means["strength"] ** 0.5 or 1.0),
            "force_rmse": force,
            "energy_error": energy / (deviation or 1.0),
            "energy_rmse": energy,
        }

    def _errors(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Squared errors of each frame: of its energy per atom, and the mean one of its forces; [G] and [G]."""
        self._check(outputs, batch)
        error = outputs - batch.target
        return self._by_frame(batch, error)[:, 0].square(), self._by_frame(batch, error.square())[:, 1:].mean(-1)

    def _check(self, outputs: Tensor, batch: Batch) -> None:
        check_outputs(outputs)
        if outputs.shape != batch.target.shape:
            shapes = f"{list(outputs.shape)} instead of {list(batch.target.shape)}"
            raise ConfigError(f"this task needs energies and forces, and the model gives {shapes}: choose potential")

    def _by_frame(self, batch: Batch, rows: Tensor) -> Tensor:
        return aggregate(batch_of(NodeTargets, batch).graph.membership(), rows, reduce="mean")

    def frame(self, request: str) -> int:
        """The number of a frame named by a split and a number in it, as in "test:7"."""
        return int(self.example(request))

    def atoms(self, request: str) -> Ase:
        """A frame, named as in "test:7", as ASE's `Atoms` with its velocities."""
        number = self.frame(request)
        return self.frames.atoms(*divmod(number, self.frames.energies.shape[1]))

    def seen(self, atoms: Ase) -> tuple[Any, ...]:
        """What a model reads of ASE's atoms, in float64."""
        x, cell = torch.from_numpy(atoms.get_positions()), box(atoms)
        graph = radius_graph(x, self.radius, cell=torch.where(cell > 0, cell, torch.inf).tolist())
        return graph, torch.cat([x, cell.expand_as(x), torch.from_numpy(atoms.numbers)[:, None].double()], -1)

    def told(self, outputs: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """The energy [N] in eV of each atom of an element, and the force [N, 3] in eV/Å on it, by a model's outputs."""
        energies, forces = (self.scale * outputs.double()).split([1, SPACE], -1)
        return energies[:, 0] + self.atomic[Z], forces

    def alone(self, model: nn.Module, pattern: Pattern) -> Alone:
        call = next(iter(self.batches("valid", 1, pattern))).inputs
        return Alone(InElectronvolts(model, self.scale, self.atomic), call)

    def preprocessing(self) -> dict[str, Any]:
        images, symbols = bool(self.signature.edges), import_ase().data.chemical_symbols
        what = "an edge from each image of an atom to each atom" if images else "the pairs of atoms, both ways,"
        rows: dict[str, Any] = {
            "kind": "frames",
            "input": f"extended XYZ, a folder of such files, or JSON: {FORM}, or a list of such objects",
            "radius": self.radius,
            "elements": [symbols[number] for number in sorted(self.elements)],
            "columns": ["the atomic number"],
            "edge_columns": [f"{axis} of a sender's image less its own (Å)" for axis in "xyz" * images],
            "edges": f"{what} within {self.radius:g} Å",
            "output": "the energy of each atom (eV), which add up to the frame's; `forces` are in eV/Å",
        }
        return {"rows": rows}

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """The energy of a frame, by what its atoms send to one another."""
        inputs = captured(model, lambda: self.predict(model, pattern, request, "cpu"))

        def draw(edges: Tensor | None, nodes: Tensor) -> list[Content]:
            return on_graph(inputs[0], edges, nodes, places=inputs[1][:, :2].double().numpy())

        def energy(outputs: Tensor) -> Tensor:
            return self.scale * outputs[:, 0].sum()

        return Subject(inputs, number=energy, what="the energy in eV", draw=draw, baseline=None)

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Forces", lambda: [self.forces(model, pattern)])

    @torch.no_grad()
    def forces(self, model: nn.Module, pattern: Pattern) -> Drawing:
        """Predicted forces over simulated ones, for test frames evenly apart."""
        batches = [*self.batches("test", 100, pattern)]
        known = [~batch.target[:, 1:].isnan() for batch in batches]
        pairs = [*zip(batches, known, strict=True)]
        predicted = self.scale * torch.cat([model(*batch.inputs)[:, 1:][some] for batch, some in pairs]).double()
        truth = self.scale * torch.cat([batch.target[:, 1:][some] for batch, some in pairs]).double()
        some = slice(None, None, -(-len(truth) // DRAWN))
        error = float((predicted - truth).square().mean().sqrt())
        caption = (
            f"{len(truth[some]):,} components of forces on atoms of the test frames; over all, the root mean square "
            f"error is {error:.4f} eV/Å."
        )
        return Drawing("forces", Parity(truth[some].numpy(), predicted[some].numpy(), "eV/Å"), caption)

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """Energy and forces of one frame, named as in "test:7", beside those of the simulation."""
        batch = self.batch(torch.tensor([self.frame(request)]), pattern).to(device)
        outputs = model.eval()(batch.graph, batch.x)
        return {
            "frame": request,
            "energy": float((outputs[:, 0] + self.zero).sum()),
            "simulated_energy": float((batch.target[:, 0] + self.zero).sum()),
            "forces": outputs[:, 1:].tolist(),
            "simulated_forces": batch.target[:, 1:].tolist(),
        }
