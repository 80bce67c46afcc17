"""Blocks on their way around a ring of two, the second of which sends back what it gets; real ranks: tests/kernels."""

from typing import ClassVar

import pytest
import torch
import torch.distributed as dist

from edgewise.graphs.partition import Halo, Ring


class Late:
    """A message that arrives when one waits for it."""

    def __init__(self, ops):
        self.out, self.back = (op.tensor for op in ops)

    def wait(self):
        self.back.copy_(self.out)


@pytest.fixture(autouse=True)
def mirror(monkeypatch):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr(dist, "batch_isend_irecv", lambda ops: [Late(ops)])
    monkeypatch.setattr(dist, "P2POp", lambda op, tensor, peer, group, tag: Sent(tensor, peer, tag))
    monkeypatch.setattr(Halo, "sent", 0)
    yield
    monkeypatch.undo()
    dist.destroy_process_group()


class Sent:
    seen: ClassVar[list[tuple[int, int]]] = []

    def __init__(self, tensor, peer, tag):
        self.tensor = tensor
        Sent.seen.append((peer, tag))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_block_arrives_when_it_is_waited_for_and_its_bytes_are_counted(dtype):
    Sent.seen.clear()
    block = torch.arange(12).to(dtype).view(2, 3, 2).transpose(0, 1)[:, :, :1]  # not contiguous
    arrives = Ring(None, (2, 2)).passed(block, 1, behind=1, tag=1)
    assert Halo.sent == 6 * dtype.itemsize
    assert torch.equal(arrives(), block)
    assert Sent.seen == [(1, 1), (1, 1)]  # of two ranks, the next is the one before, too


def test_what_arrives_has_as_many_rows_as_its_rank():
    ring = Ring(None, (2, 5, 3))
    with pytest.raises(RuntimeError, match="size"):
        ring.passed(torch.zeros(1, 2, 4), 1, behind=1)()  # three rows for two, which the mirror cannot give
    assert ring.rank == 0
