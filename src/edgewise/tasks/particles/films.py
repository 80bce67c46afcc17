"""Films of particles, as files have them; it needs NumPy alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy

Numbers = numpy.ndarray[Any, numpy.dtype[Any]]


class Film(NamedTuple):
    """Particles in each of some frames: positions [T, N, D], what each is and how it is called, and the edges of a box
    whose corner is the origin [D], infinite where it is open; along which of them it is periodic, in place of walls.
    """

    positions: Numbers
    kinds: tuple[str, ...]
    particles: tuple[str, ...]
    box: Numbers
    periodic: Numbers
    name: str

    @property
    def period(self) -> Numbers:
        """The edges after which all is there again [D], infinite where nothing is."""
        return numpy.where(self.periodic, self.box, numpy.inf)

    @property
    def walls(self) -> Numbers:
        """Where the low and the high walls are [2, D], infinitely far where there are none."""
        walled = numpy.isfinite(self.box) & ~self.periodic
        return numpy.where(walled, [numpy.zeros_like(self.box), self.box], [[-numpy.inf], [numpy.inf]])

    def rows(self, frames: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """Where each particle is in some frames [T, N, D], as the rows of a table."""
        names = self.particles if any(self.particles) else range(len(self.kinds))
        for step, places in enumerate(frames):
            for particle, kind, place in zip(names, self.kinds, places, strict=True):
                known = {"trajectory": self.name, "step": step, "particle": particle}
                yield known | ({"kind": kind} if kind else {}) | dict(zip("xyz", place, strict=False))

    def faults(self, frames: int) -> Iterator[str]:
        """What is wrong with it, in sentences, for a model that reads so many frames."""
        count, particles, axes = self.positions.shape
        if not numpy.isfinite(self.positions).all():
            yield "positions must be finite numbers"
        if count < frames or not particles:
            yield f"{count} frames of {particles} particles, of at least {frames}, of one particle or more"
        if self.box.shape != (axes,) or not (self.box > 0).all():
            yield f"the box is {self.box.tolist()}: give {axes} edges above 0"
        elif self.periodic.shape != (axes,):
            yield f"periodic is {self.periodic.tolist()}: give {axes} truth values, or one"
        elif numpy.isinf(self.box[self.periodic]).any():
            yield f"the box {self.box.tolist()} is periodic where it has no edge: give that"


def film_of(
    known: Mapping[str, Any], name: str, box: Sequence[float | None] = (), periodic: Sequence[bool] = ()
) -> Film:
    """A film of positions and perhaps kinds, particles, box and periodic, which are lists or arrays.

    Symbols     box, periodic = where it has none of its own; None: an open edge
    Errors      ValueError for what they cannot be
    """
    x = numpy.array(known.get("positions", ())).astype(numpy.float64, casting="same_kind")
    if x.ndim != 3:
        raise ValueError(f"{name}: positions must be [frames, particles, axes], not {list(x.shape)}")
    texts = {what: numpy.array(known.get(what, [""] * x.shape[1])) for what in ("kinds", "particles")}
    for what, values in texts.items():
        if values.shape != x.shape[1:2]:
            raise ValueError(f"{name}: {what} must be those of {x.shape[1]} particles, not {list(values.shape)}")
    edges = numpy.ravel(known.get("box", box or [None] * x.shape[2])).tolist()
    flags = numpy.ravel(known.get("periodic", periodic or False)).tolist()
    flags = flags * x.shape[2] if len(flags) == 1 else flags
    along = numpy.array([{0: False, 1: True}[one] for one in flags], dtype=bool)
    ends = numpy.array([numpy.inf if edge is None else edge for edge in edges], dtype=numpy.float64)
    kinds, particles = (tuple(map(str, values.tolist())) for values in texts.values())
    return Film(x, kinds, particles, ends, along, name)


def films_in(when: Numbers, who: Numbers, film: Numbers, kinds: Numbers, x: Numbers) -> Iterator[tuple[str, Any]]:
    """By name what is known of the films of a table with a row for each particle in each frame, as `film_of` reads it.

    Errors      ValueError for one without a row for each particle in each of its frames, which are evenly apart
    """
    for name in dict.fromkeys(film.tolist()):
        rows, where = numpy.flatnonzero(film == name), f"trajectory {name[:40]}: " if name else ""
        (times, frame), (known, one) = (numpy.unique(a[rows], return_inverse=True) for a in (when, who))
        there = numpy.bincount(frame * len(known) + one, minlength=len(times) * len(known))
        if (wrong := numpy.flatnonzero(there != 1)).size:
            at, who_is = divmod(int(wrong[0]), len(known))
            what = f"particle {known[who_is]} is in frame {times[at]:g} {there[wrong[0]]} times: each is in each once"
            raise ValueError(where + what)
        apart = numpy.diff(times)
        if not numpy.allclose(apart, numpy.median(apart) if len(apart) else 0, rtol=0.01, atol=0):
            raise ValueError(f"{where}its frames must be evenly apart, not {apart.min():g} and {apart.max():g}")
        rows = rows[numpy.lexsort((one, frame))]
        each = kinds[rows].reshape(len(times), len(known))
        if (each != each[0]).any():
            changing = known[(each != each[0]).any(0)][0]
            raise ValueError(f"{where}particle {changing} changes its kind")
        yield name, {"positions": x[rows].reshape(*each.shape, -1), "kinds": each[0], "particles": known}
