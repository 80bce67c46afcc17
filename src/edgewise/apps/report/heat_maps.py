"""Where a model looks on whole slides: the heat of each tile over the slide, in a report and for any slide."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from edgewise.apps.report import figures
from edgewise.apps.report.attention import Drawing
from edgewise.models import PooledTransformer
from edgewise.tasks import SlideClassification
from edgewise.tasks.slides.classification import Examined
from edgewise.tasks.slides.reader import OVERVIEW, Tiling, overview
from edgewise.training import LoadedRun, write_file

SLIDES = 4  # in a report
LARGEST = 800  # pixels of a drawn slide's longer side


class Seen(NamedTuple):
    """A slide to be drawn: what was found, what it is called, and where its region is, if that is known."""

    examined: Examined
    title: str
    region: NDArray[np.bool_] | None = None


def write_heat_map(examined: Examined, tiling: Tiling, run: Path) -> Path | None:
    """Draw a slide and what speaks for its class into a run folder; where. None without a heat map."""
    if examined.heat is None:
        return None
    answer = examined.answer
    title = f"{examined.layout.path.name}: {answer['class']}, {answer['probabilities'][answer['class']]:.0%}"
    drawn = figures.svg(draw_slides([Seen(examined, title)], tiling), "heat")
    name = re.sub(r"[^\w.-]", "-", examined.layout.path.stem, flags=re.ASCII)
    path = run / "figures" / f"heat-{name}.svg"
    path.parent.mkdir(exist_ok=True)
    write_file(path, figures.standalone(drawn).encode())
    return path


def heat_maps(loaded: LoadedRun) -> list[Drawing]:
    """The heat maps of some test slides, those of the last class first."""
    task, model = loaded.task, loaded.model
    if not isinstance(task, SlideClassification) or not isinstance(model, PooledTransformer):
        return []
    targets = task.slides.targets[task.slides.splits["test"]]
    last = len(task.slides.classes) - 1
    positive, others = ((targets == last) == wanted for wanted in (True, False))
    chosen = [*positive.nonzero()[:, 0].tolist()[: SLIDES - 1], *others.nonzero()[:, 0].tolist()[:1]]
    seen = []
    for number in chosen:
        examined = task.examine_slide(model, loaded.pattern, f"test:{number}", "cpu")
        said, label = examined.answer["class"], examined.answer["label"]
        region = None if task.slides.region is None else task.slides.region(int(task.slides.splits["test"][number]))
        seen.append(Seen(examined, said if said == label else f"{said}, not {label}", region))
    outlined = " A line outlines the planted region, which the model was never shown." if task.slides.region else ""
    told = f"Slides of the test part, and below them how much each tile speaks for the class found.{outlined}"
    return [Drawing("heat", draw_slides(seen, task.tiling), told)]


def draw_slides(seen: Sequence[Seen], tiling: Tiling) -> Figure:
    """A row of slides, and below each the same in grey under the heat of its tiles."""
    width = figures.WIDTH / max(2, len(seen))
    with figures.drawing(2 * width + 0.3, (2, len(seen)), width * len(seen)) as (figure, grid):
        for column, (examined, title, region) in enumerate(seen):
            picture = overview(examined.layout.path, tiling)[0]
            thin = slice(None, None, -(-max(picture.shape) // LARGEST))
            above, below = grid[:, column]
            _draw(above, picture[thin, thin].astype(np.float64) / 255)
            above.set_title(title)
            grey = picture[thin, thin].mean(-1, keepdims=True).repeat(3, -1) / 255
            _draw(below, grey, heat=_on_tiles(examined, picture.shape[0] // OVERVIEW, picture.shape[1] // OVERVIEW))
            if region is not None and region.any():
                extent = np.array(examined.layout.extent) / examined.layout.side  # in tiles, as the picture is drawn
                y, x = ((np.arange(n) + 0.5) / n * e for n, e in zip(region.shape, extent, strict=True))
                below.contour(x, y, region.astype(np.float64), levels=[0.5], colors=[figures.INK], linewidths=1.2)
    return figure


def _on_tiles(examined: Examined, rows: int, columns: int) -> figures.Array:
    """The heat of each tile in its place, from 0 to 1; what speaks against the class is 0."""
    assert examined.heat is not None
    heat = examined.heat.double().numpy().clip(0)
    grid = np.zeros((rows, columns))
    grid[tuple(examined.layout.places.numpy().T)] = heat / max(float(heat.max()), 1e-12)
    return grid


def _draw(axes: Axes, picture: figures.Array, heat: figures.Array | None = None) -> None:
    """A picture whose sides are counted in tiles."""
    rows, columns = (1.0, 1.0) if heat is None else heat.shape
    axes.imshow(picture, extent=(0.0, columns, rows, 0.0), aspect=picture.shape[0] / picture.shape[1] * columns / rows)
    if heat is not None:
        axes.imshow(figures.shades(heat, figures.HEAT, 0.85), extent=(0.0, columns, rows, 0.0))
        axes.set_aspect(picture.shape[0] / picture.shape[1] * columns / rows)
    figures.bare(axes)
