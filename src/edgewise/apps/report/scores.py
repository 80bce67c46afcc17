"""Scores of an explanation as figures: on a graph, as a matrix, or in a text; blue speaks for, orange against."""

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from edgewise.apps.report.figures import ACCENT, INK, MUTED, PAPER, RULE, WARM, WIDTH, bare, drawing, short
from edgewise.apps.report.networks import lay_out
from edgewise.apps.report.pages import Markup, element, join
from edgewise.tasks.core.drawing import Alignment, Array, Coloured, Scores

NAMED = 60  # nodes of which each has its name written beside it


def graph_scores(shown: Scores) -> Figure:
    """Circles as large and edges as thick as their scores are far from 0."""
    receivers, senders = shown.graph.receivers.numpy(), shown.graph.senders.numpy()
    count = len(shown.nodes)
    places = shown.places if shown.places is not None else lay_out(count, receivers, senders, unfold=count <= NAMED)
    with drawing(5.4) as (figure, grid):
        axes = grid[0, 0]
        other = receivers != senders
        halves = np.stack([places[receivers], (places[receivers] + places[senders]) / 2], 1)[other]
        across = halves[:, 1] - halves[:, 0]
        across = np.stack([-across[:, 1], across[:, 0]], 1) / np.maximum(np.hypot(*across.T), 1e-9)[:, None]
        gap = 0.012 * float(np.ptp(places, axis=0).max() or 1.0)
        orders = np.ones(len(halves), dtype=np.int64) if shown.orders is None else shown.orders[other]
        for number in range(int(orders.max(initial=1))):
            beside = (number - (orders - 1) / 2)[:, None] * gap * across
            lines = (halves + beside[:, None])[orders > number]
            axes.add_collection(LineCollection(list(lines), colors=MUTED, linewidths=0.6, alpha=0.5))
        if shown.edges is not None and len(halves):
            _draw_edges(axes, halves, _relative(shown.edges)[other])
        heat = _relative(shown.nodes)
        x, y = places.T
        axes.scatter(x, y, s=60, c=PAPER, edgecolor=RULE, linewidth=0.8, zorder=4)
        colours = [_colour(score) for score in heat]
        axes.scatter(x, y, s=60 + 150 * np.abs(heat), c=colours, alpha=np.abs(heat), linewidth=0, zorder=5)
        if shown.centre is not None:
            at = places[shown.centre]
            axes.scatter(*at, s=320, facecolor="none", edgecolor=INK, linewidth=1.1, zorder=6)
        text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6.5, "color": INK, "zorder": 7}
        for place, name in zip(places, shown.names if count <= NAMED else (), strict=False):
            axes.annotate(short(name), place, **text)
        middle, reach = (places.max(0) + places.min(0)) / 2, 0.58 * np.ptp(places, axis=0)
        reach = np.maximum(reach, max(0.25 * float(reach.max()), 1e-9))  # nodes in a line still have a figure's height
        axes.set(xlim=(middle[0] - reach[0], middle[0] + reach[0]), ylim=(middle[1] - reach[1], middle[1] + reach[1]))
        axes.set_aspect("equal")
        bare(axes)
    return figure


def _draw_edges(axes: Any, halves: Array, heat: Array) -> None:
    order = np.argsort(np.abs(heat), kind="stable")
    strength = np.abs(heat[order])
    colours = [_colour(score) for score in heat[order]]
    widths, alpha = 0.3 + 4.2 * strength, list(0.9 * strength)
    axes.add_collection(LineCollection(list(halves[order]), colors=colours, linewidths=widths, alpha=alpha, zorder=3))


def alignment(shown: Alignment) -> Figure:
    """A matrix of squares, a row for each receiver."""
    height, width = shown.scores.shape
    size = max(2.4, min(WIDTH, 0.24 * height + 1.2))
    with drawing(size) as (figure, grid):
        axes = grid[0, 0]
        heat = _relative(shown.scores)
        for sign, colour in ((1, ACCENT), (-1, WARM)):
            for row, column in np.argwhere(sign * heat > 0.01).tolist():
                square = _square(column, row)
                axes.fill(*square, color=colour, alpha=float(sign * heat[row, column]), linewidth=0)
        fonts = min(7.5, 300 / max(height, width, 1))
        rows, columns = ([short(name) for name in names] for names in (shown.rows, shown.columns))
        axes.set_xticks(
            range(width),
            columns,
            fontsize=fonts,
            rotation=60,
            ha="left",
            rotation_mode="anchor",
        )
        axes.set_yticks(range(height), rows, fontsize=fonts)
        axes.tick_params(length=0, pad=2, top=True, bottom=False, labeltop=True, labelbottom=False)
        axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
        for spine in axes.spines.values():
            spine.set(visible=True, color=RULE)
    return figure


def _square(x: float, y: float) -> tuple[list[float], list[float]]:
    return [x - 0.48, x + 0.48, x + 0.48, x - 0.48], [y - 0.48, y - 0.48, y + 0.48, y + 0.48]


def coloured(shown: Coloured) -> Markup:
    """A text whose pieces have the colour of their scores behind them."""
    heat = _relative(shown.scores)
    pieces = []
    for piece, score in zip(shown.pieces, heat, strict=True):
        colour = "accent" if score > 0 else "warm"
        ground = f"background:color-mix(in srgb,var(--{colour}) {60 * abs(score):.0f}%,transparent)"
        pieces.append(element("span", piece, style=ground, title=f"{score:+.2f} of the largest"))
    return join([element("pre", *pieces), element("figcaption", shown.caption)])


def _relative(scores: Array) -> Array:
    """Scores relative to the one that is furthest from 0: from -1 to 1."""
    return scores / max(float(np.abs(scores).max(initial=0.0)), 1e-30)


def _colour(score: float) -> str:
    return ACCENT if score >= 0 else WARM
