"""Films of discs in a box: a strip of a few moments, or an animation that plays by itself, without a script."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from edgewise.apps.report.figures import CLASSES, MUTED, WIDTH, bare, drawing
from edgewise.apps.report.pages import Markup, element
from edgewise.tasks.core.drawing import Animation, Array, Films, Strip

MOMENTS = 5  # of a strip
EVERY = 2  # frames between two that an animation holds: a browser interpolates
PANEL, GAP, TOP = 300, 24, 26  # of an animation, in pixels


def strip(shown: Strip) -> Figure:
    """Each film in a row, at evenly spaced steps."""
    films = shown.films.films
    moments = np.linspace(0, len(films[0][1]) - 1, MOMENTS).round().astype(int).tolist()
    with drawing(len(films) * WIDTH / MOMENTS * 1.1, (len(films), MOMENTS)) as (figure, grid):
        for row, (name, centres) in zip(grid, films, strict=True):
            for axes, moment in zip(row, moments, strict=True):
                _draw_discs(axes, shown.films, centres[moment])
                if axes in grid[0]:
                    axes.set_title(f"step {moment}")
            row[0].set_ylabel(name)
    return figure


def _draw_discs(axes: Axes, films: Films, centres: Array) -> None:
    """Discs [N, 2] in their box."""
    width, height = films.box
    sizes = np.full(len(centres), 2 * films.radius)
    where: dict[str, Any] = {"units": "xy", "offsets": centres, "transOffset": axes.transData}
    colours = [CLASSES[c] for c in films.classes]
    axes.add_collection(EllipseCollection(sizes, sizes, 0 * sizes, facecolors=colours, **where))
    axes.add_patch(Rectangle((0, 0), width, height, facecolor="none", edgecolor=MUTED, linewidth=0.8))
    axes.set(xlim=(-0.02 * width, 1.02 * width), ylim=(-0.02 * height, 1.02 * height), aspect="equal")
    bare(axes)


def animation(shown: Animation) -> Markup:
    """Films side by side, as an SVG that moves."""
    films = shown.films
    panels = [_panel(films, name, film[::EVERY], n * (PANEL + GAP)) for n, (name, film) in enumerate(films.films)]
    width = len(panels) * (PANEL + GAP) - GAP
    box = {"viewBox": f"-1 0 {width + 2} {PANEL + TOP + 1}", "role": "img", "xmlns": "http://www.w3.org/2000/svg"}
    return element("svg", *panels, **box)


def _panel(films: Films, name: str, film: Array, left: int) -> Markup:
    """One film [T, N, 2] in its box, under its name."""
    scale = PANEL / films.box[0]
    seconds = f"{len(film) * EVERY * films.frame * films.slower:.1f}s"
    x, y = (left + film[..., 0] * scale).T.tolist(), (TOP + PANEL - film[..., 1] * scale).T.tolist()
    words = {"x": str(left), "y": "16", "fill": "var(--muted)", "font-size": "13", "font-family": "sans-serif"}
    outline = {"width": str(PANEL), "height": str(PANEL), "fill": "none", "stroke": "var(--rule)"}
    discs = []
    for across, down, label in zip(x, y, films.classes, strict=True):
        moves = [
            element("animate", attributeName=axis, values=_listed(places), dur=seconds, repeatCount="indefinite")
            for axis, places in (("cx", across), ("cy", down))
        ]
        first = {"cx": _listed(across[:1]), "cy": _listed(down[:1]), "r": f"{films.radius * scale:.1f}"}
        discs.append(element("circle", *moves, **first, fill=CLASSES[label]))
    return element("g", element("text", name, **words), element("rect", x=str(left), y=str(TOP), **outline), *discs)


def _listed(places: list[float]) -> str:
    return ";".join(f"{place:.1f}" for place in places)
