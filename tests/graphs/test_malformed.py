"""Malformed graphs: what a user may hand over, and what the error must say. One row each: name, call, message."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

from edgewise.errors import GraphError
from edgewise.graphs import (
    Graph,
    blocks,
    causal,
    complete,
    disc,
    draw,
    fixed,
    grid,
    k_nearest,
    radius_graph,
    window,
)
from edgewise.graphs.patterns import Grid
from edgewise.graphs.rule import Causal

SQUARE = Graph.from_edge_index([[0, 1], [1, 2]], 3)
ACROSS = Graph.from_edge_index([[0, 1], [1, 2]], 2, 3)
PLANE = torch.zeros(3, 2)
NOT_FINITE = torch.tensor([[0.0, 0.0], [1.0, math.nan]])


def edges(value: Any, nodes: Any = 10, receivers: Any = None) -> Callable[[], Graph]:
    return lambda: Graph.from_edge_index(value, nodes, receivers)


MALFORMED: list[tuple[str, Callable[[], object], str]] = [
    (
        "sender out of range",
        edges([[0] * 7 + [12], [0] * 8]),
        "edge 7: sender 12 is out of range: the graph has 10 n",
    ),
    ("receiver out of range", edges([[0, 1], [1, 10]]), "edge 1: receiver 10 is out of range: the graph has 10 nodes"),
    ("negative sender", edges([[0, -1], [1, 1]]), "edge 1: sender -1 is out of range: the graph has 10 nodes"),
    ("receiver beyond", edges([[0], [4]], 9, 4), "edge 0: receiver 4 is out of range: the graph has 4 receivers"),
    ("one row", edges([[0, 1]]), r"edge_index must have shape \[2, E\], not \[1, 2\]"),
    ("pairs", edges([[0, 1], [1, 2], [2, 0]]), r"not \[3, 2\] \(this one looks like \[E, 2\]: transpose it\)"),
    ("nothing", edges(None), "edge_index must be a tensor or nested list of integers, not NoneType"),
    ("edges on meta", edges(torch.zeros(2, 1, dtype=torch.long, device="meta")), "edge_index is on meta, where no ten"),
    ("nodes beyond int64", edges([[0], [1]], 1 << 70), "num_nodes must be at most 2⁶³ - 1, not 1180591620717411303424"),
    ("a node for each hash", edges([[0], [1]], 1 << 62), "where the edges of each of 4,611,686,018,427,387,904 nodes"),
    ("a union with a word", lambda: SQUARE.union("complete"), "union takes another Graph, not a str"),
    ("a batch of no list", lambda: Graph.batch(SQUARE), r"a list of graphs, not one: Graph.batch\(\[graph\]\)"),
    ("edges kept by a list", lambda: SQUARE.keep_edges([True, False]), r"mask is a list, but must be bool \[2\]"),
    ("a drawing of a word", lambda: draw("complete"), "draw takes a Graph, not a str"),
    (
        "offsets whose difference wraps",  # the process ended
        lambda: Graph.from_csr([0, 2**63 - 1, -5, 3], [0, 1, 2], 3),
        r"offsets must never fall: offsets\[2\] = -5 < 9223372036854775807",
    ),
    (
        "documents whose length wraps",
        lambda: Graph.from_cu_seqlens([0, 2**63 - 1, -5, 3]),
        r"cu_seqlens must never fall: cu_seqlens\[2\] = -5 < 9223372036854775807",
    ),
    (
        "members whose size wraps",
        lambda: Graph.from_pyg(
            SimpleNamespace(edge_index=[[], []], num_nodes=3, ptr=torch.tensor([0, 2**63 - 1, -5, 3]))
        ),
        "ptr must rise from 0 to the number of nodes, 3",
    ),
    (
        "a mask of a batch",  # which was ignored
        lambda: Graph.from_mask(torch.ones(2, 2, dtype=torch.bool), batch=5),
        "batch and head are for a function of them",
    ),
    ("a ragged list", edges([[0, 1], [1]]), "not a ragged or non-numeric list"),
    ("numbers beyond int64", edges([[2**63], [0]]), r"must hold integers \(int64\), not float64"),
    ("floats", edges([[0.0, 1.0], [1.0, 2.0]]), r"edge_index must hold integers \(int64\), not float64"),
    ("a sparse tensor", edges(torch.zeros(2, 3).long().to_sparse()), "must be a dense tensor, not torch.sparse_coo"),
    ("half a node", edges([[], []], 2.5), "num_nodes must be a whole number, not 2.5"),
    ("nodes as a tensor", edges([[], []], torch.tensor([1, 2])), "num_nodes must be a whole number"),
    ("offsets that start late", lambda: Graph.from_csr([1, 2], [0, 0], 1), "offsets must start with 0, not 1"),
    ("offsets that fall", lambda: Graph.from_csr([0, 2, 1, 3], [0] * 3, 1), r"offsets\[2\] = 1 < 2"),
    ("offsets too short", lambda: Graph.from_csr([0, 2], [0] * 3, 1), "end at the number of edges, 3, not at 2"),
    ("offsets in a table", lambda: Graph.from_csr([[0, 1]], [0], 1), r"offsets must have 1 axis, not shape \[1, 2\]"),
    ("a CSR sender out of range", lambda: Graph.from_csr([0, 2], [0, 3], 3), "edge 1: sender 3 is out of range"),
    ("a range too long", lambda: Graph.from_ranges([[0], [1]], [[2], [5]], 4), r"receiver 1, range 0: \[1, 5\) is out"),
    ("a reversed range", lambda: Graph.from_ranges([[3]], [[1]], 4), r"receiver 0, range 0: \[3, 1\) stops before it"),
    ("ranges that overlap", lambda: Graph.from_ranges([[0, 1]], [[2, 3]], 4), r"range 1: \[1, 3\) starts before the"),
    (
        "shapes that differ",
        lambda: Graph.from_ranges([[0]], [[1, 2]], 4),
        r"one shape \[I, R\], not \[1, 1\] and",
    ),
    ("a tensor for a rule", lambda: Graph(torch.zeros(2, 3)), "Graph takes a rule, not Tensor: for edges there are"),
    ("no size for a rule", lambda: Graph(Causal()), r"Causal\(\) fits any number of nodes: say how many receivers"),
    ("a rule on too many nodes", lambda: Graph(Grid(2, 2), 5), "covers 4 receivers and 4 senders, too few for 5"),
    ("complete(-1)", lambda: complete(-1), "receivers must be at least 0, not -1"),
    ("an unknown side", lambda: window(5, 1, sides="left"), "sides must be 'both' or 'past', not 'left'"),
    ("a negative block", lambda: blocks([2, -1]), r"sizes\[1\] must be at least 0, not -1"),
    ("a word for blocks", lambda: blocks("ab"), "sizes must be a list of whole numbers, one for each block, not 'ab'"),
    ("a list of blocks and a size", lambda: blocks([2, 2], 2), "either a list of sizes, or n and one size"),
    ("blocks of senders missing", lambda: blocks([2, 2], senders=[1]), "one size for each of 2 blocks, not 1"),
    ("more summaries than a block has", lambda: fixed(5, 2, 3), "a block of 2 positions has no 3 summaries"),
    ("six neighbours", lambda: grid(2, 2, neighbors=6), "neighbors must be 4 or 8, not 6"),
    ("a small torus", lambda: disc(4, 9, 2, torus=True), "a radius of 2 reaches around a torus of 4 x 9 pixels"),
    ("an empty batch", lambda: Graph.batch([]), "a batch needs at least one graph"),
    ("a number in a batch", lambda: Graph.batch([SQUARE, 3]), "graph 1 of the batch is an int, not a Graph"),
    ("an offset in a batch", lambda: Graph.batch([SQUARE, causal(2, offset=1)]), "graph 1 of the batch has offset 1"),
    (
        "devices in a batch",
        lambda: Graph.batch([complete(2), complete(2).to("meta")]),
        "graph 1 of the batch is on m",
    ),
    ("rows beyond the end", lambda: SQUARE.rows(1, 4), "rows 1 to 4 are out of range: the graph has 3 receivers"),
    ("a permutation too short", lambda: SQUARE.permute([0, 1]), "must list all 3 nodes, not 2 of them"),
    ("a node out of range", lambda: SQUARE.subgraph([0, 3]), "entry 1: node 3 is out of range: the graph has 3 nodes"),
    (
        "loops across",
        lambda: ACROSS.add_self_loops(),
        "add_self_loops needs receivers and senders to be the same",
    ),
    ("a union across", lambda: SQUARE.union(ACROSS), "union needs graphs on the same nodes: one has 3 receivers at"),
    ("NaN coordinates", lambda: k_nearest(NOT_FINITE, 1), r"points must be finite: row 1 is \[1.0, nan\]"),
    ("points in a list", lambda: k_nearest(torch.zeros(3), 1), r"points must have shape \[N, D\] .* not \[3\]"),
    ("complex points", lambda: k_nearest(torch.zeros(3, 2, dtype=torch.complex64), 1), "real numbers, not complex64"),
    ("points as a word", lambda: k_nearest("points", 1), r"points must be a tensor \[N, D\] of numbers, not str"),
    (
        "queries of other width",
        lambda: k_nearest(PLANE, 1, torch.zeros(1, 3)),
        "2 coordinates, but queries have 3",
    ),
    ("a negative distance", lambda: radius_graph(PLANE, -1), "radius must be finite and at least 0, not -1.0"),
    ("a radius as a word", lambda: radius_graph(PLANE, "far"), "radius must be a number, not 'far'"),
    ("a cell of length 0", lambda: k_nearest(PLANE, 1, cell=[1.0, 0.0]), "cell must hold lengths above 0, not"),
    (
        "a radius beyond the cell",
        lambda: radius_graph(PLANE, 1, cell=1.5),
        "less than half of the cell's shortest",
    ),
    ("networkx from a list", lambda: Graph.from_networkx([(0, 1)]), "from_networkx takes a networkx graph, not list"),
    ("scipy from a tensor", lambda: Graph.from_scipy(torch.eye(2)), "takes a two-dimensional scipy.sparse matrix"),
    ("edges that are masked", edges(numpy.ma.array([[0], [1]], mask=[[1], [0]])), "an array with masked entries"),
    ("edges that are texts", edges(numpy.array([["0"], ["1"]])), "nested list of integers, not an array of <U1"),
    (
        "a PyG batch with a list of bounds",
        lambda: Graph.from_pyg(SimpleNamespace(edge_index=[[0], [1]], num_nodes=2, ptr=[0, 1])),
        r"ptr must rise from 0 to the number of nodes, 2, not \[0, 1\]",
    ),
    ("PyG from a list", lambda: Graph.from_pyg([]), "edge_index and num_nodes, which this list lacks"),
]


@pytest.mark.parametrize(("call", "message"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED])
def test_a_malformed_graph_is_a_named_error(call: Callable[[], object], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
