"""Draws speed.svg: how many times as long the fastest peer takes, for kernels, layers and whole training steps.

python docs/images/speed.py docs/images/speed.svg

The numbers are those of docs/tables; docs/performance.md names the commands that measure them anew.
"""

import csv
import sys
from html import escape
from math import log2
from pathlib import Path

TABLES = Path(__file__).parent.parent / "tables"
INK, MUTED, RULE = "#1c2733", "#5b6b7b", "#e3e8ee"
FASTER, SLOWER = "#2364aa", "#d1495b"
SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
WIDTH, COLUMN, NAMES, STEP, TOP = 960, 470, 190, 19, 92
UNIT = 37  # pixels for each doubling


def rows(table: str) -> list[dict[str, str]]:
    with (TABLES / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def ratio(cell: str) -> float:
    return float(cell.replace("×", "").replace(",", ""))


def groups() -> dict[str, list[tuple[str, float]]]:
    """By title: names, and the time of the fastest peer over that of Edgewise."""
    kernels = [row for row in rows("speed-kernels") if row["threads"] == "1"]
    steps = [row for row in kernels if "forward and backward" in row.values()]
    epochs = [row for row in kernels if row["case"].startswith("cora")]
    return {
        "Kernels, forward and backward": [(row["case"], ratio(row["×"])) for row in steps],
        "Layers that read features of edges, beside compiled PyG": [
            (row["layer"], ratio(row["over compiled"])) for row in rows("speed-edge-features")
        ],
        "Whole training steps, beside the faster form of the peer": [
            (row["recipe"], ratio(row["×"])) for row in rows("speed-steps")
        ],
        "Training on Cora, an epoch": [(row["case"], ratio(row["×"])) for row in epochs],
    }


def text(x: float, y: float, content: str, size: float, colour: str = INK, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}">{escape(content)}</text>'


def bars(title: str, values: list[tuple[str, float]], left: float, top: float) -> list[str]:
    """A title, and a bar from 1 for each row: to the right where Edgewise is faster."""
    one = left + NAMES + UNIT
    out = [text(left, top, title, 13)]
    out.append(f'<path d="M{one} {top + 8}V{top + 10 + STEP * len(values)}" stroke="{INK}" stroke-width="1"/>')
    for k, (name, value) in enumerate(values):
        y = top + 12 + STEP * k
        end = one + UNIT * max(-1.0, log2(value))
        x, width = min(one, end), abs(end - one)
        colour = FASTER if value >= 1 else SLOWER
        out.append(text(left + NAMES - 8, y + 10, name, 11.5, MUTED, "end"))
        out.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="13" rx="2" fill="{colour}"/>')
        out.append(text(max(one, end) + 5, y + 10.5, f"{value:.2g} ×" if value < 10 else f"{value:.0f} ×", 11, INK))
    return out


def picture() -> str:
    """Two columns of groups, under a title that says what a bar means."""
    found = list(groups().items())
    heights = [46 + STEP * len(values) for _, values in found]
    half = min(range(len(found)), key=lambda k: max(sum(heights[:k]), sum(heights[k:])))
    height = TOP + max(sum(heights[:half]), sum(heights[half:])) - 12
    title = "How many times as long the fastest peer takes"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-family="{SANS}">',
        f"<title>{title}</title>",
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="14" fill="#fff" stroke="{RULE}"/>',
        text(24, 36, title, 17),
        text(
            24,
            57,
            "One thread of a CPU. The line is 1 ×: where a bar is blue, Edgewise is faster, where red, slower.",
            12,
            MUTED,
        ),
    ]
    for column, part in enumerate((slice(None, half), slice(half, None))):
        y = TOP
        for (name, values), room in zip(found[part], heights[part], strict=True):
            out += bars(name, values, 24 + column * COLUMN, y)
            y += room
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
