"""What a request may hold."""

import asyncio
import base64
import re
from pathlib import Path

import pytest

from edgewise.deployment.serving import requests
from edgewise.deployment.serving.requests import Limits, Refusal, as_texts, read_body, read_rows, without_places

PNG = (".npy", ".png")


async def chunks(*parts: bytes):
    for part in parts:
        yield part


def body(*parts: bytes, length: str | None = None, waits: bool = False) -> bytes:
    return asyncio.run(read_body(chunks(*parts), length, Limits(bytes=10), waits=waits))


def test_a_body_is_read_up_to_its_limit() -> None:
    assert body(b"12345", b"67890", length="10") == b"1234567890"
    for parts, length in [((b"",), "11"), ((b"123456", b"78901"), None)]:
        with pytest.raises(Refusal, match="longer than 10 bytes") as refusal:
            body(*parts, length=length)
        assert refusal.value.status == 413


@pytest.mark.parametrize("length", ["abc", "-5", "1e3", ""])
def test_a_length_that_is_no_number_says_nothing(length: str) -> None:
    assert body(b"12345", length=length) == b"12345"
    with pytest.raises(Refusal, match="longer than 10 bytes"):
        body(b"123456", b"78901", length=length)


@pytest.mark.parametrize(
    ("length", "waits", "parts", "left"),
    [("60", False, 6, 0), (None, False, 6, 0), (None, False, 20, 8), ("60", True, 6, 6), ("111", False, 6, 6)],
)
def test_a_body_that_is_too_long_is_read_to_its_end_within_bounds(
    length: str | None, waits: bool, parts: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "DISCARDED", 100)
    unread = [b"1234567890"] * parts

    async def popped():
        while unread:
            yield unread.pop()

    with pytest.raises(Refusal, match="longer than 10 bytes"):
        asyncio.run(read_body(popped(), length, Limits(bytes=10), waits=waits))
    assert len(unread) == left


def test_rows_are_texts_and_numbers() -> None:
    rows = read_rows(b'{"rows": ["a", 3, 0.5]}', Limits())
    with as_texts(rows, ()) as (texts, folder):
        assert (texts, folder) == (["a", "3", "0.5"], "")


@pytest.mark.parametrize(
    ("content", "status", "why"),
    [
        (b"", 400, "not a JSON object"),
        (b"\xff", 400, "not a JSON object"),
        (b"[" * 100_000, 400, "not a JSON object"),
        (b'{"rows": [' + b"9" * 5000 + b"]}", 400, "not a JSON object"),
        (b'{"rows": [NaN]}', 400, "NaN is no number of JSON"),
        (b'{"rows": [1], "rows": [2]}', 400, "a name is given twice"),
        (b'{"rows": [{"file": "a.png", "file": "b.png", "content": ""}]}', 400, "a name is given twice"),
        (b'{"rows": ' + b'[{"a": ' * 50_000, 400, "not a JSON object"),
        (b'["a"]', 422, "not a JSON object"),
        (b'{"rows": "a"}', 422, "not a JSON object"),
        (b'{"rows": ["a"], "more": 1}', 422, "not a JSON object"),
        (b'{"rows": []}', 422, "give at least one"),
        (b'{"rows": [1, 2, 3, 4]}', 413, "4 rows, of at most 3"),
        (b'{"rows": [1, "abcdef"]}', 413, "row 1: 6 characters, of at most 5"),
    ],
)
def test_other_bodies_are_refused(content: bytes, status: int, why: str) -> None:
    with pytest.raises(Refusal, match=why) as refusal:
        read_rows(content, Limits(rows=3, characters=5))
    assert refusal.value.status == status


@pytest.mark.parametrize("row", [None, True, [], ["a"], {}, {"file": "a.png"}, float("inf"), "\ud800"])
def test_other_rows_are_refused(row) -> None:
    with pytest.raises(Refusal, match="row 1") as refusal, as_texts(["test:0", row], ()):
        pass
    assert refusal.value.status == 422


def test_a_file_travels_in_the_request_and_is_gone_after_it() -> None:
    sent = {"file": "three.png", "content": base64.b64encode(b"pixels").decode()}
    with as_texts(["test:3", sent, sent], PNG) as (texts, folder):
        first, *places = texts
        assert first == "test:3" and len(set(places)) == 2
        assert [Path(place).read_bytes() for place in places] == [b"pixels"] * 2
        prediction = {"image": places[1], "probabilities": {"a": 0.5}, "why": f"{places[0]}: no"}
        named = {"image": "three.png", "probabilities": {"a": 0.5}, "why": "three.png: no"}
        assert without_places(prediction, folder) == named
    assert not Path(folder).exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "three.png", "../three.npy", "~/a.png", "test:7/../a.png", " "])
def test_a_path_in_a_row_is_not_read(path: str) -> None:
    with pytest.raises(Refusal, match="files of this machine are not read"), as_texts([path], PNG):
        pass


@pytest.mark.parametrize(
    "sent",
    [
        {"file": "../three.png", "content": ""},
        {"file": "/tmp/three.png", "content": ""},  # noqa: S108
        {"file": "..", "content": ""},
        {"file": "a\\b.png", "content": ""},
        {"file": "a\0.png", "content": ""},
        {"file": "a" * 252 + ".png", "content": ""},
        {"file": "数" * 84 + ".png", "content": ""},
        {"file": "three.exe", "content": ""},
        {"file": "three.png", "content": "no base64!"},
        {"file": "three.png", "content": "é"},
        {"file": "three.png", "content": 3},
        {"file": "three.png", "content": "", "more": ""},
    ],
)
def test_a_file_has_a_plain_name_and_a_content(sent) -> None:
    with pytest.raises(Refusal, match="row 0"), as_texts([sent], PNG):
        pass


def test_only_tasks_with_files_take_a_request_for_a_path() -> None:
    """A task that opens what a request names says so, or a service would open any file for anyone."""
    tasks = Path(__file__).parents[3] / "src" / "edgewise" / "tasks"
    opening = {
        path: text for path in tasks.rglob("*.py") if "Path(request" in (text := path.read_text(encoding="utf-8"))
    }
    assert len(opening) == 5
    assert [
        path.name for path, text in opening.items() if not re.search(r"^    files\b.* = ", text, re.MULTILINE)
    ] == []
