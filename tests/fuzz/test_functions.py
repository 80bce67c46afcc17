"""Arguments of the wrong kind to functions that are called by hand: the error says which, and what would be right."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise import Dot, Graph, attend, draw_attention, explain, export, fidelity, record, sample_neighbors
from edgewise.data import build_store
from edgewise.errors import EdgewiseError
from edgewise.graphs import (
    alike,
    clusters,
    cut_links,
    edges_between,
    importance,
    is_causal,
    laid_out,
    links_of,
    sample_layers,
)
from edgewise.kernels import dropout, gaussians
from edgewise.layers import GCN, harmonics
from edgewise.training import load_run, read_config, read_metrics, resume

RING = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)
NEAR, LABELS, X, ONE = torch.rand(1, 2, 3), torch.zeros(1, 1, 3).long(), torch.randn(3, 2), torch.ones(3)
Q, MODEL = torch.rand(3, 1, 2), GCN(2, 2)
FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "alike": (alike, {"graph": RING, "of_receivers": LABELS, "of_senders": LABELS, "chunk": 2}),
    "clusters": (clusters, {"graph": RING, "near_receivers": NEAR, "near_senders": NEAR, "size": 2}),
    "laid_out": (laid_out, {"sizes": torch.tensor([2, 1]), "multiple": 1}),
    "links_of": (lambda graph: links_of(graph), {"graph": RING}),
    "is_causal": (lambda graph: is_causal(graph), {"graph": RING}),
    "cut_links": (cut_links, {"graph": Graph.from_edge_index([[0, 1], [1, 2]], 6), "valid": 0.0, "test": 0.5}),
    "edges_between": (edges_between, {"graph": RING, "receivers": [0, 1], "senders": [2, 0]}),
    "importance": (importance, {"graph": RING, "weight": ONE, "power": 2.0}),
    "sample_layers": (
        sample_layers,
        {"graph": RING, "weight": ONE, "chance": ONE / 3, "seeds": [1], "sizes": [4]},
    ),
    "sample_neighbors": (
        lambda **given: sample_neighbors(Graph.from_edge_index(RING.edge_index(), 3), **given),
        {"seeds": [1], "fanouts": [1], "weight": ONE},
    ),
    "attend": (attend, {"graph": RING, "q": Q, "k": Q, "v": Q, "score": Dot()}),
    "gaussians": (gaussians, {"length": torch.rand(3, 1), "count": 4, "reach": 1.0}),
    "dropout": (dropout, {"x": X, "p": 0.5}),
    "harmonics": (harmonics, {"most": 1, "direction": torch.tensor([0.0, 0.0, 1.0])}),
    "explain": (explain, {"model": MODEL, "graph": RING, "x": X, "target": (0, 1)}),
    "fidelity": (fidelity, {"explanation": explain(MODEL, RING, X, (0, 1)), "of": "edges", "orders": 1}),
    "export": (export, {"model": MODEL, "example": (RING, X), "to": "pt2"}),
}
MISTAKES: list[tuple[str, str, Any, str]] = [
    ("alike", "of_receivers", LABELS.float(), "of_receivers must hold whole numbers, not float32"),
    ("alike", "of_senders", LABELS - 1, "labels must be at least 0, not -1"),
    ("clusters", "graph", X, r"must be a Graph, not Tensor \[3, 2\]"),
    ("clusters", "near_receivers", None, "near_receivers must be a tensor of floating-point numbers, not NoneType"),
    ("clusters", "near_senders", NEAR.long(), "near_senders must hold floating-point numbers, not int64"),
    ("clusters", "near_receivers", NEAR.to("meta"), "on meta, where no tensor holds numbers"),
    ("clusters", "near_receivers", NEAR[0], r"labels or scores are \[2, 3\] and"),
    ("links_of", "graph", "ring", "links_of reads a Graph, not str"),
    ("is_causal", "graph", None, "is_causal reads a Graph, not NoneType"),
    ("cut_links", "valid", None, "valid must be a number, not a NoneType"),
    ("cut_links", "test", float("nan"), "shares of 0.0 and nan"),
    ("edges_between", "graph", [0], "must be a Graph, not list"),
    ("edges_between", "receivers", [0, 7], "pair 1: receiver 7 is out of range: the graph has 3"),
    ("edges_between", "senders", [0], "as many receivers as senders, not 2 and 1"),
    ("importance", "weight", [1.0, 1.0, 1.0], "weight must be a tensor with a number for each edge, not list"),
    ("importance", "weight", ONE.to(torch.complex64), "weight must hold real numbers, not complex64"),
    ("importance", "weight", torch.ones(2), r"weight must have shape \[3\], one for each edge, not \[2\]"),
    ("sample_layers", "chance", torch.ones(4), r"chance must have shape \[3\], one for each sender, not \[4\]"),
    ("sample_layers", "sizes", 4, "sizes must list how many senders to draw"),
    ("sample_neighbors", "weight", ONE.to_sparse(), "weight must be a dense tensor"),
    ("attend", "q", Q.to_sparse(), r"q is sparse .*q\.to_dense\(\)"),
    ("gaussians", "count", 1, "count must be at least 2"),
    ("gaussians", "reach", 0, "reach must be a finite length above 0"),
    ("gaussians", "length", torch.rand(3, 2), r"distances \[\*, 1\], not \[3, 2\]"),
    ("dropout", "x", None, "x must be a tensor of features, not NoneType"),
    ("dropout", "p", "0.5", "dropout is a probability"),
    ("harmonics", "most", -1, "the largest type must be at least 0"),
    ("explain", "features", torch.ones(3, 1), r"features must be a tuple .*\(edge_attr,\), not \[3, 1\]"),
    ("explain", "method", ["attention"], "there is no method"),
    ("explain", "edges", [0], "edges must be the Graph"),
    ("explain", "baseline", "0", "baseline must be a number"),
    ("explain", "node", 1.5, "node must be a whole number"),
    ("explain", "x", X[0], r"features \[\*, N, C\] or of tokens \[\*, N\], not \[2\]"),
    ("explain", "target", len, "the target makes an int of the outputs"),
    ("fidelity", "explanation", None, "which explain returns, not of None"),
    ("fidelity", "of", "graphs", "of must be 'edges' or 'nodes'"),
    ("fidelity", "orders", 0, "orders must be at least 1"),
    ("export", "names", "x", r"names must be a list of texts, such as \['x', 'edge_attr'\], not 'x'"),
    ("export", "preprocessing", ["cat"], "preprocessing must be a dictionary, not a list"),
    ("export", "radius", "1", "a radius is a number above 0"),
    ("export", "out", Path(__file__).parent, "out is the file to write"),
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_right_is_taken(name: str) -> None:
    call, given = FUNCTIONS[name]
    call(**given)


@pytest.mark.parametrize(("name", "argument", "value", "message"), MISTAKES)
def test_a_wrong_argument_is_named_with_what_would_be_right(name: str, argument: str, value: Any, message: str) -> None:
    call, given = FUNCTIONS[name]
    with pytest.raises(EdgewiseError, match=message):
        call(**given | {argument: value})


STORED = {"edges": [([0, 1], [1, 0], None)], "nodes": 2}
NODES = {"x": torch.ones(2, 1), "labels": torch.tensor([0, 1])}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"edges": None}, "edges must be a list, of files or of what they would hold, not a NoneType"),
        ({"edges": [0]}, r"edges\[0\] must be a file, or \(senders, receivers, attributes or None\), not an int"),
        ({"edges": [([0.5], [1], None)]}, r"senders of edges\[0\] must hold integers"),
        ({"edges": [([0], [[1]], None)]}, r"receivers of edges\[0\] must have 1 axis"),
        ({"edges": [([0], [1, 0], None)]}, r"edges\[0\] has 1 senders and 2 receivers"),
        ({"edges": [([0], [1], [0.5])]}, r"attributes of edges\[0\] must be numbers \[1, D\], not \[1\]"),
        ({"nodes": -1}, "nodes must be at least 0"),
        ({"nodes": [3]}, r"nodes\[0\] must be a file, or tensors by their names"),
        ({"nodes": [NODES | {"x": [1.0, 1.0]}]}, r"x of nodes\[0\] must be a tensor \[N, C\], not list"),
        ({"nodes": [NODES | {"x": torch.ones(2)}]}, r"x of nodes\[0\] must be \[N, C\] for N nodes, not \[2\]"),
        ({"nodes": [NODES | {"labels": torch.ones(3)}]}, r"labels of nodes\[0\] must be \[N\] for N nodes, not \[3\]"),
    ],
)
def test_a_store_names_the_part_that_is_none(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    build_store(tmp_path / "right", **STORED)
    build_store(tmp_path / "nodes", [([0], [1], np.ones((1, 3)))], [NODES])
    with pytest.raises(EdgewiseError, match=message):
        build_store(tmp_path / "wrong", **STORED | given)
    assert not (tmp_path / "wrong").exists()


def test_a_drawing_is_of_a_recorded_call() -> None:
    with record() as seen:
        attend(RING, Q, Q, Q)
    assert draw_attention(seen[0], ["a", "b", "c"], 0).startswith("a")
    for given, message in (
        ((RING,), "a call that edgewise.record.. has recorded, not a Graph"),
        ((seen[0], 3), "labels must be a list of texts, not an int"),
        ((seen[0], None, "first"), "head must be a whole number"),
    ):
        with pytest.raises(EdgewiseError, match=message):
            draw_attention(*given)


@pytest.mark.parametrize("call", [load_run, read_config, read_metrics, partial(resume, progress=False)])
def test_a_run_is_a_path(call: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(EdgewiseError, match="run must be a path, not None"):
        call(None)
    assert read_metrics(str(tmp_path)) == []
