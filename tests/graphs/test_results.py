"""What functions of graphs make of a small call, of other arguments, and of arguments that they refuse."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from edgewise import Graph
from edgewise.graphs import (
    PATTERNS,
    alike,
    clusters,
    cut_links,
    disc,
    draw,
    importance,
    is_causal,
    k_nearest,
    laid_out,
    links_of,
    radius_graph,
    sample_layers,
    sample_neighbors,
    sample_non_links,
)
from edgewise.graphs import comparison as comparing
from edgewise.graphs import refinement as refining
from edgewise.graphs.make import neighbors, spectral
from edgewise.graphs.make.cliques import clique_counts
from recorded import check_recorded
from variations import outcomes

DRAWN = torch.Generator().manual_seed(0)
GRAPH = Graph.from_edge_index(torch.randint(9, (2, 30), generator=DRAWN), 9)
LINKS = GRAPH.remove_self_loops().coalesce().symmetrise()
POINTS = torch.rand(9, 2, generator=DRAWN)
WEIGHT, CHANCE = torch.rand(GRAPH.num_edges, generator=DRAWN), torch.rand(9, generator=DRAWN)
KEYS = torch.randint(4, (1, 9), generator=DRAWN)
NEAR = torch.rand(1, 2, 9, generator=DRAWN)
SIZES = torch.tensor([4, 5])
Call = tuple[Callable[..., Any], dict[str, Any]]


def seeded(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **given: call(**given, generator=torch.Generator().manual_seed(0))


def spectrum(call: Callable[..., Any]) -> Callable[..., Any]:
    """What does not depend on the signs of eigenvectors."""

    def values(**given: Any) -> list[Any]:
        found = call(**given)
        return [found.values, found.projections(), found.part]

    return values


PATTERN_CALLS: dict[str, Call] = {
    "bipartite": (PATTERNS["bipartite"], {"left": 2, "right": 3}),
    "blocks": (PATTERNS["blocks"], {"sizes": 7, "size": 3, "senders": None}),
    "causal": (PATTERNS["causal"], {"n": 4, "senders": 6, "offset": 2}),
    "complete": (PATTERNS["complete"], {"receivers": 3, "senders": 4}),
    "disc": (PATTERNS["disc"], {"height": 3, "width": 4, "radius": 1.5, "torus": False}),
    "disc on a torus": (PATTERNS["disc"], {"height": 5, "width": 4, "radius": 1.0, "torus": True}),
    "fixed": (PATTERNS["fixed"], {"n": 9, "stride": 3, "summaries": 1}),
    "grid": (PATTERNS["grid"], {"height": 3, "width": 4, "neighbors": 8, "loops": True}),
    "squares": (PATTERNS["squares"], {"height": 5, "width": 6, "size": 2, "shift": 1}),
    "strided": (PATTERNS["strided"], {"n": 9, "stride": 3}),
    "window": (PATTERNS["window"], {"n": 9, "radius": 2, "dilation": 2, "sides": "both"}),
    "window of the past": (PATTERNS["window"], {"n": 9, "radius": 2, "dilation": 1, "sides": "past"}),
}
ALGEBRA_CALLS: dict[str, Call] = {
    "rows": (Graph.rows, {"self": GRAPH, "start": 2, "stop": 5}),
    "rows of a rule": (Graph.rows, {"self": disc(3, 3), "start": 2, "stop": 5}),
    "block counts": (Graph.block_counts, {"self": GRAPH, "block": 4}),
    "subgraph": (Graph.subgraph, {"self": GRAPH, "nodes": torch.tensor([5, 0, 3])}),
    "permute": (Graph.permute, {"self": GRAPH, "perm": torch.arange(8, -1, -1)}),
    "keep_edges": (Graph.keep_edges, {"self": GRAPH, "mask": GRAPH.senders > 3}),
    "sort_edges": (Graph.sort_edges, {"self": GRAPH, "t": torch.arange(30.0)}),
    "union": (Graph.union, {"self": GRAPH, "other": LINKS}),
    "intersection": (Graph.intersection, {"self": GRAPH, "other": LINKS}),
    "from_csr": (
        Graph.from_csr,
        {"offsets": torch.tensor([0, 2, 2, 3]), "senders": torch.tensor([3, 1, 0]), "num_senders": 4},
    ),
    "from_ranges": (
        Graph.from_ranges,
        {"starts": torch.tensor([[0, 2], [1, 3]]), "stops": torch.tensor([[1, 4], [1, 4]]), "num_senders": 4},
    ),
    "from_edge_index": (
        Graph.from_edge_index,
        {"edge_index": torch.tensor([[0, 3, 1], [2, 2, 0]]), "num_nodes": 4, "num_receivers": 3},
    ),
    **{
        name: (getattr(Graph, name), {"self": GRAPH})
        for name in ("add_self_loops", "coalesce", "dense_mask", "edge_index", "in_degrees", "membership")
        + ("multiplicity", "out_degrees", "remove_self_loops", "symmetrise", "transpose")
    },
    "degrees of pairs": (lambda graph: [graph.density, graph.has_duplicates, graph.has_self_loops], {"graph": GRAPH}),
    "draw": (draw, {"graph": GRAPH}),
    "words": (str, {"object": GRAPH}),
}
MADE_CALLS: dict[str, Call] = {
    "alike": (
        lambda **given: list(vars(alike(**given)).values()),
        {"graph": GRAPH, "of_receivers": KEYS, "of_senders": KEYS, "chunk": 3, "loops": True},
    ),
    "clusters": (
        lambda **given: list(vars(clusters(**given)).values()),
        {"graph": GRAPH, "near_receivers": NEAR, "near_senders": NEAR, "size": 4},
    ),
    "is_causal": (lambda graph: is_causal(graph), {"graph": GRAPH}),
    "laid_out": (laid_out, {"sizes": torch.tensor([3, 0, 5]), "multiple": 2}),
    "cut_links": (
        seeded(lambda **given: list(vars(cut_links(**given)).values())),
        {"graph": LINKS, "valid": 0.2, "test": 0.1},
    ),
    "links_of": (lambda graph: links_of(graph), {"graph": LINKS}),
    "sample_non_links": (seeded(sample_non_links), {"graph": LINKS, "count": 5}),
    "importance": (importance, {"graph": GRAPH, "weight": WEIGHT, "power": 2.0}),
    "sample_layers": (
        seeded(lambda **given: list(vars(sample_layers(**given, seeds=[2, 5], sizes=[3, 4])).values())),
        {"graph": GRAPH, "weight": WEIGHT, "chance": CHANCE},
    ),
    "sample_neighbors": (
        seeded(lambda **given: list(vars(sample_neighbors(**given, fanouts=[2, 3])).values())),
        {"graph": GRAPH, "seeds": torch.tensor([1, 7]), "weight": WEIGHT},
    ),
    "k_nearest": (k_nearest, {"points": POINTS, "k": 3, "queries": None, "cell": None, "loops": False}),
    "k_nearest in a cell": (
        k_nearest,
        {"points": POINTS, "k": 2, "queries": POINTS[:4] + 0.1, "cell": 1.25, "loops": True},
    ),
    "radius_graph": (radius_graph, {"points": POINTS, "radius": 0.4, "queries": None, "cell": None, "loops": False}),
    "radius_graph in a cell": (
        radius_graph,
        {"points": POINTS, "radius": 0.3, "queries": POINTS[:4] + 0.1, "cell": 1.0, "loops": True},
    ),
    "k nearest in members": (
        neighbors.k_nearest_in_members,
        {"points": POINTS, "sizes": SIZES, "k": 2, "loops": True},
    ),
    "radius in members": (neighbors.radius_graph_in_members, {"points": POINTS, "sizes": SIZES, "radius": 0.4}),
    "clique_counts": (clique_counts, {"graph": LINKS, "largest": 4}),
    "laplacian_spectrum": (spectrum(spectral.laplacian_spectrum), {"graph": LINKS, "count": 4}),
    "component_spectra": (spectrum(spectral.component_spectra), {"graph": GRAPH, "count": 4}),
    "random_walk_returns": (spectral.random_walk_returns, {"graph": GRAPH, "steps": 3}),
    "hops": (spectral.hops, {"graph": GRAPH, "most": 2}),
    "path_edges": (spectral.path_edges, {"graph": LINKS, "most": 2}),
    "laplacian_kernel": (spectral.laplacian_kernel, {"graph": LINKS, "beta": 0.5, "steps": 2}),
}
COMPARED_CALLS: dict[str, Call] = {
    "clustering": (comparing.clustering, {"graph": LINKS}),
    "degree_distribution": (comparing.degree_distribution, {"graph": LINKS}),
    "clustering_distribution": (comparing.clustering_distribution, {"graph": LINKS}),
    "discrepancy": (
        lambda **given: comparing.discrepancy([CHANCE, POINTS[:, 0]], [WEIGHT], **given),
        {"width": 1.0, "sigma": 1.0},
    ),
    "degree_discrepancy": (
        lambda first, second: comparing.degree_discrepancy([first], [second]),
        {"first": LINKS, "second": disc(3, 3)},
    ),
    "clustering_discrepancy": (
        lambda first, second: comparing.clustering_discrepancy([first], [second]),
        {"first": LINKS, "second": disc(3, 3)},
    ),
    "random_alike": (seeded(comparing.random_alike), {"graph": LINKS}),
    "undirected": (comparing.undirected, {"links": torch.tensor([[0, 1], [1, 2]]), "nodes": 4}),
    "refine": (refining.refine, {"graph": GRAPH, "colors": torch.arange(9) % 2, "rounds": 2}),
    "refine_pairs": (refining.refine_pairs, {"graph": LINKS, "colors": torch.arange(9) % 2}),
    "refinement_classes": (
        lambda first, second, order: refining.refinement_classes([first, second], order),
        {"first": LINKS, "second": disc(3, 3), "order": 1},
    ),
}
CALLS = {"patterns": PATTERN_CALLS, "algebra": ALGEBRA_CALLS, "made": MADE_CALLS, "compared": COMPARED_CALLS}


def lines(part: str) -> Iterator[str]:
    for name, (call, given) in CALLS[part].items():
        yield from outcomes(name, call, given)


@pytest.mark.parametrize("part", CALLS)
def test_results_are_those_on_record(part: str) -> None:
    check_recorded(f"graphs/{part}", lines(part))


def test_every_pattern_is_on_record() -> None:
    assert set(PATTERNS) <= set(PATTERN_CALLS)
