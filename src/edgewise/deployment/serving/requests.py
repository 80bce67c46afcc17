"""What a request may hold: rows, and files that travel in it, each within bounds."""

from __future__ import annotations

import base64
import binascii
import json
import math
import tempfile
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from edgewise.tasks.core.task import EXAMPLE

FORM = 'a JSON object {"rows": [...]}'
NAME = 255  # bytes of a file's name, which is what file systems take
DISCARDED = 100_000_000  # bytes of a body that is too long, which are read before it is refused
SHOWN = 400  # characters of an error: those that repeat a row have its beginning and its end


@dataclass(frozen=True)
class Limits:
    """What one request may ask for.

    Args:
        bytes: Of its body.
        rows: Inputs in it.
        characters: Of a row.
        seconds: Until its body has come, and then until its predictions are there.
    """

    bytes: int = 8_000_000
    rows: int = 1024
    characters: int = 100_000
    seconds: float = 30.0


class Refusal(Exception):
    """A request that is not carried out: a status of HTTP, and what would be right."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def read_body(chunks: AsyncIterable[bytes], length: str | None, limits: Limits, *, waits: bool = False) -> bytes:
    """A request's body; of one that is too long no more than the limit is in memory.

    Symbols     length = what it says to be; waits = whether it is sent only once it is asked for
    Edge cases  one that is too long is read to its end, up to DISCARDED bytes: many clients read no answer before
    """
    refusal = Refusal(413, f"the body is longer than {limits.bytes:,} bytes: send fewer rows at a time")
    claimed, read, body = int(length) if length and length.isdecimal() else 0, 0, bytearray()
    too_long = claimed > limits.bytes
    if too_long and (waits or claimed > limits.bytes + DISCARDED):
        raise refusal
    async for chunk in chunks:
        read += len(chunk)
        too_long = too_long or read > limits.bytes
        if read > limits.bytes + DISCARDED:
            break
        if not too_long:
            body += chunk
    if too_long:
        raise refusal
    return bytes(body)


def read_rows(body: bytes, limits: Limits) -> list[Any]:
    """The rows of a body: texts, numbers, or files as objects of two texts."""
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not {FORM} ({_start(error)})") from error
    if not isinstance(content, dict) or set(content) != {"rows"} or not isinstance(content["rows"], list):
        raise Refusal(422, f"the body is not {FORM}")
    rows = content["rows"]
    if not rows:
        raise Refusal(422, "there is no row: give at least one")
    if len(rows) > limits.rows:
        raise Refusal(413, f"{len(rows):,} rows, of at most {limits.rows:,}: send fewer at a time")
    for number, row in enumerate(rows):
        if isinstance(row, str) and len(row) > limits.characters:
            raise Refusal(413, f"row {number}: {len(row):,} characters, of at most {limits.characters:,}")
    return rows


@contextmanager
def as_texts(rows: list[Any], suffixes: tuple[str, ...]) -> Iterator[tuple[list[str], str]]:
    """Rows as a task reads them, and the folder where their files are meanwhile, "" without any.

    A task that opens files gets none but those that travel in the request: a path in a row is refused.
    """
    if not any(isinstance(row, dict) for row in rows):
        yield [_text(number, row, suffixes) for number, row in enumerate(rows)], ""
        return
    with tempfile.TemporaryDirectory(prefix="edgewise-") as folder:
        texts = []
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                texts.append(_text(number, row, suffixes))
                continue
            name, content = _file(number, row, suffixes)
            place = Path(folder) / str(number) / name
            place.parent.mkdir()
            place.write_bytes(content)
            texts.append(str(place))
        yield texts, folder


def without_places(value: Any, folder: str) -> Any:
    """A prediction, or the words of an error, in which a file has its name alone."""
    if isinstance(value, dict):
        return {name: without_places(part, folder) for name, part in value.items()}
    if isinstance(value, str) and folder and folder in value:
        before, *parts = value.split(folder)
        return before + "".join(part.split("/", 2)[-1] for part in parts)
    return value


def _text(number: int, row: Any, suffixes: tuple[str, ...]) -> str:
    if isinstance(row, bool) or not isinstance(row, str | int | float):
        kinds = "a text or a number" + (', or {"file": NAME, "content": BASE64}' if suffixes else "")
        raise Refusal(422, f"row {number} is not {kinds}")
    if isinstance(row, float) and not math.isfinite(row):
        raise Refusal(422, f"row {number} is not a finite number")
    text = str(row)
    if suffixes and not EXAMPLE.fullmatch(text.strip()):
        right = '{"file": NAME, "content": BASE64}, or name an example as in "test:7"'
        raise Refusal(422, f"row {number}: files of this machine are not read: send {right}")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise Refusal(422, f"row {number} holds half of a character")
    return text


def _file(number: int, row: dict[str, Any], suffixes: tuple[str, ...]) -> tuple[str, bytes]:
    if not suffixes:
        raise Refusal(422, f"row {number}: this model reads no files")
    if set(row) != {"file", "content"} or not all(isinstance(part, str) for part in row.values()):
        raise Refusal(422, f'row {number} is not {{"file": NAME, "content": BASE64}}')
    name = row["file"]
    if not name.isprintable() or len(name.encode()) > NAME or Path(name).name != name or "\\" in name:
        raise Refusal(422, f"row {number}: give a file's name, of at most {NAME} bytes, without a folder")
    if Path(name).suffix.lower() not in suffixes:
        raise Refusal(422, f"row {number}: files that end with {', '.join(suffixes)} are read")
    try:
        return name, base64.b64decode(row["content"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refusal(422, f"row {number}: its content is not base64 ({_start(error)})") from error


def shortened(text: str) -> str:
    """The beginning and the end of a text that is too long to be shown.

    >>> len(shortened("9" * 100_000)) == SHOWN
    True
    """
    half = (SHOWN - 5) // 2
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 5 - half]} ... {text[-half:]}"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name is given twice")
    return content


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _start(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
