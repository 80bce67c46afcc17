"""Floor 1: graphs. Who listens to whom, and nothing else."""

from edgewise.graphs.graph import Graph, draw
from edgewise.graphs.make.content import Gathered, alike, clusters, hears_later, laid_out
from edgewise.graphs.make.importance import LayerSample, importance, sample_layers
from edgewise.graphs.make.links import LinkCut, cut_links, links_of, sample_non_links
from edgewise.graphs.make.neighbors import k_nearest, radius_graph
from edgewise.graphs.make.sampling import Sample, sample_neighbors
from edgewise.graphs.patterns import PATTERNS
from edgewise.graphs.patterns.blocks import bipartite, blocks, complete
from edgewise.graphs.patterns.encoder_decoder import EncoderDecoderGraph
from edgewise.graphs.patterns.line import causal, fixed, fixed_parts, strided, strided_parts, window
from edgewise.graphs.patterns.plane import disc, grid, squares
from edgewise.graphs.rule import Rule

__all__ = [
    "PATTERNS",
    "EncoderDecoderGraph",
    "Gathered",
    "Graph",
    "LayerSample",
    "LinkCut",
    "Rule",
    "Sample",
    "alike",
    "bipartite",
    "blocks",
    "causal",
    "clusters",
    "complete",
    "cut_links",
    "disc",
    "draw",
    "fixed",
    "fixed_parts",
    "grid",
    "hears_later",
    "importance",
    "k_nearest",
    "laid_out",
    "links_of",
    "radius_graph",
    "sample_layers",
    "sample_neighbors",
    "sample_non_links",
    "squares",
    "strided",
    "strided_parts",
    "window",
]
