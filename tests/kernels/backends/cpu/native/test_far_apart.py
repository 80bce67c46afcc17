"""Rows whose neighbours lie far apart, beyond the cache or on many pages; and keys that are the values."""

import pytest
import torch

from edgewise import Graph
from kernels.drawn import SCORES, WEIGHTS, attention, covering, product, random_graph, results, same

# Long rows, whose neighbours' numbers exceed the cache: they are walked in bands


def far_apart(receivers, senders, edges, ascending):
    """Wide enough to exceed the cache; parallel edges, empty rows, and rows that hear no one of the first half."""
    to = torch.randint(receivers - 3, (edges,))
    by = torch.where(to % 5 == 0, torch.randint(senders // 2, senders, (edges,)), torch.randint(senders, (edges,)))
    graph = Graph.from_edge_index(torch.stack([by, to]), senders, receivers)
    return graph if ascending else Graph.from_csr(graph.offsets, graph.senders.flip(0).roll(7), senders)


# Many senders, many receivers, and rows on more pages than a processor remembers
ENDS = [(60, 1200, 3600), (1200, 60, 3600), (500, 1500, 5000)]


@pytest.mark.parametrize(("kind", "ends", "ascending"), covering(SCORES, ENDS, [True, False, False]))
def test_rows_walked_in_bands_agree_with_plain_pytorch(kind, ends, ascending):
    graph = far_apart(*ends, ascending)
    leaves, call = attention(graph, kind, "edge", 2, 2, 1024, 2048 if kind in ("additive", "uniform") else 1024)
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    if "bias" in leaves:
        leaves["bias"][(graph.senders < 400) & (graph.receivers % 2 == 0)] = float("-inf")  # whole parts of a row
    expected = results(call, leaves, "segment")
    same(results(call, leaves, "native"), expected, 1e-10)
    single = results(call, leaves, "native", torch.float32)
    same(single, expected, 1e-4)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again = results(call, leaves, "native", torch.float32)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(again[name], value) for name, value in single.items())


# Widths that do not fill vectors
@pytest.mark.parametrize(
    ("weight", "reduce", "width", "ends", "ascending"),
    covering(2 * WEIGHTS, ["sum", "mean"], [(2, 2203), (735, 3)], ENDS, [True, False, False]),
)
def test_products_walked_in_bands_agree_with_plain_pytorch(weight, reduce, width, ends, ascending):
    leaves, call = product(far_apart(*ends, ascending), reduce, weight, *width)
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    expected = results(call, leaves, "segment")
    same(results(call, leaves, "native"), expected, 1e-10)
    same(results(call, leaves, "native", torch.float32), expected, 1e-4)


# Keys that are the values: one gradient for both


def with_keys_as_values(call):
    return lambda leaves, backend: call({**leaves, "v": leaves["k"]}, backend)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("kind", "edges"), [("dot", 120), ("gated", 120), ("dot", 3000)])  # short and long rows
def test_keys_may_be_the_values(kind, edges, dtype):
    leaves, call = attention(random_graph(60, 70, edges), kind, "edge", 4, 4, 6, 6)
    leaves = {name: leaf.to(dtype).double() for name, leaf in leaves.items() if name != "v"}
    expected = results(with_keys_as_values(call), leaves, "reference")
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}[dtype]
    same(results(with_keys_as_values(call), leaves, "native", dtype), expected, tolerance)


def test_keys_that_are_the_values_may_be_walked_in_bands():
    leaves, call = attention(far_apart(1200, 60, 4800, True), "dot", "", 2, 2, 512, 512)
    del leaves["v"]
    expected = results(with_keys_as_values(call), leaves, "segment")
    same(results(with_keys_as_values(call), leaves, "native"), expected, 1e-10)
