"""Graphs by rule: each pattern is a predicate on positions, the same as intervals, and the function that checks.

Every pattern costs nothing until it is lowered; its ranges then take O(I) and its edges O(E). `draw(graph)` shows a
small graph as text: a row for each receiver, a column for each sender.
"""

from __future__ import annotations

from collections.abc import Callable

from edgewise.graphs.graph import Graph
from edgewise.graphs.patterns import blocks, line, plane

PATTERNS: dict[str, Callable[..., Graph]] = {
    "complete": blocks.complete,
    "causal": line.causal,
    "window": line.window,
    "blocks": blocks.blocks,
    "strided": line.strided,
    "fixed": line.fixed,
    "grid": plane.grid,
    "squares": plane.squares,
    "disc": plane.disc,
    "bipartite": blocks.bipartite,
}
