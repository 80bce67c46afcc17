"""What a command that does not succeed says, and its code."""

import sys

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from edgewise.apps import console
from edgewise.apps.console import complained, interrupted, unread


def test_each_problem_is_a_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert complained("one\n thing", "an\x1bother") == 2
    assert capsys.readouterr().err == f"edgewise: error: one thing\n{' ' * 17}an\\x1bother\n"


def test_an_interruption_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert interrupted("go on with: edgewise resume r") == 130
    assert capsys.readouterr().err == "edgewise: interrupted; go on with: edgewise resume r\n"


def test_of_ranks_the_first_says_what_ends_it_and_the_launcher_reads_it_of_each(tmp_path, monkeypatch, capsys) -> None:
    file = tmp_path / "error.json"
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "TORCHELASTIC_ERROR_FILE": str(file)}.items():
        monkeypatch.setenv(name, value)
    waits: list[float] = []
    monkeypatch.setattr(console.time, "sleep", waits.append)
    assert complained("line 3: no number", "line 5: no number") == 2
    assert capsys.readouterr().err == ""
    assert waits == [console.PATIENCE]  # so that the first, which may come to it later, can say it
    failure = ProcessFailure(local_rank=1, pid=1, exitcode=2, error_file=str(file))
    assert failure.message["extraInfo"]["py_callstack"] == "line 3: no number\nline 5: no number"
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "gone" / "error.json"))
    assert complained("line 3: no number") == 2
    assert capsys.readouterr().err == "edgewise: error: line 3: no number\n"


def test_what_nobody_reads_is_let_go_and_advice_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch
) -> None:
    with (tmp_path / "out").open("w") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        file.write("unread")
        assert unread("2 of 5 runs are trained") == 141
    assert (tmp_path / "out").read_text() == ""
    assert capsys.readouterr().err.endswith("any more; 2 of 5 runs are trained\n")
