"""What tasks show as data, as parts of a page and as files: each kind of it has one function that draws it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgewise.apps.report import figures, networks, pages
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

FIGURES: dict[type, Callable[[Any], Markup]] = {
    Alignment: networks.alignment,
    Animation: figures.animation,
    Confusion: figures.confusion,
    Curves: figures.curves,
    HeatMaps: figures.heat_maps,
    Pictures: figures.pictures,
    Matrix: figures.matrix,
    Network: networks.network,
    Networks: networks.networks,
    Parity: figures.parity,
    Scores: networks.graph_scores,
    Strip: figures.strip,
}


def save(drawing: Drawing, run: Path) -> tuple[Path, Markup]:
    """Write a drawing into a run's figures: its file, and its SVG for a page."""
    svg = drawn(drawing)
    path = run / "figures" / f"{drawing.name}.svg"
    path.parent.mkdir(exist_ok=True)
    write_file(path, figures.standalone(svg).encode())
    return path, svg


def drawn(drawing: Drawing) -> Markup:
    """A drawing as SVG."""
    return FIGURES[type(drawing.figure)](drawing.figure)


def part(content: Content, run: Path | None) -> Markup:
    """A drawing, a table or a text as a part of a page; a run's own drawings are saved in its folder, too."""
    return PARTS[type(content)](content, run)


def _figure(drawing: Drawing, run: Path | None) -> Markup:
    return pages.figure(drawn(drawing) if run is None else save(drawing, run)[1], drawing.caption)


def _table(table: TextTable, run: Path | None) -> Markup:
    return pages.table(table.head, table.rows)


def _passage(passage: Passage, run: Path | None) -> Markup:
    text = element("pre", element("b", passage.prompt), passage.continuation)
    return pages.join([text, element("figcaption", passage.caption)])


def _coloured(text: Coloured, run: Path | None) -> Markup:
    return networks.coloured(text)


PARTS: dict[type, Callable[[Any, Path | None], Markup]] = {
    Drawing: _figure,
    TextTable: _table,
    Passage: _passage,
    Coloured: _coloured,
}
