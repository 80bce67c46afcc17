"""Draws partition.svg: what each of four ranks holds of some graphs, and which rows it fetches.

python docs/images/partition.py docs/images/partition.svg
"""

import sys
from pathlib import Path

import torch

from edgewise import Graph, causal, complete, window

SIDE, TOP, GAP, RANKS, NODES = 200, 44, 46, 4, 16
INK, PAPER, MUTED = "#1c2733", "#f1f4f8", "#5b6b7b"
COLOURS = ("#2364aa", "#3da35d", "#e07a1f", "#8e4585")
SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def communities() -> Graph:
    """A network whose nodes mostly listen to those near them."""
    i = torch.arange(NODES)
    edges = [torch.stack([(i + step) % NODES, i]) for step in (-1, 1)] + [torch.tensor([[2, 9, 13], [14, 5, 8]])]
    return Graph.from_edge_index(torch.cat(edges, 1), NODES)


GRAPHS = {
    "causal(16)": (causal(NODES), "context parallelism"),
    "window(16, 2, sides='past')": (window(NODES, 2, sides="past"), "context parallelism"),
    "complete(16)": (complete(NODES), "a ring: one block after the other"),
    "a network": (communities(), "those of neighbours"),
}


def text(x: float, y: float, content: str, size: float, colour: str = INK, anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} font-family="{SANS}" fill="{colour}">{content}</text>'


def panel(name: str, graph: Graph, what: str, left: float) -> list[str]:
    step, block = SIDE / NODES, NODES // RANKS
    out = [text(left + SIDE / 2, TOP - 14, name, 13)]
    out.append(f'<rect x="{left}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="{PAPER}"/>')
    for i, j in zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True):
        own = i // block == j // block
        square = f'x="{left + j * step + 1:.1f}" y="{TOP + i * step + 1:.1f}" width="{step - 2}" height="{step - 2}"'
        colour = COLOURS[j // block]
        paint = f'fill="{colour}"' if own else f'fill="{colour}" fill-opacity=".35" stroke="{colour}"'
        out.append(f'<rect {square} rx="1.5" {paint}/>')
    reads = graph.dense_mask()
    for rank in range(RANKS):
        y = TOP + rank * SIDE / RANKS
        out.append(f'<path d="M{left} {y:.1f}h{SIDE}" stroke="#fff" stroke-width="2"/>')
        needed = reads[rank * block : (rank + 1) * block].any(0)
        needed[rank * block : (rank + 1) * block] = False
        out.append(text(left + SIDE + 6, y + SIDE / RANKS / 2 + 4, f"+{int(needed.sum())}", 12, COLOURS[rank], "start"))
    return [*out, text(left + SIDE / 2, TOP + SIDE + 20, what, 12, MUTED)]


def picture() -> str:
    width, height = 70 + len(GRAPHS) * (SIDE + GAP), TOP + SIDE + 66
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Four ranks share a graph: each has a block of receivers, and fetches the senders that it lacks</title>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="14" fill="#fff" stroke="#e3e8ee"/>',
    ]
    heights = [TOP + (rank + 0.5) * SIDE / RANKS + 4 for rank in range(RANKS)]
    out += [text(62, y, f"rank {rank}", 12, COLOURS[rank], "end") for rank, y in enumerate(heights)]
    for number, (name, (graph, what)) in enumerate(GRAPHS.items()):
        out += panel(name, graph, what, 72 + number * (SIDE + GAP))
    legend = "row = receiver, column = sender; full: own rows; pale: fetched from the rank of that colour; +n: how many"
    return "\n".join([*out, text(width / 2, height - 16, legend, 12, MUTED), "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
