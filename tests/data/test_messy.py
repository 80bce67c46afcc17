"""Each messy table is read as a person would read it, or refused with all that is wrong with it in one message."""

import io
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edgewise.data.columns import Column
from edgewise.errors import DataError
from edgewise.tasks import node_folder
from edgewise.tasks.own.nodes import OwnNodes

COUNT = 12  # nodes of a case
LONG = 2_000_000
MEMORY = 2.0  # GB at most for a table of 2,000,000 nodes and edges with PyTorch loaded
LABELS = [("u", "v")[row % 2] for row in range(COUNT)]
RING = [(row, (row + 1) % COUNT) for row in range(COUNT)]
AGES = list(range(20, 20 + COUNT))
STREETS = [f"street {row}" for row in range(COUNT)]


@dataclass
class Read:
    """What is to be read: the kind of each feature, with the levels of a category in brackets; the first values of some
    columns, None where missing; the first nodes' names; and what the summary must say."""

    columns: dict[str, str]
    first: dict[str, list[Any]] = field(default_factory=dict)
    target: str = "class"
    classes: Sequence[str] = ("u", "v")
    names: Sequence[str] = ()
    edges: int = COUNT
    edge_columns: dict[str, str] = field(default_factory=dict)
    said: Sequence[str] = ()


def lines(head: Sequence[str], rows: Sequence[Sequence[object]], by: str = ",", end: str = "\n") -> str:
    return end.join([by.join(head), *(by.join(map(str, row)) for row in rows)]) + end


def table(columns: dict[str, Sequence[object]], by: str = ",", labels: Sequence[object] = LABELS) -> str:
    """Nodes n0, n1, ...; columns are repeated to their length."""
    made = {name: [cells[row % len(cells)] for row in range(COUNT)] for name, cells in columns.items()}
    ids = [f"n{row}" for row in range(COUNT)]
    return lines(["id", *made, "label"], list(zip(ids, *made.values(), labels, strict=True)), by)


def named(names: Sequence[object], head: str = "id", first: str = "age") -> str:
    """Nodes of these names."""
    columns = {head: names, "age": AGES, "label": LABELS}
    order = [head, "age", "label"] if first == "age" else ["age", head, "label"]
    return lines(order, [[columns[one][row] for one in order] for row in range(COUNT)])


def ring(
    name: Callable[[int], object] = "n{}".format, head: Sequence[str] = ("source", "target"), by: str = ","
) -> bytes:
    return lines(head, [(name(a), name(b)) for a, b in RING], by).encode()


def parquet() -> bytes:
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
    return made.getvalue()


AGE = Read({"age": "number"}, {"age": AGES[:3]}, names=["n0", "n1"])
PLAIN = table({"age": AGES})
TIMES = ["1970-01-02T12:00:00Z", "1970-01-02 14:00:00+02:00", "1970-01-03 00:00:00"]
NAMES = [f"Müller, {row}" for row in range(COUNT)]
WEIGHTED = [(f"n{a}", f"n{b}", 0.5 * a, ("friend", "boss", "")[a % 3]) for a, b in RING]
SPACED = [(f" n{row}", f" {AGES[row]} ", f"{LABELS[row]} ") for row in range(COUNT)]
SHORT = [(row, row + 1) for row in range(1, COUNT - 1)]


def one(name: str, kind: str, cells: Sequence[object], values: Sequence[Any] = (), by: str = ",", **more: Any) -> Any:
    """A case of one column."""
    return table({name: cells}, by), Read({name: kind}, {name: [*values]} if values else {}, **more)


# A case: the nodes, what is to be read or the problems of the refusal, and the edges or files where they are others.
CASES: dict[str, tuple[Any, ...]] = {
    # Files
    "plain": (PLAIN, AGE),
    "byte order mark": (PLAIN.encode("utf-8-sig"), AGE, b"\xef\xbb\xbf" + ring()),
    "utf-16": (table({"age": AGES}, "\t").encode("utf-16"), AGE),
    "western": (
        table({"city": ["Zürich", "Köln", "Paris"]}, ";").encode("cp1252"),
        Read({"city": "category (Köln, Paris, Zürich)"}, said=["cp1252", "';'"]),
    ),
    "cyrillic": (table({"city": ["Москва", "Киев"]}).encode("cp1251"), ["nodes.csv", "utf-8"]),
    "tabs": (None, AGE, {"nodes.tsv": table({"age": AGES}, "\t").encode(), "edges.csv": ring()}),
    "bars": (table({"age": AGES}, "|"), AGE, ring(by="|")),
    "quotes": (
        table({"city": ['"Bonn, West"', '"the ""old"" one"', '"two\nlines"'], "age": AGES}),
        Read({"city": 'category (Bonn, West, the "old" one, two\nlines)', "age": "number"}, {"age": AGES[:3]}),
    ),
    "semicolons in cells": one("tags", "category (a;b, c;d)", ["a;b", "c;d"]),
    "repeated rows": (PLAIN + "n3,23,v\nn0,20,u\n", Read(AGE.columns, said=["2 repeated rows, read once"])),
    "ragged": (PLAIN + "a,1\nb,1,u,2\n", ["line 14 does not have 3 columns", "line 15 does not have 3"]),
    "windows lines and spaces": (lines([" id ", " age", "label "], SPACED, end="\r\n") + "\r\n\r\n", AGE),
    "a word before the names": ("sep=;\n" + table({"age": AGES}, ";"), AGE),
    "remarks before the names": ("# made by hand\n# in 2020\n" + PLAIN, AGE),
    "edges in several files": (
        None,
        Read(AGE.columns, edges=2 * COUNT, edge_columns={"relation": "category (edges-friends, edges-work)"}),
        {"nodes.csv": PLAIN.encode(), "edges-friends.csv": ring(), "edges-work.csv": ring()},
    ),
    "everything at once": (
        table({"age": [*AGES[:-1], "old"], "address": STREETS}) + "n0,20,here\nn1,99,there,u\n",
        ["line 13: age is 'old'", "address holds", "line 14 does not have 4", "line 15: the node 'n1'", "no node 'x'"],
        ring() + b"x,n0\n",
    ),
    "parquet": (
        None,
        Read(
            {"age": "number", "member": "boolean", "city": "category (Bonn, Ulm)", "since": "date"},
            {"age": [20, None, 22], "member": [1, 0, None], "since": [1, 365, None]},
        ),
        lambda: {"nodes.parquet": parquet(), "edges.csv": ring()},
    ),
    # Cells
    "decimal commas": one(
        "size", "number", ["1,75", "1,8", "1,625"], [1.75, 1.8, 1.625], ";", said=["decimal commas in size"]
    ),
    "decimal commas in quotes": one("size", "number", ['"1,75"', '"1,8"'], [1.75, 1.8]),
    "german thousands": one("pay", "number", ["1.234,50", "12.000,00", "987,5"], [1234.5, 12000, 987.5], ";"),
    "english thousands": one("pay", "number", ['"1,234.5"', '"12,000"', "987"], [1234.5, 12000, 987]),
    "percent": one("share", "number", ["12%", "7.5 %", "100%"], [12, 7.5, 100]),
    "missing": one("age", "number", ["20", "NA", "n/a", "-", "?", ""], [20, None, None, None, None, None, 20]),
    "missing texts": one("city", "category (Bonn, Ulm)", ["Ulm", "", "Bonn"]),
    "truth": one("member", "boolean", ["yes", "No", "YES", ""], [1, 0, 1, None]),
    "zeros and ones": one("paid", "boolean", ["1", "0", "1"], [1, 0, 1]),
    "iso dates": one("since", "date", ["1970-01-02", "1971-01-01", ""], [1, 365, None]),
    "times": one("seen", "date", TIMES, [1.5, 1.5, 2]),
    "german dates": one("since", "date", ["02.01.1970", "01.01.1971"], [1, 365], ";"),
    "american dates": one("since", "date", ["1/2/1970", "1/31/1970"], [1, 30]),
    "dates that may be either": (
        table({"since": ["1/2/1970", "3/4/1970"]}),
        ["since is '1/2/1970'", "is the day first"],
    ),
    "notes among numbers": (
        table({"age": [*AGES[:4], "unknown", *AGES[5:8], "too old", *AGES[9:]]}),
        ["line 6: age is 'unknown'", "line 10: age is 'too old'"],
    ),
    "points and commas": (
        table({"age": ["1.5", "2.5", "3,5"]}, ";"),
        ["line 4: age is '3,5'", "line 7: age is '3,5'"],
    ),
    "free text": (table({"address": STREETS}), ["address holds 12 different texts", "--task.ignore address"]),
    "nothing at all": (table({"spare": [""]}), ["spare holds no value at all", "--task.ignore spare"]),
    "fractions as labels": (
        table({"age": AGES}, labels=[row / 4 for row in range(COUNT)]),
        Read(AGE.columns, target="number", classes=(), said=["label: a quantity (there are fractions"]),
    ),
    "counts as labels": (
        lines(["age", "label"], [(row, row % 30) for row in range(60)]),
        ["30 different whole numbers in 60 nodes", "--task.target"],
        ring(str),
    ),
    "classes with points": (
        table({"age": AGES}, labels=["1.0", "2.0", "", "10.0"] * 3),
        Read(AGE.columns, classes=["1", "2", "10"]),
    ),
    "postal codes": one("zip", "category (01067, 53113)", ["01067", "53113", "01067"]),
    "weights and kinds of edges": (
        PLAIN,
        Read(AGE.columns, edge_columns={"weight": "number", "kind": "category (boss, friend)"}),
        lines(["source", "target", "weight", "kind"], WEIGHTED).encode(),
    ),
    "numbers in many ways": one("charge", "number", ["-1e-3", "+5", ".25"], [-0.001, 5, 0.25]),
    # Names
    "names with commas": (
        named([f'"{name}"' for name in NAMES]),
        Read(AGE.columns, names=NAMES[:2]),
        ring(lambda row: f'"{NAMES[row]}"'),
    ),
    "numbers as names": (
        named(range(1001, 1001 + COUNT), "person_no"),
        Read(AGE.columns, names=["1001", "1002"], said=["person_no names the nodes"]),
        ring(lambda row: 1001 + row),
    ),
    "codes as names": (
        named([f"{row:03}" for row in range(COUNT)]),
        Read(AGE.columns, names=["000", "001"]),
        ring("{:03}".format),
    ),
    "names in a column of any name": (
        named([f"p{row}" for row in range(COUNT)], "who", "who"),
        Read(AGE.columns, names=["p0", "p1"], said=["who names the nodes"]),
        ring("p{}".format),
    ),
    "rows as names": (
        lines(["age", "label"], list(zip(AGES, LABELS, strict=True))),
        Read(AGE.columns, {"age": AGES[:2]}, names=["0", "1"]),
        ring(str),
    ),
    "rows or a column": (
        named(range(1, 1 + COUNT), "nr"),
        ["what names the nodes", "--task.id", "nr, row"],
        lines(["source", "target"], SHORT).encode(),
    ),
    "ends of any name": (
        PLAIN,
        Read(AGE.columns, names=["n0"], said=["edges go from follower to followed"]),
        ring(head=("follower", "followed")),
    ),
    "capitals": (
        PLAIN.replace("id,", "ID,", 1).replace("label", "Label"),
        Read(AGE.columns, names=["n0"]),
        ring(head=("Source", "Target")),
    ),
    "repeated names": (
        PLAIN + "n3,99,v\nn0,20,v\n",
        ["line 14: the node 'n3' is there twice", "line 15: the node 'n0'"],
    ),
    "strangers": (
        PLAIN,
        ["line 14: there is no node 'nobody'", "line 15: there is no node 'n77'"],
        ring() + b"n0,nobody\nn77,n1\n",
    ),
    "an index without a name": (
        lines(["", "id", "age", "label"], [(row, f"n{row}", AGES[row], LABELS[row]) for row in range(COUNT)]),
        Read(AGE.columns, names=["n0"], said=["not read: the columns without a name"]),
    ),
}


def shown(column: Column) -> str:
    return f"{column.kind} ({', '.join(column.levels)})" if column.levels else column.kind


def differences(task: OwnNodes, expected: Read) -> dict[str, Any]:
    """What was read otherwise than expected: both."""
    given, columns = task.given, {column.name: column for column in task.given.x}  # type: ignore[union-attr]
    first = {
        name: [columns[name].values[row] if columns[name].present[row] else None for row in range(len(values))]
        for name, values in expected.first.items()
    }
    read = {
        "columns": {name: shown(column) for name, column in columns.items()},
        "first": {name: pytest.approx(values) for name, values in first.items()},
        "target": task.fitted.target.kind,
        "classes": [*task.classes],
        "names": [given.name(row) for row in range(len(expected.names))],
        "edges": given.edges.shape[1],
        "edge_columns": {column.name: shown(column) for column in given.e or ()},  # type: ignore[union-attr]
        "said": [line for line in expected.said if line in "\n".join(task.summary)],
    }
    wanted = vars(expected) | {name: [*getattr(expected, name)] for name in ("classes", "names", "said")}
    return {name: (wanted[name], value) for name, value in read.items() if wanted[name] != value}


@pytest.mark.parametrize("name", CASES)
def test_a_table_is_read_as_a_person_would(name: str, tmp_path: Path) -> None:
    nodes, expected, *more = CASES[name]
    files = more[0]() if more and callable(more[0]) else more[0] if more else ring()
    if not isinstance(files, dict):
        files = {"nodes.csv": nodes.encode() if isinstance(nodes, str) else nodes, "edges.csv": files}
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    if isinstance(expected, Read):
        task = node_folder(str(tmp_path))
        assert isinstance(task, OwnNodes) and differences(task, expected) == {}
        assert len(task.given) == COUNT
        return
    with pytest.raises(DataError) as caught:
        node_folder(str(tmp_path))
    assert [what for what in expected if what not in str(caught.value)] == []


@pytest.mark.endurance
def test_two_million_rows_are_read_in_bounded_memory(tmp_path: Path) -> None:
    cities = ("Ulm", "Bonn", "Rome")
    with (tmp_path / "nodes.csv").open("w") as nodes, (tmp_path / "edges.csv").open("w") as edges:
        nodes.write("id,age,height,city,label\n")
        edges.write("source,target\n")
        for row in range(LONG):
            nodes.write(f"n{row},{row % 90},{row % 97 / 97:.4f},{cities[row % 3]},{'uv'[row % 2]}\n")
            edges.write(f"n{row},n{(row * 7 + 1) % LONG}\n")
    code = (
        "import resource, sys; from edgewise.tasks import node_folder; task = node_folder(sys.argv[1]); "
        "print(len(task.given), task.given.edges.shape[1], [str(c) for c in task.given.x], "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)"
    )
    made = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    print(made.stdout)
    assert made.stdout.startswith(f"{LONG} {LONG} ['age (a number)', 'height (a number)', 'city (a category of 3)']")
    assert float(made.stdout.split()[-1]) < MEMORY
