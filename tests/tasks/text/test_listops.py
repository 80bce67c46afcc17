"""Nested lists: what they come to, how they are drawn, and how a batch lies."""

import random
import statistics

import pytest

from edgewise.errors import DataError
from edgewise.graphs import complete, window
from edgewise.models import Tokens, Transformer, TransformerSettings
from edgewise.tasks import listops
from edgewise.tasks.text.listops import CLOSE, OPERATORS, TOKENS, expression, value

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
