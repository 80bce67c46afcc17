"""The charts at the top of the pages of results and performance, drawn from the tables below them."""

import re
from html import escape
from math import log10

BLUE, RED, GREY = "#3b7dd8", "#e4572e", "#8895a5"
FIGURE = re.compile(r"(\d+(?:\.\d+)?) ?%")
ACCURACY, PEERS = "<!-- chart: accuracy -->", "<!-- chart: peers -->"
RECIPE = re.compile(r"`edgewise train ([\w-]+)")


def filled(page: str) -> str:
    """A page with its chart in place of the mark."""
    for mark, draw in ((ACCURACY, accuracy), (PEERS, peers)):
        if mark in page:
            page = page.replace(mark, "```{raw} html\n" + draw(page) + "\n```")
    return page


def accuracy(page: str) -> str:
    """Required and measured accuracies, a row for each recipe that has both."""
    found: dict[str, tuple[float, float]] = {}
    head: list[str] = []
    for line in page.split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = []
        elif not head:
            head = cells
        elif recipe := RECIPE.search(cells[0]) if {"required", "measured"} <= set(head) else None:
            required, measured = cells[head.index("required")], cells[head.index("measured")]
            bar, reached = FIGURE.match(required.removeprefix("≥ ")), FIGURE.match(measured)
            if bar and reached:
                found.setdefault(recipe[1], (float(bar[1]), float(reached[1])))

    def place(percent: float) -> float:
        return 170 + 4 * percent

    marks = []
    for k, (name, (required, measured)) in enumerate(found.items()):
        y = 24 + 17 * k
        marks.append(text(160, y + 3, name, "end"))
        marks.append(f'<path d="M{place(required):.1f} {y}H{place(measured):.1f}" stroke="{GREY}" stroke-width="1.5"/>')
        marks.append(f'<path d="M{place(required):.1f} {y - 5}v10" stroke="{RED}" stroke-width="2"/>')
        marks.append(f'<circle cx="{place(measured):.1f}" cy="{y}" r="4" fill="{BLUE}"/>')
    marks += [text(place(tick), 10, f"{tick} %", "middle", GREY) for tick in (0, 20, 40, 60, 80, 100)]
    return svg(600, 30 + 17 * len(found), "Required (bar) and measured (dot) accuracies, in percent", marks)


def peers(page: str) -> str:
    """How many times the time of Edgewise the fastest peer takes: forward and backward on one thread."""
    found = []
    for line in page.split("## Beside the fastest peer")[1].split("\n## ")[0].split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > 6 and cells[1] == "1" and cells[2] == "forward and backward":
            found.append((cells[0], float(cells[6].replace(",", "").split()[0])))

    def place(ratio: float) -> float:
        return 190 + 250 * log10(max(ratio, 0.5) / 0.5)

    marks = [f'<path d="M{place(1):.1f} 16V{22 + 17 * len(found)}" stroke="{RED}" stroke-width="1"/>']
    for k, (name, ratio) in enumerate(found):
        y = 20 + 17 * k
        marks.append(text(180, y + 8, name, "end"))
        left, right = sorted((place(1), place(ratio)))
        marks.append(
            f'<rect x="{left:.1f}" y="{y}" width="{right - left:.1f}" height="11" fill="{BLUE}" fill-opacity=".7"/>'
        )
        marks.append(text(right + 5, y + 9, f"{ratio:g} ×", "start", GREY))
    marks += [text(place(tick), 10, f"{tick:g} ×", "middle", GREY) for tick in (0.5, 1, 2, 4, 8)]
    return svg(600, 30 + 17 * len(found), "Time of the fastest peer divided by that of Edgewise", marks)


def text(x: float, y: float, words: str, anchor: str, colour: str = "currentColor") -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def svg(width: int, height: int, title: str, marks: list[str]) -> str:
    style = 'role="img" fill="none" font-size="10" font-family="system-ui, sans-serif"'
    drawn = f'<svg viewBox="0 0 {width} {height}" {style}><title>{title}</title>{"".join(marks)}</svg>'
    return f'<figure class="picture">{drawn}<figcaption>{title}</figcaption></figure>'
