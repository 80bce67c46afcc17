"""The journal and the display: lines that survive, one writer at a time, and quiet where nobody watches."""

import errno
import hashlib
import json
import re
import sys
from contextlib import closing
from io import StringIO

import pytest

from edgewise.errors import CheckpointError, ConfigError, installing
from edgewise.training import journal as module
from edgewise.training.journal import Display, Journal, digest
from fuzz.disk import Disk


def test_lines_are_on_the_disk_at_once_and_can_be_cut(tmp_path):
    journal = Journal(tmp_path)
    journal.write({"step": 1, "loss": 0.5})
    length = journal.known()["bytes"]
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"step": 1, "loss": 0.5}\n'
    journal.write({"step": 2, "loss": 0.25})
    journal.cut(length)
    journal.cut(10**6)  # longer than the file: it stays as it is
    journal.write({"step": 3})
    journal.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 3]


def test_a_line_that_has_lost_its_end_is_removed_with_what_followed(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": 2}\n{"ste')
    with closing(Journal(tmp_path)) as journal:
        journal.cut(10**6)
        journal.write({"step": 3})
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3]
    for length, left in ((30, b'{"step": 1}\n{"step": 2}\n'), (20, b'{"step": 1}\n'), (0, b"")):
        with closing(Journal(tmp_path)) as journal:
            journal.cut(length)
            assert (tmp_path / "metrics.jsonl").read_bytes() == left
            assert journal.known()["sha256"] == hashlib.sha256(left).hexdigest()


def test_nothing_is_removed_where_the_file_cannot_be_read_whole(tmp_path):
    content = b"{}\n" * 99
    (tmp_path / "metrics.jsonl").write_bytes(content)
    disk = Disk(tmp_path, "short", at=1, reading=True)
    what = r"metrics\.jsonl: \d+ bytes could not be read"
    with closing(Journal(tmp_path)) as journal, disk.attached(), pytest.raises(CheckpointError, match=what):
        journal.cut(10**6)
    assert (tmp_path / "metrics.jsonl").read_bytes() == content


def test_a_file_that_cannot_be_read_whole_is_not_hashed_and_not_held(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b"{}\n" * 99)
    whole = digest(tmp_path / "metrics.jsonl").hexdigest()
    for fault, message in (("EIO", "Input/output error"), ("short", "297 bytes could not be read")):
        disk = Disk(tmp_path, fault, at=1, reading=True)
        with disk.attached(), pytest.raises(CheckpointError, match=rf"metrics\.jsonl: {message}"):
            Journal(tmp_path)
    with Disk(tmp_path, "trickle", reading=True).attached(), closing(Journal(tmp_path)) as journal:
        assert journal.known() == {"bytes": 297, "sha256": whole}


def test_a_second_writer_is_refused_until_the_first_is_gone(tmp_path):
    first = Journal(tmp_path)
    with pytest.raises(ConfigError, match="another process is training"):
        Journal(tmp_path)
    first.close()
    Journal(tmp_path).close()


def test_what_cannot_be_written_is_a_named_error(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    journal = Journal(tmp_path)
    with pytest.raises(CheckpointError, match=r"cannot write .*metrics\.jsonl: No space left"):
        journal.write({"step": 1})
    journal.close()
    with pytest.raises(CheckpointError, match="cannot write"):
        Journal(tmp_path / "nowhere")


def test_tensorboard_draws_every_number_by_its_name(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    journal = Journal(tmp_path, tensorboard=True)
    journal.write({"step": 5, "loss": 0.5, "gradient_norm": None, "seconds": 2.0})
    journal.write({"step": 5, "valid": {"loss": 0.75, "accuracy": 0.25}, "metric": "accuracy"})
    journal.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "seconds", "valid/loss", "valid/accuracy"}
    assert [(point.step, point.value) for point in events.Scalars("valid/loss")] == [(5, 0.75)]


def test_without_the_extra_tensorboard_is_refused_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=re.escape(installing("tensorboard"))):
        module.summary_writer()


def test_on_a_terminal_there_is_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    display = Display(steps=4, done=2, shown=True)
    display.advance()
    display.scores(3, "loss 0.5", last=False)
    display.advance()
    display.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert "4/4" in err
    assert "loss 0.5" in err


def test_where_nobody_listens_nothing_is_told(capsys):
    display = Display(steps=1, done=0, shown=False)
    display.advance()
    display.scores(1, "loss", last=True)
    display.close()
    assert capsys.readouterr() == ("", "")


class Full(StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_line_that_standard_error_does_not_take_is_lost_alone(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Full())
        display = Display(9, 0, shown=True)
        display.scores(9, "loss 1", last=True)
        display.close()
