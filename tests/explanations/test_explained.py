"""The function that is explained: its gates, its target, and how edges of other graphs are matched."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from edgewise import Dot, ExplanationError, Graph, aggregate, attend, causal, complete, explain
from edgewise.explanations import Explained
from edgewise.explanations.explained import matched
from edgewise.layers import GAT, GCN, SparseFeatures

GRAPH = Graph.from_edge_index([[0, 1, 2, 0], [1, 2, 0, 2]], num_nodes=3)


class Embedded(nn.Module):
    """Two embeddings of two halves of the tokens, as an encoder-decoder has one of both."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        first, second = x.split([1, 2], -1)
        return aggregate(graph, torch.cat([self.embed(first), self.embed(second)], -2))


@pytest.mark.parametrize("x", [torch.tensor([3, 3, 1]), torch.tensor([[3, 3, 1], [0, 2, 4]])], ids=["one", "batch"])
def test_a_gate_of_a_token_scales_what_is_embedded_of_it_alone(x: torch.Tensor) -> None:
    model = Embedded()
    explained = Explained(model, (complete(3), x), lambda y: y.sum())
    g = torch.tensor([0.5, 0.0, 2.0])
    torch.testing.assert_close(explained(g), 3 * (g[:, None] * model.embed(x)).sum())
    torch.testing.assert_close(explained(), 3 * model.embed(x).sum())
    apart = Explained(model, (complete(3), torch.stack([x, x], -1)[..., 0]), lambda y: y.sum())  # not contiguous
    torch.testing.assert_close(apart(g), explained(g))


class Given(nn.Module):
    """An embedding of what a function makes of the tokens."""

    def __init__(self, read: Callable[[nn.Embedding, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.embed, self.read = nn.Embedding(6, 4), read

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return aggregate(graph, self.read(self.embed, x))


@pytest.mark.parametrize(
    "read",
    [
        lambda embed, x: embed(x + 1),
        lambda embed, x: functional.embedding(x, embed.weight),
    ],
)
@pytest.mark.parametrize("method", ["gradient", "integrated-gradients", "leave-one-out", "learned-mask"])
def test_tokens_that_no_embedding_reads_as_they_are_have_no_scores(read: Any, method: str) -> None:
    model, x = Given(read), torch.tensor([3, 0, 1])
    with pytest.raises(ExplanationError, match=r"no nn\.Embedding of Given reads the tokens as they are given"):
        explain(model, GRAPH, x, (0, 1), method)
    assert explain(model, GRAPH, x, (0, 1), method, baseline=None).edges is not None


def test_an_embedding_may_take_its_tokens_by_name() -> None:
    model, x = Given(lambda embed, x: embed(input=x)), torch.tensor([3, 0, 1])
    scores = explain(model, complete(3), x, (0, 1), "leave-one-out").nodes
    torch.testing.assert_close(scores, model.embed(x)[:, 1].detach())


def test_features_are_gated_towards_their_baseline() -> None:
    layer, x = GCN(2, 1), torch.randn(3, 2)
    explained = Explained(layer, (GRAPH, x), lambda y: y.sum(), baseline=1.0)
    g = torch.tensor([0.5, 0.0, 1.0])
    torch.testing.assert_close(explained(g), layer(GRAPH, 1 + g[:, None] * (x - 1)).sum())


def test_of_a_tuple_of_outputs_a_function_makes_the_number() -> None:
    class Pair(GCN):
        def forward(self, graph: Graph, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
            return super().forward(graph, x), x

    layer, x = Pair(2, 1), torch.randn(3, 2)
    explained = Explained(layer, (GRAPH, x), lambda outputs: outputs[0][1, 0] + outputs[1].sum())
    assert explained.value == pytest.approx((layer(GRAPH, x)[0][1, 0] + x.sum()).item()) and explained.node is None
    with pytest.raises(ExplanationError, match=r"returns .*tuple.*: give a function of it as the target"):
        Explained(layer, (GRAPH, x), (1, 0))


@pytest.mark.parametrize("baseline", [0, 1.0, torch.tensor([0.2, 0.0, 0.5])], ids=["zero", "one", "mean"])
def test_sparse_features_become_the_baseline_as_the_dense_ones(baseline: float | torch.Tensor) -> None:
    layer = GCN(3, 2)
    words = SparseFeatures(Graph.from_csr(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 2, 1]), 3), torch.ones(3))
    g = torch.tensor([0.5, 0.0, 2.0])
    sparse, dense = (Explained(layer, (GRAPH, x), (0, 1), baseline=baseline) for x in (words, words.to_dense()))
    torch.testing.assert_close(sparse(g), dense(g))


def test_words_of_sparse_features_are_no_edges_where_there_are_as_many_as_nodes() -> None:
    graph = Graph.from_edge_index([[0, 1, 2, 1], [1, 2, 0, 0]], 3)
    words = SparseFeatures(Graph.from_csr(torch.tensor([0, 2, 3, 4]), torch.tensor([1, 2, 0, 1]), 3), torch.rand(4))
    model = GCN(3, 1)
    sparse, dense = (Explained(model, (graph, x), (0, 0)) for x in (words, words.to_dense()))
    for m in torch.eye(graph.num_edges):
        torch.testing.assert_close(sparse(None, m), dense(None, m))


def test_edges_of_a_graph_that_a_layer_makes_share_the_gates_of_the_same_edges() -> None:
    assert matched(GRAPH.add_self_loops(), GRAPH).tolist() == [4, 0, 1, 4, 2, 3, 4]
    assert matched(GRAPH.transpose()[0], GRAPH).tolist() == [4, 0, 4, 2]  # only 0 and 2 are linked both ways
    assert matched(causal(3), complete(3)).tolist() == [0, 3, 4, 6, 7, 8]
    assert matched(complete(4), complete(3), 1).tolist() == [9, 9, 9, 9, 9, 0, 1, 2, 9, 3, 4, 5, 9, 6, 7, 8]


def test_parallel_edges_are_matched_in_turn() -> None:
    twice = Graph.from_edge_index([[0, 0, 1], [1, 1, 0]], num_nodes=2)
    assert matched(twice.add_self_loops(), twice).tolist() == [3, 0, 1, 2, 3]
    assert matched(twice, Graph.from_edge_index([[0], [1]], num_nodes=2)).tolist() == [1, 0, 1]
    nothing = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=2)
    assert matched(twice, nothing).tolist() == [0, 0, 0]


def test_an_index_of_a_row_takes_its_largest_number() -> None:
    layer, x = GCN(2, 3), torch.randn(3, 2)
    y = layer(GRAPH, x)
    explained = Explained(layer, (GRAPH, x), (1,))
    assert explained.value == pytest.approx(y[1].max().item())
    assert explained.node == 1
    assert Explained(layer, (GRAPH, x), 1).value == explained.value


@pytest.mark.parametrize(
    ("target", "message"),
    [((3, 0), "no index of outputs"), (lambda y: y, "one finite number"), (lambda y: y[0, 0] / 0, "one finite number")],
)
def test_a_target_that_is_no_number_is_refused(target: object, message: str) -> None:
    with pytest.raises(ExplanationError, match=message):
        Explained(GCN(2, 3), (GRAPH, torch.ones(3, 2)), target)  # type: ignore[arg-type]


def test_hops_count_the_calls_on_the_edges() -> None:
    class Two(nn.Module):
        def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
            h = attend(graph, x[:, None], x[:, None], x[:, None], Dot())[:, 0]
            return aggregate(graph.membership(), aggregate(graph, h))

    explained = Explained(Two(), (GRAPH, torch.randn(3, 2)), (0, 0))
    assert explained.hops == 2
    assert explained.node is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node": 99}, "there is no node 99: the graph has 2"),
        ({"node": -1}, "there is no node -1"),
        ({"baseline": torch.zeros(2)}, r"a baseline \[2\] does not broadcast to features \[2, 3\]"),
        ({"baseline": torch.zeros(1, 2, 3)}, "does not broadcast"),
        ({"method": "attention", "layer": "0"}, "layer must be a whole number"),
        ({"method": "attention", "head": 0.0}, "head must be a whole number"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], message: str) -> None:
    pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
    with pytest.raises(ExplanationError, match=message):
        explain(GAT(3, 2), pair, torch.randn(2, 3), (1, 0), **options)  # type: ignore[arg-type]
