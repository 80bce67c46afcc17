"""Gradients added up in one message for each type; a second rank is played here: real ones in test_distributed.py."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from edgewise.training.ranks import Gradients


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.map, self.unused = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last), nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(3, 1, 1, dtype=torch.float64))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.tensor([True, False]))


@pytest.fixture
def sent(monkeypatch):
    """What is sent; a second rank's share of everything is twice this one's."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    messages = []

    def reduced(flat):
        messages.append((flat.dtype, flat.numel()))
        flat.mul_(3) if flat.dtype is not torch.bool else None

    monkeypatch.setattr(dist, "all_reduce", reduced)
    yield messages
    monkeypatch.undo()
    dist.destroy_process_group()


def test_everything_of_a_type_is_added_up_in_one_message_and_laid_as_its_weight(sent):
    model, plain = Model(), Model()
    plain.load_state_dict(model.state_dict())
    both = Gradients(model)
    for x in (torch.randn(4, 2, 3, 3), torch.randn(2, 2, 3, 3)):
        losses = [(net.map(x) * net.scale).square().mean() for net in (model, plain)]
        for net, loss in zip((model, plain), losses, strict=True):
            net.zero_grad()
            loss.backward()
        sent.clear()
        assert float(both.add_up(losses[0].detach())) == pytest.approx(3 * losses[1].item())
        for name, weight in plain.named_parameters():
            gradient = model.get_parameter(name).grad
            assert (gradient is None) == (weight.grad is None) == (name.startswith(("unused", "frozen")))
            if gradient is not None:
                torch.testing.assert_close(gradient, 3 * weight.grad)
                assert gradient.stride() == weight.stride()
        assert len(sent) == len({dtype for dtype, _ in sent}) <= 4


def test_what_a_norm_remembers_is_that_of_the_first_rank(monkeypatch, sent):
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    model = Model()
    both = Gradients(model)
    model.seen.fill_(7)
    monkeypatch.setattr(dist, "all_reduce", lambda flat: flat.add_(5) if flat.dtype is torch.int64 else None)
    both.add_up(torch.tensor(1.0))
    assert int(model.seen) == 5  # nothing of its own
