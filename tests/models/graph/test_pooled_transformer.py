import pytest
import torch

from edgewise import Graph, ShapeError, complete
from edgewise.errors import ExplanationError
from edgewise.layers import min_cut_pool
from edgewise.models import Features, MinCutSettings, Penalised, PooledTransformer, PooledTransformerSettings, Tokens
from edgewise.models.graph import pooled_transformer

PATH = Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]], num_nodes=4)
BATCH = Graph.batch([PATH, complete(3)])
SIGNATURE = Features(5, 2, whole_graph=True)


def model(penalty=1.0, **options):
    return PooledTransformer(
        PooledTransformerSettings(width=8, pooling=MinCutSettings(3, penalty), heads=2, **options), SIGNATURE
    ).double()


@pytest.mark.parametrize("blocks", [0, 2])
def test_members_of_a_batch_are_kept_apart_and_every_weight_learns(blocks):
    one, x = model(blocks=blocks, layer="gin"), torch.randn(7, 5, dtype=torch.float64)
    together = one.eval()(BATCH, x)
    alone = torch.cat([one(PATH, x[:4]), one(complete(3), x[4:])])
    assert torch.allclose(together, alone, atol=1e-12)
    answer = one.train()(BATCH, x)
    (answer.outputs.square().sum() + answer.penalty).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in one.parameters())


def test_in_training_it_answers_with_the_losses_of_its_pooling():
    one, x = model(penalty=0.5), torch.randn(7, 5, dtype=torch.float64)
    plain = one.eval()(BATCH, x)
    answer = one.train()(BATCH, x)
    pooled = min_cut_pool(BATCH, one.gnn(BATCH, x), one.clusters(BATCH, x))
    assert isinstance(plain, torch.Tensor) and isinstance(answer, Penalised)
    assert torch.allclose(answer.outputs, plain)
    expected = 0.5 * sum(pooled.cut + pooled.orthogonality) / 2
    assert answer.penalty.item() == pytest.approx(expected.item())


def test_linked_clusters_attend_along_a_pool():
    """(5.18) with A_g = A_pool + I, written out for each graph of a batch."""
    pooling = MinCutSettings(3, linked=True)
    settings = PooledTransformerSettings(width=8, pooling=pooling, heads=2)
    one = PooledTransformer(settings, SIGNATURE).double().eval()
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    h = one.gnn(BATCH, x)
    pooled, block = min_cut_pool(BATCH, h, one.assign(BATCH, h)), one.blocks[0]
    z = one.norm_1(pooled.x).view(2, 3, 8)
    q, k, v = (block.norm_1(z) @ block.attention.projection.weight.T + block.attention.projection.bias).chunk(3, -1)
    a = pooled.weight.view(2, 3, 3) + torch.eye(3, dtype=torch.float64)
    assert (pooled.weight > 0.05).any()
    read = []
    for head in (slice(0, 4), slice(4, 8)):
        scores = a * (q[..., head] @ k[..., head].mT) / 2
        read.append(scores.softmax(-1) @ v[..., head])
    z = z + block.attention.output(torch.cat(read, -1))
    z = z + block.feed_forward(block.norm_2(z))
    expected = one.head(one.norm_2(z).mean(1))
    found = one(BATCH, x)
    assert torch.allclose(found, expected, atol=1e-10)
    leaves = [x, one.assign.linear.weight, block.attention.projection.weight]
    ours, theirs = (torch.autograd.grad(y.square().sum(), leaves, retain_graph=True) for y in (found, expected))
    assert all(torch.allclose(a, b, atol=1e-9) and b.abs().max() > 0 for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("linked", [False, True])
def test_relevance_is_the_fall_of_the_log_odds_without_a_node_and_its_neighbours(linked):
    one = PooledTransformer(
        PooledTransformerSettings(width=8, pooling=MinCutSettings(3, linked=linked)), SIGNATURE
    ).double()
    x = torch.randn(7, 5, dtype=torch.float64)
    found = one.relevance(BATCH, x, output=1)

    def log_odds(x, graph):
        return one.eval()(BATCH, x)[graph].softmax(-1)[1].logit()

    for node in range(7):
        without = x.clone()
        without[[j for j in range(7) if j == node or BATCH.dense_mask()[j, node]]] = 0
        member = int(node >= 4)
        assert found[node].item() == pytest.approx((log_odds(x, member) - log_odds(without, member)).item(), abs=1e-9)
    with torch.inference_mode():
        assert torch.equal(one.train().relevance(BATCH, x * 1, output=1), found) and one.training


def test_of_a_large_graph_patches_of_nearby_nodes_are_taken_away(monkeypatch):
    """Two centres on a path of ten nodes, and a part that neither reaches."""
    monkeypatch.setattr(pooled_transformer, "PATCHES", 2)
    ends = torch.tensor([[*range(5), *range(6, 9)], [*range(1, 6), *range(7, 10)]])
    path = Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), 10)
    found = model(blocks=1).relevance(path, torch.randn(10, 5, dtype=torch.float64), 0)
    assert len(found[:3].unique()) == 1 and len(found[3:6].unique()) == 1 and len(found.unique()) == 3
    assert len(found[6:].unique()) == 1


def test_relevance_that_cannot_be_is_refused():
    pair, settings = Graph.from_edge_index([[0, 1], [1, 0]], 2), PooledTransformerSettings(width=8)
    model = PooledTransformer(settings, Features(3, 2, whole_graph=True))
    for output in (2, -1):
        with pytest.raises(ExplanationError, match=f"output must be from 0 to 1, not {output}"):
            model.relevance(pair, torch.ones(2, 3), output)
    with pytest.raises(ShapeError, match="real numbers, not int64"):
        model.relevance(pair, torch.ones(2, 3, dtype=torch.int64), 1)
    with pytest.raises(ExplanationError, match="tokens are no numbers"):
        PooledTransformer(settings, Tokens(3, 2, whole_graph=True)).relevance(pair, torch.tensor([1, 2]), 1)
