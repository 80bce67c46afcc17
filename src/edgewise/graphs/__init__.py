"""Floor 1: graphs. Who listens to whom, and nothing else.

A line below is a public name's one entry: `PATTERNS` holds the functions of `patterns.py`, by their names.
"""

from collections.abc import Callable
from types import FunctionType

from edgewise.graphs.exchange import TypedData as TypedData
from edgewise.graphs.graph import Graph as Graph
from edgewise.graphs.graph import draw as draw
from edgewise.graphs.make.content import Gathered as Gathered
from edgewise.graphs.make.content import alike as alike
from edgewise.graphs.make.content import clusters as clusters
from edgewise.graphs.make.content import is_causal as is_causal
from edgewise.graphs.make.content import laid_out as laid_out
from edgewise.graphs.make.links import LinkCut as LinkCut
from edgewise.graphs.make.links import cut_links as cut_links
from edgewise.graphs.make.links import edges_between as edges_between
from edgewise.graphs.make.links import links_of as links_of
from edgewise.graphs.make.links import sample_non_links as sample_non_links
from edgewise.graphs.make.neighbors import k_nearest as k_nearest
from edgewise.graphs.make.neighbors import radius_graph as radius_graph
from edgewise.graphs.make.sampling import LayerSample as LayerSample
from edgewise.graphs.make.sampling import Neighborhood as Neighborhood
from edgewise.graphs.make.sampling import Sample as Sample
from edgewise.graphs.make.sampling import importance as importance
from edgewise.graphs.make.sampling import sample_layers as sample_layers
from edgewise.graphs.make.sampling import sample_neighbors as sample_neighbors
from edgewise.graphs.make.sampling import sample_past as sample_past
from edgewise.graphs.partition import Partition as Partition
from edgewise.graphs.patterns import EncoderDecoderGraph as EncoderDecoderGraph
from edgewise.graphs.patterns import bipartite as bipartite
from edgewise.graphs.patterns import blocks as blocks
from edgewise.graphs.patterns import causal as causal
from edgewise.graphs.patterns import complete as complete
from edgewise.graphs.patterns import disc as disc
from edgewise.graphs.patterns import fixed as fixed
from edgewise.graphs.patterns import grid as grid
from edgewise.graphs.patterns import squares as squares
from edgewise.graphs.patterns import strided as strided
from edgewise.graphs.patterns import window as window
from edgewise.graphs.rule import Rule as Rule
from edgewise.graphs.store import Store as Store
from edgewise.graphs.store import StoredRows as StoredRows

PATTERNS: dict[str, Callable[..., Graph]] = {
    name: pattern
    for name, pattern in tuple(globals().items())
    if isinstance(pattern, FunctionType) and pattern.__module__ == "edgewise.graphs.patterns"
}
