"""Draws architecture.svg: the life of one call, from the equation in a layer to the numbers of a kernel.

python docs/images/architecture.py docs/images/architecture.svg
"""

import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 1180, 470
INK, MUTED, FAINT, RECEIVER, SENDER = "#1c2733", "#66727f", "#c9d2dc", "#e4572e", "#2364aa"
SANS = "Inter, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

# left, top, width, height, where it lives, what it is (in code), what it does
Box = tuple[int, int, int, int, str, str, str]
LAYER: Box = (30, 50, 250, 86, "layers/", "attend(graph, q, k, v)", "an equation of the paper")
CALL: Box = (330, 50, 250, 86, "kernels/call.py", "Attend, Aggregate, Collect", "shapes checked once, as data")
CHOICE: Box = (630, 50, 250, 86, "kernels/choose/", "dispatch, planner", "the cheapest that does not refuse")
BACKENDS: tuple[tuple[str, str, str], ...] = (
    ("reference", "torch/", "the oracle: only by name"),
    ("dense", "torch/", "0.21 ms"),
    ("segment", "torch/", "1.90 ms"),
    ("native", "cpu/", "0.08 ms"),
    ("tiled", "cpu/", "refuses: no such score"),
    ("triton", "cuda/", "refuses: the graph is on cpu"),
)
CHOSEN = "native"
OPERATOR: Box = (330, 330, 250, 86, "kernels/operator/", "edgewise::attend", "autograd, compile, dropout")
KERNEL: Box = (30, 330, 250, 86, "backends/cpu/cpp/", "C++, or Triton", "edges, no E·H·C numbers")
GRAPH: Box = (30, 190, 250, 86, "graphs/", "rule → ranges → edges", "each form built once, on demand")


def text(
    x: float, y: float, words: str, size: int = 14, colour: str = INK, font: str = SANS, bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" font-family="{font}" font-size="{size}" fill="{colour}"{weight}>{escape(words)}</text>'
    )


def box(at: Box, colour: str = FAINT) -> str:
    x, y, width, height, where, code, does = at
    return "\n".join(
        [
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="{colour}"/>',
            text(x + 14, y + 24, where, 13, MUTED),
            text(x + 14, y + 49, code, 14, INK, MONO),
            text(x + 14, y + 72, does, 13, MUTED),
        ]
    )


def arrow(x1: int, y1: int, x2: int, y2: int, colour: str = INK) -> str:
    return f'<path d="M{x1} {y1} L{x2} {y2}" stroke="{colour}" stroke-width="1.6" fill="none" marker-end="url(#tip)"/>'


def candidates() -> str:
    """The table that `edgewise plan` prints, beside the choice."""
    x, y = 630, 190
    parts = [
        f'<rect x="{x}" y="{y}" width="520" height="226" rx="8" fill="#ffffff" stroke="{FAINT}"/>',
        text(x + 14, y + 24, "kernels/backends/: one record each: what it takes, cost, run, probes", 13, MUTED),
    ]
    for row, (name, folder, answer) in enumerate(BACKENDS):
        top = y + 56 + 28 * row
        chosen = name == CHOSEN
        colour = RECEIVER if chosen else INK
        parts += [
            text(x + 14, top, "→" if chosen else "", 14, RECEIVER, MONO, True),
            text(x + 38, top, name, 14, colour, MONO, chosen),
            text(x + 168, top, folder, 13, MUTED, MONO),
            text(x + 248, top, answer, 13, colour if chosen else MUTED),
        ]
    return "\n".join(parts)


def picture() -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        ' aria-label="The life of a call: layer, call, choice, backend, operator, kernel">',
        "<title>The life of a call</title>",
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(30, 30, "The life of a call", 17, INK, SANS, True),
        *(box(one) for one in (LAYER, CALL, GRAPH, KERNEL)),
        box(CHOICE, RECEIVER),
        box(OPERATOR, SENDER),
        candidates(),
        arrow(280, 93, 328, 93),
        arrow(580, 93, 628, 93),
        arrow(755, 136, 755, 188),
        arrow(630, 373, 582, 373),
        arrow(330, 373, 282, 373),
        arrow(155, 276, 155, 328),
        arrow(155, 190, 155, 138),
        text(900, 85, "remembered for this graph", 13, MUTED),
        text(900, 105, "and these shapes", 13, MUTED),
        text(590, 362, "run", 13, MUTED),
        text(170, 308, "the form that it reads", 13, MUTED),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
