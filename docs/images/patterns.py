"""Draws patterns.svg: who listens to whom in each pattern, a row for each receiver and a column for each sender.

python docs/images/patterns.py docs/images/patterns.svg
"""

import sys
from pathlib import Path

from edgewise import Graph, bipartite, blocks, causal, complete, disc, fixed, grid, strided, window
from edgewise.graphs import squares

SIDE, TOP = 132, 20
INK, FILL, PAPER = "#1c2733", "#2364aa", "#f1f4f8"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

PATTERNS: dict[str, Graph] = {
    "complete(16)": complete(16),
    "causal(16)": causal(16),
    "window(16, 2)": window(16, 2),
    "window(16, 2, dilation=3)": window(16, 2, dilation=3),
    "window(16, 4, sides='past')": window(16, 4, sides="past"),
    "blocks([3, 5, 2, 6])": blocks([3, 5, 2, 6]),
    "strided(16, 4)": strided(16, 4),
    "fixed(16, 4)": fixed(16, 4),
    "grid(4, 4)": grid(4, 4),
    "squares(4, 4, 2, shift=1)": squares(4, 4, 2, shift=1),
    "disc(4, 4, radius=2)": disc(4, 4, radius=2),
    "bipartite(6, 10)": bipartite(6, 10),
}
COLUMNS = 6
CELL = (SIDE + 58, SIDE + 48)


def panel(call: str, graph: Graph, left: float, top: float) -> list[str]:
    step = SIDE / graph.num_senders
    pairs = zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True)
    square = f"h{step - 1:.2f}v{step - 1:.2f}h-{step - 1:.2f}z"
    squares = "".join(f"M{left + j * step:.2f} {top + i * step:.2f}{square}" for i, j in pairs)
    frame = f'x="{left - 4}" y="{top - 4}" width="{SIDE + 7}" height="{SIDE + 7}" rx="4"'
    place = f'x="{left + SIDE / 2}" y="{top + SIDE + 22}" font-size="11.5" text-anchor="middle"'
    return [
        f'<rect {frame} fill="{PAPER}"/>',
        f'<path d="{squares}" fill="{FILL}"/>',
        f'<text {place} font-family="{MONO}" fill="{INK}">{call}</text>',
    ]


def picture() -> str:
    width, height = COLUMNS * CELL[0] + 16, -(-len(PATTERNS) // COLUMNS) * CELL[1] + TOP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Each pattern as a matrix: a row for each receiver, a column for each sender</title>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="14" fill="#fff" stroke="#e3e8ee"/>',
    ]
    for number, (call, graph) in enumerate(PATTERNS.items()):
        row, column = divmod(number, COLUMNS)
        out += panel(call, graph, 8 + column * CELL[0] + (CELL[0] - SIDE) / 2, TOP + 8 + row * CELL[1])
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
