"""Whole training steps: the peers are of the same size, and compute the same function where they should."""

import warnings

import pytest
import torch
from torch import nn

from benchmarks.whole.steps import __main__ as measured
from benchmarks.whole.steps import peer

pytestmark = [pytest.mark.studies, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # of PyTorch's compiler


@pytest.fixture
def trainer():
    return measured.begun("digits-vit")


def test_the_vision_transformer_in_plain_pytorch_is_edgewises(trainer):
    eager, _ = measured.PEERS["digits-vit"](trainer)
    theirs = dict(eager.model.named_parameters())
    order = ["embed.weight", "embed.bias", "positions", *(name for name in theirs if name.startswith("blocks"))]
    order += ["norm.weight", "norm.bias", "head.weight", "head.bias"]
    with torch.no_grad():
        for name, mine in zip(order, trainer.model.parameters(), strict=True):
            theirs[name].copy_(mine.view_as(theirs[name]))
    batch = trainer.task.train_batch(8, torch.Generator().manual_seed(0), trainer.config.graph)
    torch.testing.assert_close(eager.model(batch.x), trainer.model(*batch.inputs).squeeze(1), rtol=1e-4, atol=1e-5)


def test_a_peers_step_trains(trainer):
    model = nn.Linear(4, 2)
    before = model.weight.detach().clone()
    batches = lambda: iter([torch.ones(3, 4)] * 2)  # noqa: E731
    eager, compiled = peer.forms("plain", trainer, lambda: model, batches, lambda run, x: run(x).square().sum())
    assert eager.step() > eager.step()
    assert not torch.equal(model.weight, before)
    assert compiled.name == "plain, compiled"


def test_sampled_neighbours_are_learned_from(monkeypatch):
    trainer = measured.begun("planted-sage")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager, _ = measured.PEERS["planted-sage"](trainer)
        losses = [eager.step() for _ in range(30)]
    theirs, ours = (sum(p.numel() for p in model.parameters()) for model in (eager.model, trainer.model))
    assert theirs == ours
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_an_epoch_has_every_example_once():
    turns = peer.turns(10, 5)
    assert sorted(torch.cat([next(turns), next(turns)]).tolist()) == list(range(10))
