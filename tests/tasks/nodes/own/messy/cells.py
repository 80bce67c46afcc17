"""Cells as people write them: numbers, truth, dates, what is missing, categories, labels."""

from __future__ import annotations

from tasks.nodes.own.messy.case import (
    AGES,
    COUNT,
    RING,
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
def notes_among_numbers() -> Case:
    ages = [*AGES[:4], "unknown", *AGES[5:8], "too old", *AGES[9:]]
    return plainly(table({"age": ages}), Refused(["line 6: age is 'unknown'", "line 10: age is 'too old'"]))


@case
def points_and_commas() -> Case:
    return plainly(
        table({"age": ["1.5", "2.5", "3,5"]}, ";"), Refused(["line 4: age is '3,5'", "line 7: age is '3,5'"])
    )


@case
def free_text() -> Case:
    addresses = [f"street {row}" for row in range(COUNT)]
    return plainly(
        table({"age": AGES, "address": addresses}),
        Refused(["address holds 12 different texts", "--task.ignore address"]),
    )


@case
def nothing_at_all() -> Case:
    return plainly(table({"age": AGES, "spare": [""]}), Refused(["spare holds no value at all", "--task.ignore spare"]))


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
def postal_codes() -> Case:
    return plainly(table({"zip": ["01067", "53113", "01067"]}), Read({"zip": "category (01067, 53113)"}))


@case
def weights_and_kinds_of_edges() -> Case:
    rows = [(f"n{a}", f"n{b}", 0.5 * a, ("friend", "boss", "")[a % 3]) for a, b in RING]
    expected = Read({"age": "number"}, edge_columns={"weight": "number", "kind": "category (boss, friend)"})
    return plainly(table({"age": AGES}), expected, lines(["source", "target", "weight", "kind"], rows).encode())


@case
def numbers_in_many_ways() -> Case:
    return plainly(table({"charge": ["-1e-3", "+5", ".25"]}), Read({"charge": "number"}, {"charge": [-0.001, 5, 0.25]}))
