"""Graphs as figures: one with its attention, many small ones, or one with an explanation's scores, which may also be a
matrix or a text: blue speaks for, orange against."""

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from edgewise.apps.report.figures import (
    ACCENT,
    CLASSES,
    INK,
    MUTED,
    NAME_OF_CLASS,
    PAPER,
    RULE,
    WARM,
    WIDTH,
    bare,
    drawing,
    short,
)
from edgewise.apps.report.pages import Markup, element, join
from edgewise.graphs import Graph
from edgewise.graphs.make.spectral import hops
from edgewise.tasks.core.drawing import Alignment, Array, Coloured, Labels, Network, Networks, Scores


def network(shown: Network) -> Figure:
    """Nodes and edges, under a legend. The half of an edge next to a node shows its attention to the other end."""
    with drawing(5.4) as (figure, grid):
        _draw_network(grid[0, 0], shown)
        used = [c for c in range(len(shown.legend)) if c in shown.classes]
        dots = [Line2D([], [], linestyle="", marker="o", markersize=5, color=_colour(c)) for c in used]
        names = [short(shown.legend[c], NAME_OF_CLASS) for c in used]
        layout: dict[str, Any] = {"loc": "outside upper left", "ncols": 4, "handletextpad": 0.1, "columnspacing": 1.2}
        figure.legend(dots, names, frameon=False, labelcolor=MUTED, **layout).set_zorder(0)
    return figure


def _draw_network(axes: Axes, shown: Network) -> None:
    receivers, senders = shown.graph.receivers.numpy(), shown.graph.senders.numpy()
    places = lay_out(len(shown.classes), receivers, senders)
    other = receivers != senders
    i, j = receivers[other], senders[other]
    halves = np.stack([places[i], (places[i] + places[j]) / 2], axis=1)
    axes.add_collection(LineCollection(list(halves), colors=MUTED, linewidths=0.5, alpha=0.45))
    if shown.weights is not None and len(i):
        heat = shown.weights[other] / max(float(shown.weights[other].max()), 1e-12)
        order = np.argsort(heat, kind="stable")
        thickness, alpha = 0.3 + 3.2 * heat[order], list(0.1 + 0.8 * heat[order])
        axes.add_collection(
            LineCollection(list(halves[order]), colors=INK, linewidths=thickness, alpha=alpha, capstyle="butt")
        )
    sizes = (26 + 18 * np.sqrt(np.bincount(i, minlength=len(places)))) * (0.55 if len(places) > 80 else 1.0)
    x, y = places.T
    if shown.centre is not None:
        ring = {"s": 3.2 * sizes[shown.centre], "facecolor": "none", "edgecolor": INK, "linewidth": 1.1, "zorder": 3}
        axes.scatter(x[shown.centre], y[shown.centre], **ring)
    axes.scatter(x, y, s=sizes, c=[_colour(c) for c in shown.classes], edgecolor=PAPER, linewidth=1.0, zorder=4)
    if (wrong := shown.wrong) is not None:
        axes.scatter(x[wrong], y[wrong], s=0.4 * sizes[wrong], c=INK, marker="x", linewidth=1.2, zorder=5)
    above: dict[str, Any] = {"xytext": (0, 8.5), "textcoords": "offset points", "ha": "center", "fontsize": 6.5}
    for place, name in zip(places, shown.names, strict=False):
        axes.annotate(short(name), place, color=MUTED, zorder=6, **above)
    axes.set_aspect("equal")
    axes.margins(0.06)
    bare(axes)


def networks(shown: Networks) -> Figure:
    """Small graphs in rows."""
    rows = -(-len(shown.members) // shown.columns)
    with drawing(rows * (7.75 / shown.columns) + 0.2, (rows, shown.columns)) as (figure, _):
        for axes in figure.axes:
            bare(axes)
        for axes, (graph, classes), title in zip(figure.axes, shown.members, shown.titles, strict=False):
            receivers, senders = graph.receivers.numpy(), graph.senders.numpy()
            places = lay_out(graph.num_receivers, receivers, senders)
            lines = list(np.stack([places[receivers], places[senders]], axis=1))
            axes.add_collection(LineCollection(lines, colors=MUTED, linewidths=0.6))
            x, y = places.T
            axes.scatter(
                x, y, s=70 / shown.columns, c=[_colour(c) for c in classes], edgecolor=PAPER, linewidth=0.6, zorder=4
            )
            axes.set_aspect("equal")
            axes.margins(0.08)
            axes.set_title(short(title, NAME_OF_CLASS))
    return figure


def _colour(label: int) -> str:
    return CLASSES[label % len(CLASSES)]


def lay_out(count: int, receivers: Labels, senders: Labels) -> Array:
    """Places [N, 2] in the plane, as far apart as edges lead from one node to another, the longest extent from left to
    right: the least Σ (|x_i - x_j| - d_ij)² / d_ij² (Kamada & Kawai) that is near the plane of classical scaling."""
    edges = torch.from_numpy(np.stack([senders, receivers])).long()
    apart = hops(Graph.from_edge_index(edges, num_nodes=count).symmetrise(), count)[1].view(count, count).numpy()
    linked = apart <= count
    d = np.where(linked, apart, apart[linked].max(initial=0) + 1.0)  # the parts of a graph lie side by side
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centre @ np.square(d) @ centre)
    turn = 2 * np.pi * np.arange(count) / count
    circle = np.stack([np.cos(turn), np.sin(turn)], 1)
    plane = values >= values[-min(count, 2)] * (1 - 1e-6)  # with all that are as long as the second
    left, _, right = np.linalg.svd(vectors[:, plane].T @ circle, full_matrices=False)  # whichever vectors span them
    places = (vectors * np.sqrt(np.maximum(values, 0)))[:, plane] @ left @ right
    places += 0.01 * circle  # nodes with the same neighbours do not coincide
    weight = 1 / np.square(d + np.eye(count)) - np.eye(count)
    inverse = np.linalg.pinv(np.diag(weight.sum(1)) - weight)
    for _ in range(100):  # majorization (Gansner et al., 2004)
        across = np.hypot(*(places.T[:, :, None] - places.T[:, None]))
        pull = weight * d / np.maximum(across, 1e-9)
        places = inverse @ (pull.sum(1)[:, None] * places - pull @ places)
    upright = np.diag([1e-6 * np.square(places).sum(), 0.0])  # a circle is not turned
    axes = np.linalg.eigh(places.T @ places + upright)[1].T[::-1]
    axes = axes * np.sign(axes[np.arange(2), np.abs(axes).argmax(1)])[:, None]  # eigenvectors have no sign of their own
    return places @ axes.T


NAMED = 60  # nodes of which each has its name written beside it


def graph_scores(shown: Scores) -> Figure:
    """Circles as large and edges as thick as their scores are far from 0."""
    receivers, senders = shown.graph.receivers.numpy(), shown.graph.senders.numpy()
    count = len(shown.nodes)
    places = shown.places if shown.places is not None else lay_out(count, receivers, senders)
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
        colours = [_sign(score) for score in heat]
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
    colours = [_sign(score) for score in heat[order]]
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
        axes.set_xticks(range(width), columns, fontsize=fonts, rotation=60, ha="left", rotation_mode="anchor")
        axes.set_yticks(range(height), rows, fontsize=fonts)
        axes.tick_params(length=0, pad=2, top=True, bottom=False, labeltop=True, labelbottom=False)
        axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
        axes.spines[:].set(visible=True, color=RULE)
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


def _sign(score: float) -> str:
    return ACCENT if score >= 0 else WARM
