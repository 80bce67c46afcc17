from functools import partial

import pytest
import torch

from edgewise import GraphError, causal, complete, window
from edgewise.graphs import EncoderDecoderGraph, draw


def test_pairs_side_by_side_are_drawn():
    pairs = EncoderDecoderGraph.of([2, 3], [3, 1], partial(window, radius=1))
    assert draw(pairs.encoder).split() == ["##...", "##...", "..##.", "..###", "...##"]
    assert draw(pairs.decoder).split() == ["#...", "##..", "###.", "...#"]
    assert draw(pairs.cross).split() == ["##...", "##...", "##...", "..###"]


def test_nothing_is_written_out():
    """A batch of complete graphs stays a rule, and one of causal graphs a range per receiver."""
    pairs = EncoderDecoderGraph.of([5, 4], [3, 6])
    assert pairs.encoder.rule is not None and pairs.cross.rule is not None
    assert pairs.decoder.ranges() is not None and "senders" not in vars(pairs.decoder)


@pytest.mark.parametrize("lengths", [([], []), ([1], [1, 2])])
def test_pairs_have_two_sides(lengths):
    with pytest.raises(GraphError, match="as many of each"):
        EncoderDecoderGraph.of(*lengths)


@pytest.mark.parametrize("cross", [complete(3, 4), complete(2, 3), causal(4).rows(1, 4)])
def test_the_three_graphs_must_be_over_the_same_nodes(cross):
    with pytest.raises(GraphError, match="cross must have 3 receivers and 2 senders"):
        EncoderDecoderGraph(complete(2), causal(3), cross)
    with pytest.raises(GraphError, match="as many senders as receivers"):
        EncoderDecoderGraph(complete(2), causal(4).rows(1, 4), complete(3, 2))


def test_lengths_may_be_tensors_and_are_whole_numbers():
    pairs = EncoderDecoderGraph.of(torch.tensor([2, 3]), torch.tensor([3, 1]))
    assert pairs == EncoderDecoderGraph.of([2, 3], [3, 1])
    with pytest.raises(GraphError, match="a length of targets must be a whole number"):
        EncoderDecoderGraph.of([1], [0.5])
    with pytest.raises(GraphError, match="sources must be lengths, not an int"):
        EncoderDecoderGraph.of(1, [1])
