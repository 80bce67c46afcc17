"""Where caches lie, whatever the home folder is like; and files that appear whole."""

import errno
import gzip
import io
import os
import stat
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from edgewise.errors import DataError
from edgewise.files import cache_path, claimed, folder_name, gunzip, reading, whole, write_file


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """The folder of temporary files; and no other place is named."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary" / f"cache-{os.getuid()}" / "edgewise"


@pytest.fixture
def home(temporary, tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_folder_has_its_name_wherever_one_stands(tmp_path, monkeypatch):
    (tmp_path / "mine" / "old").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    assert [folder_name(tmp_path / name) for name in ("mine", "link", "mine/old/..")] == ["mine", "link", "mine"]
    monkeypatch.chdir(tmp_path / "mine")
    assert folder_name(Path()) == folder_name(Path("old/..")) == "mine" and folder_name(Path("old")) == "old"


def test_caches_lie_where_xdg_says_else_at_home(home, tmp_path, monkeypatch):
    assert cache_path("tiles", "card.json") == home / ".cache" / "edgewise" / "tiles" / "card.json"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_path("tiles") == tmp_path / "xdg" / "edgewise" / "tiles"
    for invalid in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", invalid)
        assert cache_path("tiles") == home / ".cache" / "edgewise" / "tiles"


def test_without_a_home_they_lie_among_temporary_files(temporary, monkeypatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert cache_path("tiles") == temporary / "tiles"


def test_a_home_that_cannot_be_written_is_still_read(home, temporary, monkeypatch):
    (home / ".cache" / "edgewise" / "tiles").mkdir(parents=True)
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_relative_to(home) and allowed(path, mode))
    assert cache_path("tiles") == home / ".cache" / "edgewise" / "tiles"
    assert cache_path("machines") == temporary / "machines"
    (temporary / "nbody").mkdir(parents=True)
    monkeypatch.setattr(os, "access", allowed)
    assert cache_path("nbody") == temporary / "nbody", "what is there is not prepared again"


def test_a_home_that_is_no_folder_is_none(home, temporary, monkeypatch):
    (home / "file").touch()
    monkeypatch.setenv("HOME", str(home / "file"))
    assert cache_path("tiles") == temporary / "tiles"


def test_where_nothing_can_be_written_there_is_a_path_all_the_same(home, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cache_path("tiles") == home / ".cache" / "edgewise" / "tiles"


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "new" / "numbers.txt"
    with whole(path) as part:
        part.write_text("1 2")
        assert list(path.parent.iterdir()) == [part]
    assert path.read_text() == "1 2" and list(path.parent.iterdir()) == [path]


def test_what_is_no_file_is_not_replaced(tmp_path, monkeypatch):
    """A user who may write in /dev had a file in the place of /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    refused = {"pipe": "Not a file that can be replaced: 'pipe'", "": "Is a directory: '.'"}
    for name, message in refused.items():
        with pytest.raises(OSError, match=message):
            write_file(Path(name), b"1 2")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"] and (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("alone", [True, False])
def test_a_file_that_cannot_be_written_is_called_as_its_user_calls_it(tmp_path, alone):
    path = tmp_path / "numbers.txt"

    def write() -> None:
        with whole(path, alone) as part:
            raise PermissionError(errno.EACCES, "Permission denied", str(part))

    with pytest.raises(PermissionError, match=f"Permission denied: '{path}'$"):
        write()


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("1 2")

    def write() -> None:
        with whole(path) as part:
            part.write_text("3")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert path.read_text() == "1 2" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("number", "stops"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_flushes_no_folders_is_none_that_fails(tmp_path, monkeypatch, number, stops):
    flushed = os.fsync

    def flush(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        flushed(descriptor)

    monkeypatch.setattr(os, "fsync", flush)
    with pytest.raises(OSError, match="Input") if stops else nullcontext():
        write_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
def test_a_folder_is_one_processs_own_until_it_lets_go(tmp_path, monkeypatch):
    with claimed(tmp_path) as first, claimed(tmp_path) as second:
        assert (first, second) == (True, False)
    with claimed(tmp_path) as again:
        assert again
    folder = tmp_path / "made"
    folder.mkdir()

    def moved_before_it_was_locked(descriptor: int, wait: bool) -> bool:
        folder.rename(tmp_path / "done")
        folder.mkdir()
        return True

    monkeypatch.setattr("edgewise.files.lock", moved_before_it_was_locked)
    with claimed(folder) as mine:
        assert not mine


def test_gzip_files_one_after_the_other_are_one():
    members, path = b"".join(map(gzip.compress, (b"one\n", b"", b"two\n"))), Path("a.gz")
    assert gunzip(path, members, 8) == gunzip(path, members + bytes(9), 8) == b"one\ntwo\n"
    for content, told in (
        (members, "more than the 7 bytes"),
        (members[:-1], "ends too early"),
        (b"", "ends too early"),
        (members + b"rubbish", "not an intact gzip file"),
    ):
        with pytest.raises(DataError, match=f"a.gz: .*{told}"):
            gunzip(path, content, 7 if "7" in told else 8)


def test_a_parser_s_words_hold_no_address():
    with pytest.raises(DataError) as error, reading("a.png", "a picture"):
        raise ValueError(f"cannot identify image file {io.BytesIO()!r}")
    assert str(error.value) == "a.png: not a picture (cannot identify image file)"
