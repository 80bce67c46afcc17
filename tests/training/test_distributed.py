"""Several processes: the same curve as one, one writer, and an error that all of them raise."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from edgewise.errors import CheckpointError, ConfigError
from edgewise.training import finished, train
from edgewise.training.distributed import SENT, World, device_for, join, leave
from training.launched import environment, launch
from training.several import SHARED
from training.tiny import configured, losses, records, same_run

pytestmark = pytest.mark.timeout(600)  # the first test starts ten processes


@pytest.mark.processes
def test_two_forked_processes_have_the_loss_curve_of_one(tmp_path):
    """The one test of ranks that `make test` runs."""
    config = configured(model={"dropout": 0.0}, steps=6, batch=15, clip=0.5, log_every=1, threads=1)
    train(config, tmp_path / "one", progress=False)
    script = Path(__file__).with_name("two.py")
    done = subprocess.run([sys.executable, str(script), str(tmp_path / "two")], env=environment(script), timeout=100)
    assert done.returncode == 0
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == 6 and two == pytest.approx(one, rel=0, abs=1e-6)


@pytest.mark.processes
@pytest.mark.parametrize("name", ["curve", *SHARED])
def test_three_processes_and_four_have_the_loss_curve_of_one(worlds, name):
    one = losses(worlds[0] / name)
    assert len(one) >= 8
    # A partitioned GIN adds up in another order: at its loss of 5, 1e-6 are two units in the last place. PyTorch's
    # Muon iterates in bfloat16, which carries such differences on.
    relative = {"graphs": 1e-6, "orthogonal": 1e-4}.get(name, 0)
    for several in worlds[1:]:
        assert losses(several / name) == pytest.approx(one, rel=relative, abs=1e-6)


@pytest.mark.processes
@pytest.mark.parametrize("name", SHARED)
def test_processes_that_share_batches_or_graphs_have_the_scores_of_one(worlds, name):
    one, *others = [[line["valid"] for line in records(world / name) if "valid" in line] for world in worlds]
    for scores in others:
        for mine, theirs in zip(scores, one, strict=True):  # an evaluation is shared out, too
            assert mine == pytest.approx(theirs, rel=1e-2 if name == "orthogonal" else 1e-5)


@pytest.mark.processes
def test_two_processes_that_share_an_encoder_decoder_train_and_search_as_one(worlds):
    """Its blocks' keys and values of the memory are computed before the blocks are, and searched with afterwards."""
    one, two = (worlds[size] / "pairs" for size in (0, 1))
    assert losses(two) == pytest.approx(losses(one), rel=0, abs=1e-5)
    scores = [[line[part] for line in records(run) for part in ("valid", "test") if part in line] for run in (one, two)]
    assert len(scores[0]) == 4
    for mine, other in zip(*scores, strict=True):
        assert mine == pytest.approx(other, rel=1e-5)


@pytest.mark.processes
def test_accumulation_does_not_change_the_curve_either(worlds):
    assert losses(worlds[1] / "cut") == pytest.approx(losses(worlds[0] / "curve"), rel=0, abs=1e-6)


@pytest.mark.processes
def test_all_processes_lose_patience_together(worlds):
    for world in worlds[:2]:
        assert finished(world / "patient").steps == 16


@pytest.mark.processes
def test_two_processes_go_on_to_the_same_bits(worlds):
    for world in worlds[:2]:
        assert same_run(world / "resumed", world / "dropped")
    assert losses(worlds[0] / "dropped") != losses(worlds[1] / "dropped")  # each rank drops its own units


@pytest.mark.endurance
@pytest.mark.timeout(400)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_rank_that_is_killed_is_started_again_and_reaches_the_undisturbed_bits(worlds, tmp_path):
    done = launch(2, Path(__file__).with_name("restarted.py"), tmp_path, "--max-restarts=1").communicate(timeout=200)
    assert finished(tmp_path / "dropped") is not None, done[1]
    assert same_run(tmp_path / "dropped", worlds[1] / "dropped")


@pytest.mark.parametrize("said", ["[gloo] Connection closed by peer [::1]:5", "NCCL: remote process exited"])
def test_a_rank_that_has_lost_another_says_so_in_one_line(said, tmp_path):
    world = World(torch.device("cpu"), rank=1, size=2)
    message = r"rank 1 has lost another process .* edgewise resume .*run"
    with pytest.raises(CheckpointError, match=message), world.together(tmp_path / "run"):
        raise RuntimeError(said)
    for alone, error in ((World(torch.device("cpu")), RuntimeError(said)), (world, RuntimeError("shapes differ"))):
        with pytest.raises(RuntimeError) as caught, alone.together(tmp_path):
            raise error
        assert caught.value is error


@pytest.mark.processes
def test_every_process_is_told_the_result(worlds):
    ranks = [worlds[0] / "results-0", worlds[1] / "results-0", worlds[1] / "results-1"]
    told = [rank.read_text().splitlines() for rank in ranks]
    assert len(told[0]) == 18
    assert told[1] == told[2]


@pytest.mark.processes
def test_a_number_that_is_none_on_one_process_stops_all_by_the_same_name(worlds):
    told = {path.name: path.read_text() for world in worlds for path in world.glob("poisoned-*")}
    assert set(told) == {"poisoned-0", "poisoned-1"}
    assert len(set(told.values())) == 1
    assert "step 13: the loss is nan" in told["poisoned-1"]


@pytest.mark.processes
def test_a_run_is_not_overwritten_by_any_process(worlds):
    told = {path.name: path.read_text() for world in worlds for path in world.glob("refused-*")}
    assert set(told) == {"refused-0", "refused-1"}
    assert all("already holds a run" in text for text in told.values())


def test_without_torchrun_the_world_is_one_process(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    world = join("cpu")
    assert world == World(torch.device("cpu"), rank=0, size=1)
    assert world.first
    assert world.share({"a": [1, 2.5, None]}) == {"a": [1, 2.5, None]}
    model = torch.nn.Linear(1, 1)
    assert world.wrap(model) == (model, None)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert device_for("cuda:0") == torch.device("cuda:0")
    assert device_for("cuda") == torch.device("cuda")
    for name in ("cuda:1", "mps"):
        with pytest.raises(ConfigError, match=f"machine.device '{name}' is not on this machine; use auto or cpu"):
            device_for(name)


def test_auto_takes_the_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_for("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device_for("auto") == torch.device("cuda")


def test_leaving_waits_until_the_threads_of_the_group_have_let_go_of_every_tensor():
    world = World(torch.device("cpu"), size=2)  # so that it really sends, if only to itself
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert world.share({"a": 1}) == {"a": 1}
    holding = [SENT[-1]]
    slow = threading.Timer(0.1, holding.clear)
    slow.start()
    leave()
    assert not holding
    assert not SENT
    assert not dist.is_initialized()


@pytest.mark.parametrize(("shard", "last"), [(False, []), (True, [(6, False)])])
def test_ranks_that_share_weights_read_equally_many_batches(shard, last):
    ranks = [list(World(torch.device("cpu"), rank, 3, shard=shard).own(iter(range(7)))) for rank in range(3)]
    assert ranks[0] == [(0, True), (3, True), (6, True)]
    assert ranks[2] == [(2, True), (5, True), *last]
    assert list(World(torch.device("cpu"), 0, 3, shard=shard).own([])) == []
