"""The figures of a report, drawn from what tasks show as data, in the page's colours, light and dark."""

import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import EllipseCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from edgewise.apps.report.pages import DARK, LIGHT, Markup, element, variables
from edgewise.tasks.core.drawing import (
    Animation,
    Array,
    Colour,
    Confusion,
    Curve,
    Curves,
    Films,
    HeatMaps,
    Matrix,
    Parity,
    Pictures,
    Strip,
)

# A figure names the page's colours by these stand-ins; `svg` turns them into CSS variables.
PAGE = {name: f"#0000{n:02x}" for n, name in enumerate(LIGHT, start=1)}
PAPER, INK, MUTED, RULE, ACCENT, WARM = PAGE.values()
# Classes: mid-tones that stand out on light paper and on dark.
CLASSES = ("#3f7fe8", "#e2622f", "#22a08d", "#dba12a", "#9a67e6", "#d9518f", "#74a341", "#1ba6c9", "#a7795a", "#8390a3")
# Pictures carry their own ground and heat, because a picture's pixels cannot follow the page.
GROUND, LIT, HEAT, COLD, MATRIX = "#1d2026", "#f2f2ee", "#ff8a3d", "#3d9bff", CLASSES[0]

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "edgewise",
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
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
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # characters that no XML may hold
LONGEST, NAME_OF_CLASS = 16, 24  # characters of a name in a figure; tables have it whole
TYPEFACE = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


@contextmanager
def sheet(height: float, width: float = WIDTH) -> Iterator[Figure]:
    """An empty figure, in the report's style."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure


@contextmanager
def drawing(
    height: float, panels: tuple[int, int] = (1, 1), width: float = WIDTH
) -> Iterator[tuple[Figure, NDArray[np.object_]]]:
    """A figure with rows × columns of axes, in the report's style."""
    with sheet(height, width) as figure:
        yield figure, figure.subplots(*panels, squeeze=False)


def svg(figure: Figure, name: str) -> str:
    """The figure as SVG text for a page: the same bytes every time, its ids made unique by a hash of its name."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # The page's own typefaces draw what matplotlib's lacks.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        text = StringIO()
        # savefig draws twice, the first time for places that the figure's layout finds by itself.
        nothing = {"Date": None, "Creator": None, "Type": None, "Format": None}
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(text, metadata=nothing)
    drawn = NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text.getvalue())
    drawn = re.sub(r"\s*<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
    wanted = set(re.findall(r'(?:url\(|href=")#([^)"]*)', drawn))
    prefix = "f" + hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:8]
    return re.sub(r"<[^>]*>", lambda tag: _restyled(tag[0], wanted, prefix), drawn)


def _restyled(tag: str, wanted: set[str], prefix: str) -> str:
    """A tag in the page's colours and typeface, with the ids that are wanted. Labels, which may read the same, stay."""
    if tag.startswith("<svg"):
        tag = re.sub(r' (?:width|height)="[^"]*"', "", tag).replace("<svg", '<svg role="img"', 1)
    tag = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in wanted else "", tag)
    tag = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}-", tag)
    for name, colour in PAGE.items():
        tag = tag.replace(colour, f"var(--{name})")
    # The page chooses the typeface; only sizes come from the drawing.
    return re.sub(r"(font: [^;\"]*?px|font-family:) [^;\"]*", rf"\1 {TYPEFACE}", tag)


def standalone(drawn: str) -> str:
    """An SVG of `svg` as a file of its own, with the page's colours inside."""
    dark = f"@media (prefers-color-scheme:dark){{svg{{{variables(DARK)}}}}}"
    style = f"svg{{{variables(LIGHT)}background:var(--paper)}}{dark}"
    start = drawn.index(">", drawn.index("<svg")) + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n{drawn[:start]}<style>{style}</style>{drawn[start:]}'


def short(name: str, longest: int = LONGEST) -> str:
    """A name as a figure has room for it.

    >>> short("probabilistic methods"), short("theory")
    ('probabilistic m…', 'theory')
    """
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"


def shades(weights: Array, colour: str, strength: float = 1.0) -> Array:
    """Weights in [0, 1] as one colour whose opacity is the weight: [..., 4]."""
    rgb = np.broadcast_to(np.array(to_rgb(colour)), (*weights.shape, 3))
    return np.concatenate([rgb, strength * weights[..., None]], axis=-1)


def bare(axes: Axes) -> None:
    """Axes without frame and ticks, for pictures."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def curves(shown: Curves) -> Figure:
    """Panels of curves, each named at its end."""
    with drawing(2.5, (1, len(shown.panels))) as (figure, grid):
        for axes, panel in zip(grid[0], shown.panels, strict=True):
            axes.set_title(panel.title)
            axes.plot(*panel.points, "o", color=MUTED, markersize=2.5, alpha=0.5, markeredgewidth=0)
            for _, x, y, colour in panel.curves:
                axes.plot(x, y, color=_of_curve(colour), marker="o" if len(x) == 1 else "", markersize=3)
            _name_ends(axes, panel.curves)
            if shown.mark is not None:
                axes.axvline(shown.mark, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
            axes.set_xlabel(panel.axis)
            axes.xaxis.get_major_locator().set_params(integer=panel.axis == "step")
            axes.grid(axis="y", color=RULE, linewidth=0.6)
            axes.set_axisbelow(True)
            axes.tick_params(length=0)
            axes.spines["left"].set_visible(False)
            axes.margins(x=0.02)
    return figure


def _of_curve(colour: Colour | int) -> str:
    return CLASSES[colour % len(CLASSES)] if isinstance(colour, int) else PAGE[colour]


def _name_ends(axes: Axes, lines: Sequence[Curve]) -> None:
    """Name each curve at its end instead of in a legend, pushed apart where two ends are close."""
    ends = sorted((line.y[-1], line.label, _of_curve(line.colour)) for line in lines if len(line.y) and line.label)
    low, high = axes.get_ylim()
    gap, places = (high - low) * 0.09, list[float]()
    for value, _, _ in ends:
        places.append(max(value, places[-1] + gap) if places else value)
    above = max(0.0, places[-1] - high) if places else 0.0  # all names move down by as much as the last is too high
    for (_, label, colour), place in zip(ends, places, strict=True):
        end: dict[str, Any] = {"xy": (1.0, place - above), "xycoords": ("axes fraction", "data")}
        axes.annotate(label, xytext=(5, 0), textcoords="offset points", color=colour, va="center", **end)


def parity(shown: Parity) -> Figure:
    """A point for each prediction, and the diagonal."""
    unit = f" ({shown.unit})" if shown.unit else ""
    with drawing(3.4, width=3.8) as (figure, grid):
        axes: Axes = grid[0, 0]
        axes.axline((0, 0), slope=1, color=RULE, linewidth=0.8, zorder=0)
        axes.plot(shown.truth, shown.predicted, "o", color=ACCENT, markersize=2, alpha=0.4, markeredgewidth=0)
        axes.set(xlabel=f"truth{unit}", ylabel=f"predicted{unit}", aspect="equal")
        axes.tick_params(length=0)
    return figure


def confusion(shown: Confusion) -> Figure:
    """Rows are the truth, columns the prediction; a cell's colour is its share of the row."""
    counts, names = shown.counts, [short(name, NAME_OF_CLASS) for name in shown.classes]
    classes = len(names)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = float(np.clip(0.42 * classes + 1.2, 2.6, WIDTH))
    with drawing(size, width=WIDTH) as (figure, grid):
        axes: Axes = grid[0, 0]
        axes.set_aspect("equal")
        for row, column in np.ndindex(classes, classes):
            colour, strength = ACCENT if row == column else WARM, 0.75 * np.sqrt(share[row, column])
            square = (column - 0.47, row - 0.47), 0.94, 0.94
            axes.add_patch(Rectangle(*square, facecolor=colour, alpha=strength, linewidth=0))
            if counts[row, column]:
                strong = INK if share[row, column] >= 0.05 else MUTED
                axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=strong, fontsize=7.5)
        axes.set(xlim=(-0.5, classes - 0.5), ylim=(classes - 0.5, -0.5))
        turn: dict[str, Any] = {"rotation": 35, "ha": "left"} if max(map(len, names)) > 3 else {"ha": "center"}
        axes.set_xticks(range(classes), names, rotation_mode="anchor", **turn)
        axes.set_yticks(range(classes), names)
        axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
        axes.set_ylabel("truth")
        axes.set_xlabel("prediction", labelpad=6)
        axes.spines[:].set_visible(False)
    return figure


def matrix(shown: Matrix) -> Figure:
    """The mean of the heads with its labels, and beside it each head."""
    heads, length = len(shown.weights), len(shown.labels)
    small = heads if heads > 1 else 0
    ratio = [4.0, 1.0] if small else [1.0]
    with sheet(5.9) as figure:
        columns = figure.add_gridspec(1, len(ratio), width_ratios=ratio, wspace=0.06)
        axes = figure.add_subplot(columns[0])
        _draw_matrix(axes, shown.weights.mean(0))
        axes.set_title("mean of the heads" if small else "the head", pad=16)
        for ticks in (axes.set_xticks, axes.set_yticks):
            ticks(range(length), [short(label) for label in shown.labels], fontsize=min(7.5, 300 / length))
        axes.tick_params(length=0, pad=2, top=True, bottom=False, labeltop=True, labelbottom=False)
        if small:
            rows = columns[1].subgridspec(min(small, 4), -(-small // 4), hspace=0.12)
            for head in range(small):
                axes = figure.add_subplot(rows[head % 4, head // 4])
                _draw_matrix(axes, shown.weights[head])
                axes.set_title(f"head {head + 1}", fontsize=7.5, pad=3, color=MUTED)
    return figure


def _draw_matrix(axes: Axes, weights: Array) -> None:
    """Draw weights [I, J] as squares. Each row is scaled by its largest weight, or long rows would all look pale."""
    heat = weights / np.maximum(weights.max(1, keepdims=True), 1e-12)
    axes.imshow(shades(heat, MATRIX))
    height, width = weights.shape
    axes.add_patch(Rectangle((-0.5, -0.5), width, height, facecolor="none", edgecolor=RULE, linewidth=0.7))
    bare(axes)


def pictures(shown: Pictures) -> Figure:
    """A row of images under their titles, and below it a row for each kind of heat."""
    count = len(shown.pixels)
    side, rows = WIDTH / count, 1 + len(shown.heat)
    with sheet(rows * (side + 0.25) if shown.heat else 1.35 * side) as figure:
        bands: Any = figure.subfigures(rows, 1, squeeze=False, height_ratios=[1.25, *[1.0] * len(shown.heat)])
        first, *others = bands[:, 0]
        if others:
            first.suptitle("image and prediction", x=0.005, ha="left", fontsize=8.5, color=MUTED)
        for axes, pixels, title, wrong in zip(_row(first, count), shown.pixels, shown.titles, shown.wrong, strict=True):
            _draw_image(axes, pixels)
            axes.set_title(title, loc="center", color=WARM if wrong else INK)
        for band, heat in zip(others, shown.heat, strict=True):
            band.suptitle(heat.label, x=0.005, ha="left", fontsize=8.5, color=MUTED)
            for column, axes in enumerate(_row(band, count)):
                _draw_image(axes, shown.pixels[column], heat.values[column])
                if heat.cells:
                    _outline(axes, shown.pixels[column].shape, heat.values[column].shape, heat.cells[column])
    return figure


def _row(figure: Any, columns: int) -> Any:
    return figure.subplots(1, columns, squeeze=False)[0]


def _draw_image(axes: Axes, image: Array, heat: Array | None = None) -> None:
    """A grey image [h, w] in [0, 1], under the heat [a, b] of its patches where there is any."""
    height, width = image.shape
    extent = (0.0, float(width), float(height), 0.0)
    ground, lit = np.array(to_rgb(GROUND)), np.array(to_rgb(LIT))
    axes.imshow(ground + image[..., None] * (lit - ground), extent=extent)
    if heat is not None:
        relative = heat / max(float(np.abs(heat).max()), 1e-12)
        axes.imshow(shades(relative.clip(0), HEAT, 0.85), extent=extent)
        if (relative < 0).any():
            axes.imshow(shades((-relative).clip(0), COLD, 0.85), extent=extent)
    axes.set(xlim=(0, width), ylim=(height, 0))
    bare(axes)


def _outline(axes: Axes, pixels: tuple[int, ...], cells: tuple[int, ...], cell: tuple[int, int]) -> None:
    """Outline one of the cells into which an image is divided."""
    height, width = pixels[0] / cells[0], pixels[1] / cells[1]
    corner = cell[1] * width, cell[0] * height
    axes.add_patch(Rectangle(corner, width, height, facecolor="none", edgecolor="#ffffff", linewidth=1.4))


def heat_maps(shown: HeatMaps) -> Figure:
    """A row of pictures, and below each the same in grey under its heat; its sides are counted in the heat's cells."""
    width = WIDTH / max(2, len(shown.maps))
    with drawing(2 * width + 0.3, (2, len(shown.maps)), width * len(shown.maps)) as (figure, grid):
        for column, (title, picture, heat, region, area) in enumerate(shown.maps):
            above, below = grid[:, column]
            rows, columns = heat.shape
            extent = (0.0, float(columns), float(rows), 0.0)
            grey = picture.mean(-1, keepdims=True).repeat(3, -1)
            for axes, layer in ((above, picture), (below, grey), (below, shades(heat, HEAT, 0.85))):
                axes.imshow(layer, extent=extent)
                axes.set_aspect(picture.shape[0] / picture.shape[1] * columns / rows)
                bare(axes)
            above.set_title(title)
            if region is not None and region.any():
                y, x = ((np.arange(n) + 0.5) / n * side for n, side in zip(region.shape, area, strict=True))
                below.contour(x, y, region.astype(np.float64), levels=[0.5], colors=[INK], linewidths=1.2)
    return figure


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
