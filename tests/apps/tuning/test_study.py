import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgewise.apps import recipes
from edgewise.apps.command.main import main
from edgewise.apps.command.runs import rehearse
from edgewise.apps.options import configure
from edgewise.apps.tuning import study as studies
from edgewise.apps.tuning.space import written
from edgewise.apps.tuning.study import Search, Study, carry_out
from edgewise.errors import CheckpointError, ConfigError, NonFiniteError
from edgewise.training import read_metrics, train

pytest.importorskip("optuna", reason="edgewise tune needs it")

OVERRIDES = [("train.steps", "8"), ("evaluation.every", "1"), ("train.checkpoints.every", "1"), ("model.width", "8")]
SEARCHED = ["optimizer.learning_rate=0.001..0.1", "model.depth=1..3"]
COMMAND = [f"--{name}={value}" for name, value in OVERRIDES] + [f"--search={text}" for text in SEARCHED]


def opened(folder: Path, overrides=OVERRIDES, texts=SEARCHED, repeats: int = 1, recipe: str = "karate") -> Study:
    search = Search(recipes.read(recipe), overrides, [written(text) for text in texts], repeats)
    study = Study(search, folder, rehearse(search.config))
    study.open()
    return study


def figures(study: Study) -> dict[int, tuple[dict, float | None]]:
    return {studies.folder_of(one): (one.params, one.value) for one in study.done()}


@pytest.mark.processes
def test_trials_left_by_a_kill_are_finished_to_the_same_figure(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "edgewise", "tune", "karate", *COMMAND, "--train.steps=100", "--trials=1"]
    process = subprocess.Popen([*command, "--run", killed], stdout=subprocess.DEVNULL, env=os.environ)
    run = killed / "trials" / "0" / "seed-0"
    while not (run / "checkpoints").is_dir() or not list((run / "checkpoints").glob("step-*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    overrides = [*OVERRIDES[1:], ("train.steps", "100")]
    config = (run / "config.yaml").stat().st_mtime_ns
    study = opened(killed, overrides)
    left = study.trials(study.states.RUNNING)
    assert [studies.folder_of(one) for one in left] == [0]
    list(study.carry_out(1, 60))
    assert (run / "config.yaml").stat().st_mtime_ns == config  # it went on, and did not begin anew
    undisturbed = opened(whole, overrides)
    list(undisturbed.carry_out(1, 60))
    assert figures(study) == figures(undisturbed)
    assert len(study.done()) == 1


@pytest.mark.processes
def test_processes_share_the_trials(tmp_path):
    command = [sys.executable, "-m", "edgewise", "tune", "karate", *COMMAND, "--trials=8", "--run", str(tmp_path / "t")]
    opened(tmp_path / "t")
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) for _ in range(2)]
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    lines = [line for text in printed for line in text.splitlines() if line.startswith("trial ")]
    assert sorted(int(line.split()[1].rstrip(":")) for line in lines) == list(range(8))
    study = opened(tmp_path / "t")
    assert len(study.done()) == 8 and study.elsewhere() == []
    assert len(list((tmp_path / "t" / "best").iterdir())) == 1


def test_two_processes_that_follow_two_killed_ones_go_on_with_a_trial_each(tmp_path):
    killed = [opened(tmp_path / "t") for _ in range(2)]
    assert [studies.folder_of(one.take(8)) for one in killed] == [0, 1]
    for one in killed:
        one.release()  # as a kill does: two open files of one process lock each other out as two processes do
    first, second = opened(tmp_path / "t"), opened(tmp_path / "t")
    trials = [one.take(8) for one in (first, second)]
    assert [studies.folder_of(trial) for trial in trials] == [0, 1]
    assert [list(one.locks) for one in (first, second)] == [[0], [1]]
    first.release()
    assert first.elsewhere() == [1]
    first.optuna.tell(trials[0], 0.5)
    assert studies.folder_of(first.take(8)) == 4  # as each of the two has a number of its own once more
    second.optuna.tell(trials[1], 0.7)
    for one in (first, second):
        one.release()


def test_a_trial_is_stopped_early_where_it_is_worse_than_the_median(tmp_path, monkeypatch):
    study = opened(tmp_path / "t")
    values = iter([0.9] * 5 + [0.1])

    def carry_out(config, run, watch):
        value = next(values)
        for step in range(1, 9):
            watch(step, value)
        return type("Result", (), {"valid": value})

    monkeypatch.setattr(studies, "carry_out", carry_out)
    list(study.carry_out(6, 60))
    states = [one.state for one in study.done()]
    assert states == [study.states.COMPLETE] * 5 + [study.states.PRUNED]
    assert len(study.done()[-1].intermediate_values) < 8


def test_a_trial_that_runs_out_of_time_is_the_next_calls_first(tmp_path):
    study = opened(tmp_path / "t")
    assert list(study.carry_out(3, 1e-6)) == [] and not study.done()
    again = opened(tmp_path / "t")
    assert [studies.folder_of(one) for one in again.carry_out(1, 60)] == [0]


def test_values_that_do_not_go_together_are_said_and_end_no_search(tmp_path):
    study = opened(tmp_path / "t", OVERRIDES[:3], ["model.heads=1,3", "model.width=8,9"], recipe="karate")
    list(study.carry_out(6, 60))
    refused = [one for one in study.done() if studies.REFUSED in one.user_attrs]
    assert {(one.params["model.heads"], one.params["model.width"]) for one in refused} == {("3", "8")}
    assert all("3" in one.user_attrs[studies.REFUSED] for one in refused)
    assert len(study.complete()) + len(refused) <= 6 and study.complete()


@pytest.mark.parametrize(
    ("number", "error", "said"),
    [
        (0, NonFiniteError("step 1: the loss is nan"), "step 1: the loss is nan"),
        (0, MemoryError(), "this machine has too little memory for it (MemoryError)"),
        (1, RuntimeError("mat1 and mat2 shapes cannot be multiplied\nand more"), "mat1 and mat2"),
        (0, RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),  # so would all others
        (1, RuntimeError("CUDA error: device-side assert triggered"), None),
        (1, CheckpointError("cannot write the checkpoint: no space left"), None),
    ],
)
def test_a_trial_that_fails_by_its_values_ends_no_search(tmp_path, monkeypatch, number, error, said):
    def fails(config, run, watch):
        if run.parent.name == str(number):
            raise error
        return SimpleNamespace(valid=0.5)

    monkeypatch.setattr(studies, "carry_out", fails)
    study = opened(tmp_path / "t")
    with nullcontext() if said else pytest.raises(type(error)):
        list(study.carry_out(2, 60))
    assert [one.number for one in study.complete()] == ([1 - number] if said or number else [])
    assert bool(study.refused()) == bool(said) and (said or "") in study.refused().get(number, "")


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds something else"):
        opened(tmp_path)
    opened(tmp_path / "t")
    with pytest.raises(ConfigError, match="another search: its 'search'"):
        opened(tmp_path / "t", texts=["model.depth=1..2"])
    with pytest.raises(ConfigError, match="another search: its 'recipe'"):
        opened(tmp_path / "t", overrides=OVERRIDES[1:])
    with pytest.raises(ConfigError, match="another search: its 'repeat'"):
        opened(tmp_path / "t", repeats=2)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["notes.txt"]


def test_without_optuna_the_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["tune", "karate", "--run", str(tmp_path / "t")]) == 2
    assert "edgewise tune needs Optuna" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()


def test_a_trial_is_worth_the_mean_of_its_runs(tmp_path, monkeypatch):
    study = opened(tmp_path / "t", repeats=2)
    values = iter([0.25, 0.75])
    monkeypatch.setattr(studies, "carry_out", lambda *_: SimpleNamespace(valid=next(values)))
    list(study.carry_out(1, 60))
    assert study.recipes_own() == 0.5


class Stopped(Exception):
    pass


def test_a_trial_is_the_run_without_its_test_and_goes_on_to_the_same_figure(tmp_path):
    options = [("train.steps", "6"), ("evaluation.every", "2"), ("train.checkpoints.every", "2"), ("model.width", "8")]
    config, steps = configure(recipes.read("karate"), options), list[int]()

    def stop(step: int, value: float) -> None:
        if step == 4:
            raise Stopped

    with pytest.raises(Stopped):
        carry_out(config, tmp_path / "stopped", stop)
    result = carry_out(config, tmp_path / "stopped", lambda step, _: steps.append(step))
    assert steps == [4, 6]  # from the checkpoint of step 2
    assert carry_out(config, tmp_path / "stopped", stop).valid == result.valid  # a finished one is read
    run = train(config, tmp_path / "run", progress=False)
    assert (result.valid, result.best_step, result.test) == (run.valid, run.best_step, None)
    assert run.test is not None and not any("test" in record for record in read_metrics(tmp_path / "stopped"))


def test_trials_share_seeds_and_the_reading_of_the_test_has_fresh_ones():
    search = Search(recipes.read("karate"), [("train.seed", "5")], [written("model.depth=1..3")], repeats=3)
    seeds = [config.train.seed for config in search.repetitions({"model.depth": 2})]
    fresh = [config.train.seed for config in search.repetitions({"model.depth": 2}, fresh=True)]
    assert (seeds, fresh) == ([5, 6, 7], [8, 9, 10])
    assert {config.model.options["depth"] for config in search.repetitions({"model.depth": 2})} == {2}


def test_folds_are_the_same_and_their_seeds_fresh():
    search = Search(recipes.read("texas-sage"), [], [written("model.depth=1..3")], repeats=2, folds=True)
    configs = search.repetitions({}), search.repetitions({}, fresh=True)
    assert [[one.task.options["fold"] for one in some] for some in configs] == [[0, 1], [0, 1]]
    assert [[one.train.seed for one in some] for some in configs] == [[0, 1], [2, 3]]
    assert [search.run_name(one) for one in configs[1]] == ["fold-0", "fold-1"]
