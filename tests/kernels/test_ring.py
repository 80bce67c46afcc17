"""Attention around a ring of one rank, and what goes around at all; several ranks: test_partitioned.py."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from edgewise import Dot, SenderBias, Uniform, attend, use_backend
from edgewise.graphs import Partition, causal, complete
from edgewise.graphs.partition import Ring
from edgewise.kernels import partitioned as on_ranks
from edgewise.kernels.call import Attend
from edgewise.kernels.partitioned import goes_around


@pytest.fixture(autouse=True, scope="module")
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def part_of(graph):
    """A part on one rank, which takes itself for a ring."""
    part = Partition.of(graph)
    assert part.ring is None  # there is nothing to pass
    vars(part)["ring"] = Ring(None, (graph.num_senders,))
    return part


@pytest.mark.parametrize("whole", [complete(7), complete(7, 5), causal(7)])
@pytest.mark.parametrize("scores", [None, 1 << 20, 30])
def test_outputs_and_gradients_are_those_of_attend(monkeypatch, whole, scores):
    if scores is not None:  # as where no kernel is fused; 30: a few queries at a time
        monkeypatch.setattr(on_ranks, "SCORES", scores)
        monkeypatch.setattr(on_ranks, "fused", lambda x: False)
    shapes = (whole.num_receivers, 4, 3), (whole.num_senders, 2, 3), (whole.num_senders, 2, 5)
    q, k, v = (torch.randn(2, *shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    score = Dot(scale=torch.tensor([0.5, 1.0, 1.5, 2.0], dtype=torch.float64))
    y, expected = (attend(graph, q, k, v, score) for graph in (part_of(whole), whole))
    torch.testing.assert_close(y, expected)
    weight = torch.randn_like(y)
    for mine, theirs in zip(*(torch.autograd.grad((r * weight).sum(), (q, k, v)) for r in (y, expected)), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("fused", [True, False])
def test_half_precision_is_summed_in_float32(monkeypatch, fused):
    monkeypatch.setattr(on_ranks, "fused", lambda x: fused)
    q, k, v = torch.randn(3, 64, 2, 8).bfloat16()
    y, exact = attend(part_of(complete(64)), q, k, v), attend(complete(64), q.float(), k.float(), v.float())
    assert y.dtype is torch.bfloat16
    torch.testing.assert_close(y.float(), exact, rtol=0.01, atol=0.01)


def test_what_needs_all_rows_at_once_does_not_go_around():
    part, (q, k, v) = part_of(complete(4)), torch.randn(3, 4, 2, 3)
    call = Attend(part, q, k, v, Dot())
    assert goes_around(call)
    for changed in (
        {"graph": complete(4)},
        {"graph": Partition.of(complete(4))},
        {"dropout": 0.5},
        {"return_weights": True},
        {"score": Dot(cap=3.0)},
        {"score": Dot() + SenderBias(torch.zeros(4, 1))},
        {"score": Uniform(), "q": None, "k": None},
        {"q": torch.stack([q, q])},
        {"v": v.double()},
    ):
        assert not goes_around(replace(call, **changed))


def test_heads_are_shared_where_the_ranks_divide_them(monkeypatch):
    part, (q, k, v) = part_of(causal(4)), torch.randn(3, 4, 2, 3)
    for ranks, divides in ((1, True), (2, True), (3, False)):
        vars(part)["ring"] = Ring(None, (1,) * ranks)
        assert goes_around(Attend(part, q, k, v, Dot())) == divides
    vars(part)["ring"] = Ring(None, (4,))
    with use_backend("reference"):
        torch.testing.assert_close(attend(part, q, k, v), attend(causal(4), q, k, v))
