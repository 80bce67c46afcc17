"""Batch norms on a group of one rank are PyTorch's; several: tests/kernels/test_partitioned.py."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from edgewise.errors import ShapeError
from edgewise.layers import BatchNorm
from edgewise.training.ranks import share_norms


@pytest.fixture(autouse=True, scope="module")
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("momentum", [0.1, None])
def test_one_rank_normalises_as_pytorch_does(momentum):
    shared, plain = BatchNorm(3, momentum=momentum).double(), BatchNorm(3, momentum=momentum).double()
    share_norms(nn.Sequential(shared), dist.group.WORLD)
    for _ in range(3):
        x = 5 + 2 * torch.randn(2, 7, 3, dtype=torch.float64)
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        for norm, rows in ((shared, mine), (plain, theirs)):
            norm(rows).pow(3).sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-9)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(shared.state_dict()[name], value)
    for mine, theirs in zip(shared.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert torch.equal(shared.eval()(x), shared(x))
    torch.testing.assert_close(shared(x), plain.eval()(x))


def test_a_single_node_has_no_variance():
    norm = BatchNorm(2)
    share_norms(norm, dist.group.WORLD)
    with pytest.raises(ShapeError, match="it has no variance"):
        norm(torch.randn(1, 2))
    assert norm(torch.randn(0, 2)).shape == (0, 2)
