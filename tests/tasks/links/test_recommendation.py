"""Lists of items for users: scores by hand, what they leave out, what training reads, and whom they are told."""

import pytest
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.models import GNN, GNNSettings, LightGCN, LightGCNSettings
from edgewise.tasks import Choices, Recommendation
from edgewise.tasks.links.recommendation import latest, ranking

PAIRS = {
    "train": torch.tensor([[0, 0], [0, 1], [1, 1], [2, 3]]),
    "valid": torch.tensor([[0, 2], [1, 0]]),
    "test": torch.tensor([[0, 3], [1, 2], [1, 4]]),
}
CHOICES = Choices(("ann", "bob", "eve"), tuple("abcde"), PAIRS)


def task(k: int = 2) -> Recommendation:
    return Recommendation("films", CHOICES, 4, k)


def test_lists_leave_out_what_was_chosen_before_and_scores_are_those_by_hand() -> None:
    likes = torch.tensor([[9.0, 8, 7, 2, 3], [5, 9, 1, 2, 4], [0, 0, 0, 0, 0]]).double()
    valid = task().scored(lambda some: likes[some], "valid")
    assert valid == {"recall@2": 1.0, "ndcg@2": 1.0}  # without a and b, c is Ann's first; without b, a is Bob's
    found = task().scored(lambda some: likes[some], "test")
    log = torch.log2(torch.tensor([2.0, 3.0], dtype=torch.float64))
    ann, bob = (1, 1 / log[1]), (1 / 2, (1 / log[0]) / (1 / log[0] + 1 / log[1]))  # Ann: e, d; Bob: e, d, c
    assert found["recall@2"] == pytest.approx((ann[0] + bob[0]) / 2)
    assert found["ndcg@2"] == pytest.approx(float(ann[1] + bob[1]) / 2)
    popular = task().popularity()
    assert popular["recall@2"] == pytest.approx((1 + 0) / 2)  # Ann's is d, before e; Bob's d comes before c and e


def test_equal_scores_count_as_the_last_of_them() -> None:
    assert task(1).scored(lambda some: torch.zeros(len(some), 5).double(), "test")["recall@1"] == 0
    sums = ranking(torch.tensor([1, 2, 9]), torch.tensor([0, 0, 1]), 2, 5)
    assert sums["recall@5"].item() == 1.0 and sums["ndcg@5"].item() == pytest.approx(1.0)


def test_some_users_at_a_time_give_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    likes = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = task().scored(lambda some: likes[some])
    monkeypatch.setattr("edgewise.tasks.links.recommendation.SCORES", 5)
    assert task().scored(lambda some: likes[some]) == whole


def test_the_graph_has_training_choices_alone_in_both_directions() -> None:
    one = task()
    edges = set(map(tuple, one.graph().edge_index().T.tolist()))
    pairs = {(user, 3 + item) for user, item in PAIRS["train"].tolist()}
    assert edges == pairs | {(b, a) for a, b in pairs}
    assert one.describe() and one.x.shape == (8, 8)


def test_the_loss_is_the_mean_margin_of_choices_over_drawn_items() -> None:
    one = task()
    z = torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    batch = one.train_batch(3, torch.Generator().manual_seed(2))
    right = [
        -torch.nn.functional.logsigmoid(z[user] @ (z[3 + item] - z[3 + other]))
        for user, item, other in zip(batch.users, batch.target, batch.drawn[:, 0], strict=True)
    ]
    assert one.loss(z, batch).item() == pytest.approx(torch.stack(right).mean().item())
    assert batch.size == 3 and len(one.train_batch(99, torch.Generator()).target) == 4


@pytest.mark.parametrize("model", ["light", "sage"])
def test_models_learn_and_predict_items_that_the_user_did_not_choose(model: str) -> None:
    one = task()
    torch.manual_seed(0)
    made = LightGCN(LightGCNSettings(1), one.signature) if model == "light" else None
    made = made or GNN(GNNSettings("sage-mean", width=8, dropout=0.0), one.signature)
    optimizer = torch.optim.Adam(made.parameters(), 0.05)
    losses = []
    for seed in range(30):
        batch = one.train_batch(9, torch.Generator().manual_seed(seed))
        loss = one.loss(made(*batch.inputs), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < sum(losses[:5])
    found = one.predict(made, None, "ann", "cpu")
    assert found["user"] == "ann" and [item["item"] for item in found["items"]] == ["e"]
    with pytest.raises(DataError, match="no user 'zoe' in films: give one, such as 'ann'"):
        one.predict(made, None, "zoe", "cpu")


def test_what_is_explained_is_the_score_of_the_first_item_for_the_user_who_is_named() -> None:
    model = LightGCN(LightGCNSettings(1), task().signature)
    for user in ("ann", "bob"):
        explained, shown, what = task().subject(model, None, user).explained(model)
        first = task().predict(model, None, user, "cpu")["items"][0]
        assert what == f"the score of {first['item']} for {user}"
        assert shown(explained.outputs()).item() == pytest.approx(first["score"])
    everything = Choices(("ann",), ("a", "b", "c"), {split: torch.tensor([[0, n]]) for n, split in enumerate(PAIRS)})
    one = Recommendation("films", everything, 4)
    with pytest.raises(DataError, match="'ann' chose every item of films: there is none to explain"):
        one.subject(LightGCN(LightGCNSettings(1), one.signature), None, "ann")


def test_the_latest_choices_are_held_out() -> None:
    user = torch.arange(3).repeat_interleave(torch.tensor([20, 3, 2]))
    time = torch.rand(25, generator=torch.Generator().manual_seed(0))
    parts = latest(user, time, torch.Generator().manual_seed(0))
    assert torch.cat(list(parts.values())).sort().values.tolist() == list(range(25))
    assert {split: torch.bincount(user[rows], minlength=3).tolist() for split, rows in parts.items()} == {
        "train": [16, 1, 2],
        "valid": [2, 1, 0],
        "test": [2, 1, 0],
    }
    for who in (0, 1):
        before, between, last = (time[rows[user[rows] == who]] for rows in parts.values())
        assert before.max() < between.min() and between.max() < last.min()


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ConfigError, match=r"task.width, k and negatives must be at least 1"):
        Recommendation("films", CHOICES, 0)
    with pytest.raises(DataError, match="films has no choices in test"):
        Recommendation("films", Choices((), (), PAIRS | {"test": torch.zeros(0, 2).long()}), 4)
    with pytest.raises(ConfigError, match="the choices are the graph: choose graph given"):
        task().graph(lambda count: None)
