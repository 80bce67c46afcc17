"""What tasks show as data, as parts of a page and as files: each kind of it has one function that draws it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from edgewise.apps.report import figures, films, networks, pages, scores
from edgewise.apps.report.pages import Markup, element
from edgewise.files import write_file
from edgewise.tasks.core.drawing import (
    Alignment,
    Animation,
    Coloured,
    Confusion,
    Content,
    Curves,
    Drawing,
    HeatMaps,
    Matrix,
    Network,
    Networks,
    Parity,
    Passage,
    Pictures,
    Scores,
    Strip,
    TextTable,
)

FIGURES: dict[type, Callable[[Any], Figure | Markup]] = {
    Alignment: scores.alignment,
    Animation: films.animation,
    Confusion: figures.confusion,
    Curves: figures.curves,
    HeatMaps: figures.heat_maps,
    Pictures: figures.pictures,
    Matrix: figures.matrix,
    Network: networks.network,
    Networks: networks.networks,
    Parity: figures.parity,
    Scores: scores.graph_scores,
    Strip: films.strip,
}


def save(drawing: Drawing, run: Path) -> tuple[Path, Markup]:
    """Write a drawing into a run's figures: its file, and its SVG for a page that shows several runs."""
    drawn = FIGURES[type(drawing.figure)](drawing.figure)
    svg = drawn if isinstance(drawn, Markup) else Markup(figures.svg(drawn, f"{run.name}-{drawing.name}"))
    path = run / "figures" / f"{drawing.name}.svg"
    path.parent.mkdir(exist_ok=True)
    write_file(path, figures.standalone(svg).encode())
    return path, svg


def part(content: Content, run: Path) -> Markup:
    """A drawing, a table or a text as a part of a run's page."""
    return PARTS[type(content)](content, run)


def _figure(drawing: Drawing, run: Path) -> Markup:
    return pages.figure(save(drawing, run)[1], drawing.caption)


def _table(table: TextTable, run: Path) -> Markup:
    return pages.table(table.head, table.rows)


def _passage(passage: Passage, run: Path) -> Markup:
    text = element("pre", element("b", passage.prompt), passage.continuation)
    return pages.join([text, element("figcaption", passage.caption)])


def _coloured(text: Coloured, run: Path) -> Markup:
    return scores.coloured(text)


PARTS: dict[type, Callable[[Any, Path], Markup]] = {
    Drawing: _figure,
    TextTable: _table,
    Passage: _passage,
    Coloured: _coloured,
}
