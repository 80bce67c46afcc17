"""Run folders that are damaged, altered or in the way, and inputs that a run cannot answer."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from apps.malformed.refused import complaint
from edgewise.apps.command.main import main


def configuration(text: bytes) -> Callable[[Path], None]:
    """Replace a run's configuration."""
    return lambda run: (run / "config.yaml").write_bytes(text) and None


def checkpoints(name: str, content: bytes) -> Callable[[Path], None]:
    """Replace a file of all checkpoints."""

    def damage(run: Path) -> None:
        for checkpoint in (run / "checkpoints").iterdir():
            (checkpoint / name).write_bytes(content)

    return damage


def no_configuration(run: Path) -> None:
    (run / "config.yaml").unlink()


def another_model(run: Path) -> None:
    text = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(text.replace("width: 8", "width: 16"), encoding="utf-8")


def no_checkpoints(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


def interrupted_early(run: Path) -> None:
    no_checkpoints(run)
    (run / "metrics.jsonl").write_bytes(b"")


def one_byte_altered(run: Path) -> None:
    for checkpoint in (run / "checkpoints").iterdir():
        weights = checkpoint / "best.safetensors"
        content = weights.read_bytes()
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


DAMAGE = {
    # what happened to the run folder: how, and a part of the complaint
    "no configuration": (no_configuration, "it holds no config.yaml"),
    "an empty configuration": (configuration(b""), "the configuration must hold options"),
    "a configuration that is a list": (configuration(b"[1]"), "the configuration must hold options"),
    "a configuration that is no YAML": (configuration(b"{"), "not valid YAML"),
    "a python tag": (configuration(b"task: !!python/object/apply:os.system [echo]"), "not valid YAML"),
    "a configuration without a task": (configuration(b"{layout: 5, model: gnn}"), "task is missing"),
    "a configuration that is binary": (configuration(b"\xff\xfe\x00"), "is not UTF-8 text"),
    "an older layout": (
        configuration(b"task: karate"),
        "has layout 1, and this version reads layout 5: go on with the",
    ),
    "a newer layout": (configuration(b"{layout: 6, task: karate}"), "has layout 6, and this version reads layout 5"),
    "an unknown layout": (configuration(b"{layout: new}"), "has an unknown layout, and this version reads layout 5"),
    "another model's configuration": (another_model, "config.yaml was altered since step-00000004 was saved"),
    "no checkpoints": (no_checkpoints, "is finished, and its checkpoints are gone: bring them back, or train it anew"),
    "interrupted before its first checkpoint": (interrupted_early, "has no checkpoint yet: `edgewise resume "),
    "truncated weights": (checkpoints("best.safetensors", b"\x08"), "is intact"),
    "one byte altered": (one_byte_altered, "is intact"),
    "an empty state": (checkpoints("state.json", b""), "is intact"),
    "a state that is no JSON": (checkpoints("state.json", b"{"), "is intact"),
    "a state that is a list": (checkpoints("state.json", b"[]"), "is intact"),
    "a state without hashes": (checkpoints("state.json", b'{"state": {}}'), "is intact"),
}

REQUESTS = {
    # run, command and input: a part of the complaint
    ("karate", "predict", "34"): "no node '34'",
    ("karate", "predict", "-1"): "no node '-1'",
    ("karate", "predict", "zebra"): "no node 'zebra'",
    ("karate", "predict", "1,,2"): "no node ''",
    ("karate", "predict", ""): "no node ''",
    ("karate", "predict", "99999999999999999999"): "no node",
    ("digits", "predict", "zebra"): "give a .npy or .png file",
    ("digits", "predict", "nowhere.npy"): "nowhere.npy",
    ("digits", "predict", "nowhere.png"): "nowhere.png",
    ("digits", "predict", "test:360"): "has 360 images in test",
    ("text", "predict", ""): "the prompt is empty",
    ("text", "predict", "\N{SNOWMAN}"): "character '☃' at position 0",
    ("text", "generate", ""): "the prompt is empty",
    ("text", "generate", "ab\N{SNOWMAN}"): "character '☃' at position 2",
    ("karate", "generate", "ab"): "karate generates nothing: only texts, graphs and images are written",
    ("digits", "generate", "ab"): "digits generates nothing: only texts, graphs and images are written",
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_run_is_refused(case: str, own, capsys) -> None:
    run = own("karate")
    damage, expected = DAMAGE[case]
    damage(run)
    assert expected in complaint(["evaluate", str(run)], capsys)


@pytest.mark.parametrize("command", ["resume RUN", "evaluate RUN", "predict RUN 3", "generate RUN"])
def test_every_command_refuses_a_run_of_another_layout(command: str, own, capsys) -> None:
    run = own("karate")
    config = run / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("layout: 5", "layout: 1"), encoding="utf-8")
    expected = f"{run} has layout 1, and this version reads layout 5: go on with the version that wrote it, or train it"
    assert expected in complaint(command.replace("RUN", str(run)).split(), capsys)
    assert expected in complaint(["train", "karate", "--start.run", str(run)], capsys)


def test_a_run_of_which_no_checkpoint_is_intact_is_refused_in_one_line(own, capsys) -> None:
    run = own("karate")
    checkpoints("state.json", b"{")(run)
    newest = max((run / "checkpoints").iterdir())
    assert main(["evaluate", str(run)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    advice = f"no checkpoint in {run}/checkpoints is intact: train in a new run folder"
    assert said.startswith(f"edgewise: error: {advice}; the checkpoint {newest} is damaged (")


@pytest.mark.parametrize("command", ["resume RUN", "evaluate RUN", "predict RUN 3", "generate RUN"])
def test_every_command_refuses_an_altered_run_until_it_is_accepted(command: str, own, capsys) -> None:
    run = own("karate")
    words = command.replace("RUN", str(run)).split()
    config, history = run / "config.yaml", run / "metrics.jsonl"
    config.write_text(config.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    assert f"{config} was altered since step-00000004 was saved: restore it, or go on" in complaint(words, capsys)
    history.write_bytes(history.read_bytes()[:-9])
    assert f"{config} was altered and {history} has lost its end" in complaint(words, capsys)
    capsys.readouterr()
    assert main([*words, "--accept"]) == (2 if "generate" in command else 0)  # this task generates nothing
    assert "since step-00000004 was saved; accepted" in capsys.readouterr().err


def test_an_accepted_configuration_must_still_fit_the_weights(own, capsys) -> None:
    run = own("karate")
    another_model(run)
    assert "was made for another model" in complaint(["evaluate", str(run), "--accept"], capsys)


@pytest.mark.parametrize(("run", "command", "request_"), REQUESTS)
def test_an_input_that_cannot_be_answered_is_refused(run: str, command: str, request_: str, trained, capsys) -> None:
    given = ["--", request_] if command == "predict" else [f"--prompt={request_}"]
    told = complaint([command, str(trained(run)), *given], capsys)
    assert REQUESTS[run, command, request_] in told


def test_a_run_folder_is_never_overwritten(own, capsys) -> None:
    run = own("karate")
    assert "already holds a run" in complaint(["train", "karate", "--run", str(run)], capsys)
    assert json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["step"] == 4


def test_a_run_folder_that_cannot_be_written_is_refused(capsys) -> None:
    Path("file").write_text("in the way", encoding="utf-8")
    assert "file" in complaint(["train", "karate", "--run", "file/run"], capsys)
