"""Trajectories of one's own particles: from positions in files, frame by frame, to a simulator of them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.data import record
from edgewise.data.columns import Encoding
from edgewise.data.examples import Asked, Examples, group_column, parts_of
from edgewise.data.graph import read_arrays
from edgewise.data.options import on_own
from edgewise.data.record import Fitted, Settled
from edgewise.data.splits import How, Split, Splits
from edgewise.data.table import Called, Problems, is_table, object_in, read_table
from edgewise.errors import ConfigError, DataError, counted
from edgewise.files import reading
from edgewise.graphs import Graph, k_nearest
from edgewise.graphs.make.neighbors import radius_graph_in_members, radius_graph_of_images
from edgewise.graphs.make.periodic import unwrapped
from edgewise.models.signature import MovingParticles
from edgewise.tasks.core.abilities import Alone
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.drawing import Colour, Curve, Curves, Drawing, Output, Panel, Section
from edgewise.tasks.core.subject import Subject, captured, movement
from edgewise.tasks.core.task import Device, Pattern, check_range, given
from edgewise.tasks.own.frames import ENDINGS as XYZ
from edgewise.tasks.own.frames import part_of, read_xyz
from edgewise.tasks.own.graphs import Files, Own
from edgewise.tasks.particles.atoms import import_ase
from edgewise.tasks.particles.films import Film, film_of, films_in
from edgewise.tasks.particles.simulation import BELLS, LONGEST, Simulation, features_of, random_walk

ENDINGS = (".npz", *XYZ)
KNOWN = ("positions", "kinds", "particles", "box", "periodic")  # of a trajectory, by name
FORM = '{"positions": [[[X, Y], ...], ...], "kinds": [KIND, ...], "box": [LENGTH, ...], "periodic": [true, ...]}'
NEAREST = 8  # neighbours within the radius that is found
MEASURED = 1000  # particles of a frame at most by which it is found
AFTER = (1, 10, 50, 100)  # steps of a roll-out that a prediction measures


@dataclass(frozen=True)
class TrajectoryFiles(Files[list[Film], "OwnTrajectories"]):
    """A folder of trajectories, or a file of one or several."""

    radius: float = 0.0
    history: int = 5
    noise: float = 0.06
    box: tuple[float, ...] = ()
    periodic: tuple[bool, ...] = ()
    steps: int = LONGEST
    fold: int = 0

    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, list[Film]]:
        inside = sorted(place.iterdir()) if place.is_dir() else [place]
        files = [path for path in inside if path.suffix.lower() in ENDINGS or is_table(path)]
        if not files or not files[0].is_file():
            what = "it has no trajectories" if place.is_dir() else "no such file of trajectories"
            raise DataError(f"{place}: {what}: give --task.folder with .npz, .xyz, .csv, ...")
        each = [[*self._trajectories(file)] for file in files]
        made, problems = self.checked([one for some in each for one in some]), Problems()
        names, folder = [one.name for one in made], place if place.is_dir() else place.parent
        parts = [part_of(file) for file, some in zip(files, each, strict=True) for _ in some]
        splits = parts_of(parts, lambda n: names[n], problems) if self.asked.labelled and any(parts) else {}
        splits = record.with_validation(splits, self.fold, range(len(made)))
        counts = {"frames": sum(len(one.positions) for one in made)}
        return Examples(folder, tuple(files), "films", len(made), names, splits=splits, counts=counts), made

    def checked(self, made: list[Film]) -> list[Film]:
        """Trajectories whose moves are the shortest in their boxes; all that is wrong with them is one DataError."""
        problems, space = Problems(), made[0].positions.shape[2] if made else 0
        for one in made:
            axes = one.positions.shape[2]
            if axes != space or not 2 <= space <= 3:
                problems.add(f"{one.name}: positions [frames, particles, {axes}]: all have 2 axes, or all have 3")
            for fault in one.faults(self.history + 1 + self.asked.labelled):
                problems.add(f"{one.name}: {fault}")
        problems.check()
        return [one._replace(positions=unwrapped(one.positions, one.period)) for one in made]

    def _trajectories(self, file: Path) -> Iterator[Film]:
        if is_table(file):
            yield from self._of_table(file)
            return
        if file.suffix.lower() == ".npz":
            yield self.made(read_arrays(file, KNOWN[:1], KNOWN[1:]), file.stem, str(file))
            return
        symbols, frames = import_ase().data.chemical_symbols, [*read_xyz(file)]
        for one, following in pairwise(frames):
            if not np.array_equal(one.numbers, following.numbers):
                raise DataError(f"{following.at}: its atoms are others than those of the frame before")
            before, cell = (frame.cell * frame.periodic[:, None] for frame in (one, following))
            if not np.array_equal(before, cell):
                raise DataError(f"{following.at}: its periodic cell is another than that of the frame before")
        for one in frames[:1]:
            edges, along = one.cell.diagonal(), one.periodic
            if not np.allclose(one.cell[along], np.diag(edges)[along]):
                raise DataError(f"{one.at}: a periodic cell must be a box along the axes, not {one.cell.tolist()}")
            box = {"box": np.where(along, edges, np.inf), "periodic": along} if along.any() else {}
            kinds = [symbols[number] for number in one.numbers.tolist()]
            yield self.made({"positions": [f.positions for f in frames], "kinds": kinds} | box, file.stem, str(file))

    def made(self, known: Mapping[str, Any], name: str, at: str) -> Film:
        """A trajectory of what is called as in `KNOWN`, arrays or lists, of which positions must be there."""
        with reading(at, f"a trajectory such as {FORM}"):
            return film_of(known, name, self.box, self.periodic)

    def _of_table(self, file: Path) -> Iterator[Film]:
        """A table with a row for each particle in each frame."""
        table = read_table(file)
        called, group = Called(file, table.header), group_column(table, "trajectory", "")
        step, particle = called.first(("step", "frame", "time", "t")), called.first(("particle", "particle_id", "id"))
        if not (step and particle and {"x", "y"} <= {*called}):
            right = "step, particle, x, y, perhaps z, kind and trajectory"
            raise DataError(f"{file}: its columns are {', '.join(table.header)}; expected {right}")
        when, who, kind = table.numbers(step), np.array(table.names(particle)), called.first(("kind", "type"))
        places = np.stack([table.numbers(called[axis]) for axis in ("x", "y", "z") if axis in called], 1)
        kinds = np.array(table.texts(kind) if kind else [""] * len(who))
        groups = np.array(table.names(group) if group else [""] * len(who))
        with reading(file, "trajectories of particles"):
            for name, known in films_in(when, who, groups, kinds, places):
                yield self.made(known, name or file.stem, str(file))

    def fit(self, inputs: list[Film], fitted: Fitted, splits: Splits) -> Fitted:
        """The radius, the deviations of moves and of accelerations, and the kinds."""
        train = [inputs[row] for row in splits["train"].tolist()]
        radius = self.radius or _radius(train)
        moves, changes = (np.concatenate([np.diff(one.positions, n, 0).ravel() for one in train]) for n in (1, 2))
        columns = [Encoding("radius", "number", shift=radius)]
        columns += [Encoding(name, "number", deviation=float(values.std()) or 1.0)
                    for name, values in (("moves", moves), ("accelerations", changes))]  # fmt: skip
        levels = tuple(sorted({kind for one in train for kind in one.kinds}))
        names = {"periodic": "true"} if any(one.periodic.any() for one in inputs) else fitted.names
        return replace(fitted, columns=(*columns, Encoding("kind", "category", levels=levels)), names=names)

    def few(self, settled: Settled, inputs: list[Film]) -> Mapping[str, bytes | Path]:
        files = dict[str, bytes | Path]()
        for number, row in enumerate(settled.first):
            content, x = io.BytesIO(), inputs[row].positions[: self.history + 1 + self.steps]
            np.savez_compressed(content, **inputs[row]._replace(positions=x)._asdict())
            files[f"trajectories/{number:03}.npz"] = content.getvalue()
        return files

    def to_plain(self, own: Settled) -> dict[str, Any]:
        raise ConfigError("trajectories have no rows")

    def task(self, settled: Settled, inputs: list[Film]) -> OwnTrajectories:
        known, periodic = settled.fitted.columns[3].levels, "periodic" in settled.fitted.names
        for one in inputs:
            if one.periodic.any() and not periodic:
                raise DataError(f"{one.name}: its box is periodic, and none of those that train is")
            if known != ("",) and (strange := sorted({*one.kinds} - {*known})):
                which = ", ".join(map(repr, strange[:5]))
                raise DataError(f"{one.name}: the kinds {which}: those that train are {', '.join(known)}")
        return OwnTrajectories(settled, inputs, self)


def _radius(train: list[Film]) -> float:
    """The median distance of a particle to its eighth neighbour, or the last, in the first and last frames."""
    found = []
    for one in train:
        cell = torch.from_numpy(one.period)
        for frame in (one.positions[0], one.positions[-1]):
            x = torch.from_numpy(frame)
            near = k_nearest(x, NEAREST + 1, x[:MEASURED], cell)  # of which the first is the particle itself
            apart = x[near.receivers] - x[near.senders]
            apart -= torch.where(cell.isfinite(), cell, 0.0) * (apart / cell).round()
            found.append(apart.norm(dim=1).view(near.num_receivers, -1).amax(1))
    return float(torch.cat(found).median()) or 1.0


class InOwnUnit(nn.Module):
    """A simulator that reads what is measured of particles, and says where they are next, in the data's own unit.

    Shapes      [N, 2 D + (H - 1) D + 2 D + K] = [x ‖ last move ‖ moves before, the first first ‖ distances from the low
                and the high walls ‖ kinds], perhaps e [E, D] -> x' [N, D], in float64: moves are small beside positions
    """

    def __init__(self, model: nn.Module, task: OwnTrajectories) -> None:
        super().__init__()
        self.model, self.reach, self.velocity, self.moves = model, task.reach, task.velocity, task.history
        self.measured = (task.history + 3) * task.signature.space
        self.signature = replace(task.signature, inputs=self.measured + task.kinds[0].shape[1])

    def forward(self, graph: Graph, x: Tensor, *e: Tensor) -> Tensor:
        space = self.signature.space
        measured, kinds = x[..., : self.measured] / self.reach, x[..., self.measured :]
        now, move, before, near = measured.split([space, space, (self.moves - 1) * space, 2 * space], -1)
        recent = torch.cat([before, move], -1).unflatten(-1, (self.moves, space)) / self.velocity
        read = torch.cat([features_of(now, recent, move, near), kinds], -1)
        moved: Tensor = self.model(graph, read.float(), *((one / self.reach).float() for one in e))
        return self.reach * moved.double()


class OwnTrajectories(Own, Simulation):
    """Trajectories of one's own, of any numbers of particles: what the next frame will be, and those after it.

    Equation    rmse = √(mean |x' - x_target|²) of the next frame, over particles; rollout_rmse likewise of the frames
                that a model makes of its own, up to `steps`; constant_velocity_rmse, rollout_constant_velocity_rmse of
                going straight on
    Shapes      as `Simulation`, and a feature for each kind where there are several
    """

    tables = True
    files = ENDINGS
    form = FORM
    metric = "rmse"
    how: TrajectoryFiles

    def __init__(self, own: Settled, tracks: list[Film], files: TrajectoryFiles) -> None:
        self.own, self.how, self.all, self.history, self.noise = own, files, tracks, files.history, files.noise
        radius, moves, changes, kind = own.fitted.columns
        self.reach, self.name, self.splits = radius.shift, own.given.place.name or "trajectories", own.splits
        self.velocity, self.acceleration = moves.deviation / self.reach, changes.deviation / self.reach
        self.tracks = [torch.from_numpy(one.positions) / self.reach for one in tracks]
        self.walls = [
            torch.from_numpy(one.walls / self.reach)[:, None].expand(-1, len(one.kinds), -1) for one in tracks
        ]
        levels = kind.levels if len(kind.levels) > 1 else ()
        self.kinds = [
            torch.tensor([[own == level for level in levels] for own in one.kinds]).reshape(len(one.kinds), len(levels))
            for one in tracks
        ]
        space = self.tracks[0].shape[-1]
        known = self.history * space + 2 * space * (1 + BELLS) + len(levels)
        edges = space if "periodic" in own.fitted.names else 0
        self.signature = MovingParticles(
            2 * space + known, space, edges=edges, space=space, acceleration=self.acceleration
        )
        self._pairs: dict[Split, Tensor] = {}
        self.epoch_size = len(self.numbers("train")) if self.splits else 0
        self.changes, self.few = own.changes, own.few
        self.contents = f"{counted(len(tracks), 'film')}, {sum(map(len, self.tracks)):,} frames"
        self.summary = (self.describe(), f"particles within {self.reach:.6g} act on one another", *own.given.notes)
        if images := sum(bool(one.periodic.any()) for one in tracks):
            self.summary += (
                f"periodic boxes: {counted(images, 'film')}, whose moves are the shortest, and in which images act too",
            )

    def numbers(self, split: Split) -> Tensor:
        """Of a part each trajectory, and each of its frames that has a history [M, 2]."""
        if split not in self._pairs:
            pairs = [
                torch.cartesian_prod(torch.tensor([row]), torch.arange(self.history + 1, len(self.tracks[row])))
                for row in self.splits[split].tolist()
            ]
            self._pairs[split] = torch.cat([torch.empty(0, 2, dtype=torch.int64), *pairs])
        return self._pairs[split]

    def _inputs(self, history: Tensor, rows: list[int]) -> tuple[Any, ...]:
        """What a model reads of histories [history + 1, N, D] of several trajectories, one beside the other: a graph,
        features, and in periodic boxes how far images of particles are from these."""
        sizes = [len(self.kinds[row]) for row in rows]
        low, high = torch.cat([self.walls[row] for row in rows], 1)
        kinds = torch.cat([self.kinds[row] for row in rows]).float()
        x = torch.cat([self.features(history[None], (low, high)), kinds], -1)
        if not self.signature.edges:
            return radius_graph_in_members(history[-1], torch.tensor(sizes), 1.0), x
        each = []
        for row, now in zip(rows, history[-1].split(sizes), strict=True):
            cell = torch.from_numpy(self.all[row].box / self.reach).diag()
            each.append(radius_graph_of_images(now, 1.0, cell, torch.from_numpy(self.all[row].periodic)))
        return Graph.batch(graph for graph, _ in each), x, torch.cat([e for _, e in each]).float()

    def batch(self, numbers: Tensor, pattern: Pattern, generator: torch.Generator | None = None) -> Batch:
        if not given(pattern):
            raise ConfigError(f"{self.name} makes its graph from positions: it takes no other")
        pairs = numbers.tolist()
        history = torch.cat([self.tracks[row][frame - self.history - 1 : frame] for row, frame in pairs], 1)
        target = torch.cat([self.tracks[row][frame] for row, frame in pairs])
        if generator is not None and self.noise:
            walk = random_walk(history[None].shape, self.noise * self.velocity, generator)[0]
            history, target = history + walk, target + walk[-1]
        graph, x, *e = self._inputs(history, [row for row, _ in pairs])
        return Batch(graph, x, target.float(), torch.arange(len(target)), *e)

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        unit = self.reach * self.acceleration * self.signature.space**0.5  # of means over axes
        made = {"rmse": unit * means["loss"] ** 0.5, "constant_velocity_rmse": unit * means["constant_velocity"] ** 0.5}
        return {"loss": means["loss"], **made}

    @torch.no_grad()
    def go_on(self, model: nn.Module | None, rows: list[int], steps: int, last: bool = False) -> list[Tensor]:
        """Trajectories that a model continues by itself from their first frames, or from the `last`; None: straight on.

        Shapes      M of them -> M of positions [frames that it is given + steps, N, D], in the data's unit
        """
        start, sizes = self.history + 1, [len(self.kinds[row]) for row in rows]
        begins = [self.tracks[row][-start:] if last else self.tracks[row][:start] for row in rows]
        frames = [*torch.cat(begins, 1)]
        for _ in range(steps):
            new = 2 * frames[-1] - frames[-2]
            if model is not None:
                device = next(model.parameters()).device
                inputs = (one.to(device) for one in self._inputs(torch.stack(frames[-start:]), rows))
                new = model.eval()(*inputs).double().cpu()
            frames.append(torch.where(new.isfinite(), new, frames[-1]))  # of a model that has gone astray
        return [*(self.reach * torch.stack(frames)).split(sizes, 1)]

    def _apart(self, model: nn.Module | None, rows: list[int]) -> list[Tensor]:
        """Mean squares of the distance of roll-outs from what happened, after each step [steps], of each trajectory."""
        start, longest = self.history + 1, max(len(self.tracks[row]) for row in rows)
        made = self.go_on(model, rows, min(self.how.steps, longest - start))
        pairs = [(one[start:], self.reach * self.tracks[row][start:]) for one, row in zip(made, rows, strict=True)]
        return [(one[: len(truth)] - truth[: len(one)]).square().sum(-1).mean(-1) for one, truth in pairs]

    def judge(self, model: nn.Module, split: Split, pattern: Pattern, device: Device) -> dict[str, float]:
        """Root mean squares of the distance of roll-outs of all of a part, beside those of going straight on."""
        rows = self.splits[split].tolist()
        parts = (("rollout_rmse", model), ("rollout_constant_velocity_rmse", None))
        return {name: float(torch.cat(self._apart(one, rows)).mean().sqrt()) for name, one in parts}

    def simple(self) -> Iterator[tuple[str, Callable[[Split], Mapping[str, float]]]]:
        yield "constant velocity", self._straight

    def _straight(self, split: Split) -> dict[str, float]:
        squares = [self.tracks[row].diff(n=2, dim=0)[self.history - 1 :].square().sum(-1).flatten()
                   for row in self.splits[split].tolist()]  # fmt: skip
        return {"rmse": self.reach * float(torch.cat(squares).mean().sqrt())}

    def asked(self, request: str) -> tuple[OwnTrajectories, int]:
        """The task and the number of a trajectory: of the data, of a file, or of a row."""
        if (row := object_in(request)) is not None:
            if strange := sorted({*row} - {*KNOWN}):
                raise DataError(f"the trajectory has no {', '.join(strange)[:80]}: give {FORM}")
            reader = replace(self.how, asked=replace(self.how.asked, labelled=False))
            made = reader.checked([reader.made(row, "the trajectory", "the trajectory")])
            return reader.task(Settled(Examples(Path(), (), "films", 1), self.own.fitted, {}), made), 0
        text = request.strip()
        if text not in self.own.given.number_of and Path(text).suffix.lower() in ENDINGS:
            return self.elsewhere(Path(text)), 0
        return self, self.find(text)

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """How far a roll-out of a trajectory is from what happened, and from a file where its particles will be."""
        task, row = self.asked(request)
        if task is not self:
            made = task.go_on(model, [row], self.how.steps, last=True)[0]
            return {"trajectory": task.name_of(row), "steps": self.how.steps, "last_positions": made[-1].tolist()}
        said: dict[str, Any] = {"trajectory": self.name_of(row)}
        for name, one in (("rmse_after_steps", model), ("constant_velocity_rmse_after_steps", None)):
            apart = self._apart(one, [row])[0].sqrt().tolist()
            said |= {"steps": len(apart), name: {n: apart[n - 1] for n in (*AFTER, len(apart)) if n <= len(apart)}}
        return said

    def examine(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> Output:
        return Output(self.predict(model, pattern, request, device), {})

    def table(self, model: nn.Module, pattern: Pattern, device: Device) -> Iterator[dict[str, Any]]:
        """Where each particle is in the frames that are read before a roll-out, and will be in those after them."""
        for row, one in enumerate(self.all):
            yield from one.rows(self.go_on(model, [row], self.how.steps, last=True)[0].tolist())

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        task, row = self.asked(request)
        inputs = captured(model, partial(task.go_on, model, [row], 1, last=task is not self))
        made, one = movement(inputs, model, self.signature.space), task.all[row]
        names = [f"{one.kinds[n]}{name or n}" for n, name in enumerate(one.particles)]
        what = f"how far particle {names[made.node or 0]} moves, in the unit of the data"
        move = cast(Callable[[Tensor], Tensor], made.number)
        return replace(made, names=names, what=what, number=lambda y: self.reach * move(y))

    def alone(self, model: nn.Module, pattern: Pattern) -> Alone:
        row, frame = self.numbers("valid")[0].tolist()
        history = self.tracks[row][frame - self.history - 1 : frame]
        (low, high), now, moves = self.walls[row], history[-1], history.diff(dim=0)
        graph, _, *e = self._inputs(history, [row])
        measured = self.reach * torch.cat([now, moves[-1], *moves[:-1], now - low, high - now], -1)
        x = torch.cat([measured, self.kinds[row]], -1)
        return Alone(InOwnUnit(model, self), (graph, x, *(self.reach * one.double() for one in e)))

    def preprocessing(self) -> dict[str, Any]:
        axes, kinds = "xyz"[: self.signature.space], list(self.own.fitted.columns[3].levels)
        before = [counted(n, "frame") for n in range(self.history - 1, 0, -1)]
        columns = [f"{axis} of the move {ago} before the last" for ago in before for axis in axes]
        columns += [
            f"distance from the {one} wall along {axis}, or infinity" for one in ("low", "high") for axis in axes
        ]
        columns += [f"1 where the kind is {kind!r}, else 0" for kind in kinds if len(kinds) > 1]
        rows: dict[str, Any] = {
            "kind": "films",
            "input": f"a file as those that trained (.npz, extended XYZ, a table), a folder of such files, or JSON: "
            f"{FORM}, or a list of such objects",
            "radius": self.reach,
            "history": self.history,
            "steps": self.how.steps,
            "kinds": kinds,
            "box": [None if np.isinf(edge) else edge for edge in self.how.box],
            "periodic": list(self.how.periodic),
            "columns": columns,
            "edge_columns": [f"{axis} of a sender's image less its own" for axis in axes * bool(self.signature.edges)],
            "positions": "where each particle is in the last frame, in the data's unit, as all lengths",
            "velocities": "how far each particle has moved since the frame before",
            "edges": f"an edge to each particle from each other one, or image of one, within {self.reach!r}",
            "output": "where each particle is in the next frame",
        }
        return {"rows": rows}

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Roll-out", lambda: [self._errors(model)])

    def _errors(self, model: nn.Module) -> Drawing:
        row, curves = int(self.splits["test"][0]), []
        beside: list[tuple[str, nn.Module | None, Colour]]
        beside = [("model", model, "accent"), ("constant velocity", None, "warm")]
        for name, one, colour in beside:
            apart = self._apart(one, [row])[0].sqrt().tolist()
            curves.append(Curve(name, [*range(1, len(apart) + 1)], apart, colour))
        caption = f"Root mean square distance of the particles of {self.name_of(row)} from where they were."
        return Drawing("rollout", Curves([Panel("distance", curves)]), caption)


@on_own("film")
def trajectories(
    folder: str = "trajectories",
    radius: float = 0.0,
    history: int = 5,
    noise: float = 0.06,
    box: tuple[float, ...] = (),
    periodic: tuple[bool, ...] = (),
    steps: int = LONGEST,
    fold: int = 0,
    like: str = "",
    cut: Literal["auto", "random", "given"] = "auto",
    folds: int = 0,
) -> OwnTrajectories:
    """Learn to simulate your own particles from trajectories of them, frame by frame.

    Trajectories may have any numbers of particles and of frames, in 2 or 3 dimensions, the frames evenly apart in time.
    In a periodic box, along some axes or all, a particle moves to the image that is nearest to where it was, by less
    than half of an edge, and all images within the radius act on it, also in boxes that are smaller.
    Files whose names begin with train, valid or test are in that part, and without valid a fifth of those that train
    chooses the weights; else whole trajectories are cut: 60 % train, 20 % choose the weights, 20 % test.

    Reference   Sanchez-Gonzalez et al., "Learning to simulate complex physics with graph networks", 2020

    Args:
        folder: A folder of trajectories, or one file: `.npz` with `positions` [frames, particles, axes], perhaps
            `kinds` of the particles, their names (`particles`), the edges of the `box`, and along which it is
            `periodic`; extended XYZ, whose elements are kinds; a table (CSV, TSV, Parquet or JSON lines) with `step`,
            `particle`, `x`, `y`, perhaps `z`, `kind` and `trajectory`.
        radius: Distance up to which particles and walls act on a particle. 0: the median one to the eighth neighbour.
        history: Moves that are read.
        noise: Noise on the moves that are read in training, in units of their deviation.
        box: Edges of a box, one corner of which is the origin, where a file names none. Empty: open space.
        periodic: Whether such a box is periodic in place of having walls, where a file does not say: for each axis, or
            once for all. Empty: it has walls.
        steps: Frames of a roll-out.
        cut: How to cut: "random"; "given", as files say. "auto": as files say, else random.

    Errors      files that are missing or malformed are a `DataError` with all that is wrong
    """
    check_range(0.0, 1e9, radius=radius)
    check_range(2, 20, history=history)
    check_range(0.0, 10.0, noise=noise)
    check_range(1, 100_000, steps=steps)
    files = TrajectoryFiles(Asked("films"), radius, history, noise, box, periodic, steps, fold)
    return files.settle(folder, like, "number", How(cut, fold, folds))
