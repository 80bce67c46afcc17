import pytest
import torch
from torch.nn import functional

from edgewise.errors import DataError
from edgewise.graphs import links_of
from edgewise.tasks import graph_reconstruction
from edgewise.tasks.graphs.generation import SURE, distance_logit
from edgewise.training import evaluate
from layers.parity import leaf

TASK = graph_reconstruction(train=20, test=10)


def test_the_decoder_is_its_equation():
    z, pairs = leaf(5, 3), torch.tensor([[0, 1, 4], [2, 3, 0]])
    expected = torch.stack([SURE - (z[i] - z[j]).norm() ** 2 for i, j in pairs.T.tolist()])
    found = distance_logit(z, pairs)
    assert torch.allclose(found, expected, atol=1e-12)
    slopes = (torch.autograd.grad(y.square().sum(), z)[0] for y in (found, expected))
    assert torch.allclose(*slopes, atol=1e-10)


def test_pairs_are_all_pairs_of_each_graph_and_targets_are_its_links():
    batch = TASK.train_batch(4, torch.Generator().manual_seed(0))
    pairs, a = batch.pairs, batch.graph.dense_mask()
    sizes = batch.graph.sizes
    assert pairs.shape[1] == int((sizes * (sizes - 1) // 2).sum()) == batch.size
    assert torch.equal(batch.target > 0, a[pairs[0], pairs[1]])
    owner = torch.arange(4).repeat_interleave(sizes)
    assert torch.equal(owner[pairs[0]], owner[pairs[1]])
    assert batch.x.shape == (int(sizes.sum()), 8)
    z = torch.randn_like(batch.x)
    expected = functional.binary_cross_entropy(distance_logit(z, pairs).sigmoid(), a[pairs[0], pairs[1]].float())
    assert torch.allclose(TASK.loss(z, batch), expected, rtol=1e-3)


def test_noise_is_new_in_training_and_stays_in_evaluation():
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(TASK.train_batch(20, generator).x[:12], TASK.train_batch(20, generator).x[:12])
    again = graph_reconstruction(train=20, test=10)
    for one, other in zip(TASK.batches("test", 4), again.batches("test", 4), strict=True):
        assert torch.equal(one.x, other.x)
    whole, parts = (torch.cat([batch.x for batch in TASK.batches("test", size)]) for size in (10, 3))
    assert torch.equal(whole, parts)


class Oracle(torch.nn.Module):
    """Places that hold the graph: rows of the square root of the Laplacian, shifted to part what is not linked."""

    def __init__(self, right: float) -> None:
        super().__init__()
        self.right = torch.nn.Parameter(torch.tensor(right))

    def forward(self, graph, x):
        a = graph.dense_mask().double()
        values, vectors = torch.linalg.eigh(a + 40 * torch.eye(len(a)))  # |z_i - z_j|² = 80 - 2 a_ij
        z = vectors * values.clamp(min=0).sqrt()
        return z * (SURE / 79).__pow__(0.5) * self.right


def test_scores_are_those_of_places_that_hold_the_graph_and_of_places_that_do_not():
    """|z_i - z_j|² is below b exactly where i and j are linked; scaled up nothing is linked, scaled down everything."""
    scores = evaluate(Oracle(1.0), TASK, "test", 4)
    assert (scores["f1"], scores["accuracy"]) == (1.0, 1.0)
    nothing, everything = (evaluate(Oracle(right), TASK, "test", 4) for right in (3.0, 0.1))
    share = sum(links_of(graph).shape[1] for graph in TASK.splits["test"]) / sum(
        graph.num_receivers * (graph.num_receivers - 1) // 2 for graph in TASK.splits["test"]
    )
    assert (nothing["f1"], nothing["accuracy"]) == (0, pytest.approx(1 - share))
    assert (everything["f1"], everything["accuracy"]) == (pytest.approx(2 * share / (1 + share)), pytest.approx(share))


def test_a_prediction_tells_links_from_places():
    answer = TASK.predict(Oracle(1.0), None, "test:3", "cpu")
    assert answer["links"] == answer["predicted"] == links_of(TASK.splits["test"][3]).T.tolist()
    for request in ("test:10", "3", "other:1"):
        with pytest.raises(DataError, match=r"no example of|has 10 graphs in test"):
            TASK.predict(Oracle(1.0), None, request, "cpu")
