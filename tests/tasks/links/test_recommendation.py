"""Lists of items for users: scores by hand, what they leave out, what training reads, and whom they are told."""

import pytest
import torch

from edgewise.errors import DataError
from edgewise.models import LightGCN, LightGCNSettings
from edgewise.tasks import Choices, Recommendation
from edgewise.tasks.links.recommendation import latest

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
    assert valid == {
        "recall@2": 1.0,
        "ndcg@2": 1.0,
        "mrr@2": 1.0,
    }  # without a and b, c is Ann's first; without b, a is Bob's
    found = task().scored(lambda some: likes[some], "test")
    log = torch.log2(torch.tensor([2.0, 3.0], dtype=torch.float64))
    ann, bob = (1, 1 / log[1]), (1 / 2, (1 / log[0]) / (1 / log[0] + 1 / log[1]))  # Ann: e, d; Bob: e, d, c
    assert found["recall@2"] == pytest.approx((ann[0] + bob[0]) / 2)
    assert found["ndcg@2"] == pytest.approx(float(ann[1] + bob[1]) / 2)
    assert found["mrr@2"] == pytest.approx((1 / 2 + 1) / 2)
    popular = task().popularity()
    assert popular["recall@2"] == pytest.approx((1 + 0) / 2)  # Ann's is d, before e; Bob's d comes before c and e


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
