"""Rows on their way, to a second rank that sends back what it gets; real ranks: tests/kernels/test_partitioned.py."""

import pytest
import torch
import torch.distributed as dist

from edgewise.graphs.partition import Halo


@pytest.fixture
def mirror(monkeypatch):
    def reflected(output, sent, output_sizes, input_sizes, group):
        assert (sum(output_sizes), sum(input_sizes)) == (len(output), len(sent))
        output.copy_(sent)

    monkeypatch.setattr(dist, "all_to_all_single", reflected)
    monkeypatch.setattr(dist, "get_rank", lambda group: 0)
    monkeypatch.setattr(Halo, "sent", 0)
    return Halo(None, torch.tensor([2, 0]), (0, 2), (0, 2), 1)


def test_rows_of_others_lie_around_the_own(mirror):
    x = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    assert mirror.fetch(x, -2)[:, 0].tolist() == [3.0, 1.0, 2.0, 3.0, 1.0]
    assert Halo.sent == 2 * 2 * 4
    heads = x.view(3, 2, 1).expand(2, 3, 2, 1)
    assert mirror.fetch(heads, -3)[1, :, 0, 0].tolist() == [3.0, 1.0, 2.0, 3.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool])
def test_numbers_of_any_type_are_sent(mirror, dtype):
    x = torch.tensor([[1], [0], [1]]).to(dtype)
    assert mirror.fetch(x, -2).tolist() == x[[2, 0, 1, 2, 0]].tolist()


def test_gradients_are_summed_where_a_row_is_held(mirror):
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.arange(5.0).double()[:, None]
    (mirror.fetch(x, -2) * weight).sum().backward()
    assert x.grad[:, 0].tolist() == [1 + 4, 2, 3 + 0]


def test_derivatives_of_first_and_second_order_agree_with_differences(mirror):
    x = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: mirror.fetch(x, -2).sin(), x)
    assert torch.autograd.gradgradcheck(lambda x: mirror.fetch(x, -2).sin(), x)
