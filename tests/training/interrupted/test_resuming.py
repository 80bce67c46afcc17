"""An interrupted run goes on to the same bits, from the newest intact checkpoint; a finished one is left alone."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from edgewise.errors import CheckpointError, ConfigError
from edgewise.tasks import TASKS
from edgewise.training import AverageSettings, Choice, finished, load_run, resume, train
from edgewise.training.checkpoint import Checkpoint
from training.tiny import Tiny, configured, same_run, trained, weights, without_result


def stopped_at(step):
    """A task that is interrupted before a step, once."""

    def interrupted(**_: object) -> Tiny:
        return Tiny("stop", step, double=False, metric="accuracy")

    return interrupted


def interrupt(folder, config, step, monkeypatch):
    """Train until an interruption before `step`."""
    with monkeypatch.context() as patch:
        patch.setitem(TASKS, "tiny", stopped_at(step))
        with pytest.raises(KeyboardInterrupt):
            train(config, folder, progress=False)


@pytest.mark.parametrize("name", ["adamw", "muon", "cyclical-sgld", "constant-sgd"])
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, monkeypatch, name):
    optimizer = Choice(name, {"learning_rate": 0.05, "weight_decay": 0.01, "decay_matrices_only": True})
    config = configured(optimizer=optimizer, schedule=Choice("cosine", {"warmup": 5}), clip=0.5, accumulate=2)
    interrupt(tmp_path / "resumed", config, 27, monkeypatch)
    resumed = resume(tmp_path / "resumed", progress=False)
    result = train(config, tmp_path / "whole", progress=False)
    assert same_run(tmp_path / "resumed", tmp_path / "whole")
    assert replace(resumed, seconds=0, step_seconds=0, run=result.run) == replace(result, seconds=0, step_seconds=0)


def test_an_average_of_the_weights_goes_on_to_the_same_bits_and_is_what_is_kept(tmp_path, monkeypatch):
    optimizer = Choice("sgd", {"learning_rate": 0.5})
    config = configured(optimizer=optimizer, average=AverageSettings(12, every=3), evaluate_every=40)
    interrupt(tmp_path / "resumed", config, 27, monkeypatch)
    resume(tmp_path / "resumed", progress=False)
    assert same_run(tmp_path / "resumed", trained(tmp_path / "whole", config))
    kept, last = (load_run(tmp_path / "whole", which).model.state_dict() for which in ("best", "last"))
    memory = load_file(tmp_path / "whole" / "checkpoints" / "step-00000040" / "optimizer.safetensors")
    for name, weight in kept.items():
        assert torch.equal(weight, memory[f"{name}/average"])
        assert not torch.equal(weight, last[name])


@pytest.mark.parametrize(("before", "after"), [(0, 31), (35, 5)])
def test_an_average_that_is_accepted_later_is_that_of_the_weights_from_its_start(tmp_path, monkeypatch, before, after):
    """It counted the steps of a run without one from the resumption, and weights before that as zeros."""
    options = {"optimizer": Choice("sgd", {"learning_rate": 0.05}), "checkpoint_every": 1, "keep": 40}
    interrupt(tmp_path / "run", configured(average=AverageSettings(before), **options), 25, monkeypatch)
    (tmp_path / "run" / "config.yaml").write_text(configured(average=AverageSettings(after), **options).to_yaml())
    resume(tmp_path / "run", progress=False, accept=True)
    folder = tmp_path / "run" / "checkpoints"
    mean = Checkpoint(folder / "step-00000040", {}).tensors("optimizer")["first.weight/average"]
    begun = [step for step in range(1, 41) if (step >= before > 0 and step < 25) or (step >= after and step > 24)]
    passed = [Checkpoint(folder / f"step-{step:08}", {}).tensors("model")["first.weight"] for step in begun]
    assert torch.allclose(mean, torch.stack(passed).mean(0), atol=1e-6)


def test_an_average_is_left_behind_where_another_optimizer_goes_on_without_one(tmp_path, monkeypatch):
    """The optimiser took what was left of the mean for a memory of its own: a KeyError."""
    interrupt(tmp_path / "run", configured(average=AverageSettings(5)), 25, monkeypatch)
    config = configured(optimizer=Choice("momentum", {"learning_rate": 0.05}))
    (tmp_path / "run" / "config.yaml").write_text(config.to_yaml())
    resume(tmp_path / "run", progress=False, accept=True)
    assert not [name for name in weights(tmp_path / "run", "optimizer") if name.endswith("/average")]


@pytest.mark.parametrize(("precision", "step"), [("bfloat16", 11), ("float16", 40)])
def test_an_interrupted_run_in_halves_goes_on_to_the_same_bits(tmp_path, monkeypatch, precision, step):
    config = configured(precision=precision)
    interrupt(tmp_path / "resumed", config, step, monkeypatch)
    resume(tmp_path / "resumed", progress=False)
    assert same_run(tmp_path / "resumed", trained(tmp_path / "whole", config))


def test_patience_and_the_best_weights_survive_an_interruption(tmp_path, monkeypatch):
    config = configured(optimizer=Choice("sgd", {"learning_rate": 1e-30}), evaluate_every=4, patience=6)
    interrupt(tmp_path / "resumed", config, 23, monkeypatch)
    resume(tmp_path / "resumed", progress=False)
    assert finished(tmp_path / "resumed").steps == 28
    assert same_run(tmp_path / "resumed", trained(tmp_path / "whole", config))


def test_a_run_killed_before_its_result_reads_the_test_split_again(tmp_path):
    run = trained(tmp_path / "run", configured())
    result, metrics = finished(run), run / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    without_result(run, torn=20)
    again = resume(run, progress=False)
    assert (again.test, again.valid, again.best_step) == (result.test, result.valid, result.best_step)
    assert again.step_seconds == result.step_seconds
    assert len(metrics.read_bytes().splitlines()) == len(lines)


def test_a_finished_run_says_so_and_changes_nothing(tmp_path, capsys):
    run = trained(tmp_path / "run", configured())
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert resume(run) == finished(run)
    assert "is finished: it was trained for 40 steps" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"already holds a run: `edgewise resume .*` continues it; or name a new"):
        train(configured(seed=1), run, progress=False)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_damaged_newest_checkpoint_is_told_in_one_line_and_costs_only_time(tmp_path, capsys):
    run, whole = (trained(tmp_path / name, configured()) for name in ("run", "whole"))
    folder = run / "checkpoints"
    without_result(run)
    best = folder / "step-00000040" / "best.safetensors"
    best.write_bytes(best.read_bytes()[:-4] + b"\0\1\2\3")
    (folder / ".writing-step-00000050").mkdir()
    resume(run)
    told = capsys.readouterr().err.splitlines()
    assert "step-00000040 is damaged (best.safetensors); using the one before" in told[0]
    assert len(told) == 2  # that, and the last step's scores
    assert same_run(run, whole)
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000030", "step-00000040"]


def test_a_damaged_checkpoint_never_crowds_out_an_intact_one(tmp_path, monkeypatch):
    interrupt(tmp_path / "run", configured(keep=2, checkpoint_every=5), 24, monkeypatch)
    folder = tmp_path / "run" / "checkpoints"
    (folder / "step-00000020" / "model.safetensors").write_bytes(b"")
    resume(tmp_path / "run", progress=False)
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000035", "step-00000040"]
    assert same_run(tmp_path / "run", trained(tmp_path / "whole", configured(keep=2, checkpoint_every=5)))


@pytest.mark.parametrize(("before", "after"), [("momentum", "adamw"), ("muon", "sgd")])
def test_another_optimizer_begins_with_the_weights_where_it_is_accepted(tmp_path, monkeypatch, capsys, before, after):
    options = {"average": AverageSettings(start=5)}
    interrupt(tmp_path / "run", configured(optimizer=Choice(before), **options), 25, monkeypatch)
    (tmp_path / "run" / "config.yaml").write_text(configured(optimizer=Choice(after), **options).to_yaml())
    assert resume(tmp_path / "run", progress=False, accept=True).steps == 40
    assert f"the optimizer '{after}' begins anew" in capsys.readouterr().err
    memory = Checkpoint(tmp_path / "run" / "checkpoints" / "step-00000040", {}).tensors("optimizer")
    assert memory["first.weight/steps"] == 40


def test_a_changed_configuration_is_not_resumed(tmp_path, monkeypatch):
    interrupt(tmp_path / "run", configured(), 25, monkeypatch)
    (tmp_path / "run" / "config.yaml").write_text(configured(model={"width": 5}).to_yaml())
    with pytest.raises(CheckpointError, match=r"config.yaml was altered since step-00000020 .* go on .* --accept"):
        resume(tmp_path / "run", progress=False)
    with pytest.raises(CheckpointError, match="made for another model"):
        resume(tmp_path / "run", progress=False, accept=True)


def test_a_run_that_is_cut_short_before_its_first_evaluation_is_evaluated_then(tmp_path, monkeypatch):
    long = configured(evaluate_every=100, steps=200, checkpoint_every=10)
    interrupt(tmp_path / "cut", long, 25, monkeypatch)
    short = configured(evaluate_every=100, steps=20, checkpoint_every=10)
    (tmp_path / "cut" / "config.yaml").write_text(short.to_yaml())
    result = resume(tmp_path / "cut", progress=False, accept=True)
    train(short, tmp_path / "whole", progress=False)
    assert result.best_step == 20 and load_run(tmp_path / "cut").task.name == "tiny"
    expected, found = (load_run(tmp_path / name).model.state_dict() for name in ("whole", "cut"))
    assert all(torch.equal(w, found[name]) for name, w in expected.items())
