import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from edgewise.apps import recipes
from edgewise.apps.command.main import main
from edgewise.apps.command.runs import rehearse
from edgewise.apps.tuning import study as studies
from edgewise.apps.tuning.search import Search
from edgewise.apps.tuning.space import written
from edgewise.apps.tuning.study import Study, cut
from edgewise.errors import CheckpointError, ConfigError, NonFiniteError

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
    with (killed / studies.JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 6, "trial')  # a line that the kill has torn
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


def test_processes_begin_one_search_together(tmp_path, monkeypatch):
    writing, before = threading.Event(), studies.write_file

    def write_slowly(path: Path, content: bytes) -> None:
        writing.set()
        time.sleep(0.3)
        before(path, content)

    monkeypatch.setattr(studies, "write_file", write_slowly)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(opened, tmp_path / "t")
        assert writing.wait(60)
        second = pool.submit(opened, tmp_path / "t")
        assert first.result().search.to_plain() == second.result().search.to_plain()
    (tmp_path / "t" / studies.SEARCH).unlink()
    with pytest.raises(ConfigError, match="holds something else"):  # trials of a search that is not known
        opened(tmp_path / "t")


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


def test_a_folder_that_another_process_works_in_is_not_entered(tmp_path):
    first, second = opened(tmp_path / "t"), opened(tmp_path / "t")
    first.claim(0)
    with pytest.raises(ConfigError, match=f"another process works in .*{os.sep}0"):
        second.take(8)
    first.release()


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
    list(study.carry_out(12, 60))
    refused = [one for one in study.done() if studies.REFUSED in one.user_attrs]
    assert {(one.params["model.heads"], one.params["model.width"]) for one in refused} == {("3", "8")}
    assert all("3" in one.user_attrs[studies.REFUSED] for one in refused)
    assert len(study.complete()) + len(refused) <= 12 and study.complete()


def fails(monkeypatch, number, error):
    """From now on this trial raises the error, and others train."""
    train = studies.carry_out

    def carry_out(config, run, watch):
        if run.parent.name == str(number):
            raise error
        return train(config, run, watch)

    monkeypatch.setattr(studies, "carry_out", carry_out)


def test_a_recipe_that_does_not_run_ends_no_search(tmp_path, monkeypatch):
    """It ended at the first trial, and every next call did so again."""
    study = opened(tmp_path / "t")
    fails(monkeypatch, 0, NonFiniteError("step 1: the loss is nan"))
    list(study.carry_out(2, 60))
    assert study.refused() == {0: "step 1: the loss is nan"}
    assert [one.number for one in study.complete()] == [1] and study.recipes_own() is None


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory.\nMore of it.")])
def test_values_that_take_too_much_memory_end_no_search(tmp_path, monkeypatch, error):
    study = opened(tmp_path / "t")
    fails(monkeypatch, 0, error)
    list(study.carry_out(2, 60))
    assert study.refused() == {0: f"this machine has too little memory for it ({type(error).__name__})"}
    assert [one.number for one in study.complete()] == [1]


def test_a_later_trial_that_fails_is_counted_with_its_reason_and_ends_no_search(tmp_path, monkeypatch):
    study = opened(tmp_path / "t")
    fails(monkeypatch, 1, RuntimeError("mat1 and mat2 shapes cannot be multiplied\nand more"))
    list(study.carry_out(3, 60))
    assert study.refused() == {1: "mat1 and mat2 shapes cannot be multiplied (RuntimeError)"}
    assert sorted(one.number for one in study.complete()) == [0, 2]


def test_an_error_of_the_device_ends_a_search_whichever_trial_it_meets(tmp_path, monkeypatch):
    study = opened(tmp_path / "t")
    fails(monkeypatch, 1, RuntimeError("CUDA error: device-side assert triggered"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        list(study.carry_out(3, 60))
    assert study.refused() == {}


def test_an_error_of_other_kinds_in_the_first_trial_ends_a_search(tmp_path, monkeypatch):
    def carry_out(config, run, watch):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(studies, "carry_out", carry_out)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        list(opened(tmp_path / "t").carry_out(1, 60))


def test_what_no_values_can_help_ends_a_search(tmp_path, monkeypatch):
    def carry_out(config, run, watch):
        raise CheckpointError("cannot write the checkpoint: no space left")

    monkeypatch.setattr(studies, "carry_out", carry_out)
    study = opened(tmp_path / "t")
    with pytest.raises(CheckpointError, match="no space left"):
        list(study.carry_out(2, 60))
    assert study.refused() == {}


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


def test_a_torn_line_is_cut(tmp_path):
    journal = tmp_path / "journal"
    cut(journal)
    assert not journal.exists()
    journal.write_bytes(b'{"a": 1}\n{"b": 2}\n{"c"')
    cut(journal)
    assert [json.loads(line) for line in journal.read_text().splitlines()] == [{"a": 1}, {"b": 2}]


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
