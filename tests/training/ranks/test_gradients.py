"""Gradients added up in one message, on threads that stand for ranks; real ones: tests/training/test_distributed.py."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from edgewise.training.ranks import gradients
from edgewise.training.ranks.gradients import Gradients


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.map, self.unused = nn.Linear(3, 2), nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))


@pytest.fixture
def second(monkeypatch):
    """A second rank, whose share of everything is `again` times this one's, and which sends as `sent` lists."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    sent = []

    def reduced(flat):
        sent.append(("all_reduce", flat.dtype, flat.numel()))
        flat.mul_(3)

    def exchanged(output, own):
        sent.append(("all_to_all", own.dtype, own[0].numel()))
        output.copy_(own * torch.tensor([1, 2], dtype=own.dtype)[:, None])

    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_reduce", reduced)
    monkeypatch.setattr(dist, "all_to_all_single", exchanged)
    yield sent
    monkeypatch.undo()
    dist.destroy_process_group()


@pytest.mark.parametrize(("short", "how"), [(1 << 18, "all_to_all"), (0, "all_reduce")])
def test_everything_of_a_dtype_is_added_up_in_one_message(monkeypatch, second, short, how):
    monkeypatch.setattr(gradients, "SHORT", short)
    model, plain = Model(), Model()
    plain.load_state_dict(model.state_dict())
    both = Gradients(model)
    for x in (torch.randn(4, 3), torch.randn(2, 3)):
        losses = [(net.map(x) * net.scale).square().mean() for net in (model, plain)]
        for net, loss in zip((model, plain), losses, strict=True):
            net.zero_grad()
            loss.backward()
        second.clear()
        assert float(both.add_up(losses[0].detach())) == pytest.approx(3 * losses[1].item())
        for name, weight in plain.named_parameters():
            gradient = model.get_parameter(name).grad
            assert (gradient is None) == (weight.grad is None) == (name.startswith(("unused", "frozen")))
            if gradient is not None:
                torch.testing.assert_close(gradient, 3 * weight.grad)
        # the loss, which is float64, with `scale`; 14 weights with 5 numbers that say which have a gradient; the buffer
        assert sorted(second, key=str) == [(how, dtype, n) for dtype, n in SENT]


def test_a_sum_lies_in_memory_as_its_weight_does(second):
    model = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
    both = Gradients(model)
    model(torch.randn(1, 2, 4, 4)).square().mean().backward()
    own = model.weight.grad.clone()
    both.add_up(torch.tensor(1.0))
    torch.testing.assert_close(model.weight.grad, 3 * own)
    assert model.weight.grad.stride() == model.weight.stride() != model.weight.contiguous().stride()


SENT = [(torch.float32, 8 + 6 + 5), (torch.float64, 2 + 1), (torch.int64, 1)]


def test_what_a_norm_remembers_is_that_of_the_first_rank(monkeypatch, second):
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    model = Model()
    both = Gradients(model)
    model.seen.fill_(7)
    monkeypatch.setattr(both, "_add", lambda flat: flat.add_(5) if flat.dtype is torch.int64 else None)
    both.add_up(torch.tensor(1.0))
    assert int(model.seen) == 5  # nothing of its own
