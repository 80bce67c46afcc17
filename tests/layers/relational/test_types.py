"""One product for each type of row: outputs, gradients of gradients, orders, and what is cached."""

import pytest
import torch

from edgewise.layers.relational.types import grouped, pairs, shares
from layers.parity import each


@pytest.mark.parametrize(("heads", "counts"), each([0, 2], [(0, 4, 0, 3), (7,), (0, 0)]))
def test_each_row_goes_through_the_map_of_its_type(counts: tuple[int, ...], heads: int) -> None:
    lead = (heads,) if heads else ()
    x = torch.randn(sum(counts), *lead, 3, dtype=torch.float64, requires_grad=True)
    W = torch.randn(len(counts), *lead, 2, 3, dtype=torch.float64, requires_grad=True)
    kinds = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    right = (W[kinds] @ x.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(grouped(x, W, counts), right)
    torch.testing.assert_close(grouped(torch.stack([x, 2 * x]), W, counts), torch.stack([right, 2 * right]))
    if len(x):
        assert torch.autograd.gradcheck(grouped, (x, W, counts))
        assert torch.autograd.gradgradcheck(grouped, (x, W, counts))
        dW = torch.func.grad(lambda W: grouped(x.detach(), W, counts).sum())(W.detach())
        torch.testing.assert_close(dW, torch.autograd.grad(right.sum(), W)[0])


def test_pairs_are_found_once_for_each_tensor_of_relations() -> None:
    relation, nodes = torch.tensor([1, 0, 1]), torch.tensor([2, 2, 2])
    first = pairs(relation, nodes, 3, 2)
    assert pairs(relation, nodes, 3, 2) is first
    assert first.counts == (1, 1) and first.place.tolist() == [1, 0, 1] and first.rows.senders.tolist() == [2, 2]
    relation[2] = 0
    assert pairs(relation, nodes, 3, 2).place.tolist() == [1, 0, 0]


def test_shares_of_more_edges_than_half_precision_counts() -> None:
    edges = torch.zeros(70_000, dtype=torch.int64)
    assert torch.equal(shares(edges, edges, 1, torch.float16), torch.full((70_000,), 1 / 70_000, dtype=torch.float16))
