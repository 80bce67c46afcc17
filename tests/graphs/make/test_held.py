"""Graphs that content chose are those of the first block, in turn, and free outside."""

import torch

from edgewise.graphs import complete
from edgewise.graphs.make.content import Held, alike
from edgewise.graphs.make.neighbors import k_nearest_in_members

POINTS, SIZES = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([3])
OTHERS = torch.tensor([[0.0], [4.0], [5.0]])


def test_later_blocks_have_the_graphs_of_the_first_in_turn() -> None:
    held = Held()
    labels = torch.tensor([0, 1, 0]).view(1, 1, 3)
    with held:
        first = k_nearest_in_members(POINTS, SIZES, 2), alike(complete(3), labels, labels, 5)
    with held:
        second = k_nearest_in_members(OTHERS, SIZES, 2), alike(complete(3), 0 * labels, 0 * labels, 5)
        assert k_nearest_in_members(OTHERS, SIZES, 1).num_edges == 3  # one more than in the first block
    assert first[0] is second[0] and first[1] is second[1]


def test_outside_a_block_the_content_chooses() -> None:
    with Held():
        k_nearest_in_members(POINTS, SIZES, 2)
    assert k_nearest_in_members(OTHERS, SIZES, 2).senders.tolist() == [0, 1, 1, 2, 1, 2]
