"""Rows against heads on one rank, and what a rank of two sends; more: tests/kernels/test_partitioned.py."""

import pytest
import torch
import torch.distributed as dist

from edgewise.graphs.partition import Halo, by_heads, by_rows


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr(Halo, "sent", 0)
    yield
    monkeypatch.undo()
    dist.destroy_process_group()


def test_one_rank_has_all_rows_and_heads_already():
    x = torch.randn(2, 5, 4, 3)
    assert torch.equal(by_heads(x, (5,), None), x)
    assert torch.equal(by_rows(x, (5,), None), x)
    assert Halo.sent == 0


def test_a_rank_of_two_sends_the_other_heads_of_its_rows_and_gets_its_own_heads_of_the_others(monkeypatch):
    def second(output, sent, output_sizes, input_sizes, group):
        assert (output_sizes, input_sizes) == ([3, 2], [3, 3])
        output.copy_(torch.cat([sent[: output_sizes[0]], sent[-output_sizes[1] :]]))

    monkeypatch.setattr(dist, "all_to_all_single", second)
    x = torch.arange(12.0).view(3, 4, 1)  # three of five nodes, four heads
    turned = by_heads(x, (3, 2), None)
    assert turned.shape == (5, 2, 1)
    assert turned[:3, :, 0].tolist() == x[:, :2, 0].tolist()
    assert turned[3:, :, 0].tolist() == x[1:, 2:, 0].tolist()
    assert Halo.sent == 3 * 2 * 4


def test_derivatives_of_first_and_second_order_agree_with_differences():
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    turn = lambda x: by_rows(by_heads(x, (3,), None).sin(), (3,), None)  # noqa: E731
    assert torch.autograd.gradcheck(turn, x)
    assert torch.autograd.gradgradcheck(turn, x)
