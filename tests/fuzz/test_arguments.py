"""Mistakes in Python, and the errors that name what would be right."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from edgewise import Dot, Graph, aggregate, attend, causal, collect, ends, explain, export, load, plan, sample_neighbors
from edgewise.errors import EdgewiseError, GraphError, ShapeError
from edgewise.graphs import cut_links, importance, sample_non_links
from edgewise.layers import GCN, LAYERS

GRAPH, X, Q = causal(4), torch.randn(4, 3), torch.randn(4, 2, 3)
EDGES = torch.tensor([[0, 1, 2], [1, 2, 3]])


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: attend(Q, GRAPH, Q, Q), "not Tensor: the graph comes first, then the tensors"),
        (lambda: attend(EDGES, Q, Q, Q), r"not Tensor \[2, 3\]: Graph.from_edge_index\(edge_index, num_nodes\)"),
        (lambda: attend(torch.ones(4, 4, dtype=torch.bool), Q, Q, Q), r"Graph.from_mask\(mask\)"),
        (lambda: attend("causal", Q, Q, Q), r"not str: .* as edgewise.causal\(n\)"),
        (lambda: attend(None, Q, Q, Q), "not NoneType"),
        (lambda: plan(None), "not NoneType"),
        (lambda: attend(GRAPH.to("meta"), Q, Q, Q), "a graph on meta has no edges"),
        (lambda: aggregate(GRAPH.to("meta"), X.to("meta")), "a graph on meta has no edges"),
        (lambda: attend(SimpleNamespace(edge_index=EDGES), Q, Q, Q), r"Graph.from_pyg\(data\)"),
        (lambda: aggregate(X, GRAPH), "the graph comes first"),
        (lambda: aggregate(EDGES, X), "Graph.from_edge_index"),
        (lambda: collect(X, GRAPH), "the graph comes first"),
        (lambda: collect(EDGES, X), "Graph.from_edge_index"),
        (lambda: ends(X, GRAPH), "the graph comes first"),
        (lambda: sample_neighbors(EDGES, [0], [2]), "Graph.from_edge_index"),
        (lambda: sample_non_links(None, 2), "not NoneType"),
        (lambda: cut_links("causal", 0.1, 0.1), "not str"),
        (lambda: importance(X, GRAPH), "the graph comes first"),
    ],
)
def test_something_else_in_the_place_of_a_graph(call: Any, what: str) -> None:
    with pytest.raises(GraphError, match=what):
        call()


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: Graph.batch(GRAPH), r"a list of graphs, not one: Graph.batch\(\[graph\]\)"),
        (lambda: Graph.batch(3), "a batch takes a list of graphs, not an int"),
        (lambda: Graph.from_graph6(3), "a graph in graph6 is a line of text, not an int"),
        (lambda: Graph.open(None), "a store must be a path, not None"),
        (lambda: GRAPH.to("nowhere"), "a graph moves to a device, such as 'cpu' or 'cuda:0', not to 'nowhere'"),
        (lambda: GRAPH.to(torch.float64), "a graph moves to a device.*not to torch.float64"),
        (lambda: GRAPH.to_scipy([1.0] * 10), r"weight must be a tensor \[10\], one for each edge, not a list"),
        (lambda: sample_neighbors(GRAPH, [0], [2], generator=7), r"torch.Generator\(\).manual_seed\(7\) makes one"),
        (lambda: attend(GRAPH, Q, Q, Q, dropout=[0.1]), r"dropout is a probability in \[0, 1\), not \[0.1\]"),
        (lambda: aggregate(GRAPH, X, reduce=X), "unknown reduction"),
        (lambda: aggregate(GRAPH, X, X.numpy()), r"weight must be a tensor \[E\]"),
        (lambda: aggregate(GRAPH, X, backend=["segment"]), "there is no backend"),
        (lambda: explain(None, GRAPH, X, 0), "what is explained is a torch.nn.Module, not a NoneType"),
        (lambda: explain(GCN(3, 2), X, GRAPH, 0), "the graph comes first"),
        (
            lambda: explain(GCN(3, 2), GRAPH, X.tolist(), 0),
            r"x is a tensor of features \[\*, N, C\] or of tokens \[\*, N\], not a list",
        ),
        (lambda: explain(GCN(3, 2), GRAPH, X, "a"), r"the target is an index of the outputs.*not 'a'"),
        (lambda: export(X, (GRAPH, X)), "what is exported is a torch.nn.Module, not Tensor"),
        (lambda: export(GCN(3, 2), ()), "the example begins with a tuple, not with the graph"),
        (lambda: export(GCN(3, 2), (GRAPH, X), ["onnx"]), "there is no format"),
        (lambda: load(None), "run must be a path, not None"),
    ],
)
def test_something_else_in_the_place_of_an_argument(call: Any, what: str) -> None:
    with pytest.raises(EdgewiseError, match=what):
        call()


@pytest.mark.parametrize(
    ("score", "what"),
    [
        ("dot", r"not 'dot': write Dot\(...\), from edgewise import Dot"),
        ("gated_additive", r"write GatedAdditive\(...\)"),
        ("softmax", r"write Dot\(...\)"),
        (Dot, r"not <class .*Dot'>: write Dot\(...\)"),
        (torch.zeros(4, 4), r"a tensor \[4, 4\].*Dot\(\) \+ EdgeBias"),
        (torch.ones(4, 4, dtype=torch.bool), "Graph.from_mask"),
        (lambda q, k: q @ k, "must be a record"),
    ],
)
def test_something_else_in_the_place_of_a_score(score: Any, what: str) -> None:
    with pytest.raises(ShapeError, match=what):
        attend(GRAPH, Q, Q, Q, score)


def test_a_graph_is_no_tensor_and_says_so() -> None:
    assert not hasattr(GRAPH, "shape")
    assert getattr(GRAPH, "dtype", None) is None
    with pytest.raises(GraphError, match="the graph comes first"):
        GRAPH.shape  # noqa: B018


READERS = ["GCN", "GAT", "GIN", "MultiHeadAttention", "FirstReadout", "PPGN"]


@pytest.mark.parametrize("name", READERS)
def test_features_of_another_shape_or_kind(name: str) -> None:
    layer, graph, (x, *more) = LAYERS[name].example()
    wrong = {
        r"features are \[.*; this linear map reads \[\.\.\., \d+\]": x[..., :-1],
        r"float64 and this layer's weights float32": x.double(),
        r"must be a tensor \[\*, N, C\], not a list": x.tolist(),
        r"must be a tensor \[\*, N, C\], not a NoneType": None,
        "the graph comes first": graph,
    }
    for what, given in wrong.items():
        with pytest.raises(ShapeError, match=what):
            layer(graph, given, *more)
