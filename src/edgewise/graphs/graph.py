"""Graph: for every receiver i, the senders N(i) that it listens to. It holds no features but those of given edges."""

from collections.abc import Callable
from html import escape
from typing import NoReturn

from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs import checks
from edgewise.graphs.algebra import Algebra
from edgewise.graphs.exchange import Exchange
from edgewise.graphs.masks import Masks

DRAWN = 1 << 22  # characters that are drawn at most
SHOWN = 64  # nodes on a side, at most, of a graph that a notebook draws


class _Swapped(GraphError, AttributeError):
    """A graph was taken for a tensor. `hasattr` may ask for what only tensors have."""


class _OfTensors:
    """An attribute of tensors, which a graph is asked for where it stands in the place of one."""

    def __init__(self, told: str) -> None:
        self.told = told

    def __get__(self, graph: object, owner: type) -> NoReturn:
        raise _Swapped(self.told)


class Graph(Algebra, Exchange, Masks):
    """Who listens to whom; immutable, and checked once, when it is built.

    Three exact forms, each lowered to the next on demand and cached: a rule (a predicate on positions), ranges (a few
    sender intervals per receiver) and edges (CSR: receiver by receiver, senders ascending, parallel edges in the
    caller's order).

    Symbols     I = num_receivers, J = num_senders, E = num_edges; receiver i sits at position i + offset
    Errors      GraphError names the edge and the bound
    Edge cases  isolated nodes, no nodes, no edges, self-loops and parallel edges are all legal
    Cost        a rule costs nothing until it is lowered; ranges O(I * R), edges O(E)

    >>> graph = Graph.from_edge_index([[0, 2, 1], [1, 1, 0]], num_nodes=3)  # 1 listens to 0 and 2; 0 listens to 1
    >>> graph
    Graph(3 receivers, 3 senders, 3 edges)
    >>> graph.offsets.tolist(), graph.senders.tolist()
    ([0, 1, 3, 3], [1, 0, 2])
    """

    shape = size = dim = dtype = ndim = requires_grad = _OfTensors(
        "a Graph has no shape and no dtype, as tensors have: the graph comes first, then the tensors: "
        "layer(graph, x), attend(graph, q, k, v); a module gets x and edge_index where its forward calls them so"
    )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return picture(lambda: self.dense_mask().double(), self.num_receivers, self.num_senders, repr(self))


def picture(matrix: Callable[[], Tensor], rows: int, columns: int, caption: str) -> str:
    """A matrix of numbers from 0 to 1 as a picture in HTML, the darker the more; a large one is its caption alone."""
    if not 0 < max(rows, columns) <= SHOWN or not min(rows, columns):
        return f"<code>{escape(caption)}</code>"
    squares = "".join(
        f'<rect x="{j}" y="{i}" width="1" height="1" fill-opacity="{value:.2f}"/>'
        for i, row in enumerate(matrix().tolist())
        for j, value in enumerate(row)
        if value >= 0.005
    )
    size = f'viewBox="0 0 {columns} {rows}" width="{min(320, 16 * columns)}" shape-rendering="crispEdges"'
    frame = f'<rect width="{columns}" height="{rows}" fill="none" stroke="gray" stroke-width="0.05"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{squares}{frame}</svg><br><code>{escape(caption)}</code>'


def draw(graph: Graph) -> str:
    """The graph as text: row = receiver, column = sender, '#' where i listens to j.

    Errors      GraphError beyond `DRAWN` characters: `graph.subgraph(nodes)` has a part of a graph

    >>> print(draw(Graph.from_edge_index([[0, 2, 1], [0, 1, 2]], num_nodes=3)))
    #..
    ..#
    .#.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"draw takes a Graph, not {checks.shown(graph)}")
    if graph.num_receivers * graph.num_senders > DRAWN:
        size = f"{graph.num_receivers:,} x {graph.num_senders:,}"
        raise GraphError(f"a drawing of {size} has over {DRAWN:,} characters: draw a part, graph.subgraph(nodes)")
    return "\n".join("".join("#" if listens else "." for listens in row) for row in graph.dense_mask().tolist())
