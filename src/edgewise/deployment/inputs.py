"""Inputs of predictions: those of a file, one after the other, and the prediction for each, or why there is none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from edgewise.data.rows import as_text
from edgewise.data.table import BEGINNING, ENDINGS, Problems, encoding_of, find_tables, is_table, lines_of, pieces
from edgewise.errors import ConfigError, DataError, EdgewiseError, a_kind
from edgewise.files import read_json, reading
from edgewise.tasks.core.abilities import ReadsTables
from edgewise.tasks.core.task import Task
from edgewise.tasks.text.tokenization import KeepsTokenizer

MAX_JSON = 1 << 26  # bytes of a file of objects
FRAMES = (".xyz", ".extxyz")  # files of several inputs, which a task that names them reads as a whole

Prediction = dict[str, Any]


class Input(NamedTuple):
    """An input of a file.

    Symbols     at = where it stands; request = as a task reads it, empty for a blank line; known = what of it a table
                of predictions has; wrong = why it cannot be read, where that is known before
    """

    at: str
    request: str
    known: Prediction
    wrong: str = ""


def attempts(
    predict: Callable[[Sequence[str]], list[Prediction]], requests: Sequence[str]
) -> list[Prediction | EdgewiseError]:
    """The prediction for each request, or why there is none.

    Symbols     predict = the predictions for several, an error where one of them cannot be read
    Cost        for each that cannot be read, log2 of their number predictions for ever fewer of them
    """
    try:
        return [*predict(requests)]
    except EdgewiseError as error:
        if len(requests) == 1:
            return [error]
        half = len(requests) // 2
        return [*attempts(predict, requests[:half]), *attempts(predict, requests[half:])]


def is_file_of_inputs(request: str | os.PathLike[str]) -> bool:
    """Whether a request names a folder, or a file of which each row is an input."""
    place = Path(os.fspath(request).strip() or os.devnull)
    try:
        return place.is_dir() or (
            place.suffix.lower() in (*ENDINGS, *FRAMES, ".json", ".txt", ".npz") and place.is_file()
        )
    except (OSError, ValueError):  # a long text, or one with a character that no name has
        return False


def one_input(request: str, task: Task) -> str:
    """An input as a task reads it: of a .json file the object that it holds. A task of texts reads no other file."""
    place = Path(request.strip() or os.devnull)
    if place.suffix.lower() != ".json" or not is_file_of_inputs(request):
        if isinstance(task, KeepsTokenizer) and is_file_of_inputs(request) and not place.is_dir():
            raise DataError(f"{request} is the name of a file, not a text")
        return request
    row = read_json(place, "JSON", MAX_JSON)
    if not isinstance(row, dict):
        raise DataError(f"{request}: it holds {a_kind(row)}, not one object, as {getattr(task, 'form', '') or '{...}'}")
    return as_text(row)


def is_graph(file: Path) -> bool:
    """Whether a place holds a graph instead of inputs: a folder, arrays, or a table of nodes beside one of edges."""
    beside = is_table(file) and file.stem.lower() == "nodes" and bool(find_tables(file.parent, "edges"))
    return file.is_dir() or file.suffix.lower() == ".npz" or beside


def is_whole(file: Path, column: str | None, task: Task) -> bool:
    """Whether a task reads a place as other data of the kind that it was trained with, and not input by input."""
    table = task.tables and column is None and is_table(file) and not isinstance(task, ReadsTables)
    frames = file.suffix.lower() in FRAMES and {*FRAMES} <= {*getattr(task, "files", ())}
    return is_graph(file) or frames or (table and file.suffix.lower() != ".jsonl")


def in_order(prediction: Mapping[str, Any], classes: Sequence[str]) -> Prediction:
    """A prediction whose probabilities are in the order of the classes: for people the likeliest comes first.

    >>> in_order({"class": "b", "probabilities": {"b": 0.9, "a": 0.1}}, ["a", "b"])
    {'class': 'b', 'probabilities': {'a': 0.1, 'b': 0.9}}
    """
    p, ordered = prediction.get("probabilities", {}), dict(prediction)
    if {*p} == {*classes} and p:
        ordered["probabilities"] = {name: p[name] for name in classes}
    return ordered


def read_inputs(file: Path, column: str | None = None, task: Task | None = None) -> Iterator[Input]:
    """The inputs of a file, one after the other: of a table by its columns, of a .txt file a line each, of JSON the
    objects of a list or of lines."""
    ending = file.suffix.lower()
    if ending in (".txt", ".json") and column is not None:
        raise ConfigError(f"{file}: a {'text' if ending == '.txt' else 'list'} has no columns: leave out {column!r}")
    if ending == ".txt":
        return _lines(file)
    if ending == ".json":
        return _objects(file)
    if ending not in ENDINGS:
        raise DataError(f"{file}: inputs are in a file that ends with {', '.join((*ENDINGS, '.json', '.txt'))}")
    objects = ending == ".jsonl" and column is None and not isinstance(task, ReadsTables)
    return _lines(file, objects) if objects else _rows(file, column, task)


def _rows(file: Path, column: str | None, task: Task | None) -> Iterator[Input]:
    problems, row = Problems(), 0
    for part in pieces(file, problems=problems):
        told = [*problems.taken(), *part.problems]
        if column is None and len(part.header) == 1 and _is_number(part.header[0]):
            raise DataError(
                f"{file}: its first line must name the column, but is the number {part.header[0]}: put 'input' above "
                f"it, or call the file {file.stem}.txt, with an input a line"
            )
        if column is None and isinstance(task, ReadsTables):
            meaning, name, named_by = task.columns_in(part)
            names = part.names(named_by) if named_by else map(str, range(row, row + len(part)))
            known = [{task.unit[:-1]: one} for one in names]
        else:
            meaning, name = "", _column(file, [*part.header], column)
            known = [{"input": text} for text in part.cells(name)]
        for number, (text, own) in enumerate(zip(part.cells(name), known, strict=True)):
            wrong = "" if text or meaning else "there is no input"
            yield Input(part.at(number), as_text({meaning: text}) if meaning else text, own, wrong)
        yield from (Input("", "", {}, wrong) for wrong in told)
        row += len(part)


def _lines(file: Path, objects: bool = False) -> Iterator[Input]:
    with reading(file, "a text of one input a line"), file.open("rb") as content:
        encoding = encoding_of(content.read(BEGINNING), whole=False)
        content.seek(0)
        for number, line in enumerate(lines_of(file, content, encoding), start=1):
            text = line.rstrip("\r\n")
            if text.strip() or not objects:
                yield Input(f"{file}: line {number}", text, {"input": text})


def _objects(file: Path) -> Iterator[Input]:
    made = read_json(file, "JSON", MAX_JSON)
    for number, row in enumerate(made if isinstance(made, list) else [made]):
        yield Input(f"{file}: row {number}", text := as_text(row), {"input": text})


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _column(file: Path, names: list[str], column: str | None) -> str:
    wanted = column or ("input" if len(names) != 1 else names[0])
    if wanted not in names:
        raise DataError(
            f"{file}: it has no column {wanted!r}, only {', '.join(names) or 'none'}: name one of them by --column"
        )
    return wanted
