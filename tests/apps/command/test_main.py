import json
import os
import resource
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from edgewise.apps.command import main as command_line
from edgewise.apps.command.main import main, split_sections
from edgewise.apps.command.options import COMMANDS
from edgewise.errors import DataError
from edgewise.kernels.planning import machines


def test_help_answers_in_a_fifth_of_a_second_of_processor_time_and_without_torch() -> None:
    code = "import sys; from edgewise.apps.command.main import main; main(['--help']); print('torch' in sys.modules)"
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) <= 0.2
    assert done.stdout.splitlines()[-1] == "False"


STARTING = """
import sys
import edgewise
from edgewise import *
from edgewise.apps.command.main import main
heavy = ("torch._dynamo", "torch._inductor", "sympy", "networkx", "scipy.optimize", "scipy.sparse", "scipy.io",
         "sklearn", "polars", "triton", "tokenizers", "fastapi", "jinja2", "matplotlib", "PIL")
for words in (["list", "layers"], ["plan", "causal", "n=64"], ["train", "karate", "--train.steps", "2"],
              ["evaluate", "runs/karate-0"], ["predict", "runs/karate-0", "3"]):
    assert main(words) == 0
    loaded = [name for name in heavy if name in sys.modules]
    own = {word: ["networkx"] for word in ("train", "evaluate", "predict")}  # the data
    assert loaded == own.get(words[0], []), (words, loaded)
    for name in [name for name in sys.modules if name.split(".")[0] == "networkx"]:
        del sys.modules[name]
"""


@pytest.mark.processes
def test_a_command_loads_what_it_uses_such_as_networkx_for_its_data() -> None:
    done = subprocess.run([sys.executable, "-c", STARTING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_names_every_command_and_gives_examples(capsys) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    for command in COMMANDS:
        lines = [line for line in told.splitlines() if line.startswith(f"    {command} ")]
        assert len(lines) == 1, command
        assert len(lines[0]) <= 80
    assert "examples:" in told
    summaries = told[told.index("  COMMAND\n") : told.index("examples:")].strip().splitlines()
    assert len(summaries) == 1 + len(COMMANDS)  # none needs a second line


def test_the_help_of_a_recipe_shows_all_of_its_options(capsys) -> None:
    assert main(["train", "cora-gat", "--help"]) == 0
    told = capsys.readouterr().out
    for option in ("task.dataset", "graph", "model.layer.heads", "optimizer.betas", "schedule.warmup", "train.steps"):
        assert f"--{option} VALUE" in told
    assert "[0.6]" in told  # the recipe's own value, not the model's default
    assert "Attention heads of the hidden layers" in told


@pytest.mark.parametrize("arguments", [["--json", "list"], ["list", "recipes", "--json"]])
def test_json_ends_standard_output_with_one_object(arguments: list[str], capsys) -> None:
    assert main(arguments) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "cora-gcn" in {row["recipe"] for row in answer["recipes"]}


@pytest.mark.parametrize("table", ["layers", "models", "patterns", "backends", "tasks"])
def test_each_table_is_listed_with_a_description(table: str, capsys) -> None:
    assert main(["list", table, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])[table]
    assert len(rows) >= 3
    assert all(row["description"] for row in rows)


def test_plan_prints_the_candidates_and_the_refusals(capsys) -> None:
    assert main(["plan", "grid", "height=4", "width=5", "loops=false", "--score", "Kernel", "--json"]) == 0
    told = capsys.readouterr().out
    answer = json.loads(told.splitlines()[-1])
    assert answer["choice"] == answer["candidates"][0]["backend"]
    assert any(one["refusal"] for one in answer["candidates"])
    assert "ms" in told
    assert "refuses" in told


def test_plan_measures_a_device_and_prints_a_column_for_each_precision(capsys, monkeypatch) -> None:
    monkeypatch.setattr(
        machines, "calibrate", lambda device: {"cuda": machines.ASSUMED["cuda"], "cuda half": machines.ASSUMED["cpu"]}
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A card")
    assert main(["plan", "--calibrate", "--device", "cuda", "--json"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("A card, per second") and told.splitlines()[1].split() == ["cuda", "cuda", "half"]
    assert json.loads(told.splitlines()[-1])["machine"]["cuda half"]["flops"] == machines.ASSUMED["cpu"].flops


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("words", [["plan", "causal", "n=8"], ["plan", "--calibrate"]])
def test_a_gpu_that_is_not_there_is_told_of_in_one_line(words: list[str], capsys) -> None:
    assert main([*words, "--device", "cuda"]) == 2
    assert "no GPU of NVIDIA's here" in capsys.readouterr().err


def test_plan_takes_a_score_or_a_layer(capsys) -> None:
    assert main(["plan", "causal", "n=8", "--score", "Gaussian", "--layer", "EGNN"]) == 2
    assert "--score and --layer exclude one another" in capsys.readouterr().err


@pytest.mark.parametrize("score", ["GatedAdditive", "Gaussian"])
def test_plan_knows_every_score(score: str, capsys) -> None:
    assert main(["plan", "causal", "n=16", "--score", score, "--heads", "2", "--channels", "4"]) == 0
    assert "→" in capsys.readouterr().out


@pytest.mark.parametrize("layer", ["GAT", "EGNN", "SchNet", "TFN"])
def test_plan_shows_every_call_of_a_layer(layer: str, capsys) -> None:
    assert (
        main(["plan", "complete", "receivers=16", "--layer", layer, "--heads", "2", "--channels", "4", "--json"]) == 0
    )
    calls = json.loads(capsys.readouterr().out.splitlines()[-1])["calls"]
    assert all(call["choice"] == call["candidates"][0]["backend"] for call in calls)
    refusals = [one["refusal"] for call in calls for one in call["candidates"] if one["refusal"]]
    assert all("kernels run on NVIDIA GPUs" in reason or reason for reason in refusals) and refusals
    messages = {"EGNN": "EdgeReadout", "SchNet": "Filter", "TFN": "TensorProduct", "GraphNetwork": "EdgeNetwork"}
    assert messages.get(layer, "") in calls[0]["what"]


def test_sections_are_set_aside_wherever_they_stand() -> None:
    words = ["train", "--train.steps", "4", "cora", "--model.heads=2", "--seeds", "3", "--task.text=--x"]
    rest, sections = split_sections(words)
    assert rest == ["train", "cora", "--seeds", "3"]
    assert sections == [("train.steps", "4"), ("model.heads", "2"), ("task.text", "--x")]


def test_dots_in_other_commands_belong_to_the_user(trained, capsys) -> None:
    assert main(["generate", str(trained("text")), "--prompt=--a.b", "--steps", "1", "--temperature", "0"]) == 0
    assert "--a.b" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "edgewise: interrupted\n"),
        (OSError(28, "No space left on device", "runs/x"), 2, "edgewise: error: No space left on device: 'runs/x'\n"),
        (DataError("a.csv: line 2", "a.csv: line 7"), 2, f"edgewise: error: a.csv: line 2\n{' ' * 17}a.csv: line 7\n"),
        *(
            (short, 2, "too little memory")
            for short in (MemoryError("x"), RuntimeError("no memory"), OverflowError("x"))
        ),
        (RuntimeError("a fault of our own"), None, ""),
    ],
    ids=repr,
)
def test_what_ends_a_command_has_its_code_and_its_lines(error, code, said, monkeypatch, capsys) -> None:
    def ending(args: object) -> None:
        raise error

    monkeypatch.setattr(command_line, "run", ending)
    with nullcontext() if code else pytest.raises(type(error), match="a fault"):
        assert main(["list"]) == code
    assert said in capsys.readouterr().err


def unread(*command: str, cwd: Path, errors: bool = True) -> subprocess.CompletedProcess[str]:
    """A command whose output nobody reads, nor, without `errors`, standard error in the same pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "edgewise", *command]
    given: dict[str, Any] = {"cwd": cwd, "env": {**os.environ, "PYTHONUNBUFFERED": ""}}
    try:
        return subprocess.run(
            words, stdout=writer, stderr=subprocess.PIPE if errors else writer, text=True, check=False, **given
        )
    finally:
        os.close(writer)


@pytest.mark.processes
def test_a_reader_that_goes_away_ends_a_command_as_it_ends_others(tmp_path: Path) -> None:
    done = unread("list", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.processes
def test_runs_that_are_missing_where_nobody_reads_are_no_success(tmp_path: Path) -> None:
    done = unread("train", "karate", "--seeds", "2", "--train.steps", "2", cwd=tmp_path)
    assert done.returncode == 141
    assert done.stderr.splitlines()[-1].endswith("nobody reads standard output any more; 1 of 2 runs are trained")
    assert [run.name for run in (tmp_path / "runs").iterdir()] == ["karate-0"]


@pytest.mark.processes
@pytest.mark.parametrize("command", ["list", "tune karate --train.steps 2 --trials 3"])
def test_a_command_whose_errors_nobody_reads_either_ends_alike(command: str, tmp_path: Path) -> None:
    assert unread(*command.split(), cwd=tmp_path, errors=False).returncode == 141
