"""Layer-wise importance sampling: unbiased, and its variance is the formula's."""

import pytest
import torch

from edgewise.errors import GraphError, ShapeError
from edgewise.graphs import Graph, importance, sample_layers

DRAWS = 300


def skewed() -> tuple[Graph, torch.Tensor, torch.Tensor]:
    """Twelve nodes of which the first are heard by most, with weights and features at random."""
    generator = torch.Generator().manual_seed(0)
    senders = (12 * torch.rand(60, generator=generator) ** 3).long()
    graph = Graph.from_edge_index(torch.stack([senders, torch.randint(12, (60,), generator=generator)]), 12).coalesce()
    weight = torch.rand(graph.num_edges, generator=generator, dtype=torch.float64) + 0.1
    return graph, weight, torch.randn(12, 3, generator=generator, dtype=torch.float64)


def estimates(graph: Graph, weight: torch.Tensor, x: torch.Tensor, chance: torch.Tensor, size: int) -> torch.Tensor:
    """[draws, seeds, channels]."""
    generator, seeds, drawn = torch.Generator().manual_seed(1), [3, 0, 7], []
    for _ in range(DRAWS):
        sample = sample_layers(graph, weight, chance, seeds, [size], generator)
        dense = torch.zeros(3, len(sample.nodes), dtype=torch.float64)
        hop = sample.graphs[0]
        dense[hop.receivers, hop.senders] = sample.weights[0]
        drawn.append(dense @ x[sample.nodes])
    return torch.stack(drawn)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_estimate_is_unbiased_and_has_the_variance_of_its_formula(power: float) -> None:
    """E = Σ_u Â(v,u) x_u;  Var = 1/t (Σ_u Â(v,u)² x_u² / q(u) - (Σ_u Â(v,u) x_u)²)."""
    graph, weight, x = skewed()
    size, chance = 5, importance(graph, weight, power)
    found = estimates(graph, weight, x, chance, size)
    A = torch.zeros(12, 12, dtype=torch.float64)
    A[graph.receivers, graph.senders] = weight
    A = A[[3, 0, 7]]
    expected = A @ x
    q = torch.where(chance > 0, chance, 1)
    variance = ((A.square() / q) @ x.square() - expected.square()) / size
    error = (found.mean(0) - expected).abs()
    assert (error <= 4 * (variance / DRAWS).sqrt() + 1e-12).all()  # nine of them: 4 standard errors
    assert torch.allclose(found.var(0), variance, rtol=0.4, atol=1e-9)


def test_the_generator_decides_and_nodes_without_chance_are_never_drawn() -> None:
    graph, weight, _ = skewed()
    chance = importance(graph, weight)
    first, again = (sample_layers(graph, weight, chance, [0], [6], torch.Generator().manual_seed(2)) for _ in range(2))
    assert torch.equal(first.nodes, again.nodes) and torch.equal(first.weights[0], again.weights[0])
    only = torch.zeros(12, dtype=torch.float64)
    only[[0, 4]] = 1
    assert set(sample_layers(graph, weight, only, [0], [200]).nodes.tolist()) == {0, 4}


def test_whole_numbers_as_weights_are_not_cut_off() -> None:
    graph, _, _ = skewed()
    weight = torch.arange(graph.num_edges) % 4 + 1
    whole, real = (
        sample_layers(graph, w, importance(graph, weight), [3, 0], [5], torch.Generator().manual_seed(1))
        for w in (weight, weight.float())
    )
    assert torch.equal(whole.weights[0], real.weights[0]) and whole.weights[0].dtype == torch.float32


def test_what_cannot_be_sampled_is_refused() -> None:
    graph, weight, _ = skewed()
    chance = importance(graph, weight)
    with pytest.raises(GraphError, match="no sender can be drawn"):
        importance(graph, 0 * weight)
    with pytest.raises(GraphError, match="no sender can be drawn"):
        importance(graph, weight / 0)
    for wrong in (torch.nan, torch.inf):
        with pytest.raises(GraphError, match="no sender can be drawn"):
            importance(graph, torch.where(graph.senders == 3, wrong, weight), 0)
    empty = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 0)
    with pytest.raises(GraphError, match="chance must hold numbers"):
        sample_layers(empty, torch.ones(0), torch.ones(0), [], [2])
    with pytest.raises(ShapeError, match="one for each edge"):
        importance(graph, weight[1:])
    with pytest.raises(ShapeError, match=r"must have shape \[1[0-9]\], one for each"):
        sample_layers(graph, weight, chance[1:], [0], [3])
    with pytest.raises(GraphError, match="chance"):
        sample_layers(graph, weight, -chance, [0], [3])
    with pytest.raises(GraphError, match="seed"):
        sample_layers(graph, weight, chance, [12], [3])
    with pytest.raises(GraphError, match=r"sizes\[0\]"):
        sample_layers(graph, weight, chance, [0], [0])
    with pytest.raises(GraphError, match="same nodes"):
        sample_layers(Graph.from_edge_index([[0], [0]], 2, 1), torch.ones(1), torch.ones(2), [0], [1])
