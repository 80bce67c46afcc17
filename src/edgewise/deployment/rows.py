"""Predictions for a file of inputs, written as they come: a batch of inputs in memory."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from edgewise.data.table import Problems, find_table, find_tables, is_table
from edgewise.deployment.answering import flat
from edgewise.deployment.trained import BATCH, Skipped, Trained
from edgewise.errors import ConfigError, DataError, counted
from edgewise.files import reading, whole

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
    skip: bool = False,
) -> int:
    """Predict for each input of a file and write a table of the predictions; returns the number of rows.

    A .csv, .tsv or .parquet file has its inputs in a column (None: "input", or the only one), a .txt file one a line, a
    .json or .jsonl file objects. A folder, or a .npz file in one, is another graph, of whose nodes each has a row, for
    tasks that read such graphs; a run on a table of one's own reads another one by the columns that it was trained
    with. The table that is written,
    .csv or .parquet, has the input and a column for each number or name of its prediction; it is written beside `out`
    and gets its name at the end, so that there is a whole one or none.

    Symbols     trained = `load` of a run; batch = rows that the model reads at once; done(rows) = called after each;
                say(line) = called with what another graph has that the trained one had not; skip = leave out inputs
                that cannot be read, which are listed with the reasons in a table beside `out`, OUT.skipped.csv
    Errors      DataError for a file or inputs that cannot be read: their lines or rows are named; ConfigError where
                `out` would take the place of an input
    Cost        memory of a batch of rows, and of all predictions where they are written as Parquet
    """
    file, out, rows = Path(file), Path(out), 0
    if out.suffix.lower() not in WRITERS:
        raise ConfigError(f"{out}: predictions are written to a file that ends with {' or '.join(WRITERS)}")
    if replaces(out, file):
        raise ConfigError(f"{out}: predictions would take the place of an input of {file}: write them elsewhere")
    skipped = list[Skipped]() if skip else None
    with whole(out) as unfinished, writing(unfinished, out) as write:
        for part in trained.of_file(file, column, batch, say, skipped):
            write([flat(row) for row in part])
            rows += len(part)
            done(len(part))
        if not rows:
            problems = Problems(f"{at}: {why}" if at else why for at, why in skipped or ())
            raise DataError(f"{file}: it has no inputs{' that can be read' if skipped else ''}", *problems.sentences())
    if skipped:
        say(f"{counted(len(skipped), 'input')} skipped: {list_skipped(out, skipped)} says why")
    return rows


def list_skipped(out: Path, skipped: Sequence[Skipped]) -> Path:
    """Write the table of the inputs that were left out."""
    place = out.with_name(f"{out.stem}.skipped.csv")
    with whole(place) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("place", "reason"), *skipped])
    return place


def replaces(out: Path, file: Path) -> bool:
    """Whether `out` is there already, as the file of inputs, a table beside it, or any file of a folder of them."""
    if not (out.exists() and file.exists()):
        return False
    links = find_tables(file.parent, "edges") if is_table(file) and file.stem.lower() in ("graphs", "nodes") else []
    beside = [table for name in ("graphs", "nodes") if links and (table := find_table(file.parent, name))]
    return out.resolve().is_relative_to(file.resolve()) or any(map(out.samefile, (file, *links, *beside)))


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
