"""Link prediction: loss, scores and answers, against other implementations."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.errors import DataError
from edgewise.graphs import cut_links, window
from edgewise.layers import GCN
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import LinkPrediction, citation_links
from edgewise.tasks.core.task import Parts
from edgewise.tasks.links.prediction import ranking_scores

NODES = 40


def task(variational: bool, width: int = 3) -> LinkPrediction:
    cut = cut_links(window(NODES, 2), 0.1, 0.2, torch.Generator().manual_seed(0))
    x = torch.randn(NODES, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return LinkPrediction("band", cut, x, width, variational)


class Given(nn.Module):
    """A model whose outputs are known."""

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, graph: object, x: object) -> Tensor:
        return self.outputs


def test_the_loss_of_an_auto_encoder_is_its_equation() -> None:
    links = task(variational=False)
    batch = links.train_batch(1000, torch.Generator().manual_seed(0))
    z = torch.randn(NODES, 3, dtype=torch.float64, requires_grad=True)
    A = torch.sigmoid(z @ z.T)
    rows, columns = batch.pairs
    chance = A[rows, columns]
    linked = batch.target > 0
    expected = -(chance[linked].log().mean() + (1 - chance[~linked]).log().mean()) / 2
    found = links.loss(z, batch)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(*torch.autograd.grad(found, z), *torch.autograd.grad(expected, z), rtol=1e-9, atol=1e-12)


def test_the_variational_loss_is_that_of_torch_distributions() -> None:
    links = task(variational=True)
    batch = links.train_batch(1000, torch.Generator().manual_seed(0))
    outputs = torch.randn(NODES, 6, dtype=torch.float64, requires_grad=True)
    mean, log_deviation = outputs[:, :3], outputs[:, 3:]
    torch.manual_seed(3)
    found = links.loss(outputs, batch)
    torch.manual_seed(3)
    z = mean + log_deviation.exp() * torch.randn(NODES, 3, dtype=torch.float64)
    posterior = torch.distributions.Normal(mean, log_deviation.exp())
    apart = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum()
    logits = (z @ z.T)[batch.pairs[0], batch.pairs[1]]
    expected = functional.binary_cross_entropy_with_logits(logits, batch.target.double()) + apart / NODES**2
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    ours, theirs = torch.autograd.grad(found, outputs), torch.autograd.grad(expected, outputs)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_scores_are_those_of_scikit_learn_and_of_their_definitions(ties: bool) -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    links, none = torch.randn(37).double() + 1, torch.randn(53).double()
    if ties:
        links, none = links.round(), none.round()
    scores = ranking_scores(links, none, k=10)
    together, target = torch.cat([links, none]), torch.cat([torch.ones(37), torch.zeros(53)])
    assert scores["auc"].item() == pytest.approx(roc_auc_score(target, together), rel=1e-12)
    assert scores["ap"].item() == pytest.approx(average_precision_score(target, together), rel=1e-12)
    ranks = [1 + sum(other >= own for other in none.tolist()) for own in links.tolist()]
    assert scores["mrr"].item() == pytest.approx(sum(1 / rank for rank in ranks) / 37)
    assert scores["hits@10"].item() == pytest.approx(sum(rank <= 10 for rank in ranks) / 37)


def test_training_pairs_are_drawn_anew_and_held_out_ones_are_not_spared() -> None:
    links = task(variational=True)
    train = set(map(tuple, links.cut.train.T.tolist()))
    held = set(map(tuple, torch.cat([links.cut.valid, links.cut.test], 1).T.tolist()))
    drawn: set[tuple[int, int]] = set()
    for seed in range(40):
        batch = links.train_batch(1000, torch.Generator().manual_seed(seed))
        linked = batch.target > 0
        assert set(map(tuple, batch.pairs[:, linked].T.tolist())) == train
        none = set(map(tuple, batch.pairs[:, ~linked].T.tolist()))
        assert len(none) == len(train)
        assert not none & train
        drawn |= none
    assert held & drawn
    again = links.train_batch(1000, torch.Generator().manual_seed(39))
    assert torch.equal(batch.pairs, again.pairs)
    assert links.train_batch(8, torch.Generator()).size == 16


def test_nothing_held_out_reaches_the_embeddings() -> None:
    """The embedding of i has no gradient to the features of a node to which only a held-out link leads."""
    links = task(variational=False)
    model = GCN(5, 3).double()
    x = links.x.clone().requires_grad_()
    z = model(links.graph(), x)
    for i, j in links.cut.test.T.tolist():
        (to_x,) = torch.autograd.grad(z[i].sum(), x, retain_graph=True)
        assert to_x[j].abs().sum() == 0


def test_predict_one_pair_and_the_likeliest_new_links() -> None:
    links = task(variational=False, width=1)
    model = Given(torch.linspace(0, 3, NODES, dtype=torch.float64)[:, None])
    i, j = links.cut.train[:, 0].tolist()
    answer = links.predict(model, None, f"{i}, {j}", "cpu")
    assert answer["training link"]
    assert answer["probability"] == pytest.approx(1 / (1 + 2.718281828459045 ** -(i * j * 9 / 39**2)))
    told = links.predict(model, None, "39", "cpu")["links"]
    known = {a if b == 39 else b for a, b in links.cut.train.T.tolist() if 39 in (a, b)}
    assert [link["node"] for link in told] == [n for n in range(38, -1, -1) if n not in known][:10]
    for wrong in ("40", "-1", "1,2,3", "x", "", "1,"):
        with pytest.raises(DataError, match="one or two numbers 0 to 39"):
            links.predict(model, None, wrong, "cpu")


def test_cora_has_the_shares_of_the_paper(data) -> None:
    data("planetoid")
    links = citation_links(fold=1)
    assert (links.cut.valid.shape[1], links.cut.test.shape[1]) == (263, 527)
    assert links.cut.train.shape[1] == 5278 - 263 - 527
    assert links.graph().num_edges == 2 * links.cut.train.shape[1]
    assert links.signature.outputs == 32
    assert not torch.equal(links.cut.test, citation_links(fold=2).cut.test)


def sampled(fanouts: tuple[int, ...], variational: bool = False) -> LinkPrediction:
    whole = task(variational)
    return LinkPrediction("band", whole.cut, whole.x, 3, variational, fanouts)


@pytest.mark.parametrize("variational", [False, True])
def test_links_with_all_neighbours_have_the_loss_of_the_whole_graph(variational: bool) -> None:
    links, whole = sampled((-1, -1), variational), task(variational)
    model = GNN(GNNSettings("sage-mean", 4, 2, dropout=0.0), links.signature).double()
    seed = torch.Generator().manual_seed
    mine, theirs = (one.train_batch(7, seed(2)) for one in (links, whole))
    outputs, expected = model(*mine.inputs), model(*theirs.inputs)
    seeds = mine.graph.nodes[: len(outputs)]
    torch.testing.assert_close(outputs, expected[seeds])
    assert seeds[mine.pairs].equal(theirs.pairs) and mine.target.equal(theirs.target)
    if not variational:
        torch.testing.assert_close(links.loss(outputs, mine), whole.loss(expected, theirs))


def test_parts_of_sampled_links_are_the_whole_batch() -> None:
    links = sampled((2, 2))
    model = GNN(GNNSettings("sage-mean", 4, 2, dropout=0.0), links.signature).double()
    count, (whole,) = links.train_parts(9, torch.Generator().manual_seed(5), None, Parts(1, range(1)))
    assert links.train_parts(9, torch.Generator().manual_seed(5), None, Parts(3, range(3)))[0] == count == 18
    total = torch.zeros((), dtype=torch.float64)
    for rank in range(3):
        _, (part,) = links.train_parts(9, torch.Generator().manual_seed(5), None, Parts(3, range(rank, rank + 1)))
        assert len(part.graph.nodes) < len(whole.graph.nodes)
        total = total + links.loss(model(*part.inputs), part) * part.size / count
    torch.testing.assert_close(total, links.loss(model(*whole.inputs), whole))
    assert len(sampled((2, 2), True).train_parts(9, torch.Generator(), None, Parts(3, range(3)))[1]) == 3
