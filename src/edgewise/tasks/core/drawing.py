"""What a task shows of a trained model, as plain data: figures, tables and texts, for a report to render."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.graphs import Graph

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Flags = NDArray[np.bool_]
Colour = Literal["accent", "warm", "muted"]  # of the page: the model, what it is compared with, what is least


class Curve(NamedTuple):
    """Values over places, named at the curve's end where it has a name; a number is the colour of a class."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: Colour | int


class Panel(NamedTuple):
    """Curves over one axis, and the points (x, y) that they should run through where there are any."""

    title: str
    curves: Sequence[Curve]
    axis: str = "step"
    points: tuple[Sequence[float], Sequence[float]] = ((), ())


class Curves(NamedTuple):
    """Panels of curves side by side; `mark` is a place that a dotted line marks in each of them."""

    panels: Sequence[Panel]
    mark: float | None = None


class Parity(NamedTuple):
    """Predictions over true values, both [N], in some unit: on the diagonal where they agree."""

    truth: Array
    predicted: Array
    unit: str


class Confusion(NamedTuple):
    """How often an example of each class (row) was given each class (column): [K, K]."""

    counts: Labels
    classes: Sequence[str]


class Network(NamedTuple):
    """A graph, each of its N nodes in the colour of its class, named in the legend where there is one.

    Edges are drawn by the attention [E] of receiver to sender where there are weights; nodes [N] that are wrong are
    crossed out, the centre is circled, and names are written at the nodes."""

    graph: Graph
    classes: Labels
    legend: Sequence[str] = ()
    weights: Array | None = None
    wrong: Flags | None = None
    names: Sequence[str] = ()
    centre: int | None = None


class Networks(NamedTuple):
    """Small graphs in rows of `columns`, their nodes coloured by class, with titles above some of them."""

    members: Sequence[tuple[Graph, Labels]]
    titles: Sequence[str]
    columns: int


class Matrix(NamedTuple):
    """Attention weights [H, N, N] of each head among N labelled positions: a row for each receiver."""

    weights: Array
    labels: Sequence[str]


class Scores(NamedTuple):
    """A graph with scores of its E edges, where there are any, and of its N named nodes, positive or negative.

    Nodes lie at their places [N, 2] where they have some; orders [E] are how many lines an edge has, as bonds do; the
    centre is circled."""

    graph: Graph
    edges: Array | None
    nodes: Array
    names: Sequence[str]
    places: Array | None = None
    orders: Labels | None = None
    centre: int | None = None


class Alignment(NamedTuple):
    """Scores [I, J] of each sender (column) for each receiver (row), positive or negative."""

    scores: Array
    rows: Sequence[str]
    columns: Sequence[str]


class Heat(NamedTuple):
    """A row of heat maps [P, a, b] over P images, and in each the cell to outline, where there is one.

    What is below 0 has another colour."""

    label: str
    values: Array
    cells: Sequence[tuple[int, int]] = ()


class Pictures(NamedTuple):
    """Grey images [P, h, w] from 0 to 1 in a row, their titles in another colour where `wrong`, and rows of heat."""

    pixels: Array
    titles: Sequence[str]
    wrong: Sequence[bool]
    heat: Sequence[Heat] = ()


class HeatMap(NamedTuple):
    """A picture [h, w, 3] from 0 to 1, and the heat [a, b] from 0 to 1 of the cells into which it is divided.

    `region` [*, *] is to be outlined: where it is, in equal parts of `area`, which is its height and width in cells.
    """

    title: str
    picture: Array
    heat: Array
    region: Flags | None = None
    area: tuple[float, float] = (0.0, 0.0)


class HeatMaps(NamedTuple):
    """Pictures in a row, and below each the same in grey under its heat."""

    maps: Sequence[HeatMap]


class Films(NamedTuple):
    """Discs that move in a box, in films of the same frames side by side: names, and centres [T, N, 2] in metres.

    Each disc has the colour of its class [N]; box and radius are in metres, the time between two frames in seconds, and
    an animation plays so many times slower than life."""

    films: Sequence[tuple[str, Array]]
    classes: Labels
    box: tuple[float, ...]
    radius: float
    frame: float
    slower: float = 1.0


class Strip(NamedTuple):
    """Films at a few evenly spaced moments, a film in each row."""

    films: Films


class Animation(NamedTuple):
    """Films that play side by side."""

    films: Films


Graphs = Network | Networks | Scores | Matrix | Alignment
Figure = Graphs | Curves | Parity | Confusion | Pictures | HeatMaps | Strip | Animation


class Drawing(NamedTuple):
    """A figure, the name of its file and what it shows."""

    name: str
    figure: Figure
    caption: str = ""


class TextTable(NamedTuple):
    """A table of texts under a row of headings."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Passage(NamedTuple):
    """A text, and what a model adds to it."""

    prompt: str
    continuation: str
    caption: str


class Coloured(NamedTuple):
    """A text in pieces, each coloured by its score, positive or negative."""

    pieces: Sequence[str]
    scores: Array
    caption: str


Content = Drawing | TextTable | Passage | Coloured


class Section(NamedTuple):
    """A titled part of a report. Its contents are made on demand, so that one that fails costs no other.

    Example
        >>> section = Section("Fit", lambda: [TextTable(["x", "y"], [["0", "1"]])])
        >>> [table.head for table in section.make()]
        [['x', 'y']]
    """

    title: str
    make: Callable[[], Iterable[Content]]


class Output(NamedTuple):
    """What a command gives: values that JSON can hold, drawings by name, and a text to print."""

    values: dict[str, Any]
    drawings: dict[str, Drawing]
    text: str = ""
