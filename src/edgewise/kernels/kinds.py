"""Kinds of graphs that a backend may be made for: the name that a refusal uses, and whether a graph is one of them."""

from collections.abc import Callable
from dataclasses import dataclass

from edgewise.graphs import Graph
from edgewise.graphs.rule import Blocks, Causal


@dataclass(frozen=True)
class Kind:
    """Graphs of one kind, in the plural, and their predicate."""

    name: str
    holds: Callable[[Graph], bool]


def _is_causal(graph: Graph) -> bool:
    return isinstance(graph.rule, Causal) and graph.offset == 0


def _is_blocks(graph: Graph) -> bool:
    shape = graph.num_receivers, graph.num_senders
    return isinstance(graph.rule, Blocks) and graph.offset == 0 and graph.rule.extent == shape


COMPLETE = Kind("complete graphs", lambda graph: graph.is_complete)
CAUSAL = Kind("causal graphs", _is_causal)
BLOCKS = Kind("batches of complete graphs", _is_blocks)
