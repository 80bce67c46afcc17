"""Draws the pictures of docs/results.md whose numbers are those of a table, from docs/tables.

python docs/images/curves.py [NAME ...]
"""

import csv
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from math import log2, log10
from pathlib import Path
from typing import NamedTuple

from edgewise.apps.report import figures as svg
from edgewise.apps.report.pages import Markup

HERE = Path(__file__).parent
HEIGHT, FOOT, LINE = 116.0, 44.0, 13.0  # of a panel, of what is under it, and of a name in the legend
Row = dict[str, str]
Line = tuple[str, list[float | None]]  # a name, and a value for each mark of the axis


class Panel(NamedTuple):
    """Lines over marks of an axis, evenly spaced or as their numbers double."""

    title: str
    axis: str
    marks: Sequence[str]
    lines: Sequence[Line]
    doubling: bool = True
    powers: bool = False  # whether the values' axis is one of powers of ten


def number(cell: str) -> float | None:
    """The first number of a cell, or None."""
    found = re.search(r"\d+(?:\.\d+)?", cell.replace(",", ""))
    return None if found is None else float(found[0])


def across(
    title: str, axis: str, *columns: str, unit: str = "", doubling: bool = True
) -> Callable[[list[Row]], list[Panel]]:
    """A line for each row over columns, which are named by their numbers and a unit."""

    def panels(rows: list[Row]) -> list[Panel]:
        lines = [(next(iter(row.values())), [number(row[name + unit]) for name in columns]) for row in rows]
        return [Panel(title, axis, columns, lines, doubling)]

    return panels


def seconds(rows: list[Row]) -> list[Panel]:
    """A panel for each number of nodes, a line for each way, over the number of neighbours."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["nodes, neighbours"].rpartition(", ")[0], []).append(row)
    panels = []
    for nodes, own in found.items():
        lines = [(way, [number(row[way]) for row in own]) for way in ("dense", "gather-scatter", "chosen")]
        marks = [row["nodes, neighbours"].rpartition(", ")[2] for row in own]
        panels.append(Panel(f"seconds, {nodes} nodes", "neighbours", marks, lines, powers=True))
    return panels


PICTURES = {
    "hardware-lottery": ("lottery", seconds),
    "far": ("far", across("letters copied, %", "letters", "32", "96", "256", unit=" tokens")),
    "alignment": ("alignment", across("letters right, %", "letters", "8", "16", "32", unit=" letters")),
    "pooling": (
        "pooling",
        across("accuracy, %", "communities apart", "1 or 2", "2 or 3", "3 or 4", unit=" apart", doubling=False),
    ),
    "remedies": ("remedies", across("accuracy, %", "layers", "2", "16", "64")),
    "norms": ("norms", across("validation loss", "layers", "2", "6", "12", "24")),
}


def drawn(panel: Panel, left: float, width: float) -> Iterator[Markup]:
    """A panel as SVG."""
    places = [log2(number(mark) or 1) if panel.doubling else float(n) for n, mark in enumerate(panel.marks)]
    lines = [(name, [y if y is None or not panel.powers else log10(y) for y in values]) for name, values in panel.lines]
    x, y = svg.limits(places, 0.04), svg.limits([y for _, values in lines for y in values if y is not None], 0.05)
    levels = {at: f"{10.0**at:g}" if panel.powers else label for at, label in svg.ticks(*y, whole=panel.powers).items()}
    before = svg.room([*levels.values()]) + 8
    frame = svg.Frame(left + before, 22, width - before - 8, HEIGHT, x, y)
    right, foot = frame.left + frame.width, frame.top + frame.height
    yield svg.text(frame.left, 8, panel.title)
    for level, label in levels.items():
        height = float(frame.at(x[0], level)[1])
        yield svg.path([[(frame.left, height), (right, height)]], svg.RULE, 0.6)
        yield svg.text(frame.left - 5, height, label, svg.MUTED, anchor="end")
    for place, label in zip(places, panel.marks, strict=True):
        yield svg.text(float(frame.at(place, y[0])[0]), foot + 9, label, svg.MUTED, anchor="middle")
    yield svg.text((frame.left + right) / 2, foot + 22, panel.axis, svg.MUTED, anchor="middle")
    for colour, (_, values) in zip(svg.CLASSES, lines, strict=False):
        points = [frame.at(place, value) for place, value in zip(places, values, strict=True) if value is not None]
        yield svg.path([points], colour, 1.6, stroke_linejoin="round")
        yield from (svg.dot(point, 2.0, colour) for point in points)


def picture(name: str) -> str:
    """Panels side by side; of several the legend is under them, of one beside it."""
    table, read = PICTURES[name]
    with (HERE.parent / "tables" / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        panels = read(list(csv.DictReader(file)))
    names = [name for name, _ in panels[0].lines]
    beside = len(panels) == 1
    each = svg.WIDTH - svg.room(names) - 34 if beside else svg.WIDTH / len(panels)
    parts = [mark for n, panel in enumerate(panels) for mark in drawn(panel, n * each, each)]
    for n, (label, colour) in enumerate(zip(names, svg.CLASSES, strict=False)):
        at = (each + 6, 28 + LINE * n) if beside else (20 + n * svg.WIDTH / len(names), 22 + HEIGHT + FOOT)
        parts += [svg.path([[at, (at[0] + 14, at[1])]], colour, 1.6), svg.text(at[0] + 19, at[1], label, svg.INK)]
    height = max(22 + HEIGHT + FOOT, 34 + LINE * len(names)) if beside else 22 + HEIGHT + FOOT + LINE
    return svg.standalone(svg.sheet(height, *parts))


def main() -> None:
    for name in sys.argv[1:] or PICTURES:
        (HERE / f"{name}.svg").write_text(picture(name), encoding="utf-8")


if __name__ == "__main__":
    main()
