"""`edgewise check expressiveness`: which hard pairs of graphs a model tells apart, beside Weisfeiler and Leman."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx
import torch
from torch import Tensor, nn

from edgewise import configuration
from edgewise.apps.command.listing import columns
from edgewise.apps.options import assignments, overridden
from edgewise.configuration import options_of
from edgewise.graphs import Graph
from edgewise.graphs.refinement import refinement_classes
from edgewise.models import Features, model_named
from edgewise.tasks.graphs.skip_links import NODES, SKIPS, ring_with_chords

SEEDS = 3  # of a model's weights: what one draw misses by chance, another sees
RELABELLINGS = 100
THRESHOLD = 1e-6  # relative, in float64
CHANNELS = 8


@dataclass(frozen=True)
class Family:
    """Graphs of which no two are isomorphic."""

    name: str
    graphs: tuple[Graph, ...]


@dataclass(frozen=True)
class Verdict:
    """Of a family's pairs, how many each test and the model tell apart; and whether a relabelling fooled the model."""

    family: str
    graphs: int
    pairs: int
    wl_1: int
    wl_2: int
    model: int
    false: int
    """Relabelled copies, of RELABELLINGS for each graph, that the model tells apart from their originals."""


def check(name: str, options: Sequence[str]) -> dict[str, Any]:
    """Print what a model with random weights tells apart, and what it takes for different and is not."""
    models = [build(name, options, seed) for seed in range(SEEDS)]
    verdicts = [judge(family, models) for family in families()]
    rows = [
        {"family": v.family, "graphs": str(v.graphs), "pairs": str(v.pairs), "1-WL": str(v.wl_1), "2-WL": str(v.wl_2),
         name: str(v.model), "false": str(v.false)}
        for v in verdicts
    ]  # fmt: skip
    heading = {key: key for key in rows[0]}
    print(f"pairs of graphs told apart (2-WL: folklore; false: of {RELABELLINGS} relabellings of each graph)")
    print(columns([heading, *rows]))
    if len(verdicts) < 5:
        print("  sr251256 was left out: expressiveness/sr251256.g6 is not in $EDGEWISE_DATA")
    return {"model": name, "options": list(options), "families": [vars(v) for v in verdicts]}


def judge(family: Family, models: Sequence[nn.Module]) -> Verdict:
    """Compare every pair of a family, and every graph with relabelled copies of itself."""
    count = len(family.graphs)
    apart = torch.zeros(count, count, dtype=torch.bool)
    false = torch.zeros(count, RELABELLINGS, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    copies = [
        [graph.permute(torch.randperm(graph.num_receivers, generator=generator)) for _ in range(RELABELLINGS)]
        for graph in family.graphs
    ]
    for model in models:
        y = predictions(model, family.graphs)
        apart |= differ(y[:, None], y[None])
        for number, relabelled in enumerate(copies):
            false[number] |= differ(predictions(model, relabelled), y[number])
    pairs = list(combinations(range(count), 2))
    labels = [refinement_classes(family.graphs, order) for order in (1, 2)]
    wl_1, wl_2 = (sum(int(label[a] != label[b]) for a, b in pairs) for label in labels)
    return Verdict(family.name, count, len(pairs), wl_1, wl_2, int(apart.triu(1).sum()), int(false.sum()))


@torch.no_grad()
def predictions(model: nn.Module, graphs: Sequence[Graph]) -> Tensor:
    """The model's prediction for each graph, all nodes having the feature 1: [G, CHANNELS]."""
    graph = Graph.batch(graphs)
    y: Tensor = model(graph, torch.ones(graph.num_receivers, 1, dtype=torch.float64))
    return y


def differ(a: Tensor, b: Tensor) -> Tensor:
    """Whether two predictions [..., C] differ by more than rounding."""
    return ((a - b).abs() > THRESHOLD * torch.maximum(a.abs(), b.abs()).clamp(min=1)).any(-1)


def build(name: str, options: Sequence[str], seed: int) -> nn.Module:
    """A model of that name with random weights, in float64, for tasks on whole graphs."""
    settings, model = model_named(name)
    known = options_of(settings)
    content = {"readout": "sum"} if "readout" in known else {}
    made = configuration.build(settings, overridden(content, assignments(options, known)), name)
    torch.manual_seed(seed)
    built: nn.Module = model(made, Features(1, CHANNELS, whole_graph=True)).double().eval()
    return built


def families() -> Iterator[Family]:
    """The standard hard pairs, from those that only counting cycles tells apart to those that 2-WL cannot."""
    triangle, square = networkx.cycle_graph(3), networkx.complete_bipartite_graph(4, 4)
    two = networkx.disjoint_union(triangle, triangle)
    yield Family("hexagon, two triangles", (_given(networkx.cycle_graph(6)), _given(two)))
    decalin = networkx.cycle_graph(10)
    decalin.add_edge(0, 5)
    bicyclopentyl = networkx.disjoint_union(networkx.cycle_graph(5), networkx.cycle_graph(5))
    bicyclopentyl.add_edge(0, 5)
    yield Family("decalin, bicyclopentyl", (_given(decalin), _given(bicyclopentyl)))
    yield Family("circular skip links", tuple(ring_with_chords(NODES, skip) for skip in SKIPS))
    yield Family("rook's 4 × 4, Shrikhande", (_given(networkx.line_graph(square)), shrikhande()))
    path = Path(os.environ.get("EDGEWISE_DATA", "")) / "expressiveness" / "sr251256.g6"
    if "EDGEWISE_DATA" in os.environ and path.is_file():
        graphs: Any = networkx.read_graph6(path)
        yield Family("sr251256", tuple(map(_given, graphs)))


def shrikhande() -> Graph:
    """The strongly regular graph of 16 nodes, 6 neighbours each, that is not the rook's: a torus of 4 × 4 triangles."""
    row, column = torch.arange(16) // 4, torch.arange(16) % 4
    steps = ((0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3))
    senders = torch.stack([(row + down) % 4 * 4 + (column + right) % 4 for down, right in steps])
    return Graph.from_edge_index(torch.stack([senders.flatten(), torch.arange(16).repeat(6)]), num_nodes=16)


def _given(graph: Any) -> Graph:
    return Graph.from_networkx(networkx.convert_node_labels_to_integers(graph))
