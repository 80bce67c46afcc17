"""Draws one-attention.svg: one layer, with the same weights, attends on five graphs.

    python docs/images/one_attention.py docs/images/one-attention.svg

Upper row: the graph; one receiver's senders in colour, each as strong as the attention that it gets. Lower row: the
attention matrix, a row for each receiver.
"""

import sys
from dataclasses import dataclass
from math import cos, hypot, pi, sin
from pathlib import Path

import networkx
import torch
from torch import Tensor

from edgewise import Graph, causal, complete, grid, record, window
from edgewise.layers import MultiHeadAttention

WIDTH, HEIGHT = 1180, 480
COLUMN, LEFT = 224, 30
DRAWING = (84, 182)  # top of the drawings and their side
MATRIX = (300, 108)

INK, MUTED, FAINT = "#1c2733", "#66727f", "#c9d2dc"
RECEIVER, SENDER = "#e4572e", "#2364aa"
SANS = "Inter, 'Segoe UI', Helvetica, Arial, sans-serif"
SERIF = "Georgia, 'Times New Roman', serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

Point = tuple[float, float]


@dataclass
class Panel:
    call: str
    caption: str
    graph: Graph
    places: list[Point]  # in the unit square
    receiver: int
    bow: float = 0  # how high an arc goes above its nodes, over half its length; 0 for straight lines


def panels() -> list[Panel]:
    n, side = 12, 5
    circle = [(0.5 + 0.46 * sin(2 * pi * i / n), 0.5 - 0.46 * cos(2 * pi * i / n)) for i in range(n)]
    line = [(0.02 + 0.96 * i / (n - 1), 0.76) for i in range(n)]
    lattice = [(0.08 + 0.84 * c / (side - 1), 0.08 + 0.84 * r / (side - 1)) for r in range(side) for c in range(side)]
    club = networkx.karate_club_graph()
    spring = networkx.kamada_kawai_layout(club, weight=None)
    xs, ys = zip(*(spring[i] for i in club), strict=True)
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    friends = [((x - min(xs)) / wide, (y - min(ys)) / high) for x, y in zip(xs, ys, strict=True)]
    return [
        Panel(f"complete({n})", "transformer encoder", complete(n), circle, 0),
        Panel(f"causal({n})", "language model", causal(n), line, 9, bow=1.3),
        Panel(f"window({n}, 2)", "local attention", window(n, 2), line, 5, bow=2.2),
        Panel(f"grid({side}, {side})", "image", grid(side, side), lattice, 12),
        Panel("from_networkx(club)", "friendships", Graph.from_networkx(club).add_self_loops(), friends, 33),
    ]


def attention(layer: MultiHeadAttention, graph: Graph) -> Tensor:
    """The weights [I, J] that the layer gives on the graph, between the same random nodes everywhere."""
    x = torch.randn(graph.num_senders, 16, generator=torch.Generator().manual_seed(3))
    with record() as seen, torch.no_grad():
        layer(graph, x)
    matrix = torch.zeros(graph.num_receivers, graph.num_senders)
    matrix[graph.receivers, graph.senders] = seen[0].weights[:, 0]
    return matrix


def shade(strength: float) -> str:
    """From almost white to the sender's blue, in ten steps."""
    t = round(10 * strength**0.6) / 10
    light, dark = (228, 236, 246), (24, 84, 158)
    return "#" + "".join(f"{round(a + t * (b - a)):02x}" for a, b in zip(light, dark, strict=True))


def line(a: Point, b: Point, bow: float) -> str:
    (ax, ay), (bx, by) = a, b
    if not bow:
        return f"M{ax:.1f} {ay:.1f}L{bx:.1f} {by:.1f}"
    reach = abs(ax - bx) / 2
    return f"M{ax:.1f} {ay:.1f}A{reach:.1f} {bow * reach:.1f} 0 0 {int(ax < bx)} {bx:.1f} {by:.1f}"


def draw_graph(panel: Panel, weights: Tensor, left: float) -> list[str]:
    top, side = DRAWING
    i, graph = panel.receiver, panel.graph
    places = [(left + side * x, top + side * y) for x, y in panel.places]
    pairs = {(min(pair), max(pair)) for pair in zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True)}
    lines = "".join(line(places[a], places[b], panel.bow) for a, b in sorted(pairs) if a != b)
    out = [f'<path d="{lines}" stroke="{FAINT}" stroke-width=".8"/>']
    strength = (weights[i] / weights[i].max()).tolist()
    for j in graph.senders[graph.receivers == i].tolist():
        if j != i:
            style = f'stroke-width="{1 + 3 * strength[j]:.2f}" stroke-opacity="{0.35 + 0.6 * strength[j]:.2f}"'
            out.append(f'<path d="{line(places[j], places[i], panel.bow)}" stroke="{SENDER}" {style}/>')
    nearest = min(hypot(a[0] - b[0], a[1] - b[1]) for k, a in enumerate(places) for b in places[:k])
    radius = max(3.4, min(5.5, nearest / 2.6))
    for j, (x, y) in enumerate(places):
        fill, size = (RECEIVER, 1.35 * radius) if j == i else (shade(strength[j]), radius)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{fill}" stroke="#fff" stroke-width="1.2"/>')
    return out


def draw_matrix(panel: Panel, weights: Tensor, left: float) -> list[str]:
    top, side = MATRIX
    left += (DRAWING[1] - side) / 2
    cell = side / weights.shape[0]
    gap = 0.12 * cell
    out = [f'<rect x="{left - 3:.1f}" y="{top - 3}" width="{side + 6}" height="{side + 6}" rx="4" fill="#f4f6f9"/>']
    cells: dict[str, str] = {}
    for i, j in zip(panel.graph.receivers.tolist(), panel.graph.senders.tolist(), strict=True):
        color = shade(float(weights[i, j] / weights[i].max()))
        square = f"M{left + j * cell:.1f} {top + i * cell:.1f}h{cell - gap:.1f}v{cell - gap:.1f}h-{cell - gap:.1f}z"
        cells[color] = cells.get(color, "") + square
    out += [f'<path d="{squares}" fill="{color}"/>' for color, squares in sorted(cells.items())]
    y = top + panel.receiver * cell - gap
    out.append(
        f'<rect x="{left - 2:.1f}" y="{y - 1:.2f}" width="{side + 4 - gap:.1f}" height="{cell + gap + 2:.2f}" rx="2.5" '
        f'stroke="{RECEIVER}" stroke-width="1.4"/>'
    )
    return out


def text(x: float, y: float, size: int, content: str, style: str, font: str = SANS) -> str:
    place = f'x="{x}" y="{y}" font-size="{size}" text-anchor="middle"'
    return f'<text {place} font-family="{font}" {style}>{content}</text>'


def equation() -> str:
    """y_i = Σ_{j ∈ N(i)} softmax_j(s_ij) v_j, with its indices lowered."""
    parts = (("y", "i"), (" = Σ", "j ∈ N(i)"), (" softmax", "j"), ("(s", "ij"), (") v", "j"))
    out, rise = [], 0
    for base, index in parts:
        upright = ' font-style="normal"' if "softmax" in base else ""
        space = ' dx="6"' if base.startswith(" ") else ' dx="1"'
        out.append(f'<tspan dy="{rise}"{space}{upright}>{base.strip()}</tspan>')
        out.append(f'<tspan dy="5" dx="1" font-size="13">{index}</tspan>')
        rise = -5
    return "".join(out)


def picture() -> str:
    torch.manual_seed(0)
    layer = MultiHeadAttention(16, heads=1, bias=False).eval()
    layer.projection.weight.data[:32] *= 1.35  # untrained scores are nearly equal: sharper ones show
    out = [
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="14" fill="#fff" stroke="#e3e8ee"/>',
        text(WIDTH / 2 - 165, 46, 21, "y = layer(graph, x)", f'fill="{INK}" font-weight="600"', MONO),
        text(WIDTH / 2 + 165, 46, 22, equation(), f'fill="{INK}" font-style="italic"', SERIF),
    ]
    for column, panel in enumerate(panels()):
        left = LEFT + (COLUMN - DRAWING[1]) / 2 + column * COLUMN
        weights = attention(layer, panel.graph)
        out += draw_graph(panel, weights, left) + draw_matrix(panel, weights, left)
        middle = left + DRAWING[1] / 2
        out.append(text(middle, 438, 14, panel.call, f'fill="{INK}"', MONO))
        out.append(text(middle, 458, 13, panel.caption, f'fill="{MUTED}"'))
    title = "One attention layer on five graphs: complete, causal, window, grid and a friendship graph"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" fill="none">'
    return "\n".join([head, f"<title>{title}</title>", *out, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
