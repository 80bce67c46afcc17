"""The figures of a report as SVG, drawn from what tasks show as data, in the page's colours, light and dark."""

import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from itertools import count
from math import ceil, floor, log10
from typing import Any, NamedTuple
from unicodedata import east_asian_width

import numpy as np

from edgewise.apps.report.pages import DARK, LIGHT, Markup, element, join, variables
from edgewise.tasks.core.drawing import (
    Animation,
    Array,
    Colour,
    Confusion,
    Curves,
    Films,
    Flags,
    HeatMaps,
    Matrix,
    Panel,
    Parity,
    Pictures,
    Strip,
)

PAPER, INK, MUTED, RULE, ACCENT, WARM = (f"var(--{name})" for name in LIGHT)
# Classes: mid-tones that stand out on light paper and on dark.
CLASSES = ("#3f7fe8", "#e2622f", "#22a08d", "#dba12a", "#9a67e6", "#d9518f", "#74a341", "#1ba6c9", "#a7795a", "#8390a3")
# Pictures carry their own ground and heat, because a picture's pixels cannot follow the page.
GROUND, LIT, HEAT, COLD, MATRIX = "#1d2026", "#f2f2ee", "#ff8a3d", "#3d9bff", CLASSES[0]
WIDTH, SIZE, SMALL, LINE = 520.0, 8.5, 7.5, 14.0  # of a figure, its letters and its lines of text, in points
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # characters that no XML may hold
LONGEST, NAME_OF_CLASS = 16, 24  # characters of a name in a figure; tables have it whole
TYPEFACE = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def sheet(height: float, *parts: str) -> Markup:
    """A figure of its parts."""
    size = {"viewBox": f"0 0 {written(WIDTH)} {written(height)}", "xmlns": "http://www.w3.org/2000/svg"}
    drawn = mark("svg", *parts, role="img", font_family=TYPEFACE, **size)
    return Markup(NOT_XML.sub("\N{REPLACEMENT CHARACTER}", drawn))


def mark(name: str, *children: str, **attributes: float | str) -> Markup:
    """An element of SVG, `_` for the hyphens in its attributes' names."""
    texts = {key.replace("_", "-"): written(value) for key, value in attributes.items()}
    return element(name, *children, **texts)


def written(value: float | str) -> str:
    """A number as a figure needs it.

    >>> written(2.0), written(-0.001), written(1.256)
    ('2', '0', '1.26')
    """
    return value if isinstance(value, str) else f"{round(float(value), 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def text(
    x: float, y: float, words: str, colour: str = INK, size: float = SIZE, turn: float = 0.0, anchor: str = "start"
) -> Markup:
    """Words around a height, of which the start, the middle or the end is at x, turned by some degrees."""
    turned = {"transform": f"rotate({written(turn)} {written(x)} {written(y)})"} if turn else {}
    return mark("text", words, x=x, y=y + 0.35 * size, fill=colour, font_size=size, text_anchor=anchor, **turned)


def room(names: Sequence[str], size: float = SIZE) -> float:
    """About how wide the longest of some texts is: it lies with the page's typeface."""
    return size * max((sum(1.0 if east_asian_width(c) in "WF" else 0.6 for c in name) for name in names), default=0.0)


def path(lines: Any, colour: str, width: float, **more: float | str) -> Markup:
    """Lines [N, P, 2], which may have different numbers P of places, as one mark."""
    d = " ".join("M" + "L".join(f"{written(x)} {written(y)}" for x, y in line) for line in lines)
    return mark("path", d=d, fill="none", stroke=colour, stroke_width=width, **more)


def dot(place: Any, radius: float, fill: str, **more: float | str) -> Markup:
    """A disc, or a ring where it is not filled."""
    return mark("circle", cx=place[0], cy=place[1], r=radius, fill=fill, **more)


def box(x: float, y: float, width: float, height: float, fill: str = "none", **more: float | str) -> Markup:
    """A rectangle."""
    return mark("rect", x=x, y=y, width=width, height=height, fill=fill, **more)


def image(pixels: Array, x: float, y: float, width: float, height: float) -> Markup:
    """Pixels [h, w, 3 or 4] from 0 to 1, as PNG."""
    rows, columns, channels = pixels.shape
    values = (255 * pixels.clip(0, 1)).round().astype(np.uint8).reshape(rows, -1)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", columns, rows, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    body = zlib.compress(np.pad(values, ((0, 0), (1, 0))).tobytes())  # each row after its filter, which is none
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    href = f"data:image/png;base64,{b64encode(png).decode()}"
    place: dict[str, Any] = {"x": x, "y": y, "width": width, "height": height, "preserveAspectRatio": "none"}
    return mark("image", href=href, style="image-rendering:pixelated", **place)


def standalone(drawn: str) -> str:
    """A figure as a file of its own, with the page's colours inside."""
    dark = f"@media (prefers-color-scheme:dark){{svg{{{variables(DARK)}}}}}"
    style = f"svg{{{variables(LIGHT)}background:var(--paper)}}{dark}"
    start = drawn.index(">") + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n{drawn[:start]}<style>{style}</style>{drawn[start:]}'


def short(name: str, longest: int = LONGEST) -> str:
    """A name as a figure has room for it.

    >>> short("probabilistic methods"), short("theory")
    ('probabilistic m…', 'theory')
    """
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"


def shades(weights: Array, colour: str, strength: float = 1.0) -> Array:
    """Weights in [0, 1] as one colour whose opacity is the weight: [..., 4]."""
    return np.concatenate([np.broadcast_to(rgb(colour), (*weights.shape, 3)), strength * weights[..., None]], axis=-1)


def rgb(colour: str) -> Array:
    """A colour's red, green and blue, from 0 to 1."""
    return np.frombuffer(bytes.fromhex(colour[1:]), np.uint8) / 255


class Frame(NamedTuple):
    """A rectangle of a figure, and the values at its sides: left and right, bottom and top."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float] = (0.0, 1.0)
    y: tuple[float, float] = (0.0, 1.0)

    def at(self, x: Any, y: Any) -> Array:
        """Where in the figure values are: [..., 2]."""
        (west, east), (south, north) = self.x, self.y
        across = self.left + (np.asarray(x, float) - west) / (east - west) * self.width
        return np.stack([across, self.top + (north - np.asarray(y, float)) / (north - south) * self.height], -1)

    def around(self, places: Array, margin: float) -> "Frame":
        """The frame with places [N, 2] in its middle, at one scale both ways."""
        low, high = places.min(0), places.max(0)
        reach = np.maximum((high - low) * (0.5 + margin), 1e-9)
        half = np.array([self.width, self.height]) * max(reach[0] / self.width, reach[1] / self.height)
        (west, south), (east, north) = (low + high) / 2 - half, (low + high) / 2 + half
        return self._replace(x=(float(west), float(east)), y=(float(south), float(north)))


def limits(values: Sequence[float], margin: float) -> tuple[float, float]:
    """What an axis shows of some values, with a margin on both sides."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    more = margin * (high - low) if high > low else 0.05 * abs(low) or 0.5
    return low - more, high + more


def ticks(low: float, high: float, whole: bool = False, most: int = 6) -> dict[float, str]:
    """Round numbers between two values, and how they are written.

    >>> ticks(0.02, 0.31)
    {0.05: '0.05', 0.1: '0.10', 0.15: '0.15', 0.2: '0.20', 0.25: '0.25', 0.3: '0.30'}
    >>> ticks(0.5, 3.5, whole=True)
    {1.0: '1', 2.0: '2', 3.0: '3'}
    """
    steps = (n * 10.0**k for k in count(floor(log10((high - low) / most))) for n in (1, 2, 5))
    step = next(step for step in steps if high - low <= most * step and (step >= 1 or not whole))
    decimals = max(0, -floor(log10(step) + 1e-9))
    places = [round(n * step, decimals) for n in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]
    return {at: (f"{at:.{decimals}f}" if decimals < 6 and abs(at) < 1e6 else f"{at:.4g}").replace("-", "−")
            for at in places}  # fmt: skip


def curves(shown: Curves) -> Markup:
    """Panels of curves, each named at its end."""
    width = WIDTH / len(shown.panels)
    return sheet(180, *(join(_panel(one, n * width, width, shown.mark)) for n, one in enumerate(shown.panels)))


def _panel(panel: Panel, left: float, width: float, marked: float | None) -> Iterator[Markup]:
    lines = [(c, np.array([xy for xy in zip(c.x, c.y, strict=True) if np.isfinite(xy).all()])) for c in panel.curves]
    lines = [(curve, line) for curve, line in lines if len(line)]
    values = np.concatenate([line for _, line in lines] + [np.stack(panel.points, -1).reshape(-1, 2)])
    x, y = (limits(values[:, axis].tolist(), margin) for axis, margin in ((0, 0.02), (1, 0.05)))
    marks, names = ticks(*y), [curve.label for curve in panel.curves]
    before, after = room([*marks.values()]) + 8, room(names) + 12
    frame = Frame(left + before, 22, width - before - after, 122, x, y)
    right, foot = frame.left + frame.width, frame.top + frame.height
    yield text(frame.left, 8, panel.title)
    for value, label in marks.items():
        _, height = frame.at(x[0], value)
        yield path([[(frame.left, height), (right, height)]], RULE, 0.6)
        yield text(frame.left - 5, height, label, MUTED, anchor="end")
    yield path([[(frame.left, foot), (right, foot)]], RULE, 0.8)
    for value, label in ticks(*x, bool((values[:, 0] % 1 == 0).all()), max(2, int(frame.width / 45))).items():
        yield text(frame.at(value, y[0])[0], foot + 9, label, MUTED, anchor="middle")
    yield text((frame.left + right) / 2, foot + 25, panel.axis, MUTED, anchor="middle")
    if marked is not None:
        across, _ = frame.at(marked, y[0])
        yield path([[(across, frame.top), (across, foot)]], MUTED, 0.8, stroke_dasharray="1 2")
    for place in frame.at(*panel.points):
        yield dot(place, 1.25, MUTED, opacity=0.5)
    for curve, line in lines:
        places, colour = frame.at(*line.T), _of_curve(curve.colour)
        once = len(line) == 1
        yield dot(places[0], 1.5, colour) if once else path([places], colour, 1.6, stroke_linejoin="round")
    ends = sorted((float(frame.at(*line[-1])[1]), c.label, _of_curve(c.colour)) for c, line in lines if c.label)
    for (_, label, colour), place in zip(ends, _apart([end for end, *_ in ends], foot), strict=True):
        yield text(right + 5, place, label, colour)


def _of_curve(colour: Colour | int) -> str:
    return CLASSES[colour % len(CLASSES)] if isinstance(colour, int) else f"var(--{colour})"


def _apart(heights: Sequence[float], foot: float, gap: float = 11.0) -> list[float]:
    """The heights of names at the ends of curves, pushed apart where two ends are close."""
    places = list[float]()
    for height in heights:
        places.append(max(height, places[-1] + gap) if places else height)
    below = max(0.0, places[-1] - foot) if places else 0.0  # all names move up by as much as the last is too low
    return [place - below for place in places]


def parity(shown: Parity) -> Markup:
    """A point for each prediction, and the diagonal."""
    unit = f" ({shown.unit})" if shown.unit else ""
    both = limits(np.concatenate([shown.truth, shown.predicted]).tolist(), 0.04)
    marks, side = ticks(*both), 200.0
    frame = Frame(WIDTH / 2 - side / 2, 6, side, side, both, both)
    foot = frame.top + side
    parts = [
        path([frame.at(both, both)], RULE, 0.8),
        path([frame.at([both[0]] * 2 + [both[1]], [both[1]] + [both[0]] * 2)], RULE, 0.8),
    ]
    for value, label in marks.items():
        across, down = frame.at(value, value)
        parts += [text(across, foot + 9, label, MUTED, anchor="middle")]
        parts += [text(frame.left - 5, down, label, MUTED, anchor="end")]
    parts += [dot(place, 1, ACCENT, opacity=0.4) for place in frame.at(shown.truth, shown.predicted)]
    parts.append(text(WIDTH / 2, foot + 25, f"truth{unit}", MUTED, anchor="middle"))
    beside = frame.left - room([*marks.values()]) - 14
    parts.append(text(beside, frame.top + side / 2, f"predicted{unit}", MUTED, turn=-90, anchor="middle"))
    return sheet(foot + 34, *parts)


def confusion(shown: Confusion) -> Markup:
    """Rows are the truth, columns the prediction; a cell's colour is its share of the row."""
    counts, names = shown.counts, [short(name, NAME_OF_CLASS) for name in shown.classes]
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    strength = 0.75 * np.sqrt(share)
    frame, parts = squares(np.where(np.eye(len(names), dtype=bool), strength, -strength), names, names, 20.0)
    side = frame.width / max(len(names), 1)
    size = min(SMALL, 1.6 * side / len(str(counts.max(initial=1))))
    for row, column in np.argwhere(counts).tolist():
        x, y = frame.at(column, row)
        strong = INK if share[row, column] >= 0.05 else MUTED
        parts.append(text(x, y, str(counts[row, column]), strong, size, anchor="middle"))
    foot, before = frame.top + frame.height, room(names, min(SIZE, 0.9 * side))
    parts.append(text(frame.left + frame.width / 2, foot + 11, "prediction", MUTED, anchor="middle"))
    parts.append(
        text(frame.left - before - 16, frame.top + frame.height / 2, "truth", MUTED, turn=-90, anchor="middle")
    )
    return sheet(foot + 20, *parts)


def squares(
    strength: Array, rows: Sequence[str], columns: Sequence[str], aside: float = 0.0
) -> tuple[Frame, list[Markup]]:
    """A matrix [I, J] from -1 to 1 of squares with the names of its rows and columns, in the middle of a figure: blue
    for what is above 0 and orange below. `aside` is left free to its left."""
    height, width = strength.shape
    before, least = room(rows) + 6 + aside, room(columns) * 0.75 + 8
    side = min(26.0, (WIDTH - before - least) / max(width, 1))
    size = min(SIZE, 0.9 * side)
    left = max(before, (WIDTH - width * side) / 2)
    names: dict[str, Any] = {"turn": -45} if max(map(len, columns), default=0) > 3 else {"anchor": "middle"}
    top = room(columns, size) * 0.72 + 12 if "turn" in names else LINE
    frame = Frame(left, top, width * side, height * side, (-0.5, width - 0.5), (height - 0.5, -0.5))
    parts = []
    for row, column in np.argwhere(np.abs(strength) > 0.01).tolist():
        (x, y), score = frame.at(column, row), float(strength[row, column])
        fill = ACCENT if score > 0 else WARM
        parts.append(box(x - 0.47 * side, y - 0.47 * side, 0.94 * side, 0.94 * side, fill, opacity=abs(score)))
    for row, name in enumerate(rows):
        parts.append(text(left - 5, float(frame.at(0, row)[1]), name, MUTED, size, anchor="end"))
    for column, name in enumerate(columns):
        parts.append(text(float(frame.at(column, 0)[0]), top - 7, name, MUTED, size, **names))
    return frame, parts


def matrix(shown: Matrix) -> Markup:
    """The mean of the heads with its labels, and beside it each head."""
    heads, labels = len(shown.weights), [short(label) for label in shown.labels]
    small = heads if heads > 1 else 0
    before, columns = room(labels) + 6, -(-small // 4)
    beside = 96.0 if small else 0.0
    side = min(390.0, WIDTH - before - beside - 10)
    step, top = side / max(len(labels), 1), 34.0
    size = min(SMALL, 0.95 * step)
    parts = [text(before, 7, "mean of the heads" if small else "the head")]
    parts += _weights(shown.weights.mean(0), before, top, side)
    for number, label in enumerate(labels):
        middle = (number + 0.5) * step
        parts.append(text(before - 4, top + middle, label, MUTED, size, anchor="end"))
        parts.append(text(before + middle, top - 6, label, MUTED, size, anchor="middle"))
    each = min(beside / max(columns, 1) - 6, side / 4 - LINE)
    for head in range(small):
        x, y = before + side + 14 + head // 4 * (each + 6), top + head % 4 * side / 4
        parts += [text(x, y - 6, f"head {head + 1}", MUTED, SMALL), *_weights(shown.weights[head], x, y, each)]
    return sheet(top + side + 4, *parts)


def _weights(weights: Array, x: float, y: float, side: float) -> list[Markup]:
    """Weights [I, J] as squares. Each row is scaled by its largest weight, or long rows would all look pale."""
    heat = shades(weights / np.maximum(weights.max(1, keepdims=True), 1e-12), MATRIX)
    return [image(heat, x, y, side, side), box(x, y, side, side, stroke=RULE, stroke_width=0.7)]


def pictures(shown: Pictures) -> Markup:
    """A row of images under their titles, and below it a row for each kind of heat."""
    place, top, parts = WIDTH / max(2, len(shown.pixels)), LINE, list[Markup]()
    side = 0.94 * place
    if shown.heat:
        parts, top = [text(0, 7, "image and prediction", MUTED)], 2 * LINE
    rows = np.array([one.shape for one in shown.pixels]).T
    tall = side * float((rows[0] / rows[1]).max())  # a picture keeps its shape
    for n, (pixels, title, wrong) in enumerate(zip(shown.pixels, shown.titles, shown.wrong, strict=True)):
        parts.append(text((n + 0.5) * place, top - 7, title, WARM if wrong else INK, anchor="middle"))
        parts += _image(pixels, n * place, top, side, tall)
    for heat in shown.heat:
        top += tall + LINE + 6
        parts.append(text(0, top - 8, heat.label, MUTED))
        for n, (pixels, values) in enumerate(zip(shown.pixels, heat.values, strict=True)):
            parts += _image(pixels, n * place, top, side, tall, values)
            if heat.cells:
                (row, column), high, wide = heat.cells[n], tall / len(values), side / len(values[0])
                outline: dict[str, Any] = {"stroke": "#ffffff", "stroke_width": 1.4}
                parts.append(box(n * place + column * wide, top + row * high, wide, high, **outline))
    return sheet(top + tall + 4, *parts)


def _image(pixels: Array, x: float, y: float, width: float, height: float, heat: Array | None = None) -> list[Markup]:
    """A grey image [h, w] in [0, 1], under the heat [a, b] of its patches where there is any."""
    layers = [rgb(GROUND) + pixels[..., None] * (rgb(LIT) - rgb(GROUND))]
    if heat is not None:
        relative = heat / max(float(np.abs(heat).max()), 1e-12)
        signs = [(relative, HEAT), *([(-relative, COLD)] if (relative < 0).any() else [])]
        layers += [shades(one.clip(0), colour, 0.85) for one, colour in signs]
    return [image(layer, x, y, width, height) for layer in layers]


def heat_maps(shown: HeatMaps) -> Markup:
    """A row of pictures, and below each the same in grey under its heat; its sides are counted in the heat's cells."""
    ratio = max(one.picture.shape[0] / one.picture.shape[1] for one in shown.maps)
    place = WIDTH / max(2, len(shown.maps))
    width = (place - 8) / max(1.0, ratio)
    below, parts = LINE + width * ratio + 8, list[Markup]()
    for n, (title, picture, heat, region, area) in enumerate(shown.maps):
        x, height = n * place, width * picture.shape[0] / picture.shape[1]
        grey = picture.mean(-1, keepdims=True).repeat(3, -1)
        parts.append(text(x, 7, title))
        for y, layer in ((LINE, picture), (below, grey), (below, shades(heat, HEAT, 0.85))):
            parts.append(image(layer, x, y, width, height))
        if region is not None and region.any():
            cells = np.array([width / heat.shape[1] * area[1], height / heat.shape[0] * area[0]]) / region.shape[::-1]
            parts.append(path(_edges(region) * cells + [x, below], INK, 1.2))
    return sheet(below + width * ratio + 4, *parts)


def _edges(region: Flags) -> Array:
    """The sides [S, 2, 2] of the cells inside a region whose other side is outside."""
    down, across = (np.argwhere(np.diff(region, axis=axis)) for axis in (0, 1))
    flat = np.stack([down[:, ::-1] + [0, 1], down[:, ::-1] + [1, 1]], 1)
    upright = np.stack([across[:, ::-1] + [1, 0], across[:, ::-1] + [1, 1]], 1)
    return np.concatenate([flat, upright]).astype(float)


MOMENTS = 5  # of a strip
EVERY = 2  # frames between two that an animation holds: a browser interpolates
PLAYED, GAP = 248.0, 20.0  # the width of a film that plays, and what is between two


def strip(shown: Strip) -> Markup:
    """Each film in a row, at evenly spaced steps."""
    films, parts = shown.films, list[Markup]()
    moments = np.linspace(0, len(films.films[0][1]) - 1, MOMENTS).round().astype(int).tolist()
    place = (WIDTH - LINE) / MOMENTS
    height = (place - 6) * films.box[1] / films.box[0]
    for row, (name, centres) in enumerate(films.films):
        top = LINE + row * (height + 8)
        parts.append(text(6, top + height / 2, name, MUTED, turn=-90, anchor="middle"))
        for n, moment in enumerate(moments):
            frame = _box_of(films, LINE + n * place, top, place - 6)
            if row == 0:
                parts.append(text(frame.left, 6, f"step {moment}"))
            places = zip(frame.at(*centres[moment].T), films.classes, strict=True)
            parts += [dot(at, films.radius * frame.width / films.box[0], CLASSES[c]) for at, c in places]
            parts.append(box(*frame[:4], stroke=MUTED, stroke_width=0.8))
    return sheet(top + height + 2, *parts)


def _box_of(films: Films, left: float, top: float, width: float) -> Frame:
    across, up = films.box
    return Frame(left, top, width, width * up / across, (0.0, across), (0.0, up))


def animation(shown: Animation) -> Markup:
    """Films side by side, which play."""
    films, parts = shown.films, list[Markup]()
    for n, (name, film) in enumerate(films.films):
        frame = _box_of(films, 1 + n * (PLAYED + GAP), 20, PLAYED)
        parts += [text(frame.left, 10, name, MUTED, 11), box(*frame[:4], stroke=RULE)]
        shots = film[::EVERY]
        seconds = f"{len(shots) * EVERY * films.frame * films.slower:.1f}s"
        for places, label in zip(frame.at(*shots.T), films.classes, strict=True):
            moves = [
                element("animate", attributeName=axis, values=";".join(f"{at:.1f}" for at in values), dur=seconds,
                        repeatCount="indefinite")
                for axis, values in (("cx", places[:, 0]), ("cy", places[:, 1]))
            ]  # fmt: skip
            radius = films.radius * frame.width / films.box[0]
            parts.append(mark("circle", *moves, cx=places[0, 0], cy=places[0, 1], r=radius, fill=CLASSES[label]))
    return sheet(frame.top + frame.height + 2, *parts)
