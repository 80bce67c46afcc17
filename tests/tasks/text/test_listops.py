"""Nested lists: what they come to, how they are drawn, and how a batch lies."""

import random
import statistics

import pytest
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.graphs import complete, window
from edgewise.models import Tokens, Transformer, TransformerSettings
from edgewise.tasks import listops
from edgewise.tasks.text.listops import CLOSE, DIGITS, OPERATORS, TOKENS, expression, value

SMALL = {"shortest": 4, "longest": 40, "examples": 20}


def worked_out(tokens: list[str]) -> int:
    """Independent of the task's own: from the inside out, one innermost list at a time."""
    tokens = list(tokens)
    while len(tokens) > 1:
        close = tokens.index(CLOSE)
        start = max(place for place in range(close) if tokens[place].startswith("["))
        elements = [int(token) for token in tokens[start + 1 : close]]
        result = {
            "[MIN": min(elements),
            "[MAX": max(elements),
            "[MED": int(statistics.median(elements)),
            "[SM": sum(elements) % 10,
        }[tokens[start]]
        tokens[start : close + 1] = [str(result)]
    return int(tokens[0])


def test_values_are_those_of_another_evaluation() -> None:
    choice = random.Random(0)
    for _ in range(300):
        tokens = expression(choice, range(4, 120), depth=6, arguments=6)
        assert value(tokens) == worked_out(tokens)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),  # the paper's example
        ("[MIN 3 3 ]", 3),
        ("[MED 1 2 ]", 1),  # the whole part of 1.5
        ("[MED 9 1 5 ]", 5),
        ("[SM 9 9 9 ]", 7),
        ("[SM [SM 5 5 ] [MAX [MIN 8 6 ] 4 ] ]", 6),
    ],
)
def test_known_values(text: str, expected: int) -> None:
    assert value(text.split()) == expected


@pytest.mark.parametrize(
    "text", ["", "]", "[MAX ]", "[MAX 2", "[MAX 2 ] 3", "[AND 1 2 ]", "12", "[MAX 1 2 ] ]", "__import__"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"is not expected there|are not one whole expression"):
        value(text.split())


def depth_of(tokens: list[str]) -> int:
    depth = deepest = 0
    for token in tokens:
        depth += (token in OPERATORS) - (token == CLOSE)
        deepest = max(deepest, depth)
    return deepest


def test_expressions_keep_to_their_limits_and_reach_them() -> None:
    choice = random.Random(1)
    drawn = [expression(choice, range(10, 61), depth=3, arguments=4) for _ in range(300)]
    assert {len(tokens) for tokens in drawn} <= set(range(10, 61))
    assert max(map(depth_of, drawn)) == 3
    most = []
    for tokens in drawn:
        counts: list[int] = []
        for token in tokens:
            if token == CLOSE:
                most.append(counts.pop())
            if counts and token not in OPERATORS:
                counts[-1] += 1
            if token in OPERATORS:
                counts.append(0)
    assert {min(most), max(most)} == {2, 4}


def test_a_quarter_of_the_elements_are_lists() -> None:
    choice = random.Random(2)
    drawn = [token for _ in range(3000) for token in expression(choice, range(4, 13), depth=2, arguments=10)]
    digits, lists = sum(token in DIGITS for token in drawn), sum(token in OPERATORS for token in drawn)
    assert set(drawn) == set(TOKENS)
    operators = [drawn.count(name) / lists for name in OPERATORS]
    assert all(share == pytest.approx(1 / 4, abs=0.03) for share in operators)
    assert all(drawn.count(digit) / digits == pytest.approx(1 / 10, abs=0.015) for digit in DIGITS)


def test_batches_lie_flat_without_padding() -> None:
    task = listops(**SMALL)
    batches = list(task.batches("test", 8))
    assert [batch.size for batch in batches] == [8, 8, 4]
    for batch in batches:
        sizes = batch.graph.sizes.tolist()
        assert batch.graph.num_edges == sum(size * size for size in sizes)
        texts = [[TOKENS[token] for token in part.tolist()] for part in batch.x.split(sizes)]
        assert [worked_out(tokens) for tokens in texts] == batch.target.tolist()
    near = next(task.batches("valid", 20, lambda n: window(n, 0)))
    assert near.graph.num_edges == near.graph.num_receivers
    assert task.signature == Tokens(len(TOKENS), 10, length=40, whole_graph=True)


def test_every_training_batch_follows_from_its_generator() -> None:
    task = listops(**SMALL)
    one, same, other = (task.train_batch(5, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.x, same.x)
    assert len(one.x) != len(other.x) or not torch.equal(one.x, other.x)
    first, again, another = (listops(**SMALL, seed=seed) for seed in (0, 0, 1))
    kept = [torch.cat([batch.x for batch in part.batches("test", 20)]).tolist() for part in (first, again, another)]
    assert kept[0] == kept[1] != kept[2]
    assert kept[0] != next(first.batches("valid", 20)).x.tolist()
    with pytest.raises(DataError, match="no train split"):
        next(task.batches("train", 2))


def test_an_expression_is_predicted() -> None:
    task = listops(**SMALL)
    settings = TransformerSettings(width=8, depth=1, heads=2, readout="max")
    model = Transformer(settings, task.signature)
    answer = task.predict(model, complete, " [MAX 2 [SM 9 1 ] ] ", "cpu")
    assert answer["right"] == 2
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    with pytest.raises(DataError, match="at most 40"):
        task.predict(model, complete, "[MAX " + 40 * "1 " + "]", "cpu")
    with pytest.raises(DataError, match="not expected"):
        task.predict(model, complete, "[MAX a ]", "cpu")


@pytest.mark.parametrize(
    "wrong",
    [{"shortest": 3}, {"shortest": 50, "longest": 40}, {"depth": 0}, {"arguments": 1}, {"examples": 0}],
)
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="must be at least 4"):
        listops(**(SMALL | wrong))


def test_lengths_that_never_occur_are_refused() -> None:
    with pytest.raises(ConfigError, match="no expression has 400 to 500 tokens"):
        listops(shortest=400, longest=500, depth=1)
