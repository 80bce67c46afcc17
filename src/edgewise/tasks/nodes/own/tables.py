"""A graph of one's own from tables, one of its nodes and one or more of its edges; all problems are said at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from edgewise.data.ends import NODES
from edgewise.data.features import Array, Kind, in_lines, read_columns
from edgewise.data.lines import Problems
from edgewise.data.reading import File, unread
from edgewise.data.splits import Splits, named
from edgewise.data.table import EXACT, Called, Table
from edgewise.errors import DataError, counted
from edgewise.tasks.nodes.own.given import DEGREE, Given
from edgewise.tasks.own.edges import EdgeFile, columns_of, ends_of, found_ends, strangers
from edgewise.tasks.own.record import Fitted
from edgewise.tasks.own.rows import labels_of

MAX_NODES = 1 << 21  # of a table: each has a name

Kinds = Mapping[str, Kind]


@dataclass(frozen=True)
class Reading:
    """How tables are to be read.

    Args:
        ignore: Columns that are not read.
        id: The column that names the nodes; "row": they are their rows; empty: found by its name or by what it holds.
        labels: The columns with targets.
        ends: The columns of edges with senders and receivers; empty: found.
        labelled: Whether labels must be there; if not, neither they nor parts are read.
        known: The kinds of the columns that are read of nodes and of edges; None: all that are left, by guess.
        found: The columns that a run found, as `Given` has them: they are not looked for where they are there.
    """

    ignore: frozenset[str] = frozenset()
    id: str = ""
    labels: tuple[str, ...] = ("label",)
    ends: tuple[str, ...] = ()
    labelled: bool = True
    known: tuple[Kinds, Kinds] | None = None
    found: Mapping[str, str] = field(default_factory=dict)

    def like(self, fitted: Fitted) -> Self:
        """The same, with the columns that a run read."""
        return replace(self, known=fitted.kinds, found=fitted.names or {})


def read_tables(nodes: Path, edges: Sequence[Path], how: Reading) -> Given:
    """The nodes and edges of tables.

    Errors      DataError with all that is wrong: rows, cells, columns and names that do not fit
    """
    file, problems = File(nodes), Problems()
    links = [EdgeFile(path, how.ends) for path in edges]
    lower, known = Called(nodes, file.names, how.ignore), how.known[0] if how.known else ()
    labels = [lower.meant(name) for name in how.labels]
    has_split = how.labelled and "split" in lower
    split = lower["split"] if has_split else lower.get("split", "split")
    named_by = _named(nodes, file, how, lower)
    texts = [name for name in (named_by, *labels, split) if name in file.names]
    needed = labels if how.labelled else ()
    table = file.table(needed, texts)
    if not named_by and how.id != "row" and file.dialect and (alike := _alike(table)):
        table = file.table(needed, [*texts, *alike])
    if not len(table) and not table.problems:
        raise DataError(f"{nodes}: it has no nodes: no line follows the columns' names")
    if len(table) > MAX_NODES:
        raise DataError(f"{nodes}: {len(table):,} nodes, of at most {MAX_NODES:,}: such a graph is read from graph.npz")
    notes = [*table.notes, *(note for one in links for note in one.table.notes)]
    if (
        not named_by
        and how.id != "row"
        and (named_by := _covering(table, links, {*how.ignore, *labels, split, *known}) or "")
    ):
        notes.append(f"{named_by} names the nodes: each end of an edge is one of its cells")
    names = table.names(named_by) if named_by else [str(row) for row in range(len(table))]
    present, taken = {*file.names}, {*how.ignore, named_by, *labels, split, ""}
    others = [name for name in file.names if name not in taken]
    features = others if how.known is None else [] if [*how.known[0]] == [DEGREE] else [*how.known[0]]
    read = [name for name in (*features, *needed, *([split] if has_split else ())) if name in present]
    rows = _distinct(table, names, read, problems)
    if len(rows) < len(names):
        notes.append(f"{nodes.name}: {counted(len(names) - len(rows), 'repeated row')}, read once")
        names = [names[row] for row in rows.tolist()]
    number_of = {name: number for number, name in enumerate(names)}
    for one in links:
        one.look(number_of, how.known and how.known[1], how.found)
        notes += one.note()
    for problem in (*table.problems, *(problem for one in links for problem in one.table.problems)):
        problems.add(problem)
    for problem in _misfits(nodes, file, links, how, features, {named_by, *labels}):
        problems.add(problem)
    x, wrong = read_columns(file, table, [name for name in features if name in present], how.known and how.known[0])
    e, wrong_edges = columns_of(links, {*how.ignore}, how.known and how.known[1])
    ends = ends_of(links, number_of, problems)
    splits: Splits = {}
    try:
        if has_split:
            parts = table.texts(split)
            splits = named([parts[row] for row in rows], lambda n: table.at(int(rows[n])))
    except DataError as error:
        problems.add(str(error))
    if told := [*wrong, *wrong_edges, *problems.sentences()]:
        raise DataError(*told)
    of_targets = [labels_of(file, name, table.texts(name)) for name in labels] if how.labelled else []
    kept = {*features}
    new = [name for name in others if name not in kept]
    new += [name for one in links for name in one.names if how.known and name not in {*one.ends, *how.known[1]}]
    new += ["without a name"] * ("" in file.names)
    notes += [*in_lines(x), *in_lines(e, "of edges: "), *_left_out(new)]
    files = (nodes, *edges)
    own = names if named_by else None
    return Given(
        nodes.parent,
        files,
        len(rows),
        ends,
        own,
        [column.taken(rows) for column in x],
        tuple(labels) if how.labelled else (),
        [[known[row] for row in rows.tolist()] for known in of_targets],
        splits,
        (*notes, *unread(nodes.parent, files)),
        e or None,
        ({"node": named_by} if named_by else {}) | found_ends(links),
    )


def _named(nodes: Path, file: File, how: Reading, lower: Mapping[str, str]) -> str:
    """The column that is chosen to name the nodes, or that is called so; or nothing."""
    if how.id and how.id != "row":
        if how.id not in file.names:
            raise DataError(f"{nodes}: it has no column {how.id!r} that names the nodes, only {', '.join(file.names)}")
        return how.id
    if not how.id and how.found.get("node") in file.names:
        return how.found["node"]
    found = [lower[name] for name in NODES if name in lower]
    if len(found) > 1 and not how.id:
        raise DataError(
            f"{nodes}: {' or '.join(found)}, which names the nodes? Give --task.id, or --task.ignore the other"
        )
    return found[0] if found and not how.id else ""


def _alike(table: Table) -> list[str]:
    """The columns of numbers that may hold names, of which several are one number: codes, and beyond 2⁵³."""
    numbers = {name: cells for name, cells in table.columns.items() if isinstance(cells, np.ndarray)}
    return [name for name in numbers if name in table.strange or bool((np.abs(numbers[name]) >= EXACT).any())]


def _covering(table: Table, links: Sequence[EdgeFile], left_out: set[str]) -> str | None:
    """The one column of which each cell is another, and that has all ends of edges; None: nodes are their rows."""
    ends = {name for one in links for end in one.ends for name in one.names_of(end)}
    rows = {str(row) for row in range(len(table))}
    fitting = []
    for name, cells in table.columns.items():
        if name in left_out or not ends or isinstance(cells, str):
            continue
        if isinstance(cells, np.ndarray) and (
            bool((cells != np.round(cells)).any())
            or len(np.unique(cells)) < len(table)  # before texts are made of them
        ):
            continue
        texts = {*table.texts(name)}
        if len(texts) == len(table) and ends <= texts and texts != rows:
            fitting.append(name)
    if len(fitting) > 1 or (fitting and ends <= rows):
        choice = ", ".join([*fitting, *(["row"] if ends <= rows else [])])
        raise DataError(f"{table.path}: what names the nodes? Give --task.id, one of {choice}")
    return fitting[0] if fitting else None


def _distinct(table: Table, names: Sequence[str], read: Sequence[str], problems: Problems) -> Array:
    """The first row of each name; a later one must be the same in the columns that are read."""
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        before = first.setdefault(name, row)
        if not name:
            problems.add(f"{table.at(row)}: the node has no name")
        elif before != row and not table.same(row, before, read):
            twice = f"is there twice, with other cells in {table.rows[0]} {table.rows[1][before]}"
            problems.add(f"{table.at(row)}: the node {name[:40]!r} {twice}")
    return np.fromiter(first.values(), np.int64, len(first))


def _misfits(
    nodes: Path, file: File, links: Sequence[EdgeFile], how: Reading, features: Sequence[str], needed: set[str]
) -> list[str]:
    """What is wrong with the names of columns."""
    problems, present = [], {*file.names}
    if lacking := [name for name in features if name not in present]:
        problems.append(f"{nodes}: it lacks the columns {', '.join(lacking)}, which the run was trained with")
    present |= {name for one in links for name in one.names}
    needed = needed | {end for one in links for end in one.ends}
    if wrong := how.ignore & needed:
        problems.append(f"{nodes.parent}: the columns {', '.join(sorted(wrong))} are needed: they cannot be ignored")
    split = next((name for name in file.names if name.lower() == "split"), "")
    if split and not how.labelled and how.known is None and split not in how.ignore:
        problems.append(f"{nodes}: nothing reads its column {split}, which parts nodes: give --task.ignore {split}")
    known = how.known or ()
    return problems + (strangers(nodes.parent, how.ignore, present, len(links), *known) if how.labelled else [])


def _left_out(names: Sequence[str]) -> list[str]:
    return [f"not read: the columns {', '.join(dict.fromkeys(names))}"] if names else []
