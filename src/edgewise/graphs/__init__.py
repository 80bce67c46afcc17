"""Floor 1: graphs. Who listens to whom, and nothing else."""

from edgewise.graphs.graph import Graph
from edgewise.graphs.neighbors import k_nearest, radius_graph
from edgewise.graphs.patterns import (
    PATTERNS,
    bipartite,
    blocks,
    causal,
    complete,
    draw,
    fixed,
    fixed_parts,
    grid,
    strided,
    strided_parts,
    window,
)
from edgewise.graphs.rule import Rule
from edgewise.graphs.sampling import Sample, sample_neighbors

__all__ = [
    "PATTERNS",
    "Graph",
    "Rule",
    "Sample",
    "bipartite",
    "blocks",
    "causal",
    "complete",
    "draw",
    "fixed",
    "fixed_parts",
    "grid",
    "k_nearest",
    "radius_graph",
    "sample_neighbors",
    "strided",
    "strided_parts",
    "window",
]
