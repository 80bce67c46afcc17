"""Frames of one's own atoms, with energies and forces: from extended XYZ or a table to a potential, in any cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.data import record
from edgewise.data.columns import Array, Column, Encoding
from edgewise.data.examples import MAX_MEMBERS, MAX_ROWS, Asked, Examples, group_column, parts_of
from edgewise.data.options import on_own
from edgewise.data.record import Fitted, Settled
from edgewise.data.rows import Row
from edgewise.data.splits import SPLITS, How, Split, Splits
from edgewise.data.table import Called, Problems, is_table, object_in, read_table
from edgewise.data.words import UNKNOWN
from edgewise.errors import ConfigError, DataError, counted
from edgewise.files import reading
from edgewise.graphs import Graph
from edgewise.graphs.make.neighbors import radius_graph_of_images
from edgewise.models.particles.potential import ELEMENTS
from edgewise.models.signature import Atoms
from edgewise.tasks.core.batch import Batch, NodeTargets
from edgewise.tasks.core.drawing import Section
from edgewise.tasks.core.measures import Answers
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Device, Pattern, check_range, given
from edgewise.tasks.own.graphs import Files, Own
from edgewise.tasks.particles.atoms import FORM, SPACE, Ase, EnergiesAndForces, import_ase

ENDINGS = (".xyz", ".extxyz")
MAX_BYTES = 1 << 30  # of a file
LONGEST = 16  # characters of the number of a frame's atoms
HELD = 1 << 25  # edges of frames that are kept from step to step
ROWS = 64  # frames that a model reads at once for a table of predictions
ROUNDING = 1e-7  # eV of energy per atom
MILLI = 1000.0  # meV in an eV
FORCES = (("fx", "fy", "fz"), ("force_x", "force_y", "force_z"), ("forces_x", "forces_y", "forces_z"))
ELEMENT = ("element", "symbol", "species", "atomic_number")


class Frame(NamedTuple):
    """Atoms in a cell, and what is known of them.

    Symbols     values = what is known of the frame, by name; arrays = of each atom [N, 3]; at = where it stands; name =
                how it is called, or nothing
    Shapes      numbers [N] of elements, positions [N, 3] Å, cell [3, 3] Å, periodic [3]
    """

    numbers: Array
    positions: Array
    cell: Array
    periodic: Array
    values: Mapping[str, Any]
    arrays: Mapping[str, Array]
    at: str
    name: str = ""

    @property
    def energies(self) -> list[str]:
        """The names of what may be its energy."""
        named = (name for name in self.values if name.lower().endswith("energy"))
        return [name for name in named if not np.isnan(_number(self.values[name]))]

    @property
    def forces(self) -> list[str]:
        """The names of what may be the forces on its atoms."""
        return [name for name in self.arrays if name.lower().endswith(("force", "forces"))]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


@dataclass(frozen=True)
class FrameFiles(Files[list[Frame], "OwnFrames"]):
    """A file of extended XYZ, a table with a row for each atom, or a folder of such files."""

    radius: float = 5.0
    energies: float = 0.1  # how much energies count beside forces
    energy: str = ""  # what the energy is called; empty: found
    forces: str = ""  # and the forces
    fold: int = 0  # of the draw of frames for validation where the files name those that train

    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, list[Frame]]:
        files, problems = files_of(place), Problems()
        each = [read_atoms(file, problems) if is_table(file) else [*read_xyz(file)] for file in files]
        frames = [frame for some in each for frame in some]
        problems.check()
        if not frames or len(frames) > MAX_ROWS or sum(len(frame.numbers) for frame in frames) > MAX_MEMBERS:
            raise DataError(
                f"{place}: {counted(len(frames), 'frame')}, of 1 to {MAX_ROWS:,} with {MAX_MEMBERS:,} atoms"
            )
        names = [frame.name or str(number) for number, frame in enumerate(frames)]
        if len(files) > 1:
            names = [f"{file.name} {n}" for file, some in zip(files, each, strict=True) for n in range(len(some))]
        named = len(files) > 1 or any(frame.name for frame in frames)
        counts = {"atoms": sum(len(frame.numbers) for frame in frames)}
        made = Examples(
            place if place.is_dir() else place.parent,
            tuple(files),
            "frames",
            len(frames),
            names if named else None,
            counts=counts,
            at=lambda number: frames[number].at,
        )
        if not self.asked.labelled:
            return made, frames
        found = self._found(frames, place, fitted.names if fitted else {})
        cells = [frame.values.get(found["energy"], "") for frame in frames]
        labels = np.array([*map(_number, cells)])
        for number in np.flatnonzero(np.isnan(labels)).tolist():
            if str(cells[number]).strip().lower() not in UNKNOWN:
                problems.add(f"{made.at(number)}: {found['energy']} is {str(cells[number])[:40]!r}, which is no number")
        of_files = [part_of(file) for file, some in zip(files, each, strict=True) for _ in some]
        splits = self._splits(made, frames, of_files if len(files) > 1 else [], problems)
        groups = [str(frame.values.get(self.asked.group, "")) for frame in frames] if self.asked.group else None
        for number in [number for number, one in enumerate(groups or ()) if not one]:
            problems.add(f"{made.at(number)}: it has no {self.asked.group}: each needs what it belongs to")
        times = self._times(frames, problems)
        problems.check()
        apart = len(frames) - sum(map(len, splits.values())) if splits else 0
        notes = (f"{counted(apart, 'frame')} of files that name no part, in none",) if apart else ()
        made = replace(made, called=("energy",), targets=[labels], splits=splits, found=found, notes=notes)
        return replace(made, groups=groups, times=times), frames

    def _splits(self, made: Examples, frames: list[Frame], files: Sequence[str], problems: Problems) -> Splits:
        """The parts that `split` in the frames, or else the names of files, say."""
        own = [str(frame.values.get("split", "")) for frame in frames]
        parts = parts_of(own if any(own) else files, made.at, problems) if any(own) or any(files) else {}
        return parts if any(own) else record.with_validation(parts, self.fold, [*map(identity, frames)])

    def _times(self, frames: list[Frame], problems: Problems) -> Column | None:
        if self.asked.time is None:
            return None
        name = self.asked.time or "time"
        values = np.array([_number(frame.values.get(name)) for frame in frames])
        for number in np.flatnonzero(np.isnan(values)).tolist():
            problems.add(f"{frames[number].at}: its {name} is no number, by which frames are to be cut")
        return Column(name, "number", values, ~np.isnan(values))

    def same(self, examples: Examples, inputs: list[Frame]) -> Sequence[object]:
        return [*map(identity, inputs)]

    def fit(self, inputs: list[Frame], fitted: Fitted, splits: Splits) -> Fitted:
        """The energy of an atom of each element, by least squares, and the deviations of what is left."""
        found = self._found(inputs, Path(inputs[0].at), {})
        if not (train := [inputs[row] for row in splits["train"].tolist()]):
            raise DataError(f"{inputs[0].at}: no frame is in the train split")
        elements = sorted({number for frame in train for number in frame.numbers.tolist()})
        counts = np.array([[int((frame.numbers == one).sum()) for one in elements] for frame in train], dtype=float)
        energies = np.array([_number(frame.values.get(found["energy"])) for frame in train])
        alone, _, rank, _ = np.linalg.lstsq(counts, energies, rcond=None)
        left = float(((energies - counts @ alone) / counts.sum(1)).std())
        left = left if left > ROUNDING else 1.0
        forces = np.concatenate([forces_of(frame, found["forces"]) for frame in train])
        known = forces[~np.isnan(forces)]
        strength = float(np.sqrt(np.square(known).mean())) if len(known) else left
        symbols = import_ase().data.chemical_symbols
        columns = Encoding("forces", "number", deviation=strength or 1.0), Encoding("energy", "number", deviation=left)
        atoms = (
            Encoding(symbols[one], "number", shift=shift) for one, shift in zip(elements, alone.tolist(), strict=True)
        )
        return replace(fitted, columns=(*columns, *atoms), names={**found, "rank": str(int(rank))})

    def _found(self, frames: list[Frame], place: Path, known: Mapping[str, str]) -> dict[str, str]:
        """What the energies and the forces are called."""
        return {
            "energy": self.energy or known.get("energy") or the_one("energy", frames, lambda one: one.energies, place),
            "forces": self.forces or known.get("forces") or the_one("forces", frames, lambda one: one.forces, place),
        }

    def few(self, settled: Settled, inputs: list[Frame]) -> Mapping[str, bytes | Path]:
        names = settled.given.found
        texts = [as_xyz(inputs[row], names["energy"], names["forces"]) for row in settled.first]
        return {"frames.xyz": "".join(texts).encode()}

    def to_plain(self, own: Settled) -> dict[str, Any]:
        raise ConfigError("frames of atoms have no rows")

    def task(self, settled: Settled, inputs: list[Frame]) -> OwnFrames:
        known, symbols = {one.name for one in settled.fitted.columns[2:]}, import_ase().data.chemical_symbols
        wrong = Problems()
        for frame in inputs:
            if strange := sorted({symbols[number] for number in np.unique(frame.numbers).tolist()} - known):
                wrong.add(f"{frame.at}: {', '.join(strange)}: the frames that train have {', '.join(sorted(known))}")
        wrong.check()
        return OwnFrames(settled, inputs, self)


def files_of(place: Path) -> list[Path]:
    if place.is_dir():
        files = sorted(path for path in place.iterdir() if path.suffix.lower() in ENDINGS and path.is_file())
        if not files:
            raise DataError(f"{place}: it has no files of frames: expected {' or '.join(ENDINGS)}")
        return files
    if not place.is_file():
        raise DataError(f"{place}: no such file: give --task.file, extended XYZ or a table of atoms")
    if place.suffix.lower() not in ENDINGS and not is_table(place):
        raise DataError(f"{place}: frames are in files that end with {', '.join(ENDINGS)}, or in a table of atoms")
    return [place]


def part_of(file: Path) -> str:
    """The part that a file's name begins with, or nothing."""
    return next((split for split in SPLITS if re.match(f"{split}(?![a-z])", file.stem, re.IGNORECASE)), "")


def read_xyz(file: Path) -> Iterator[Frame]:
    """The frames of extended XYZ, of which ASE reads each.

    Errors      DataError for a frame that it cannot read, by the line where it begins
    """
    import_ase()
    from ase.io.extxyz import read_xyz as read

    if file.stat().st_size > MAX_BYTES:
        raise DataError(f"{file}: {file.stat().st_size:,} bytes, of at most {MAX_BYTES:,}")
    with reading(file, "extended XYZ"), file.open(encoding="utf-8-sig") as lines:
        numbered = enumerate(lines, start=1)
        for first, line in numbered:
            if not line.strip():
                continue
            at = f"{file}: line {first}"
            if not line.strip().isdecimal() or len(line) > LONGEST:
                raise DataError(f"{at}: a frame begins with the number of its atoms, not with {line.strip()[:40]!r}")
            own = [text for _, text in islice(numbered, 1 + int(line))]
            if len(own) < 1 + int(line):
                raise DataError(f"{at}: the frame has {max(0, len(own) - 1)} of its {int(line)} atoms: the file ends")
            try:
                atoms = next(read(StringIO("".join([line, *own])), 0))
            except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
                raise DataError(f"{at}: no frame of extended XYZ: {' '.join(str(error).split())[:200]}") from error
            yield of_ase(atoms, at)


def of_ase(atoms: Ase, at: str) -> Frame:
    """A frame of ASE's atoms, with what is known of them."""
    results = dict(atoms.calc.results) if atoms.calc is not None else {}
    results.pop("free_energy", None)
    arrays = {**atoms.arrays, **results}
    vectors = {name: np.asarray(one) for name, one in arrays.items() if np.shape(one) == (len(atoms), SPACE)}
    numbers, cell = atoms.numbers.astype(np.int64), np.asarray(atoms.cell, dtype=np.float64)
    return checked(Frame(numbers, atoms.positions, cell, np.asarray(atoms.pbc), {**atoms.info, **results}, vectors, at))


def checked(frame: Frame) -> Frame:
    """A frame with atoms in finite places, in a cell whose periodic vectors span space; any other is a DataError."""
    if not len(frame.numbers):
        raise DataError(f"{frame.at}: it has no atoms")
    for what, values in (("positions", frame.positions), ("the cell", frame.cell)):
        if not np.isfinite(values).all():
            raise DataError(f"{frame.at}: {what} must be finite numbers, not {values.tolist()}"[:300])
    vectors = frame.cell[frame.periodic]
    if len(vectors) and np.linalg.matrix_rank(vectors) < len(vectors):
        what = f"it is periodic along vectors that span nothing: {vectors.tolist()}"
        raise DataError(f"{frame.at}: {what}: give the cell (Lattice), or pbc F")
    return frame


def read_atoms(file: Path, problems: Problems) -> list[Frame]:
    """The frames of a table with a row for each atom: `frame`, `element`, `x`, `y`, `z`; perhaps `fx`, `fy`, `fz`; and
    what is the same for all atoms of a frame: its energy, `cell` and `pbc` (numbers with spaces between), `split`, ...
    """
    data, table = import_ase().data, read_table(file, whole=False)
    called, frame = Called(file, table.header), group_column(table, "frame", "")
    element = called.first(ELEMENT)
    if not (frame and element and {"x", "y", "z"} <= {*called}):
        right = "frame, element, x, y, z, perhaps fx, fy, fz, energy, cell and pbc"
        raise DataError(f"{file}: its columns are {', '.join(table.header)}; expected {right}")
    problems.extend(table.problems)
    numbers = [data.atomic_numbers.get(text) or (int(text) if text.isdecimal() else 0) for text in table.texts(element)]
    for row in [row for row, number in enumerate(numbers) if not 0 < number < len(data.chemical_symbols)]:
        problems.add(f"{table.at(row)}: {table.texts(element)[row][:40]!r} is no element")
    axes = [[called[name] for name in some] for some in (("x", "y", "z"), *FORCES) if {*some} <= {*called}]
    vectors = [np.stack([table.numbers(name) for name in some], 1) for some in axes]
    taken = {frame, element, *(name for some in axes for name in some)}
    values = {name: table.texts(name) for name in table.header if name and name not in taken}
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names := table.names(frame)):
        rows.setdefault(name, []).append(row)
    first = np.array([rows[name][0] for name in names], dtype=np.int64)
    for name, cells in values.items():
        for row in [row for row, other in enumerate(first.tolist()) if cells[row] != cells[other]]:
            one, other, line = cells[row][:40], cells[int(first[row])][:40], table.rows[1][int(first[row])]
            problems.add(
                f"{table.at(row)}: {name} is {one!r}, and {other!r} in {table.rows[0]} {line} of the same frame"
            )
    made = []
    for name, own in rows.items():
        known = {called_so: cells[own[0]] for called_so, cells in values.items()}
        at = f"{table.at(own[0])}: frame {name[:40]}"
        arrays = {"forces": vectors[1][own]} if len(vectors) > 1 else {}
        cell, periodic = of_texts(known.pop(called.first(("cell",)), ""), known.pop(called.first(("pbc",)), ""), at)
        made.append(checked(Frame(np.array(numbers)[own], vectors[0][own], cell, periodic, known, arrays, at, name)))
    return made


def of_texts(cell: Any, pbc: Any, at: str) -> tuple[Array, Array]:
    """A cell [3, 3], and along which vectors it is periodic [3]: given as texts, or as lists of numbers and truth
    values; three numbers are lengths along the axes."""
    words = {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}
    flags = [str(one).lower() for one in (pbc.split() if isinstance(pbc, str) else np.ravel(pbc).tolist())]
    try:
        numbers = np.array(cell.split() if isinstance(cell, str) else cell, dtype=np.float64).ravel()
        periodic = np.array([words[one] for one in flags], dtype=bool)
    except (TypeError, ValueError, KeyError):
        numbers, periodic = np.empty(1), np.empty(2)
    if len(numbers) not in (0, 3, 9) or len(periodic) not in (0, 1, 3) or (len(numbers) and not len(periodic)):
        right = "cell is 3 lengths or 9 numbers, vector after vector, and pbc says along which it is periodic, as T T F"
        raise DataError(f"{at}: cell is {str(cell)[:80]!r} and pbc {str(pbc)[:40]!r}: {right}")
    matrix = np.diag(numbers) if len(numbers) == SPACE else numbers.reshape(SPACE, SPACE) if len(numbers) else None
    along = np.resize(periodic if len(periodic) else False, SPACE)
    return np.zeros((SPACE, SPACE)) if matrix is None else matrix, along


def of_row(row: Row, form: str) -> Frame:
    """A frame of an object of JSON, or of what ASE's `Atoms.todict` makes."""
    data, at = import_ase().data, "the frame"
    known: Any = row.get("numbers", row.get("symbols", ()))
    numbers, positions = np.empty(0, dtype=np.int64), np.empty(0)
    with suppress(TypeError, ValueError):
        numbers = np.array([data.atomic_numbers.get(one, one) for one in known], dtype=np.int64)
        positions = np.array(row.get("positions", ()), dtype=np.float64)
    if not len(numbers) or list(positions.shape) != [len(numbers), SPACE]:
        raise DataError(f"a frame has elements, and a position of each: give {form}")
    if not ((numbers > 0) & (numbers < len(data.chemical_symbols))).all():
        raise DataError(f"symbols are those of elements, not {known}"[:300])
    return checked(Frame(numbers, positions, *of_texts(row.get("cell", ()), row.get("pbc", ()), at), {}, {}, at))


def the_one(what: str, frames: list[Frame], names: Callable[[Frame], list[str]], place: Path) -> str:
    """What all frames' energy, or forces, are called: by its usual name, or the only one that is called so."""
    found = dict.fromkeys(name for frame in frames for name in names(frame))
    for usual in (what, what.removesuffix("s")):
        if usual in found:
            return usual
    if len(found) > 1 or (not found and what == "energy"):
        which = f"which are the {what}, of {', '.join(found)}" if found else "no frame has an energy"
        raise DataError(f"{place}: {which}: give --task.{what} NAME")
    return next(iter(found), what)


def identity(frame: Frame) -> tuple[bytes, ...]:
    """What two frames share that are the same atoms in the same places."""
    return frame.numbers.tobytes(), frame.positions.tobytes(), frame.cell[frame.periodic].tobytes()


def forces_of(frame: Frame, name: str) -> Array:
    """The forces on a frame's atoms [N, 3], NaN where unknown."""
    return np.asarray(frame.arrays.get(name, np.full(frame.positions.shape, np.nan)), dtype=np.float64)


def as_xyz(frame: Frame, energy: str, forces: str) -> str:
    """A frame as extended XYZ, with all digits."""
    symbols, known = import_ase().data.chemical_symbols, frame.arrays.get(forces)
    cell = " ".join(map(repr, frame.cell.ravel().tolist()))
    periodic = " ".join("FT"[int(one)] for one in frame.periodic)
    of_forces = "" if known is None else f":{forces}:R:3"
    value = _number(frame.values.get(energy))
    of_energy = f" {energy}={value!r}" if value == value else ""
    head = f'Lattice="{cell}" Properties=species:S:1:pos:R:3{of_forces}{of_energy} pbc="{periodic}"'
    rows = frame.positions if known is None else np.concatenate([frame.positions, known], 1)
    lines = (
        " ".join([symbols[number], *map(repr, row)])
        for number, row in zip(frame.numbers.tolist(), rows.tolist(), strict=True)
    )
    return "\n".join([str(len(rows)), head, *lines, ""])


class OwnFrames(Own, EnergiesAndForces):
    """Frames of one's own; a prediction is for one of the data, for a file of one frame, or for a row.

    Equation    loss = w mean (ΔE/N)²/σ_e² + mean |ΔF|²/σ_F², over the energies and the components of forces that are
                known
    Symbols     w = `energies` of the task; σ_F = the root mean square of the forces that train, σ_e the deviation of
                what their frames' energies per atom have beside Σ_i ε(Z_i), a fit by least squares to all of them
    Shapes      the model reads x [N, 4] = position (Å), atomic number, and e [E, 3] = how far the image of a sender is
                from it (Å); it gives [N, 4] = energy and force over σ_F
    """

    stored = False
    tables = True
    files = ENDINGS
    form = FORM
    how: FrameFiles

    def __init__(self, own: Settled, frames: list[Frame], files: FrameFiles) -> None:
        self.own, self.how, self.all, self.radius = own, files, frames, files.radius
        forces, energy, *alone = own.fitted.columns
        self.scale, self.energy_scale = forces.deviation, energy.deviation / forces.deviation
        numbers, self.atomic = import_ase().data.atomic_numbers, torch.zeros(ELEMENTS, dtype=torch.float64)
        for one in alone:
            self.atomic[numbers[one.name]] = one.shift
        self.elements = {numbers[one.name] for one in alone}
        files_read = own.given.files or [Path("frame")]
        self.name, self.splits = (own.given.place if len(files_read) > 1 else files_read[0]).stem, own.splits
        sizes = torch.tensor([len(frame.numbers) for frame in frames])
        self.first = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
        self.Z = torch.from_numpy(np.concatenate([frame.numbers for frame in frames]))
        x = [torch.from_numpy(frame.positions - frame.positions.mean(0)) for frame in frames]
        self.x = torch.cat([torch.cat(x), self.Z[:, None]], -1).float()
        self.target = self._targets(sizes)
        self.signature = Atoms(SPACE + 1, 1 + SPACE, space=SPACE, radius=self.radius, edges=SPACE)
        self.epoch_size = len(self.splits.get("train", ()))
        has_forces = not bool(self.target[:, 1:].isnan().all())
        self.metric = "force_mae" if has_forces or not own.given.targets else "energy_mae"
        self.changes, self.few = own.changes, own.few
        self.contents = f"{len(frames):,} frames of {counted(len(self.x), 'atom')}"
        self.summary = (self.describe(), *self._read(has_forces), *own.given.notes)
        self._near: dict[int, tuple[Graph, Tensor]] = {}
        self._held = 0

    def _targets(self, sizes: Tensor) -> Tensor:
        """Of each atom its share of the energy, counted from that of the elements, and the force, over σ_F [N, 4]: NaN
        where unknown."""
        if not self.own.given.targets:
            return torch.full((len(self.x), 1 + SPACE), torch.nan)
        names = self.own.fitted.names
        energies = torch.as_tensor(self.own.given.targets[0], dtype=torch.float64)
        alone = torch.segment_reduce(self.atomic[self.Z], "sum", lengths=sizes)
        each = ((energies - alone) / sizes).repeat_interleave(sizes)[:, None]
        forces = torch.from_numpy(np.concatenate([forces_of(frame, names["forces"]) for frame in self.all]))
        return (torch.cat([each, forces], -1) / self.scale).float()

    def _read(self, has_forces: bool) -> Iterator[str]:
        """How the files were read, in lines."""
        names, symbols = self.own.fitted.names, [one.name for one in self.own.fitted.columns[2:]]
        if not self.own.given.targets:
            return
        forces = f"{names['forces']} are its forces (eV/Å)" if has_forces else "there are no forces"
        yield f"{names['energy']} is a frame's energy (eV), {forces}"
        alone = ", ".join(f"{one.name} {one.shift:.6g}" for one in self.own.fitted.columns[2:])
        yield f"energies are counted from those of atoms, by least squares: {alone} eV"
        if (free := len(symbols) - int(names.get("rank", len(symbols)))) > 0:
            what = f"the numbers of {', '.join(symbols)} vary together, {free} ways too few to tell energies apart"
            yield f"{what}: energies of other compositions than those that train have an unknown offset"

    def near(self, number: int) -> tuple[Graph, Tensor]:
        """Which images are within the radius of which atoms in a frame, and how far each is from its atom [E, 3]."""
        if (made := self._near.get(number)) is None:
            graph, e = radius_graph_of_images(*self._placed(self.all[number]))
            made = graph, e.float()
            self._held += graph.num_edges
            if self._held <= HELD:
                self._near[number] = made
        return made

    def _placed(self, frame: Frame) -> tuple[Tensor, float, Tensor, Tensor]:
        x, cell, periodic = (torch.from_numpy(np.ascontiguousarray(one)) for one in frame[1:4])
        return x, self.radius, cell, periodic

    def batch(self, numbers: Tensor, pattern: Pattern, generator: torch.Generator | None = None) -> Batch:
        if not given(pattern):
            raise ConfigError(
                f"the edges of {self.name} say where images of atoms are: the recipe's graph must be 'given'"
            )
        each = [self.near(number) for number in numbers.tolist()]
        rows = torch.cat([torch.arange(*self.first[number : number + 2].tolist()) for number in numbers.tolist()])
        members, e = tuple(graph for graph, _ in each), torch.cat([part for _, part in each])
        return NodeTargets.of(members, self.x[rows], self.target[rows], e)

    def _apart(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """What the model says beside what is known, and 0 beside what is not; and what is known: [N, 4] and [N, 4]."""
        self._check(outputs, batch)
        known = ~batch.target.isnan()
        return torch.where(known, outputs - batch.target.nan_to_num(), 0.0), known.to(outputs.dtype)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        error, known = self._apart(outputs, batch)
        energy, has = self._by_frame(batch, error)[:, 0] / self.energy_scale, self._by_frame(batch, known)[:, 0]
        loss = self.how.energies * energy.square().sum() / has.sum().clamp(min=1)
        return loss + error[:, 1:].square().sum() / known[:, 1:].sum().clamp(min=1)

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        outputs = outputs.detach().double()
        error, known = self._apart(outputs, batch)
        energy, has = self._by_frame(batch, error)[:, 0], self._by_frame(batch, known)[:, 0]
        force, count = error[:, 1:], torch.full_like(has.sum(), len(has))
        parts = {"energies": has, "forces": known[:, 1:], "energy": energy.abs(), "energy²": energy.square()}
        parts |= {"force": force.abs(), "force²": force.square()}
        return {name: part.sum() for name, part in parts.items()} | {
            "loss": self.loss(outputs, batch) * count,
            "count": count,
        }

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        """Mean errors, and roots of their mean squares, in meV/Å and in meV of energy per atom, of what is known."""
        made, unit = {"loss": means["loss"]}, MILLI * self.scale
        for what, known in (("force", means["forces"]), ("energy", means["energies"])):
            if known:
                made |= {
                    f"{what}_mae": unit * means[what] / known,
                    f"{what}_rmse": unit * (means[f"{what}²"] / known) ** 0.5,
                }
        return made

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answers]:
        """Mean errors of each frame, in meV of energy per atom and in meV/Å."""
        error, known = self._apart(outputs.detach().double(), batch)
        energy, has = (self._by_frame(batch, one)[:, 0] for one in (error, known))
        sizes = batch.graph.sizes.to(has)  # type: ignore[union-attr]
        force, some = (self._by_frame(batch, one)[:, 1:].sum(-1) * sizes for one in (error.abs(), known))
        each = MILLI * self.scale * force / some.clamp(min=1)
        parts = (("energy_mae", MILLI * self.scale * energy.abs(), has), ("force_mae", each, some))
        return [Answers(figures={name: one.cpu()}, weights=weights.cpu()) for name, one, weights in parts]

    def simple(self) -> Iterator[tuple[str, Callable[[Split], Mapping[str, float]]]]:
        yield "energies linear in the numbers of elements, and no forces", self._without

    def _without(self, split: Split) -> dict[str, float]:
        """The scores of saying 0 of all atoms."""
        rows = torch.cat([torch.arange(*self.first[n : n + 2].tolist()) for n in self.splits[split].tolist()])
        members = tuple(Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), len(self.all[n].numbers))
                        for n in self.splits[split].tolist())  # fmt: skip
        batch = NodeTargets.of(members, self.x[rows], self.target[rows], torch.zeros(0, SPACE))
        sums = {name: float(one) for name, one in self.score(torch.zeros_like(batch.target), batch).items()}
        count = sums.pop("count")
        return self.finish({name: one / count for name, one in sums.items()})

    def frame(self, request: str) -> int:
        return self.find(request)

    def atoms(self, request: str) -> Ase:
        one = self.all[self.frame(request)]
        return import_ase().Atoms(one.numbers, one.positions, cell=one.cell, pbc=one.periodic)

    def asked(self, request: str) -> tuple[OwnFrames, int]:
        """The task and the number of a frame: of the data, of a file, or of a row."""
        if (row := object_in(request)) is not None:
            new = Settled(Examples(Path(), (), "frames", 1), self.own.fitted, {})
            return self.how.task(new, [of_row(row, self.form)]), 0
        if request.strip().lower().endswith(ENDINGS):
            other = self.elsewhere(Path(request.strip()))
            if len(other.all) > 1:
                raise DataError(f"{request}: it has {len(other.all)} frames: for all of them give --out answers.csv")
            return other, 0
        return self, self.frame(request)

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The energy (eV) of a frame and the forces (eV/Å) on its atoms, beside what is known of one of the data."""
        task, number = self.asked(request)
        (made,) = task.said(model, pattern, torch.tensor([number]), device)
        if task is self and self.own.given.targets:
            here = slice(*self.first[number : number + 2].tolist())
            known = self.target[here, 1:].double() * self.scale
            energy = float(torch.as_tensor(self.own.given.targets[0])[number])
            made |= {"measured_energy": None if np.isnan(energy) else energy}
            made |= {"measured_forces": None if bool(known.isnan().any()) else known.tolist()}
        return made

    def said(self, model: nn.Module, pattern: Pattern, numbers: Tensor, device: Device) -> Iterator[dict[str, Any]]:
        """What a model says of frames."""
        batch = self.batch(numbers, pattern).to(device)
        outputs, place = model.eval()(*batch.inputs).cpu(), 0
        for number in numbers.tolist():
            Z = torch.from_numpy(self.all[number].numbers)
            energies, forces = self.told(outputs[place : place + len(Z)], Z)
            place += len(Z)
            yield {"frame": self.name_of(number), "energy": float(energies.sum()), "forces": forces.tolist()}

    @torch.no_grad()
    def table(self, model: nn.Module, pattern: Pattern, device: Device) -> Iterator[dict[str, Any]]:
        for numbers in torch.arange(len(self.all)).split(ROWS):
            yield from self.said(model, pattern, numbers, device)

    def seen(self, atoms: Ase) -> tuple[Any, ...]:
        frame = of_ase(atoms, "the atoms")
        graph, e = radius_graph_of_images(*self._placed(frame))
        x = torch.from_numpy(frame.positions - frame.positions.mean(0))
        return graph, torch.cat([x, torch.from_numpy(frame.numbers)[:, None].double()], -1), e

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        task, number = self.asked(request)
        symbols = import_ase().data.chemical_symbols
        names = [f"{symbols[one]}{place}" for place, one in enumerate(task.all[number].numbers.tolist())]
        return replace(super().subject(model, pattern, request), names=names)

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        if "force_mae" in scores:
            yield from super().draw(model, pattern, scores)


@on_own("frame")
def atom_frames(
    file: str = "frames.xyz",
    radius: float = 5.0,
    energies: float = 0.1,
    energy: str = "",
    forces: str = "",
    fold: int = 0,
    like: str = "",
    cut: Literal["auto", "random", "group", "time", "given"] = "auto",
    folds: int = 0,
    group: str = "",
    time: str = "",
) -> EnergiesAndForces:
    """Learn the energy of your own frames of atoms, and the forces on these: from extended XYZ, or a table of atoms.

    Frames may have any numbers of atoms of any elements, in open space or in cells of any shape and size, periodic
    along all, some or none of their vectors; forces may be missing in some. Energies are in eV, lengths in Å, forces in
    eV/Å. A folder may hold several files: frames of those whose names begin with train, valid or test are in that part,
    and without valid a fifth of those that train chooses the weights. Else `split` in a frame may name its part, or
    the frames are cut into 60 % to train, 20 % to choose the weights and 20 % to test (80, 10 and 10 % of 1,000 and
    more). It needs the extra `atoms`.

    Reference   Larsen et al., "The atomic simulation environment", 2017 (ASE, which reads extended XYZ)

    Args:
        file: A file of extended XYZ, a folder of such files, or a table (CSV, TSV, Parquet or JSON lines) with a row
            for each atom: `frame`, `element`, `x`, `y`, `z`, perhaps `fx`, `fy`, `fz`, and alike for all of a frame
            `energy`, and perhaps `cell` and `pbc`, as "9 0 0 0 9 0 0 0 9" and "T T F".
        radius: Distance in Å up to which atoms, and images of atoms, are neighbours.
        energies: How much errors of energies count in the loss beside those of forces, both over their deviations.
        energy: What the energy is called. Empty: `energy`, or the only one whose name ends so.
        forces: What the forces are called. Empty: `forces`, or the only ones whose name ends so.
        cut: How to cut: "random"; by "group" or "time"; "given", as `split` or files say. "auto": as that or what is
            named below says, else random.
        group: What frames of one part share, such as `config_type`: a name among what is known of them.
        time: A number of each frame, such as its step: the earliest train, the latest test.

    Errors      files that are missing or malformed are a `DataError` with all that is wrong
    """
    check_range(0.1, 50.0, radius=radius)
    check_range(0.0, 1e6, energies=energies)
    how = How(cut, fold, folds, group, time)
    return FrameFiles(Asked("frames"), radius, energies, energy, forces, fold).settle(file, like, "number", how)
