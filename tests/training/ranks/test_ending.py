"""Ranks that end by a mistake: a store in this process stands for `torchrun`'s."""

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from edgewise.training.ranks.ending import first_to_end


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment of a rank under `torchrun`."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "RANK": "1", "WORLD_SIZE": "2"}
    for name, value in (known | {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}).items():
        monkeypatch.setenv(name, value)
    yield
    del store


def test_ranks_that_end_alike_say_it_once(launched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [first_to_end(what) for what in ("no such file", "no such file", "no such recipe", "no such file")] == [
        True, False, True, False,
    ]  # fmt: skip
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert first_to_end("no such file")  # those that are started again have not said it


def test_without_a_launchers_store_each_rank_says_it(launched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "no port")
    assert [first_to_end("no such file") for _ in range(2)] == [True, True]
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE")
    assert first_to_end("no such file")


def test_the_launcher_reads_what_ended_a_rank(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    first_to_end("line 3: no number\nline 5: no number")
    failure = ProcessFailure(local_rank=1, pid=1, exitcode=2, error_file=str(tmp_path / "error.json"))
    assert failure.message["extraInfo"]["py_callstack"] == "line 3: no number\nline 5: no number"
    assert failure.timestamp > 1e9
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "gone" / "error.json"))
    assert first_to_end("line 3: no number")  # a launcher that has cleaned up needs no report
