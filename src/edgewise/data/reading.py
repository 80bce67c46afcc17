"""Tables from files, whole or in pieces; what is wrong is named by line or row."""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from edgewise.data.dialect import BEGINNING, Dialect, dialect_of
from edgewise.data.lines import PIECE, pieces_of_csv, read_csv
from edgewise.data.parquet import names_in_parquet, names_of_parquet, pieces_of_parquet, read_parquet
from edgewise.data.table import Table, check_names
from edgewise.errors import DataError
from edgewise.files import read_bytes

MAX_BYTES = 1 << 28
ENDINGS = (".csv", ".tsv", ".parquet")


def is_table(path: Path) -> bool:
    """Whether a file is a table, by how its name ends, in small letters or capitals."""
    return path.suffix.lower() in ENDINGS


def find_table(place: Path, name: str) -> Path | None:
    """name.csv, name.tsv or name.parquet of a folder, or None; of two, it would be a guess which is meant."""
    files = [path for path in _tables_in(place) if path.stem.lower() == name]
    if len(files) > 1:
        raise DataError(f"{place}: it has {files[0].name} and {files[1].name}: leave one of them")
    return files[0] if files else None


def find_tables(place: Path, name: str) -> list[Path]:
    """name.csv or the like, and all others whose name begins so, as edges-friends.csv and edges_work.parquet."""
    one = find_table(place, name)
    more = (path for path in _tables_in(place) if re.match(f"{name}[-_.]", path.stem, re.IGNORECASE))
    return [*([one] if one else []), *more]


def _tables_in(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if is_table(path) and path.is_file()) if place.is_dir() else []


class File:
    """A file that is a table, and how it is written.

    Errors      DataError: a file that is missing, empty, or longer than such a file may be
    """

    def __init__(self, path: Path) -> None:
        self.path, self.content = path, read_bytes(path, MAX_BYTES)
        parquet = path.suffix.lower() == ".parquet"
        self.dialect = None if parquet else dialect_of(self.content, ending=path.suffix)
        if self.dialect is not None and not self.content.strip():
            check_names(path, (), ())

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.dialect.names) if self.dialect else names_of_parquet(self.path, self.content)

    def table(self, needed: Sequence[str] = (), texts: Collection[str] = (), guess: bool = True) -> Table:
        """Its columns, as `read_table` gives them.

        Symbols     guess: also columns of which a sample holds texts are read as such
        """
        if self.dialect is None:
            return read_parquet(self.path, self.content, needed)
        return read_csv(self.path, self.content, needed, {*texts, *(self.dialect.texts if guess else ())}, self.dialect)


def read_table(path: Path, needed: Sequence[str], texts: Collection[str] = ()) -> Table:
    """A file's columns by name; in a CSV file, those of `texts` hold texts and the others numbers.

    Errors      DataError: a file that is missing, malformed or too long, a column of `needed` that it lacks, or two of
                one name. EdgewiseError: Parquet without pyarrow
    """
    table = File(path).table(needed, texts, guess=False)
    if table.problems:
        raise DataError(*table.problems)
    return table


def pieces(path: Path, needed: Sequence[str], texts: Collection[str] = (), rows: int = PIECE) -> Iterator[Table]:
    """The rows of a file of any length, at most so many at a time; columns and errors are those of `read_table`.

    Errors      DataError, too, for a group of rows of a Parquet file that unpacks to more than `check_pages` allows
    Cost        memory of one piece and, of a Parquet file, of one group of rows
    """
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".parquet":
                yield from pieces_of_parquet(path, file, needed, rows)
            else:
                dialect: Dialect = dialect_of(file.read(BEGINNING), whole=False, ending=path.suffix)
                file.seek(0)
                yield from pieces_of_csv(path, file, needed, texts, rows, dialect)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def names_in(path: Path) -> list[str]:
    """The names of the columns of a file of any length."""
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".parquet":
                return names_in_parquet(path, file)
            return list(dialect_of(file.read(BEGINNING), whole=False, ending=path.suffix).names)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def unread(place: Path, files: Sequence[Path]) -> tuple[str, ...]:
    """A line that names the other files of a folder, where there are any."""
    known = {file.name for file in files}
    others = sorted(file.name for file in place.iterdir() if file.is_file() and file.name not in known)
    more = f" and {len(others) - 10} more" if len(others) > 10 else ""
    return (f"not read: {', '.join(others[:10])}{more}",) if others else ()
