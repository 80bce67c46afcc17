"""Every rule says the same thing twice: as a predicate and as intervals."""

import itertools

import pytest
import torch

from edgewise.graphs import Graph, Rule
from graphs.examples import PATTERNED, RULES

SHAPES = list(itertools.product([0, 1, 5], [0, 1, 4, 11], [0, 1, 6]))  # receivers, senders, offset


def from_intervals(graph: Graph) -> torch.Tensor:
    """int64 [I, J]: in how many intervals of i the sender j lies."""
    assert graph.rule is not None
    i = torch.arange(graph.offset, graph.offset + graph.num_receivers)
    starts, stops = graph.rule.intervals(i, graph.num_senders)
    j = torch.arange(graph.num_senders)
    return ((starts[:, :, None] <= j) & (j < stops[:, :, None])).sum(1)


def assert_rule_is_right(graph: Graph) -> None:
    assert graph.rule is not None
    i = torch.arange(graph.offset, graph.offset + graph.num_receivers)
    starts, stops = graph.rule.intervals(i, graph.num_senders)
    assert starts.shape == stops.shape
    assert starts.shape[0] == graph.num_receivers
    assert starts.dtype == stops.dtype == torch.int64
    assert bool((starts >= 0).all() and (stops <= graph.num_senders).all() and (starts <= stops).all())
    assert bool((stops[:, :-1] <= starts[:, 1:]).all())
    mask = graph.rule.listens(i[:, None], torch.arange(graph.num_senders))
    assert torch.equal(from_intervals(graph), mask.long())


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_intervals_are_the_predicate_at_any_shape_and_offset(rule: Rule) -> None:
    for receivers, senders, offset in SHAPES:
        assert_rule_is_right(Graph(rule, receivers, senders, offset))


@pytest.mark.parametrize("graph", PATTERNED, ids=str)
def test_intervals_of_every_pattern_are_its_predicate(graph: Graph) -> None:
    assert_rule_is_right(graph)
    for start in range(graph.num_receivers + 1):
        assert_rule_is_right(graph.rows(start, graph.num_receivers))


@pytest.mark.parametrize("first", PATTERNED, ids=str)
def test_unions_and_intersections_of_rules_are_rules(first: Graph) -> None:
    for rule in RULES:
        second = Graph(rule, first.num_receivers, first.num_senders, first.offset)
        union, intersection = first.union(second), first.intersection(second)
        assert_rule_is_right(union)
        assert_rule_is_right(intersection)
        assert torch.equal(union.dense_mask(), first.dense_mask() | second.dense_mask())
        assert torch.equal(intersection.dense_mask(), first.dense_mask() & second.dense_mask())


EVERY_RULE = [*RULES, *(graph.rule for graph in PATTERNED if graph.rule is not None)]


@pytest.mark.parametrize("rule", [rule for rule in EVERY_RULE if rule.transposed() is not None], ids=str)
def test_a_transposed_rule_reverses_its_edges(rule: Rule) -> None:
    reverse = rule.transposed()
    assert reverse is not None
    rows, columns = rule.extent or (6, 9)
    i, j = torch.arange(rows)[:, None], torch.arange(columns)
    assert torch.equal(reverse.listens(j[:, None], i.T), rule.listens(i, j).T)
