"""The drawings of a report, from plain arrays. Each follows the page's colours, in light and in dark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from edgewise.apps.report.pages import DARK, LIGHT, variables

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

# A drawing names the page's colours by these stand-ins; `svg` turns them into CSS variables.
PAPER, INK, MUTED, RULE, ACCENT, WARM = (f"#0000{n:02x}" for n in range(1, 7))
_VARIABLES = dict(zip((PAPER, INK, MUTED, RULE, ACCENT, WARM), LIGHT, strict=True))
# Classes: mid-tones that stand out on light paper and on dark.
CLASSES = ("#3f7fe8", "#e2622f", "#22a08d", "#dba12a", "#9a67e6", "#d9518f", "#74a341", "#1ba6c9", "#a7795a", "#8390a3")
# Images carry their own ground and heat, because a picture's pixels cannot follow the page.
GROUND, LIT, HEAT, MATRIX = "#1d2026", "#f2f2ee", "#ff8a3d", CLASSES[0]

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "edgewise",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.titlepad": 8.0,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": RULE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "image.interpolation": "none",
}
WIDTH = 7.2


@contextmanager
def drawing(
    height: float, panels: tuple[int, int] = (1, 1), width: float = WIDTH
) -> Iterator[tuple[Figure, NDArray[np.object_]]]:
    """A figure with rows × columns of axes, in the report's style."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, figure.subplots(*panels, squeeze=False)


def svg(figure: Figure, name: str) -> str:
    """The figure as SVG text for a page: the same bytes every time, its ids made unique by `name`."""
    with matplotlib.rc_context(_STYLE):
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    drawn = text.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"\s*<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", drawn, count=1)
    drawn = re.sub(r'(<svg[^>]*?) height="[^"]*"', r'\1 role="img"', drawn, count=1)
    wanted = set(re.findall(r'(?:url\(|href=")#([^)"]*)', drawn))
    drawn = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in wanted else "", drawn)
    drawn = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", drawn)
    for colour, variable in _VARIABLES.items():
        drawn = drawn.replace(colour, f"var(--{variable})")
    # The page chooses the typeface; only sizes come from the drawing.
    return re.sub(
        r"(font: [^;\"]*?px) [^;\"]*",
        r"\1 system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
        drawn,
    )


def standalone(drawn: str) -> str:
    """An SVG of `svg` as a file of its own, with the page's colours inside."""
    dark = f"@media (prefers-color-scheme:dark){{svg{{{variables(DARK)}}}}}"
    style = f"svg{{{variables(LIGHT)}background:var(--paper)}}{dark}"
    start = drawn.index(">", drawn.index("<svg")) + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n{drawn[:start]}<style>{style}</style>{drawn[start:]}'


def shades(weights: Array, colour: str, strength: float = 1.0) -> Array:
    """Weights in [0, 1] as one colour whose opacity is the weight: [..., 4]."""
    rgb = np.broadcast_to(np.array(to_rgb(colour)), (*weights.shape, 3))
    return np.concatenate([rgb, strength * weights[..., None]], axis=-1)


def bare(axes: Axes) -> None:
    """Axes without frame and ticks, for pictures."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


Curve = tuple[str, Sequence[float], Sequence[float], str]


def curves(panels: Sequence[tuple[str, Sequence[Curve]]], best: float | None = None) -> Figure:
    """Panels of curves over training steps, a curve is (label, steps, values, colour); `best`: the step kept."""
    with drawing(2.5, (1, len(panels))) as (figure, grid):
        for axes, (title, lines) in zip(grid[0], panels, strict=True):
            axes.set_title(title)
            for _, steps, values, colour in lines:
                axes.plot(steps, values, color=colour, marker="o" if len(steps) == 1 else "", markersize=3)
            _name_ends(axes, lines)
            if best is not None:
                axes.axvline(best, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
            axes.set_xlabel("step")
            axes.grid(axis="y", color=RULE, linewidth=0.6)
            axes.set_axisbelow(True)
            axes.tick_params(length=0)
            axes.spines["left"].set_visible(False)
            axes.margins(x=0.02)
    return figure


def fits(x: Array, y: Array, lines: Sequence[Curve]) -> Figure:
    """Measured points (x, y), and the functions that should run through them, each (label, places, values, colour)."""
    with drawing(2.8) as (figure, grid):
        axes: Axes = grid[0, 0]
        axes.plot(x, y, "o", color=MUTED, markersize=2.5, alpha=0.5, markeredgewidth=0)
        for _, places, values, colour in lines:
            axes.plot(places, values, color=colour)
        _name_ends(axes, lines)
        axes.set_xlabel("x")
        axes.tick_params(length=0)
        axes.margins(x=0.02)
    return figure


def parity(truth: Array, learned: Array, unit: str) -> Figure:
    """What was learned over what is true, both [N]: on the diagonal where they agree."""
    with drawing(3.4, width=3.8) as (figure, grid):
        axes: Axes = grid[0, 0]
        axes.axline((0, 0), slope=1, color=RULE, linewidth=0.8, zorder=0)
        axes.plot(truth, learned, "o", color=ACCENT, markersize=2, alpha=0.4, markeredgewidth=0)
        axes.set(xlabel=f"truth ({unit})", ylabel=f"learned ({unit})", aspect="equal")
        axes.tick_params(length=0)
    return figure


def _name_ends(axes: Axes, lines: Sequence[Curve]) -> None:
    """Name each curve at its end instead of in a legend, pushed apart where two ends are close."""
    ends = sorted((values[-1], label, colour) for label, steps, values, colour in lines if len(values))
    low, high = axes.get_ylim()
    gap, floor = (high - low) * 0.09, -np.inf
    for value, label, colour in ends:
        floor = max(value, floor + gap)
        end: dict[str, Any] = {"xy": (1.0, floor), "xycoords": ("axes fraction", "data")}
        axes.annotate(label, xytext=(5, 0), textcoords="offset points", color=colour, va="center", **end)


def confusion(counts: Labels, names: Sequence[str]) -> Figure:
    """How often each class was taken for each other one: rows are the truth, columns the prediction."""
    classes = len(names)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = float(np.clip(0.42 * classes + 1.2, 2.6, WIDTH))
    with drawing(size, width=WIDTH) as (figure, grid):
        axes: Axes = grid[0, 0]
        axes.set_aspect("equal")
        for row, column in np.ndindex(classes, classes):
            colour = ACCENT if row == column else WARM
            axes.add_patch(
                Rectangle(
                    (column - 0.47, row - 0.47),
                    0.94,
                    0.94,
                    facecolor=colour,
                    alpha=0.75 * np.sqrt(share[row, column]),
                    linewidth=0,
                )
            )
            if counts[row, column]:
                strong = INK if share[row, column] >= 0.05 else MUTED
                axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=strong, fontsize=7.5)
        axes.set(xlim=(-0.5, classes - 0.5), ylim=(classes - 0.5, -0.5))
        long = max(map(len, names)) > 3
        axes.set_xticks(
            range(classes), names, rotation=35 if long else 0, ha="left" if long else "center", rotation_mode="anchor"
        )
        axes.set_yticks(range(classes), names)
        axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
        axes.set_ylabel("truth")
        axes.set_xlabel("prediction", labelpad=6)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure


def network(
    places: Array,
    receivers: Labels,
    senders: Labels,
    weights: Array | None,
    predicted: Labels,
    wrong: NDArray[np.bool_],
    names: Sequence[str] | None = None,
    centre: int | None = None,
    classes: Sequence[str] = (),
) -> Figure:
    """Nodes and edges. The half of an edge next to a node shows how much that node listens along it.

    places [N, 2]; receivers, senders, weights [E] (None: no attention to show); predicted class and `wrong` [N].
    """
    with drawing(5.4) as (figure, grid):
        axes: Axes = grid[0, 0]
        draw_network(axes, places, receivers, senders, weights, predicted, wrong, names, centre)
        shown = [c for c in range(len(classes)) if c in predicted]
        dots = [Line2D([], [], linestyle="", marker="o", markersize=5, color=CLASSES[c % len(CLASSES)]) for c in shown]
        key = figure.legend(
            dots,
            [classes[c] for c in shown],
            loc="outside upper left",
            ncols=4,
            frameon=False,
            handletextpad=0.1,
            columnspacing=1.2,
            labelcolor=MUTED,
        )
        key.set_zorder(0)
    return figure


def draw_network(
    axes: Axes,
    places: Array,
    receivers: Labels,
    senders: Labels,
    weights: Array | None,
    predicted: Labels,
    wrong: NDArray[np.bool_],
    names: Sequence[str] | None = None,
    centre: int | None = None,
) -> None:
    """Draw one network into axes; see `network`."""
    other = receivers != senders
    i, j = receivers[other], senders[other]
    halves = np.stack([places[i], (places[i] + places[j]) / 2], axis=1)
    axes.add_collection(LineCollection(list(halves), colors=MUTED, linewidths=0.5, alpha=0.45))
    if weights is not None and len(i):
        heat = weights[other] / max(float(weights[other].max()), 1e-12)
        order = np.argsort(heat, kind="stable")
        lines = LineCollection(
            list(halves[order]), colors=INK, linewidths=0.3 + 3.2 * heat[order], alpha=list(0.1 + 0.8 * heat[order])
        )
        lines.set_capstyle("butt")
        axes.add_collection(lines)
    degree = np.bincount(i, minlength=len(places))
    sizes = (26 + 9 * np.sqrt(degree) * 2) * (0.55 if len(places) > 80 else 1.0)
    colours = [CLASSES[c % len(CLASSES)] for c in predicted]
    x, y = places.T
    if centre is not None:
        ring = {"s": 3.2 * sizes[centre], "facecolor": "none", "edgecolor": INK, "linewidth": 1.1, "zorder": 3}
        axes.scatter(x[centre], y[centre], **ring)
    axes.scatter(x, y, s=sizes, c=colours, edgecolor=PAPER, linewidth=1.0, zorder=4)
    axes.scatter(x[wrong], y[wrong], s=0.4 * sizes[wrong], c=INK, marker="x", linewidth=1.2, zorder=5)
    if names is not None:
        for place, name in zip(places, names, strict=True):
            axes.annotate(
                name,
                place,
                xytext=(0, 8.5),
                textcoords="offset points",
                ha="center",
                fontsize=6.5,
                color=MUTED,
                zorder=6,
            )
    axes.set_aspect("equal")
    axes.margins(0.06)
    bare(axes)


def draw_small_network(axes: Axes, places: Array, receivers: Labels, senders: Labels, colour: Labels) -> None:
    """Draw one of many small networks into axes: places [N, 2], edges [E], a class for each node [N]."""
    lines = LineCollection(list(np.stack([places[receivers], places[senders]], axis=1)), colors=MUTED, linewidths=0.6)
    axes.add_collection(lines)
    x, y = places.T
    axes.scatter(x, y, s=14, c=[CLASSES[c] for c in colour], edgecolor=PAPER, linewidth=0.6, zorder=4)
    axes.set_aspect("equal")
    axes.margins(0.08)
    bare(axes)


def token_matrix(weights: Array, tokens: Sequence[str]) -> Figure:
    """Who listens to whom in a text, weights [H, T, T]: a row per listening character, a column per character heard."""
    heads, length = len(weights), len(tokens)
    shown = heads if heads > 1 else 0
    ratio = [4.0, 1.0] if shown else [1.0]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, 5.9), layout="constrained")
        FigureCanvasSVG(figure)
        columns = figure.add_gridspec(1, len(ratio), width_ratios=ratio, wspace=0.06)
        axes = figure.add_subplot(columns[0])
        draw_matrix(axes, weights.mean(0))
        axes.set_title("mean of the heads" if shown else "the head", pad=16)
        small = min(7.5, 300 / length)
        axes.set_yticks(range(length), tokens, fontsize=small)
        axes.set_xticks(range(length), tokens, fontsize=small)
        axes.tick_params(length=0, pad=2, top=True, bottom=False, labeltop=True, labelbottom=False)
        if shown:
            rows = columns[1].subgridspec(min(shown, 4), -(-shown // 4), hspace=0.12)
            for head in range(shown):
                axes = figure.add_subplot(rows[head % 4, head // 4])
                draw_matrix(axes, weights[head])
                axes.set_title(f"head {head + 1}", fontsize=7.5, pad=3, color=MUTED)
    return figure


def draw_matrix(axes: Axes, weights: Array) -> None:
    """Draw weights [I, J] as squares. Each row is scaled by its largest weight, or long rows would all look pale."""
    heat = weights / np.maximum(weights.max(1, keepdims=True), 1e-12)
    axes.imshow(shades(heat, MATRIX))
    height, width = weights.shape
    axes.plot(
        [-0.5, width - 0.5, width - 0.5, -0.5, -0.5],
        [-0.5, -0.5, height - 0.5, height - 0.5, -0.5],
        color=RULE,
        linewidth=0.7,
    )
    bare(axes)


def image_attention(
    images: Array, received: Array, heard: Array, chosen: Sequence[tuple[int, int]], titles: Sequence[str]
) -> Figure:
    """Images [P, h, w] in [0, 1]; attention received [P, a, b] per patch; what the chosen patch hears [P, a, b]."""
    pictures = len(images)
    patch = images.shape[1] / received.shape[1], images.shape[2] / received.shape[2]
    labels = (
        "the image, and what the model says",
        "how much each patch is heard by all",
        "what the outlined patch hears",
    )
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, 3 * (WIDTH / pictures + 0.25)), layout="constrained")
        FigureCanvasSVG(figure)
        bands: Any = figure.subfigures(3, 1, height_ratios=[1.16, 1, 1])
        for band, label, heats in zip(bands, labels, (None, received, heard), strict=True):
            band.suptitle(label, x=0.005, ha="left", fontsize=8.5, color=MUTED)
            for column, axes in enumerate(band.subplots(1, pictures)):
                draw_image(axes, images[column], None if heats is None else heats[column])
                if heats is None:
                    axes.set_title(titles[column], loc="center")
                if heats is heard:
                    top, left = chosen[column][0] * patch[0], chosen[column][1] * patch[1]
                    axes.add_patch(
                        Rectangle((left, top), patch[1], patch[0], facecolor="none", edgecolor="#ffffff", linewidth=1.4)
                    )
    return figure


def draw_image(axes: Axes, image: Array, heat: Array | None) -> None:
    """A grey image [h, w] in [0, 1], under the heat [a, b] of its patches where there is any."""
    height, width = image.shape
    extent = (0.0, float(width), float(height), 0.0)
    ground, lit = np.array(to_rgb(GROUND)), np.array(to_rgb(LIT))
    axes.imshow(ground + image[..., None] * (lit - ground), extent=extent)
    if heat is not None:
        axes.imshow(shades(heat / max(float(heat.max()), 1e-12), HEAT, 0.85), extent=extent)
    axes.set(xlim=(0, width), ylim=(height, 0))
    bare(axes)


def examples(images: Array, titles: Sequence[str], wrong: NDArray[np.bool_]) -> Figure:
    """A row of images with a title each: what the model said."""
    with drawing(WIDTH / len(images) * 1.35, (1, len(images))) as (figure, grid):
        for axes, image, title, bad in zip(grid[0], images, titles, wrong, strict=True):
            draw_image(axes, image, None)
            axes.set_title(title, loc="center", color=WARM if bad else INK)
    return figure
