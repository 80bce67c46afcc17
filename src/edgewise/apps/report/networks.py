"""Graphs as figures: one with its attention, many small ones, or one with an explanation's scores, which may also be a
matrix or a text: blue speaks for, orange against."""

from collections.abc import Sequence

import numpy as np
import torch

from edgewise.apps.report.figures import (
    ACCENT,
    CLASSES,
    INK,
    LINE,
    MUTED,
    NAME_OF_CLASS,
    PAPER,
    RULE,
    WARM,
    WIDTH,
    Frame,
    box,
    dot,
    path,
    room,
    sheet,
    short,
    squares,
    text,
)
from edgewise.apps.report.pages import Markup, element, join
from edgewise.graphs import Graph
from edgewise.graphs.make.spectral import hops
from edgewise.tasks.core.drawing import Alignment, Array, Coloured, Labels, Network, Networks, Scores


def network(shown: Network) -> Markup:
    """Nodes and edges, under a legend. The half of an edge next to a node shows its attention to the other end."""
    names = {c: short(name, NAME_OF_CLASS) for c, name in enumerate(shown.legend) if c in shown.classes}
    beside = 4 if room([*names.values()]) < WIDTH / 4 - 24 else 3
    parts = []
    for n, (c, name) in enumerate(names.items()):
        x, y = 6 + n % beside * WIDTH / beside, 8 + n // beside * LINE
        parts += [dot((x, y), 2.5, _colour(c)), text(x + 7, y, name, MUTED)]
    top = -(-len(names) // beside) * LINE + 6.0
    receivers, senders = shown.graph.receivers.numpy(), shown.graph.senders.numpy()
    places = lay_out(len(shown.classes), receivers, senders)
    places = Frame(0, top, WIDTH, 370).around(places, 0.06).at(*places.T)
    other = receivers != senders
    i, j = receivers[other], senders[other]
    halves = np.stack([places[i], (places[i] + places[j]) / 2], axis=1)
    parts.append(path(halves, MUTED, 0.5, opacity=0.45))
    if shown.weights is not None and len(i):
        heat = shown.weights[other] / max(float(shown.weights[other].max()), 1e-12)
        parts += _edges(halves, heat, [INK] * len(heat), 3.2, 0.1, 0.8)
    sizes = (
        np.sqrt((26 + 18 * np.sqrt(np.bincount(i, minlength=len(places)))) * (0.55 if len(places) > 80 else 1.0)) / 2
    )
    if shown.centre is not None:
        parts.append(dot(places[shown.centre], 1.8 * sizes[shown.centre], "none", stroke=INK, stroke_width=1.1))
    for place, size, c in zip(places, sizes, shown.classes, strict=True):
        parts.append(dot(place, size, _colour(c), stroke=PAPER, stroke_width=1))
    if (wrong := shown.wrong) is not None:
        arms = np.array([[[-1, -1], [1, 1]], [[-1, 1], [1, -1]]])
        crosses = places[wrong][:, None, None] + 0.6 * sizes[wrong][:, None, None, None] * arms
        parts.append(path(crosses.reshape(-1, 2, 2), INK, 1.2))
    for place, name in zip(places, shown.names, strict=False):
        parts.append(text(place[0], place[1] - 11, short(name), MUTED, 6.5, anchor="middle"))
    return sheet(top + 370, *parts)


def networks(shown: Networks) -> Markup:
    """Small graphs in rows."""
    side, parts = WIDTH / shown.columns, list[Markup]()
    for n, ((graph, classes), title) in enumerate(zip(shown.members, shown.titles, strict=False)):
        x, y = n % shown.columns * side, n // shown.columns * (side + LINE) + LINE
        receivers, senders = graph.receivers.numpy(), graph.senders.numpy()
        places = lay_out(graph.num_receivers, receivers, senders)
        places = Frame(x, y, side - 4, side - 4).around(places, 0.08).at(*places.T)
        parts.append(text(x, y - 7, short(title, NAME_OF_CLASS)))
        parts.append(path(np.stack([places[receivers], places[senders]], axis=1), MUTED, 0.6))
        radius = np.sqrt(70 / shown.columns) / 2
        for place, c in zip(places, classes, strict=True):
            parts.append(dot(place, radius, _colour(c), stroke=PAPER, stroke_width=0.6))
    return sheet(-(-len(shown.members) // shown.columns) * (side + LINE), *parts)


def _edges(lines: Array, heat: Array, colours: Sequence[str], width: float, least: float, more: float) -> list[Markup]:
    """Lines as thick and as strong as their heat from 0 to 1, the strongest last."""
    order = np.argsort(heat, kind="stable")
    return [path(lines[e : e + 1], colours[e], 0.3 + width * heat[e], opacity=least + more * heat[e]) for e in order]


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


def graph_scores(shown: Scores) -> Markup:
    """Circles as large and edges as thick as their scores are far from 0."""
    receivers, senders = shown.graph.receivers.numpy(), shown.graph.senders.numpy()
    count = len(shown.nodes)
    places = shown.places if shown.places is not None else lay_out(count, receivers, senders)
    height = 389 * float(np.clip(np.ptp(places[:, 1]) / max(np.ptp(places[:, 0]), 1e-9), 0.25, 1.0))
    places = Frame(0, 0, WIDTH, height).around(places, 0.08).at(*places.T)
    other = receivers != senders
    halves = np.stack([places[receivers], (places[receivers] + places[senders]) / 2], 1)[other]
    across = halves[:, 1] - halves[:, 0]
    across = np.stack([-across[:, 1], across[:, 0]], 1) / np.maximum(np.hypot(*across.T), 1e-9)[:, None]
    gap = 0.012 * float(np.ptp(places, axis=0).max() or 1.0)
    orders = np.ones(len(halves), dtype=np.int64) if shown.orders is None else shown.orders[other]
    parts = []
    for number in range(int(orders.max(initial=1))):
        beside = (number - (orders - 1) / 2)[:, None] * gap * across
        parts.append(path((halves + beside[:, None])[orders > number], MUTED, 0.6, opacity=0.5))
    if shown.edges is not None and len(halves):
        heat = _relative(shown.edges)[other]
        parts += _edges(halves, np.abs(heat), [_sign(score) for score in heat], 4.2, 0.0, 0.9)
    for place, score in zip(places, _relative(shown.nodes), strict=True):
        parts.append(dot(place, 3.9, PAPER, stroke=RULE, stroke_width=0.8))
        parts.append(dot(place, np.sqrt(60 + 150 * abs(score)) / 2, _sign(score), opacity=abs(score)))
    if shown.centre is not None:
        parts.append(dot(places[shown.centre], 9, "none", stroke=INK, stroke_width=1.1))
    for place, name in zip(places, shown.names if count <= NAMED else (), strict=False):
        parts.append(text(place[0], place[1], short(name), INK, 6.5, anchor="middle"))
    return sheet(height, *parts)


def alignment(shown: Alignment) -> Markup:
    """A matrix of squares, a row for each receiver."""
    rows, columns = ([short(name) for name in names] for names in (shown.rows, shown.columns))
    frame, parts = squares(_relative(shown.scores), rows, columns)
    return sheet(frame.top + frame.height + 4, *parts, box(*frame[:4], stroke=RULE, stroke_width=0.8))


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
