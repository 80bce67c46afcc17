"""A small canvas for the gallery: SVG of a few kilobytes, in colours that are read on light and on dark pages."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import groupby
from math import cos, hypot, log, pi, sin
from typing import Any

BLUE, RED, GREEN, AMBER, PURPLE, GREY = "#3b7dd8", "#e4572e", "#2a9d6f", "#d09a10", "#8a5cd1", "#8895a5"
COLOURS = [BLUE, RED, GREEN, AMBER, PURPLE, "#c2568f", "#4aa5b5", GREY]
INK = "currentColor"
Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, width, height


def short(value: float) -> str:
    return (
        f"{value:.1f}".removesuffix(".0").replace("-0", "0") if abs(value) < 0.05 else f"{value:.1f}".removesuffix(".0")
    )


class Canvas:
    """Marks on 320 × 200 units."""

    def __init__(self, width: int = 320, height: int = 200) -> None:
        self.width, self.height = width, height
        self.marks: list[str] = []

    def svg(self, title: str) -> str:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img"'
        style = 'fill="none" font-family="system-ui, sans-serif" font-size="9"'
        return "\n".join([f"{head} {style}>", f"<title>{escape(title)}</title>", *self.marks, "</svg>", ""])

    def text(self, x: float, y: float, words: str, size: float = 9, anchor: str = "middle", colour: str = INK) -> None:
        place = f'x="{short(x)}" y="{short(y)}" text-anchor="{anchor}"'
        self.marks.append(f'<text {place} font-size="{size:g}" fill="{colour}">{escape(words)}</text>')

    def path(self, d: str, colour: str = INK, width: float = 1.2, opacity: float = 1, extra: str = "") -> None:
        faint = f' stroke-opacity="{opacity:.2g}"' if opacity < 1 else ""
        self.marks.append(f'<path d="{d}" stroke="{colour}" stroke-width="{width:.2g}"{faint}{extra}/>')

    def line(
        self, points: Iterable[Point], colour: str = INK, width: float = 1.2, opacity: float = 1, dash: str = ""
    ) -> None:
        d = "M" + "L".join(f"{short(x)} {short(y)}" for x, y in points)
        self.path(d, colour, width, opacity, f' stroke-dasharray="{dash}"' if dash else "")

    def lines(
        self, pairs: Iterable[tuple[Point, Point]], colour: str = GREY, width: float = 0.8, opacity: float = 1
    ) -> None:
        d = "".join(f"M{short(a)} {short(b)}L{short(c)} {short(e)}" for (a, b), (c, e) in pairs)
        if d:
            self.path(d, colour, width, opacity)

    def arrow(self, a: Point, b: Point, colour: str = INK, width: float = 1.2, opacity: float = 1) -> None:
        length = hypot(b[0] - a[0], b[1] - a[1]) or 1
        ux, uy = (b[0] - a[0]) / length, (b[1] - a[1]) / length
        left = (b[0] - 4 * ux + 2.4 * uy, b[1] - 4 * uy - 2.4 * ux)
        right = (b[0] - 4 * ux - 2.4 * uy, b[1] - 4 * uy + 2.4 * ux)
        d = f"M{short(a[0])} {short(a[1])}L{short(b[0])} {short(b[1])}"
        head = "M" + "L".join(f"{short(x)} {short(y)}" for x, y in (left, b, right))
        self.path(d + head, colour, width, opacity)

    def dots(self, points: Iterable[Point], colour: str = BLUE, radius: float = 2, opacity: float = 1) -> None:
        d = "".join(f"M{short(x)} {short(y)}h0" for x, y in points)
        if d:
            self.path(d, colour, 2 * radius, opacity, ' stroke-linecap="round"')

    def node(self, at: Point, colour: str = BLUE, radius: float = 4, strength: float = 1, ring: str = "") -> None:
        """A node that is filled by its strength, on an outline that shows where it is in any case."""
        place = f'cx="{short(at[0])}" cy="{short(at[1])}" r="{radius:g}"'
        fill = f'fill="{colour}" fill-opacity="{strength:.2f}"'
        self.marks.append(f'<circle {place} {fill} stroke="{ring or colour}" stroke-width=".8"/>')

    def box(self, box: Box, colour: str = GREY, width: float = 0.8, fill: str = "none", opacity: float = 1) -> None:
        x, y, w, h = (short(value) for value in box)
        style = f'stroke="{colour}" stroke-width="{width:g}" fill="{fill}" fill-opacity="{opacity:.2g}"'
        self.marks.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" {style}/>')

    def heat(
        self,
        values: Any,
        box: Box,
        colours: tuple[str, str] = (BLUE, RED),
        top: float | None = None,
        frame: bool = True,
    ) -> None:
        """A matrix, darker where it is larger; what is negative in the second colour."""
        rows = [[float(value) for value in row] for row in values]
        left, up, width, height = box
        w, h = width / len(rows[0]), height / len(rows)
        most = top or max((abs(value) for row in rows for value in row), default=1) or 1
        runs: dict[tuple[str, int], str] = {}
        for i, row in enumerate(rows):
            keys = [(colours[value < 0], min(10, round(10 * abs(value) / most))) for value in row]
            j = 0
            for key, same in groupby(keys):
                count = len(list(same))
                if key[1]:
                    place = f"M{short(left + j * w)} {short(up + (i + 0.5) * h)}h{short(count * w)}"
                    runs[key] = runs.get(key, "") + place
                j += count
        for (colour, level), d in sorted(runs.items()):
            self.path(d, colour, h, level / 10)
        if frame:
            self.box(box)

    def graph(
        self,
        pairs: Iterable[tuple[int, int]],
        places: Sequence[Point],
        colour: str = GREY,
        opacity: float = 0.6,
        width: float = 0.7,
    ) -> None:
        self.lines(
            ((places[a], places[b]) for a, b in sorted({(min(p), max(p)) for p in pairs}) if a != b),
            colour,
            width,
            opacity,
        )


class Axes:
    """A box in which values are drawn: the limits of x and y, linear or logarithmic."""

    def __init__(
        self, canvas: Canvas, box: Box, x: tuple[float, float], y: tuple[float, float], logs: str = ""
    ) -> None:
        self.canvas, self.area, self.x, self.y, self.logs = canvas, box, x, y, logs
        left, top, width, height = box
        canvas.line([(left, top), (left, top + height), (left + width, top + height)], GREY, 0.8)

    def at(self, x: float, y: float) -> Point:
        left, top, width, height = self.area
        return left + width * _share(x, self.x, "x" in self.logs), top + height * (
            1 - _share(y, self.y, "y" in self.logs)
        )

    def line(
        self,
        xs: Iterable[float],
        ys: Iterable[float],
        colour: str = BLUE,
        width: float = 1.4,
        name: str = "",
        dash: str = "",
    ) -> None:
        points = [self.at(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]
        self.canvas.line(points, colour, width, dash=dash)
        if name:
            self.canvas.text(points[-1][0] + 3, points[-1][1] + 3, name, 8, "start", colour)

    def dots(
        self, xs: Iterable[float], ys: Iterable[float], colour: str = BLUE, radius: float = 1.6, opacity: float = 1
    ) -> None:
        self.canvas.dots((self.at(float(x), float(y)) for x, y in zip(xs, ys, strict=True)), colour, radius, opacity)

    def bars(self, values: Sequence[float], colour: str = BLUE, opacity: float = 0.4, gap: float = 0.15) -> None:
        step = (self.x[1] - self.x[0]) / len(values)
        for k, value in enumerate(values):
            left, top = self.at(self.x[0] + (k + gap / 2) * step, float(value))
            right, bottom = self.at(self.x[0] + (k + 1 - gap / 2) * step, max(self.y[0], 0))
            self.canvas.box((left, min(top, bottom), right - left, abs(bottom - top)), "none", 0, colour, opacity)

    def labels(self, x: str = "", y: str = "") -> None:
        left, top, width, height = self.area
        self.canvas.text(left + width, top + height + 11, x, 8, "end", GREY)
        self.canvas.text(left, top - 4, y, 8, "start", GREY)


def _share(value: float, limits: tuple[float, float], logarithmic: bool) -> float:
    low, high = limits
    if logarithmic:
        value, low, high = log(max(value, 1e-12)), log(low), log(high)
    return min(1.0, max(0.0, (value - low) / (high - low)))


def ring(count: int, centre: Point, radius: float) -> list[Point]:
    return [
        (centre[0] + radius * sin(2 * pi * k / count), centre[1] - radius * cos(2 * pi * k / count))
        for k in range(count)
    ]


def fitted(places: Sequence[Sequence[float]], box: Box) -> list[Point]:
    """Positions of nodes, moved and scaled into a box."""
    xs, ys = [float(p[0]) for p in places], [float(p[1]) for p in places]
    left, top, width, height = box
    wide, high = (max(xs) - min(xs)) or 1, (max(ys) - min(ys)) or 1
    return [
        (left + width * (x - min(xs)) / wide, top + height * (y - min(ys)) / high) for x, y in zip(xs, ys, strict=True)
    ]


Picture = Callable[[], Canvas]
