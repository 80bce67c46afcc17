"""Graphs that the tests of this folder share: every rule, and edge lists drawn at random."""

from collections.abc import Iterator

import torch

from edgewise.graphs import (
    Graph,
    Rule,
    bipartite,
    blocks,
    causal,
    complete,
    disc,
    draw,
    fixed,
    grid,
    squares,
    strided,
    window,
)
from edgewise.graphs.patterns import fixed_parts, strided_parts
from edgewise.graphs.rule import Both, Causal, Complete, Either, Itself, Others, Window

RULES: list[Rule] = [
    Complete(),
    Itself(),
    Others(),
    Causal(),
    Window(0),
    Window(2),
    Window(1, sides="past"),
    Window(2, dilation=3),
    Window(2, dilation=2, sides="past"),
    Either(Window(1, sides="past"), Window(3, dilation=2, sides="past")),
    Either(Window(1), Either(Window(3, sides="past"), Window(2, dilation=4, sides="past"))),
    Either(Itself(), Window(2, dilation=2)),
    Both(Causal(), Window(3)),
    Both(Others(), Either(Causal(), Window(2, dilation=2))),
]

PATTERNED: list[Graph] = [
    complete(0),
    complete(1),
    complete(3, 5),
    causal(0),
    causal(6),
    causal(2, offset=3),
    causal(4, senders=2),
    causal(2, senders=7, offset=1),
    window(7, 2),
    window(3, 10),
    window(9, 2, dilation=2),
    window(6, 2, sides="past"),
    blocks([2, 0, 3]),
    blocks([2, 0, 3], senders=[1, 2, 0]),
    blocks([]),
    blocks(7, 3),
    squares(3, 4, 2),
    squares(5, 4, 3, shift=1),
    squares(0, 3, 2),
    squares(3, 0, 2),
    strided(9, 3),
    strided(10, 4),
    *strided_parts(10, 4),
    fixed(9, 3),
    fixed(10, 4, 2),
    *fixed_parts(10, 4, 2),
    grid(3, 4),
    grid(3, 4, neighbors=4),
    grid(3, 4, loops=False),
    grid(3, 3, neighbors=4, loops=False),
    grid(4, 1),
    grid(1, 4, loops=False),
    grid(2, 2, neighbors=4),
    grid(0, 3),
    grid(3, 0),
    disc(3, 4, radius=1.5),
    disc(5, 6, radius=2.3),
    disc(4, 3, radius=7),
    disc(4, 5, radius=0),
    disc(5, 6, radius=2.3, torus=True),
    disc(3, 4, radius=1, torus=True),
    disc(0, 3),
    disc(3, 0),
    bipartite(2, 3),
    bipartite(0, 2),
    bipartite(3, 0),
]


def random_edges(seed: int, square: bool = True) -> tuple[torch.Tensor, int, int]:
    """edge_index [2, E], number of senders and of receivers: with isolated nodes, self-loops and parallel edges."""
    draw = torch.Generator().manual_seed(seed)
    senders, receivers = torch.randint(0, 9, (2,), generator=draw).tolist()
    receivers = senders if square else receivers
    edges = int(torch.randint(0, 30, (1,), generator=draw)) if senders and receivers else 0
    j = torch.randint(0, max(1, senders), (edges,), generator=draw)
    i = torch.randint(0, max(1, receivers), (edges,), generator=draw)
    return torch.stack([j, i]), senders, receivers


def random_graphs(number: int = 40, square: bool = True) -> Iterator[Graph]:
    for seed in range(number):
        edges, senders, receivers = random_edges(seed, square)
        yield Graph.from_edge_index(edges, senders, receivers if not square else None)


def assert_drawn(graph: Graph, *rows: str) -> None:
    assert draw(graph).splitlines() == list(rows)
    assert draw(Graph.from_edge_index(graph.edge_index(), graph.num_senders, graph.num_receivers)) == draw(graph)
