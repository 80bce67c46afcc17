"""Names of nodes and columns as people choose them, and ends of edges that go by them."""

from __future__ import annotations

from tasks.nodes.own.messy.case import (
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
def repeated_names() -> Case:
    wrong = "n3,99,v\nn0,20,v\n"
    return plainly(
        table({"age": AGES}) + wrong, Refused(["line 14: the node 'n3' is there twice", "line 15: the node 'n0'"])
    )


@case
def strangers() -> Case:
    links = edges() + b"n0,nobody\nn77,n1\n"
    return plainly(
        table({"age": AGES}), Refused(["line 14: there is no node 'nobody'", "line 15: there is no node 'n77'"]), links
    )


@case
def an_index_without_a_name() -> Case:
    rows = [(row, f"n{row}", AGES[row], LABELS[row]) for row in range(COUNT)]
    expected = Read({"age": "number"}, names=["n0"], said=["not read: the columns without a name"])
    return plainly(lines(["", "id", "age", "label"], rows), expected)
