"""Graphs as figures: one with its attention, or many small ones."""

from typing import Any

import networkx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from edgewise.apps.report.figures import CLASSES, INK, MUTED, NAME_OF_CLASS, PAPER, bare, drawing, short
from edgewise.tasks.core.drawing import Array, Labels, Network, Networks


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
            places = lay_out(graph.num_receivers, receivers, senders, unfold=True)
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


def lay_out(count: int, receivers: Labels, senders: Labels, unfold: bool = False) -> Array:
    """Places [N, 2] in the plane that keep linked nodes close, the longest extent from left to right.

    `unfold` begins with the Laplacian's eigenvectors instead of a circle, so that a grid is not twisted.
    """
    nodes = networkx.Graph()
    nodes.add_nodes_from(range(count))
    nodes.add_edges_from((i, j) for i, j in zip(receivers.tolist(), senders.tolist(), strict=True) if i != j)
    # Kamada and Kawai read distances on the graph, which are infinite between its parts.
    layout = networkx.kamada_kawai_layout if networkx.is_connected(nodes) else networkx.spring_layout
    options: dict[str, Any] = {} if layout is networkx.kamada_kawai_layout else {"seed": 0, "k": 0.35}
    if unfold and count > 2 and networkx.is_connected(nodes):
        spread, ring = networkx.spectral_layout(nodes), networkx.circular_layout(nodes, scale=0.01)
        options |= {"pos": {node: spread[node] + ring[node] for node in nodes}}  # eigenvectors may agree on two nodes
    place = layout(nodes, **options)
    places = np.array([place[node] for node in range(count)])
    places = places - places.mean(0)
    axes = np.linalg.eigh(places.T @ places)[1].T[::-1]
    axes = axes * np.sign(axes[np.arange(2), np.abs(axes).argmax(1)])[:, None]  # eigenvectors have no sign of their own
    return places @ axes.T
