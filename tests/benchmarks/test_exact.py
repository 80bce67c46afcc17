import pytest
import torch

from benchmarks import exact, inputs
from benchmarks.exact import checked_gradient, errors, solve
from edgewise.graphs import Graph, causal
from edgewise.kernels import Additive, Dot, GatedAdditive, Score, attend

SCORES: list[Score] = [Dot(), Additive(), GatedAdditive(torch.randn(2, 4, generator=torch.Generator().manual_seed(0)))]
GRAPHS = {"sparse": inputs.power_law(40, 200), "isolated": Graph.from_edge_index([[0], [3]], num_nodes=5)}


@pytest.mark.parametrize("score", SCORES, ids=lambda score: type(score).__name__)
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_oracle_agrees_with_the_reference_backend(graph: str, score: Score) -> None:
    case = inputs.attention(GRAPHS[graph], 2, 4, score)
    y = attend(case.graph, case.q, case.k, case.v, score, backend="reference")
    grads = dict(zip(case.leaves, torch.autograd.grad(y, list(case.leaves.values()), case.gradient), strict=True))
    assert max(errors(case, y, grads, solve(case)).values()) < 1e-5


def test_chunks_and_a_batch_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = inputs.attention(causal(6), 2, 4, Dot(), (3,))
    whole = solve(case)
    monkeypatch.setattr(exact, "CHUNK", 4)
    assert all(torch.allclose(found, whole[name]) for name, found in solve(case).items())


def test_on_some_rows_the_gradient_is_that_of_these_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "CHECKED_EDGES", 60)
    case = inputs.product(inputs.power_law(40, 200), 3)
    found = solve(case)
    assert len(found["rows"]) < 40
    assert int(case.graph.in_degrees().argmax()) in found["rows"]
    dense = torch.zeros(40, 40).index_put((case.graph.receivers, case.graph.senders), case.weight, accumulate=True)
    assert torch.allclose(found["x"], (dense.T @ checked_gradient(case)).double(), atol=1e-5)
