"""Files as people have them: encodings, separators, quotes, what stands around the table, several files, Parquet."""

from __future__ import annotations

from typing import Any

from tasks.nodes.own.messy.case import (
    AGE,
    AGES,
    COUNT,
    LABELS,
    Case,
    Make,
    Read,
    Refused,
    edges,
    lines,
    listed,
    plainly,
    table,
)

CASES: dict[str, Make] = {}
case = listed(CASES)


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
def repeated_rows() -> Case:
    text = table({"age": AGES})
    expected = Read({"age": "number"}, {"age": AGES[:3]}, said=["2 repeated rows, read once"])
    return plainly(text + "n3,23,v\nn0,20,u\n", expected)


@case
def ragged() -> Case:
    wrong = "a,1\nb,1,u,2\n"
    return plainly(
        table({"age": AGES}) + wrong, Refused(["line 14 does not have 3 columns", "line 15 does not have 3"])
    )


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
def edges_in_several_files() -> Case:
    made = plainly(
        table({"age": AGES}),
        Read({"age": "number"}, edges=2 * COUNT, edge_columns={"relation": "category (edges-friends, edges-work)"}),
    )
    return Case(
        {"nodes.csv": made.files["nodes.csv"], "edges-friends.csv": edges(), "edges-work.csv": edges()}, made.expected
    )


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
