"""Tables as people have them, and what a person would read there: `python tests/tasks/nodes/own/messy.py FOLDER` writes
a folder for each, with expected.json beside its files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

COUNT = 12  # nodes of a case
LABELS = [("u", "v")[row % 2] for row in range(COUNT)]
RING = [(row, (row + 1) % COUNT) for row in range(COUNT)]
LONG = 2_000_000


@dataclass
class Read:
    """What is to be read.

    Args:
        columns: The kind of each feature, with the levels of a category in brackets.
        first: The first values of some columns; None: missing.
        target: "class" or "number".
        classes: The classes' names.
        names: The first nodes' names.
        nodes, edges: How many there are; edges as the tables list them.
        edge_columns: As `columns`, of edges.
        said: What the summary must say.
    """

    columns: dict[str, str]
    first: dict[str, list[Any]] = field(default_factory=dict)
    target: str = "class"
    classes: Sequence[str] = ("u", "v")
    names: Sequence[str] = ()
    nodes: int = COUNT
    edges: int = COUNT
    edge_columns: dict[str, str] = field(default_factory=dict)
    said: Sequence[str] = ()


@dataclass
class Refused:
    """A message that holds all of these."""

    problems: Sequence[str]


@dataclass
class Case:
    """Files by name, and what is to become of them."""

    files: dict[str, bytes]
    expected: Read | Refused


CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    """Add a case by its function's name."""
    CASES[make.__name__] = make
    return make


def lines(head: Sequence[str], rows: Sequence[Sequence[object]], separator: str = ",", end: str = "\n") -> str:
    """A table as text; cells are written as they are."""
    return end.join([separator.join(head), *(separator.join(map(str, row)) for row in rows)]) + end


def table(columns: dict[str, Sequence[object]], separator: str = ",", labels: Sequence[object] = LABELS) -> str:
    """A table of nodes with ids n0, n1, ...; columns are repeated to their length."""
    made = {name: [cells[row % len(cells)] for row in range(COUNT)] for name, cells in columns.items()}
    ids = [f"n{row}" for row in range(COUNT)]
    return lines(["id", *made, "label"], list(zip(ids, *made.values(), labels, strict=True)), separator)


def edges(
    name: Callable[[int], object] = lambda row: f"n{row}", head: Sequence[str] = ("source", "target"), by: str = ","
) -> bytes:
    """A ring."""
    return lines(head, [(name(a), name(b)) for a, b in RING], by).encode()


def plainly(nodes: str | bytes, expected: Read | Refused, links: bytes | None = None, suffix: str = "csv") -> Case:
    """A case of nodes, with the ring as edges."""
    content = nodes.encode() if isinstance(nodes, str) else nodes
    return Case({f"nodes.{suffix}": content, "edges.csv": links or edges()}, expected)


AGES = list(range(20, 20 + COUNT))
AGE = Read({"age": "number"}, {"age": AGES[:3]}, names=["n0", "n1"])


@case
def plain() -> Case:
    return plainly(table({"age": AGES}), AGE)


@case
def byte_order_mark() -> Case:
    return plainly(table({"age": AGES}).encode("utf-8-sig"), AGE, edges().decode().encode("utf-8-sig"))


@case
def utf_16() -> Case:
    return plainly(table({"age": AGES}, "\t").encode("utf-16"), AGE)


@case
def western() -> Case:
    text = table({"city": ["Zürich", "Köln", "Paris"]}, ";")
    expected = Read({"city": "category (Köln, Paris, Zürich)"}, said=["cp1252", "';'"])
    return plainly(text.encode("cp1252"), expected)


@case
def cyrillic() -> Case:
    return plainly(table({"city": ["Москва", "Киев"]}).encode("cp1251"), Refused(["nodes.csv", "utf-8"]))


@case
def decimal_commas() -> Case:
    text = table({"height": ["1,75", "1,8", "1,625"], "age": AGES}, ";")
    expected = Read(
        {"height": "number", "age": "number"}, {"height": [1.75, 1.8, 1.625]}, said=["decimal commas in height"]
    )
    return plainly(text, expected)


@case
def decimal_commas_in_quotes() -> Case:
    return plainly(
        table({"height": ['"1,75"', '"1,8"'], "age": AGES}),
        Read({"height": "number", "age": "number"}, {"height": [1.75, 1.8]}),
    )


@case
def german_thousands() -> Case:
    return plainly(
        table({"pay": ["1.234,50", "12.000,00", "987,5"]}, ";"),
        Read({"pay": "number"}, {"pay": [1234.5, 12000, 987.5]}),
    )


@case
def english_thousands() -> Case:
    return plainly(
        table({"pay": ['"1,234.5"', '"12,000"', "987"]}), Read({"pay": "number"}, {"pay": [1234.5, 12000, 987]})
    )


@case
def percent() -> Case:
    return plainly(table({"share": ["12%", "7.5 %", "100%"]}), Read({"share": "number"}, {"share": [12, 7.5, 100]}))


@case
def tabs() -> Case:
    return plainly(table({"age": AGES}, "\t"), AGE, suffix="tsv")


@case
def bars() -> Case:
    return plainly(table({"age": AGES}, "|"), AGE, edges(by="|"))


@case
def quotes() -> Case:
    text = table({"city": ['"Bonn, West"', '"the ""old"" one"', '"two\nlines"'], "age": AGES})
    expected = Read({"city": 'category (Bonn, West, the "old" one, two\nlines)', "age": "number"}, {"age": AGES[:3]})
    return plainly(text, expected)


@case
def semicolons_in_cells() -> Case:
    return plainly(table({"tags": ["a;b", "c;d"], "age": AGES}), Read({"tags": "category (a;b, c;d)", "age": "number"}))


@case
def missing() -> Case:
    text = table({"age": ["20", "NA", "n/a", "-", "?", ""], "city": ["Ulm", "", "Bonn"]})
    expected = Read({"age": "number", "city": "category (Bonn, Ulm)"}, {"age": [20, None, None, None, None, None, 20]})
    return plainly(text, expected)


@case
def truth() -> Case:
    text = table({"member": ["yes", "No", "YES", ""], "paid": ["TRUE", "false", "False"]})
    expected = Read({"member": "boolean", "paid": "boolean"}, {"member": [1, 0, 1, None], "paid": [1, 0, 0]})
    return plainly(text, expected)


@case
def zeros_and_ones() -> Case:
    return plainly(
        table({"paid": ["1", "0", "1"], "age": AGES}), Read({"paid": "boolean", "age": "number"}, {"paid": [1, 0, 1]})
    )


@case
def names_with_commas() -> Case:
    names = [f"Müller, {row}" for row in range(COUNT)]
    text = lines(
        ["id", "age", "label"],
        [(f'"{name}"', age, label) for name, age, label in zip(names, AGES, LABELS, strict=True)],
    )
    expected = Read({"age": "number"}, names=names[:2])
    return plainly(text, expected, edges(lambda row: f'"{names[row]}"'))


@case
def numbers_as_names() -> Case:
    rows = [(1001 + row, AGES[row], LABELS[row]) for row in range(COUNT)]
    expected = Read({"age": "number"}, names=["1001", "1002"], said=["person_no names the nodes"])
    return plainly(lines(["person_no", "age", "label"], rows), expected, edges(lambda row: 1001 + row))


@case
def codes_as_names() -> Case:
    rows = [(f"{row:03}", AGES[row], LABELS[row]) for row in range(COUNT)]
    return plainly(
        lines(["id", "age", "label"], rows),
        Read({"age": "number"}, names=["000", "001"]),
        edges(lambda row: f"{row:03}"),
    )


@case
def names_in_a_column_of_any_name() -> Case:
    rows = [(AGES[row], f"p{row}", LABELS[row]) for row in range(COUNT)]
    expected = Read({"age": "number"}, names=["p0", "p1"], said=["who names the nodes"])
    return plainly(lines(["age", "who", "label"], rows), expected, edges(lambda row: f"p{row}"))


@case
def rows_as_names() -> Case:
    rows = [(AGES[row], LABELS[row]) for row in range(COUNT)]
    return plainly(
        lines(["age", "label"], rows), Read({"age": "number"}, {"age": AGES[:2]}, names=["0", "1"]), edges(str)
    )


@case
def rows_or_a_column() -> Case:
    rows = [(row + 1, AGES[row], LABELS[row]) for row in range(COUNT)]
    links = lines(["source", "target"], [(row, row + 1) for row in range(1, COUNT - 1)]).encode()
    return plainly(
        lines(["nr", "age", "label"], rows), Refused(["what names the nodes", "--task.id", "nr, row"]), links
    )


@case
def ends_of_any_name() -> Case:
    expected = Read({"age": "number"}, names=["n0"], said=["edges go from follower to followed"])
    return plainly(table({"age": AGES}), expected, edges(head=("follower", "followed")))


@case
def capitals() -> Case:
    text = table({"Age": AGES}).replace("id,", "ID,", 1).replace("label", "Label")
    return plainly(text, Read({"Age": "number"}, names=["n0"]), edges(head=("Source", "Target")))


@case
def iso_dates() -> Case:
    return plainly(
        table({"since": ["1970-01-02", "1971-01-01", ""]}), Read({"since": "date"}, {"since": [1, 365, None]})
    )


@case
def times() -> Case:
    cells = ["1970-01-02T12:00:00Z", "1970-01-02 14:00:00+02:00", "1970-01-03 00:00:00"]
    return plainly(table({"seen": cells}), Read({"seen": "date"}, {"seen": [1.5, 1.5, 2]}))


@case
def german_dates() -> Case:
    return plainly(table({"since": ["02.01.1970", "01.01.1971"]}, ";"), Read({"since": "date"}, {"since": [1, 365]}))


@case
def american_dates() -> Case:
    return plainly(table({"since": ["1/2/1970", "1/31/1970"]}), Read({"since": "date"}, {"since": [1, 30]}))


@case
def dates_that_may_be_either() -> Case:
    return plainly(table({"since": ["1/2/1970", "3/4/1970"]}), Refused(["since is '1/2/1970'", "is the day first"]))


@case
def repeated_rows() -> Case:
    text = table({"age": AGES})
    expected = Read({"age": "number"}, {"age": AGES[:3]}, said=["2 rows are there twice, and read once"])
    return plainly(text + "n3,23,v\nn0,20,u\n", expected)


@case
def repeated_names() -> Case:
    wrong = "n3,99,v\nn0,20,v\n"
    return plainly(
        table({"age": AGES}) + wrong, Refused(["line 14: the node 'n3' is there twice", "line 15: the node 'n0'"])
    )


@case
def ragged() -> Case:
    wrong = "a,1\nb,1,u,2\n"
    return plainly(
        table({"age": AGES}) + wrong, Refused(["line 14 does not have 3 columns", "line 15 does not have 3"])
    )


@case
def notes_among_numbers() -> Case:
    ages = [*AGES[:4], "unknown", *AGES[5:8], "too old", *AGES[9:]]
    return plainly(table({"age": ages}), Refused(["line 6: age is 'unknown'", "line 10: age is 'too old'"]))


@case
def points_and_commas() -> Case:
    return plainly(
        table({"age": ["1.5", "2.5", "3,5"]}, ";"), Refused(["line 4: age is '3,5'", "line 7: age is '3,5'"])
    )


@case
def strangers() -> Case:
    links = edges() + b"n0,nobody\nn77,n1\n"
    return plainly(
        table({"age": AGES}), Refused(["line 14: there is no node 'nobody'", "line 15: there is no node 'n77'"]), links
    )


@case
def free_text() -> Case:
    addresses = [f"street {row}" for row in range(COUNT)]
    return plainly(
        table({"age": AGES, "address": addresses}), Refused(["address holds 12 different texts", "ignore='address'"])
    )


@case
def nothing_at_all() -> Case:
    return plainly(table({"age": AGES, "spare": [""]}), Refused(["spare holds no value at all", "ignore='spare'"]))


@case
def fractions_as_labels() -> Case:
    text = table({"age": AGES}, labels=[row / 4 for row in range(COUNT)])
    return plainly(
        text, Read({"age": "number"}, target="number", classes=(), said=["label: a quantity (there are fractions"])
    )


@case
def counts_as_labels() -> Case:
    rows = [(row, row % 30) for row in range(60)]
    return plainly(
        lines(["age", "label"], rows), Refused(["30 different whole numbers in 60 nodes", "--task.target"]), edges(str)
    )


@case
def classes_with_points() -> Case:
    text = table({"age": AGES}, labels=["1.0", "2.0", "", "10.0"] * 3)
    return plainly(text, Read({"age": "number"}, classes=["1", "2", "10"]))


@case
def windows_lines_and_spaces() -> Case:
    text = lines(
        [" id ", " age", "label "],
        [(f" n{row}", f" {AGES[row]} ", f"{LABELS[row]} ") for row in range(COUNT)],
        end="\r\n",
    )
    return plainly(text + "\r\n\r\n", AGE)


@case
def a_word_before_the_names() -> Case:
    return plainly("sep=;\n" + table({"age": AGES}, ";"), AGE)


@case
def remarks_before_the_names() -> Case:
    return plainly("# made by hand\n# in 2020\n" + table({"age": AGES}), AGE)


@case
def postal_codes() -> Case:
    return plainly(table({"zip": ["01067", "53113", "01067"]}), Read({"zip": "category (01067, 53113)"}))


@case
def an_index_without_a_name() -> Case:
    rows = [(row, f"n{row}", AGES[row], LABELS[row]) for row in range(COUNT)]
    expected = Read({"age": "number"}, names=["n0"], said=["not read: the columns without a name"])
    return plainly(lines(["", "id", "age", "label"], rows), expected)


@case
def weights_and_kinds_of_edges() -> Case:
    rows = [(f"n{a}", f"n{b}", 0.5 * a, ("friend", "boss", "")[a % 3]) for a, b in RING]
    expected = Read({"age": "number"}, edge_columns={"weight": "number", "kind": "category (boss, friend)"})
    return plainly(table({"age": AGES}), expected, lines(["source", "target", "weight", "kind"], rows).encode())


@case
def edges_in_several_files() -> Case:
    made = plainly(
        table({"age": AGES}),
        Read({"age": "number"}, edges=2 * COUNT, edge_columns={"relation": "category (edges-friends, edges-work)"}),
    )
    return Case(
        {"nodes.csv": made.files["nodes.csv"], "edges-friends.csv": edges(), "edges-work.csv": edges()}, made.expected
    )


@case
def numbers_in_many_ways() -> Case:
    return plainly(table({"charge": ["-1e-3", "+5", ".25"]}), Read({"charge": "number"}, {"charge": [-0.001, 5, 0.25]}))


@case
def everything_at_once() -> Case:
    addresses = [f"street {row}" for row in range(COUNT)]
    text = table({"age": [*AGES[:-1], "old"], "address": addresses}) + "n0,20,here\nn1,99,there,u\n"
    problems = [
        "line 13: age is 'old'",
        "address holds",
        "line 14 does not have 4",
        "line 15: the node 'n1'",
        "no node 'x'",
    ]
    return plainly(text, Refused(problems), edges() + b"x,n0\n")


@case
def parquet() -> Case:
    import io

    import pyarrow
    from pyarrow.parquet import write_table

    made = io.BytesIO()
    columns = {
        "id": [f"n{row}" for row in range(COUNT)],
        "age": pyarrow.array([20, None, 22] * 4, pyarrow.int16()),
        "member": [True, False, None] * 4,
        "city": pyarrow.array(["Ulm", "Bonn", None] * 4).dictionary_encode(),
        "since": pyarrow.array([1, 365, None] * 4, pyarrow.date32()),
        "label": LABELS,
    }
    write_table(pyarrow.table(columns), made)
    kinds = {"age": "number", "member": "boolean", "city": "category (Bonn, Ulm)", "since": "date"}
    first: dict[str, list[Any]] = {"age": [20, None, 22], "member": [1, 0, None], "since": [1, 365, None]}
    return plainly(made.getvalue(), Read(kinds, first), suffix="parquet")


def two_million() -> Case:
    """Rows of five columns, and as many edges."""
    cities = ("Ulm", "Bonn", "Rome")
    rows = (f"n{row},{row % 90},{row % 97 / 97:.4f},{cities[row % 3]},{'uv'[row % 2]}\n" for row in range(LONG))
    links = (f"n{row},n{(row * 7 + 1) % LONG}\n" for row in range(LONG))
    content = {
        "nodes.csv": ("id,age,height,city,label\n" + "".join(rows)).encode(),
        "edges.csv": ("source,target\n" + "".join(links)).encode(),
    }
    kinds = {"age": "number", "height": "number", "city": "category (Bonn, Rome, Ulm)"}
    return Case(content, Read(kinds, {"age": [0, 1, 2]}, names=["n0", "n1"], nodes=LONG, edges=LONG))


def write(made: Case, place: Path) -> Path:
    """A case's files in a folder, and beside them what a person would read."""
    place.mkdir(parents=True, exist_ok=True)
    for name, content in made.files.items():
        (place / name).write_bytes(content)
    kind = "read" if isinstance(made.expected, Read) else "refused"
    (place / "expected.json").write_text(json.dumps({kind: asdict(made.expected)}, indent=1), encoding="utf-8")
    return place


if __name__ == "__main__":
    for name, make in (CASES | {"two_million": two_million}).items():
        print(write(make(), Path(sys.argv[1]) / name))
