"""When a pass is captured as a CUDA graph, with a stand-in for the card; and on a GPU the same bits either way."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.graphs import complete, window
from edgewise.training import train
from edgewise.training.machine import CHANGES, Captured
from training.tiny import same_run


class Scaled(nn.Module):
    """Counts how often it is called itself."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(()))
        self.calls, self.draws, self.several = 0, False, False

    def forward(self, graph, x):
        self.calls += 1
        self.seen += 1
        y = self.scale * x + (torch.rand(()) if self.draws else 0)
        return (y, y) if self.several else y


@pytest.fixture
def card(monkeypatch):
    """In place of the card: rehearses three times, and records what it captures."""
    captured = []

    def made(model, sample, warm, unused):
        assert unused
        for _ in range(warm):
            model(*sample)
        captured.append(sample)
        return model

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", made)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state: None)
    return captured


def test_the_second_pass_of_a_kind_is_captured_and_rehearsals_leave_no_trace(card):
    model = Scaled()
    captured = Captured(model, nullcontext)
    for step in range(1, 5):
        x = torch.full((3,), float(step))
        assert torch.equal(captured(window(3, 1), x), x)  # another graph, of an equal rule
        assert int(model.seen) == step
        assert len(card) == (step > 1)


def test_another_graph_or_shape_is_captured_anew_until_there_have_been_many(card):
    captured, x = Captured(Scaled(), nullcontext), torch.ones(3)
    for graph in (complete(3), complete(3), window(3, 1), window(3, 1)):
        captured(graph, x)
    assert len(card) == 2
    for size in range(3, 3 + CHANGES):
        captured(complete(size), torch.ones(size))
    assert captured.refused == "the shapes or graphs of batches change"


@pytest.mark.parametrize("trait", ["draws", "several"])
def test_what_no_graph_can_hold_runs_as_it_is(card, trait):
    captured = Captured(Scaled(), nullcontext)
    setattr(captured.model, trait, True)
    for _ in range(4):
        captured(complete(3), torch.ones(3))
    assert captured.refused and not card and captured.model.calls == 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("recipe", ["cora-gcn", "digits-vit"])
def test_on_a_gpu_a_captured_run_has_the_bits_of_one_that_is_not(recipe, tmp_path):
    config = configure(recipes.read(recipe), [("train.steps", "12"), ("evaluation.every", "6")])
    for name, capture in (("captured", True), ("plain", False)):
        machine = replace(config.machine, device="cuda", capture=capture)
        train(replace(config, machine=machine), tmp_path / name, progress=False)
    assert same_run(tmp_path / "captured", tmp_path / "plain")
