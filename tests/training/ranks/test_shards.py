"""Weights that ranks share out: a part of the memory, and checkpoints that any number of ranks reads bit for bit."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn

from edgewise.errors import ConfigError
from edgewise.graphs import causal
from edgewise.layers import PerformerAttention
from edgewise.models import Tokens, Transformer, TransformerSettings
from edgewise.training import Choice, train
from edgewise.training.distributed import World
from edgewise.training.machine import recomputed
from training.launched import environment
from training.tiny import configured, weights

pytestmark = pytest.mark.timeout(600)  # the first test starts ten processes


@pytest.fixture(scope="module")
def moved(worlds, tmp_path_factory):
    """The run of four ranks, restored and saved by worlds of one, two, three and four."""
    folders = [tmp_path_factory.mktemp(f"moved-{size}") for size in (1, 2, 3, 4)]
    script = Path(__file__).with_name("moved.py")
    places = [str(part) for size, folder in enumerate(folders, 1) for part in (folder, size)]
    command = [sys.executable, str(script), str(worlds[3] / "weights"), *places]
    done = subprocess.run(command, env=environment(script.parent), capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return folders


@pytest.mark.processes
def test_what_four_ranks_saved_any_number_of_ranks_restores_to_the_same_bits(worlds, moved):
    for folder in moved:
        for part in ("model", "best", "optimizer"):
            saved, again = weights(worlds[3] / "weights", part), weights(folder / "run", part)
            assert saved.keys() == again.keys()
            assert all(torch.equal(again[name], value) for name, value in saved.items())


@pytest.mark.processes
def test_two_ranks_hold_half_of_the_weights_gradients_and_memory_each(moved):
    alone = json.loads((moved[0] / "rank-0.json").read_text())["bytes"]
    for size in (2, 3, 4):
        for rank in range(size):
            held = json.loads((moved[size - 1] / f"rank-{rank}.json").read_text())["bytes"]
            assert held <= 1.1 / size * alone  # at two ranks 0.55


def test_blocks_that_are_recomputed_store_less_and_have_the_same_gradients():
    def trained(again):
        torch.manual_seed(0)
        settings = TransformerSettings(width=8, depth=3, heads=2, dropout=0.5)
        model, stored = Transformer(settings, Tokens(11, 5, length=7)), []
        with recomputed(model) if again else nullcontext():
            with torch.autograd.graph.saved_tensors_hooks(lambda t: stored.append(t.numel()) or t, lambda t: t):
                y = model(causal(7), torch.arange(7))
            y.square().sum().backward()
        return y, [p.grad for p in model.parameters()], sum(stored)

    (y, gradients, stored), (y_again, gradients_again, stored_again) = trained(False), trained(True)
    assert torch.equal(y, y_again)
    assert all(map(torch.equal, gradients, gradients_again))
    assert stored_again < stored / 2


@pytest.mark.parametrize(
    ("attention", "twice"), [("softmax", True), ("lsh", False), ("routing", True), ("performer", True)]
)
def test_what_blocks_count_draw_and_average_is_the_same_where_they_are_recomputed(monkeypatch, attention, twice):
    monkeypatch.setattr(PerformerAttention, "REDRAW", 2)

    def trained(again):
        torch.manual_seed(0)
        block = Choice("pre-norm", {"norm": "batch"})
        settings = TransformerSettings(width=8, depth=2, heads=2, dropout=0.5, attention=attention, block=block)
        model = Transformer(settings, Tokens(11, 5, length=32))
        with recomputed(model) if again else nullcontext():
            for _ in range(3):
                loss = model(causal(32), torch.arange(64).view(2, 32) % 11).square().sum()
                if twice:
                    loss.backward(retain_graph=True)
                loss.backward()
        return [loss, *(p.grad for p in model.parameters()), *model.buffers()]

    assert all(map(torch.equal, trained(False), trained(True)))


def test_an_error_in_the_recomputation_leaves_the_state_of_blocks():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            if fails:
                raise OSError("disk")
            return x.exp()

    fails = False
    model = nn.Module()
    model.blocks = nn.ModuleList([Counting()])
    block = model.blocks[0]
    with recomputed(model):
        calls, y = block.calls, block(torch.ones(2, requires_grad=True)).sum()
        fails = True
        with pytest.raises(OSError, match="disk"):
            y.backward()
    assert block.calls is calls
    assert int(calls) == 1


def test_blocks_are_as_they_were_once_they_are_no_longer_recomputed():
    model, block, own = nn.Module(), nn.Linear(2, 2), nn.Linear(2, 2)
    own.forward = forward = lambda x: x
    model.blocks = nn.ModuleList([block, own, block])
    with recomputed(model):
        assert block.forward.args[0] == type(block).forward.__get__(block)  # wrapped once
        assert own.forward is not forward
    assert "forward" not in vars(block)
    assert own.forward is forward


@pytest.mark.parametrize(
    ("changed", "what"),
    [({"optimizer": Choice("sgld")}, "the optimizer 'sgld'"), ({"precision": "float16"}, "float16")],
)
def test_what_does_not_go_with_shards_is_refused(monkeypatch, tmp_path, changed, what):
    monkeypatch.setattr("edgewise.training.loop.join", lambda *_: World(torch.device("cpu"), shard=True))
    with pytest.raises(ConfigError, match=rf"train.shard does not go with {what}"):
        train(configured(shard=True, **changed), tmp_path / "run")
