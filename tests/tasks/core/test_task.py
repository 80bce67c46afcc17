"""Batches and pattern choices."""

import inspect
from functools import partial

import docstring_parser
import pytest
import torch
from scipy.sparse import eye
from torch.nn import functional

from edgewise.errors import ConfigError, GraphError, ShapeError
from edgewise.graphs import PATTERNS, complete, grid, window
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.tasks import TASKS
from edgewise.tasks.core.classification import mean_cross_entropy
from edgewise.tasks.core.task import Batch, PatternChoice, given, lay


def examples(count: int) -> Batch:
    return Batch(complete(3), torch.randn(count, 3, 4), torch.arange(count) % 2)


@pytest.mark.parametrize(("count", "parts"), [(6, 2), (7, 3), (4, 4), (5, 1)])
def test_split_gives_every_example_once(count: int, parts: int) -> None:
    batch = examples(count)
    pieces = batch.split(parts)
    assert len(pieces) == parts
    assert torch.equal(torch.cat([piece.x for piece in pieces]), batch.x)
    assert torch.equal(torch.cat([piece.target for piece in pieces]), batch.target)
    assert max(piece.size for piece in pieces) - min(piece.size for piece in pieces) <= 1
    assert all(piece.graph is batch.graph for piece in pieces)


def test_split_losses_weighted_by_size_are_the_whole_loss() -> None:
    batch, weight = examples(7), torch.randn(4, 2)
    whole = mean_cross_entropy((batch.x @ weight).mean(1), batch)
    parts = sum(mean_cross_entropy((p.x @ weight).mean(1), p) * p.size for p in batch.split(3)) / batch.size
    torch.testing.assert_close(parts, whole)


def test_what_cannot_be_split_comes_whole_every_time() -> None:
    rows = torch.tensor([0, 2])
    node_batch = Batch(complete(3), torch.randn(3, 4), torch.zeros(2), rows)
    sparse_batch = Batch(complete(3), SparseFeatures.from_scipy(eye(3)), torch.zeros(3))
    for batch in (node_batch, sparse_batch, examples(2)):
        pieces = batch.split(3)
        assert len(pieces) == 3
        assert all(piece is batch for piece in pieces)


def test_read_takes_the_rows_or_everything() -> None:
    outputs = torch.randn(3, 5)
    batch = Batch(complete(3), torch.randn(3, 4), torch.tensor([1, 4]), rows=torch.tensor([2, 0]))
    assert torch.equal(batch.read(outputs), outputs[[2, 0]])
    assert batch.size == 2
    windows = Batch(None, torch.zeros(2, 3), torch.zeros(2, 3))
    assert windows.read(torch.randn(2, 3, 5)).shape == (6, 5)
    assert examples(4).read(torch.randn(4, 1, 2)).shape == (4, 2)


def test_read_names_outputs_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"\[4, 3, 2\].*\[4\].*one output row per target"):
        examples(4).read(torch.randn(4, 3, 2))


def test_to_the_same_device_is_the_same_batch() -> None:
    batch = examples(2)
    assert batch.to("cpu") is batch


def test_a_whole_graph_is_moved_once() -> None:
    batch = Batch(complete(3), torch.randn(3, 4), torch.zeros(2), rows=torch.tensor([0, 1]))
    there = batch.to("meta")
    assert there.x.device.type == there.target.device.type == there.rows.device.type == "meta"
    assert there.graph.device.type == "meta"
    assert batch.to("meta") is there


def test_examples_move_each_time_but_their_graph_once() -> None:
    batch = examples(2)
    first, second = batch.to("meta"), batch.to("meta")
    assert first is not second
    assert first.graph is second.graph


@pytest.mark.parametrize(
    ("choice", "layout", "expected"),
    [
        (PatternChoice("complete"), (4,), complete(4)),
        (PatternChoice("complete"), (2, 3), complete(6)),
        (PatternChoice("window", {"radius": 1, "sides": "past"}), (5,), window(5, 1, sides="past")),
        (PatternChoice("grid", {"neighbors": 4, "loops": False}), (2, 3), grid(2, 3, 4, loops=False)),
        (PatternChoice("blocks", {"size": 2}), (2, 2), PATTERNS["blocks"](4, 2)),
    ],
)
def test_build_is_the_named_pattern_over_the_layout(choice: PatternChoice, layout: tuple[int, ...], expected) -> None:
    assert torch.equal(choice.build(*layout).dense_mask(), expected.dense_mask())
    assert torch.equal(choice(*layout).dense_mask(), expected.dense_mask())


@pytest.mark.parametrize(
    ("pattern", "layout", "nodes"),
    [
        (complete, (2, 3), 6),
        (grid, (2, 3), 6),
        (partial(grid, neighbors=4), (2, 3), 6),
        (partial(window, radius=1), (4,), 4),
    ],
)
def test_lay_reads_a_functions_own_names(pattern, layout: tuple[int, ...], nodes: int) -> None:
    assert lay(pattern, *layout).num_receivers == nodes


def test_lay_reads_a_bound_choice() -> None:
    bound = PatternChoice("grid", {"neighbors": 4}).build
    assert lay(bound, 2, 2).num_edges == 12


def test_lay_refuses_a_graph_of_another_size() -> None:
    with pytest.raises(GraphError, match="4 receivers and 4 senders for 5 positions"):
        lay(lambda n: complete(4), 5)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: PatternChoice("star"), r"unknown graph 'star'; known are given, complete, .*bipartite"),
        (lambda: PatternChoice("window", {"width": 3}), r"'window' has no option 'width'; its options: n, radius"),
        (lambda: PatternChoice("given", {"radius": 3}), "'given' takes no options, but has radius"),
        (lambda: PatternChoice("given").build(3), "'given' is the data's own"),
        (lambda: PatternChoice("window").build(3), r"window\(\) does not fit 3 positions: .*radius"),
        (lambda: PatternChoice("window", {"radius": "wide"}).build(3), r"window\(radius='wide'\)"),
        (lambda: PatternChoice("window", {"radius": -1}).build(3), r"window\(radius=-1\)"),
        (lambda: PatternChoice("window", {"radius": 1, "sides": "left"}).build(3), "sides"),
        (lambda: PatternChoice("grid").build(9), r"grid\(\) does not fit 9 positions"),
        (lambda: PatternChoice("grid", {"neighbors": 5}).build(3, 3), "3 x 3 positions"),
        (lambda: PatternChoice("complete", {"receivers": 3}).build(3), "complete"),
        (lambda: PatternChoice("complete", {"senders": 5}).build(3), "3 receivers and 5 senders"),
        (lambda: PatternChoice("bipartite", {"right": 2}).build(3), "does not fit 3 positions"),
        (lambda: PatternChoice("strided", {"stride": 0}).build(3), "stride"),
    ],
)
def test_a_choice_that_cannot_be_is_named(make, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make()


def test_given_is_none_or_the_choice_of_that_name() -> None:
    assert given(None)
    assert given(PatternChoice())
    assert not given(PatternChoice("complete"))
    assert not given(complete)


def test_equal_choices_are_one_key() -> None:
    one, other = (
        PatternChoice("window", {"radius": 1, "dilation": 2}),
        PatternChoice("window", {"dilation": 2, "radius": 1}),
    )
    assert len({one, other}) == 1
    assert PatternChoice("window", {"radius": 1}) != one


def test_mean_cross_entropy_is_torchs() -> None:
    outputs, batch = torch.randn(6, 2), examples(6)
    assert torch.equal(mean_cross_entropy(outputs, batch), functional.cross_entropy(outputs, batch.target))


@pytest.mark.parametrize("name", TASKS)
def test_every_option_of_a_task_is_documented(name: str) -> None:
    described = [parameter.arg_name for parameter in docstring_parser.parse(inspect.getdoc(TASKS[name])).params]
    assert described == list(inspect.signature(TASKS[name]).parameters)
