"""What a learned simulator does by itself, beside the truth: a film strip, curves and an animation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from edgewise.apps.report import figures
from edgewise.apps.report.attention import Drawing
from edgewise.apps.report.pages import Markup, element
from edgewise.tasks import Rollout, Simulation
from edgewise.training import LoadedRun, write_file

MOMENTS = 5  # of a film strip
SLOWER = 12  # than life
EVERY = 2  # frames between two that an animation holds: a browser draws those in between
PANEL, GAP, TOP = 300, 24, 26  # of an animation, in pixels
SIDES = ("truth", "model")


def roll_out(loaded: LoadedRun, split: str = "test") -> Rollout:
    """All films of a split, gone on with from their first frames, side by side."""
    assert isinstance(loaded.task, Simulation)
    return loaded.task.roll_out(loaded.model, loaded.task.splits[split])  # type: ignore[index]


def drawings(rollout: Rollout) -> list[Drawing]:
    """The first film at some moments, and what all films measure over the steps."""
    steps = rollout.forecast.shape[1] - rollout.given
    outside = [1000 * rollout.outside(positions) for positions in (rollout.truth, rollout.forecast)]
    films = len(rollout.forecast)
    return [
        Drawing(
            "rollout",
            film_strip(rollout),
            f"Above the truth, below the model, which read the first {rollout.given} frames and went on by itself. A "
            f"disc's colour is how high it began. In {films} films of {steps} steps a rim passes a wall by at most "
            f"{outside[0]:.1f} mm in truth and {outside[1]:.1f} mm in the model.",
        ),
        Drawing(
            "laws",
            figures.curves(laws(rollout)),
            f"Means over {films} test films and their particles. Which particle goes where cannot be told for long: "
            "two films that begin a hair apart part as fast. What can be told is what they do together.",
        ),
    ]


def film_strip(rollout: Rollout) -> Figure:
    """The first film: truth above, model below, at evenly spaced steps."""
    last = rollout.forecast.shape[1] - 1
    moments = np.linspace(rollout.given - 1, last, MOMENTS).round().astype(int)
    colours = [figures.CLASSES[band] for band in bands(rollout)]
    with figures.drawing(2 * figures.WIDTH / MOMENTS * 1.1, (2, MOMENTS)) as (figure, grid):
        for row, positions in enumerate((rollout.truth, rollout.forecast)):
            for column, moment in enumerate(moments.tolist()):
                axes: Axes = grid[row, column]
                draw_discs(axes, rollout, positions[0, moment], colours)
                if not row:
                    axes.set_title(f"step {moment - rollout.given + 1}")
            grid[row, 0].set_ylabel(SIDES[row])
    return figure


def draw_discs(axes: Axes, rollout: Rollout, places: Tensor, colours: list[str]) -> None:
    """Discs [N, 2] in their box."""
    width, height = rollout.scene.box
    sizes = np.full(len(places), 2 * rollout.scene.radius)
    axes.add_collection(
        EllipseCollection(
            sizes, sizes, 0 * sizes, units="xy", offsets=places.numpy(), transOffset=axes.transData, facecolors=colours
        )
    )
    axes.add_patch(Rectangle((0, 0), width, height, facecolor="none", edgecolor=figures.MUTED, linewidth=0.8))
    axes.set(xlim=(-0.02 * width, 1.02 * width), ylim=(-0.02 * height, 1.02 * height), aspect="equal")
    figures.bare(axes)


def laws(rollout: Rollout) -> list[tuple[str, list[figures.Curve]]]:
    """Energy, momentum and distance over the steps, of truth and model, as panels of curves."""
    steps = [float(step) for step in range(1, rollout.forecast.shape[1] - rollout.given + 1)]
    energy: list[figures.Curve] = []
    momentum: list[figures.Curve] = []
    colours = (figures.WARM, figures.ACCENT)
    for name, positions, colour in zip(SIDES, (rollout.truth, rollout.forecast), colours, strict=True):
        seen = positions[:, rollout.given - 1 :]
        kinetic, potential = rollout.energy(seen)
        energy.append((name, steps, (kinetic + potential).mean(0).tolist(), colour))
        momentum.append((name, steps, rollout.momentum(seen)[..., -1].mean(0).tolist(), colour))
    distance: figures.Curve = ("apart", steps, (100 * rollout.error()[rollout.given :]).tolist(), figures.ACCENT)
    return [("energy of a disc, J/kg", energy), ("upward momentum, m/s", momentum), ("distance, cm", [distance])]


def bands(rollout: Rollout) -> list[int]:
    """Which of four layers each particle of the first film begins in, from below: [N]."""
    height = rollout.truth[0, 0, :, -1]
    rank = height.argsort().argsort()
    return (4 * rank // len(height)).tolist()


def animation(rollout: Rollout) -> Markup:
    """The first film as an SVG that moves by itself: truth and model side by side, without a script."""
    frames = range(rollout.given - 1, rollout.forecast.shape[1], EVERY)
    seconds = f"{len(frames) * EVERY * rollout.scene.frame * SLOWER:.1f}s"
    panels = [
        panel(rollout, positions[0, list(frames)], name, number * (PANEL + GAP), seconds)
        for number, (name, positions) in enumerate(zip(SIDES, (rollout.truth, rollout.forecast), strict=True))
    ]
    box = {
        "viewBox": f"-1 0 {2 * PANEL + GAP + 2} {PANEL + TOP + 1}",
        "role": "img",
        "xmlns": "http://www.w3.org/2000/svg",
    }
    return element("svg", *panels, **box)


def panel(rollout: Rollout, film: Tensor, name: str, left: int, seconds: str) -> Markup:
    """One film [T, N, 2] in its box, under its name."""
    scale = PANEL / rollout.scene.box[0]
    x, y = (left + film[..., 0] * scale).T.tolist(), (TOP + PANEL - film[..., 1] * scale).T.tolist()
    words = {"x": str(left), "y": "16", "fill": "var(--muted)", "font-size": "13", "font-family": "sans-serif"}
    outline = {"width": str(PANEL), "height": str(PANEL), "fill": "none", "stroke": "var(--rule)"}
    discs = []
    for across, down, band in zip(x, y, bands(rollout), strict=True):
        moves = [
            element("animate", attributeName=axis, values=listed(places), dur=seconds, repeatCount="indefinite")
            for axis, places in (("cx", across), ("cy", down))
        ]
        first = {"cx": listed(across[:1]), "cy": listed(down[:1]), "r": f"{rollout.scene.radius * scale:.1f}"}
        discs.append(element("circle", *moves, **first, fill=figures.CLASSES[band]))
    return element("g", element("text", name, **words), element("rect", x=str(left), y=str(TOP), **outline), *discs)


def listed(places: list[float]) -> str:
    return ";".join(f"{place:.1f}" for place in places)


def write_animation(loaded: LoadedRun, run: Path, request: str) -> Path:
    """Roll out one film, named as in "test:7", and write its animation into the run's figures."""
    assert isinstance(loaded.task, Simulation)
    rollout = loaded.task.roll_out(loaded.model, torch.tensor([loaded.task.film(request)]))
    path = run / "figures" / f"rollout-{request.strip().replace(':', '-')}.svg"
    path.parent.mkdir(exist_ok=True)
    write_file(path, figures.standalone(animation(rollout)).encode())
    return path
