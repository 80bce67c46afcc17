"""Predictions for a file of inputs, written as they come: a batch of inputs in memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

from edgewise.data.table import BEGINNING, ENDINGS, encoding_of, find_table, find_tables, is_table, lines_of, pieces
from edgewise.deployment.trained import Trained
from edgewise.errors import ConfigError, DataError, EdgewiseError
from edgewise.files import reading, whole
from edgewise.tasks.core.abilities import PredictsAll

BATCH = 512  # rows that a model reads at once
WRITERS = (".csv", ".parquet")
NUMBERS = ("value", "measured")  # what predictions call their numbers
Row = dict[str, Any]
Write = Callable[[list[Row]], None]


def predict_file(
    trained: Trained,
    file: Path | str,
    out: Path | str,
    column: str | None = None,
    *,
    batch: int = BATCH,
    done: Callable[[int], object] = lambda rows: None,
    say: Callable[[str], object] = lambda line: None,
) -> int:
    """Predict for each input of a file and write a table of the predictions; returns the number of rows.

    A .csv, .tsv or .parquet file has its inputs in a column (None: "input", or the only one), a .txt file one a line. A
    folder, or a .npz file in one, is another graph, of whose nodes each has a row, for tasks that read such graphs; a
    run on a table of one's own reads another one by the columns that it was trained with. The table that is written,
    .csv or .parquet, has the input and a column for each number or name of its prediction; it is written beside `out`
    and gets its name at the end, so that there is a whole one or none.

    Symbols     trained = `load` of a run; batch = rows that the model reads at once; done(rows) = called after each;
                say(line) = called with what another graph has that the trained one had not
    Errors      DataError for a file or an input that cannot be read: its line or row is named; ConfigError where `out`
                would take the place of an input
    Cost        memory of a batch of rows, and of all predictions where they are written as Parquet
    """
    file, out, rows = Path(file), Path(out), 0
    if out.suffix.lower() not in WRITERS:
        raise ConfigError(f"{out}: predictions are written to a file that ends with {' or '.join(WRITERS)}")
    if replaces(out, file):
        raise ConfigError(f"{out}: predictions would take the place of an input of {file}: write them elsewhere")
    graph = is_graph(file) or (trained.task.tables and column is None and is_table(file))
    made = rows_of(trained, file, batch, say) if graph else rows_for(trained, read_inputs(file, column), batch)
    with whole(out) as unfinished, writing(unfinished, out) as write:
        for part in made:
            write(part)
            rows += len(part)
            done(len(part))
        if not rows:
            raise DataError(f"{file}: it has no inputs")
    return rows


def is_graph(file: Path) -> bool:
    """Whether a place holds a graph instead of inputs: a folder, arrays, or a table of nodes beside one of edges."""
    beside = is_table(file) and file.stem.lower() == "nodes" and bool(find_tables(file.parent, "edges"))
    return file.is_dir() or file.suffix.lower() == ".npz" or beside


def replaces(out: Path, file: Path) -> bool:
    """Whether `out` is there already, as the file of inputs, a table beside it, or any file of a folder of them."""
    if not (out.exists() and file.exists()):
        return False
    links = find_tables(file.parent, "edges") if is_table(file) and file.stem.lower() in ("graphs", "nodes") else []
    beside = [table for name in ("graphs", "nodes") if links and (table := find_table(file.parent, name))]
    return out.resolve().is_relative_to(file.resolve()) or any(map(out.samefile, (file, *links, *beside)))


def rows_of(trained: Trained, place: Path, batch: int, say: Callable[[str], object]) -> Iterator[list[Row]]:
    """The predictions for another graph, some rows at a time."""
    if not isinstance(trained.task, PredictsAll):
        raise ConfigError(f"{trained.task.name} reads no other graph: {place} is a folder or holds arrays")
    task = trained.task.elsewhere(place)
    for change in task.changes or ():
        say(change)
    rows = task.table(trained.model, trained.pattern, trained.device)
    while part := [flat(row) for row in islice(rows, batch)]:
        yield part


def rows_for(trained: Trained, inputs: Iterator[tuple[str, str]], batch: int) -> Iterator[list[Row]]:
    """The predictions for inputs, a batch at a time; an empty one keeps its place, without a prediction."""
    waiting, classes = list[Row](), getattr(trained.task, "classes", ())
    while part := list(islice(inputs, batch)):
        given = [one for one in part if one[1]]
        made = iter(_predicted(trained, given) if given else ())
        rows = [{"input": text} | (flat(in_order(next(made), classes)) if text else {}) for _, text in part]
        waiting += rows
        if given:  # the first rows that are written have all columns
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def in_order(prediction: Mapping[str, Any], classes: Sequence[str]) -> dict[str, Any]:
    """A prediction whose probabilities are in the order of the classes: for people the likeliest comes first.

    >>> in_order({"class": "b", "probabilities": {"b": 0.9, "a": 0.1}}, ["a", "b"])
    {'class': 'b', 'probabilities': {'a': 0.1, 'b': 0.9}}
    """
    p, ordered = prediction.get("probabilities", {}), dict(prediction)
    if {*p} == {*classes} and p:
        ordered["probabilities"] = {name: p[name] for name in classes}
    return ordered


def read_inputs(file: Path, column: str | None = None) -> Iterator[tuple[str, str]]:
    """The inputs of a file, one after the other, each with where it stands."""
    readers = dict.fromkeys(ENDINGS, _table_inputs) | {".txt": _lines}
    ending = file.suffix.lower()
    if ending not in readers:
        raise DataError(f"{file}: inputs are in a file that ends with {', '.join(readers)}")
    if ending == ".txt" and column is not None:
        raise ConfigError(f"{file}: a text has no columns: leave out {column!r}")
    return readers[ending](file, column)


def flat(prediction: Mapping[str, Any], prefix: str = "") -> Row:
    """A prediction as a row: what is named below a name gets both, and lists are JSON.

    >>> flat({"class": "a", "probabilities": {"a": 0.9, "b": 0.1}, "links": [1, 2]})
    {'class': 'a', 'probabilities.a': 0.9, 'probabilities.b': 0.1, 'links': '[1, 2]'}
    """
    row: Row = {}
    for name, value in prediction.items():
        if isinstance(value, Mapping):
            row |= flat(value, f"{prefix}{name}.")
        else:
            listed = isinstance(value, list | tuple)
            row[f"{prefix}{name}"] = json.dumps(value, ensure_ascii=False) if listed else value
    return row


def refused(trained: Trained, rows: Sequence[str]) -> tuple[int, EdgewiseError] | None:
    """The first of some rows that cannot be read together: its number, and the reason; None where each can be alone.

    Cost        log2 of the number of rows predictions for ever fewer of them
    """
    start, rows = 0, list(rows)
    while len(rows) > 1:
        half = len(rows) // 2
        try:
            trained.predict(rows[:half], half)
            start, rows = start + half, rows[half:]
        except EdgewiseError:
            rows = rows[:half]
    try:
        trained.predict(rows)
    except EdgewiseError as error:
        return start, error
    return None


def _predicted(trained: Trained, part: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """The predictions of a batch; where one of its inputs cannot be read, that one is named."""
    rows = [text for _, text in part]
    try:
        return trained.predict(rows, len(rows))
    except EdgewiseError:
        if first := refused(trained, rows):
            raise DataError(f"{part[first[0]][0]}: {first[1]}") from first[1]
        raise


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _table_inputs(file: Path, column: str | None) -> Iterator[tuple[str, str]]:
    for part in pieces(file):
        if column is None and len(part.header) == 1 and _is_number(part.header[0]):
            raise DataError(
                f"{file}: its first line must name the column, but is the number {part.header[0]}: put 'input' above "
                f"it, or call the file {file.stem}.txt, with an input a line"
            )
        name = _column(file, [*part.header], column)
        for number, text in enumerate(part.cells(name)):
            yield part.at(number), text


def _lines(file: Path, column: str | None) -> Iterator[tuple[str, str]]:
    with reading(file, "a text of one input a line"), file.open("rb") as content:
        encoding = encoding_of(content.read(BEGINNING), whole=False)
        content.seek(0)
        for number, line in enumerate(lines_of(file, content, encoding), start=1):
            yield f"{file}: line {number}", line.rstrip("\r\n")


def _column(file: Path, names: list[str], column: str | None) -> str:
    wanted = column or ("input" if len(names) != 1 else names[0])
    if wanted not in names:
        raise DataError(
            f"{file}: it has no column {wanted!r}, only {', '.join(names) or 'none'}: name one of them by --column"
        )
    return wanted


@contextmanager
def writing(place: Path, out: Path) -> Iterator[Write]:
    """Rows to a table of the kind that the name `out` says, some at a time; the first ones have all columns.

    Errors      DataError for a later row that has another column, or in Parquet a value of another type
    """
    is_csv, names, parts = out.suffix.lower() == ".csv", list[str](), list[Any]()
    with place.open("w", newline="", encoding="utf-8") if is_csv else nullcontext() as file:

        def write(rows: list[Row]) -> None:
            begins = not names
            if begins:  # a prediction may have fewer than another, such as for an input without a label
                names.extend(dict.fromkeys(name for row in rows for name in row))
            for row in rows:
                if others := sorted(row.keys() - {*names}):
                    what = f"the first rows have no {others[0]!r}: predict for rows of one kind at a time"
                    raise DataError(f"{out}: {what}")
            columns = {name: [row.get(name) for row in rows] for name in names}
            if file is None:
                parts.append(_frame(columns, parts[0].schema if parts else None, out))
                return
            table = csv.writer(file)
            if begins:
                table.writerow(names)
            table.writerows(zip(*columns.values(), strict=True))

        yield write
    if parts:
        import polars

        polars.concat(parts).write_parquet(place)


def _frame(columns: dict[str, list[Any]], schema: Any, out: Path) -> Any:
    """The columns, in the types of earlier ones; among the first the type of an empty one is what its name says."""
    import polars

    with reading(out, "a table: a column has values of two types"):
        part = polars.DataFrame(columns, schema)
        empty = [name for name, kind in part.schema.items() if kind == polars.Null]
        return part.cast({n: polars.Float64 if n.rpartition(".")[2] in NUMBERS else polars.String for n in empty})
