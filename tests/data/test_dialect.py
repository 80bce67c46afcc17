"""How CSV files are written."""

import csv
import tracemalloc

import pytest

from edgewise.data.table import Dialect, dialect_of, encoding_of


@pytest.mark.parametrize(
    ("text", "separator", "names"),
    [
        ("a,b\n1,2\n", ",", ("a", "b")),
        ("a;b\n1,5;2\n", ";", ("a", "b")),
        ("a\tb\n1\t2\n", "\t", ("a", "b")),
        ("a|b\n1|2\n", "|", ("a", "b")),
        ("a\nhello, world\n", ",", ("a",)),
        ("a,b\n1,2\n1,2,3\n", ",", ("a", "b")),
        ('a,b\n"x;y;z",2\n"u,v",3\n', ",", ("a", "b")),
        ("sep=|\na;x|b\n1;2|2\n", "|", ("a;x", "b")),
        ("", ",", ()),
    ],
)
def test_what_separates_cells_cuts_all_rows_alike(text: str, separator: str, names: tuple[str, ...]) -> None:
    made = dialect_of(text.encode())
    assert (made.separator, made.names) == (separator, names)


@pytest.mark.parametrize(
    ("text", "separator", "names"),
    [
        ("text\nGood, really\nBad\n", "\t", ("text",)),
        ("id,x\ttext\n1\tGood, really\n2\tBad, no\n", "\t", ("id,x", "text")),
        ("a, b, c\td\n1\t2\n1\t2\t3\n", "\t", ("a, b, c", "d")),
        ("a,b\n1,2\n", ",", ("a", "b")),
        ("sep=;\na;b\t\n1;2\t\n", ";", ("a", "b")),
    ],
)
def test_cells_of_a_tsv_file_are_between_tabs_unless_others_cut_all_rows_alike(
    text: str, separator: str, names: tuple[str, ...]
) -> None:
    for ending in (".tsv", ".TSV"):
        made = dialect_of(text.encode(), ending=ending)
        assert (made.separator, made.names) == (separator, names)


@pytest.mark.parametrize(
    ("text", "quotes", "names"),
    [
        ('a\tb\n"x, ""y"""\t1\n', True, ("a", "b")),
        ('a\tb\n"two\nlines"\t1\n', True, ("a", "b")),
        ('a\tb\n"two\tcells\nand\tlines\tmore"\t1\n', True, ("a", "b")),
        ('a\tb\n5" wide\t1\n', True, ("a", "b")),  # nothing begins with it
        ('a\tb\n"no end\t1\nc\td\n', False, ("a", "b")),
        ('a\tb\n"x" he said\t1\n', False, ("a", "b")),
        ('a\tb\n"x\t1\nc\td\ny"\t2\n', False, ("a", "b")),  # two rows would be swallowed
        ('"a"\tb\nx\t"y\nz\tw"\n', False, ('"a"', "b")),
        ('a\tb\n"x\t1\ny"\t2\n1\t2\t3\n', True, ("a", "b")),  # whoever reads the table says what is wrong
        ('a,b\n"x\n,1",2\n', True, ("a", "b")),
    ],
)
def test_quotation_marks_between_tabs_are_characters_where_tabs_alone_cut_all_rows_alike(
    text: str, quotes: bool, names: tuple[str, ...]
) -> None:
    for ending, encoding in ((".tsv", "utf-8"), (".csv", "utf-16")):
        made = dialect_of(text.encode(encoding), ending=ending)
        assert (made.quotes, made.names) == (quotes, names)
        assert ("quotation marks" in str(made)) == (not quotes)
    assert dialect_of(text.encode() + b'"x', whole=False, ending=".tsv").quotes == quotes


@pytest.mark.parametrize(
    ("cells", "separator", "comma"),
    [
        ("1,500 2,250", ";", True),  # a semicolon is there because commas are in numbers
        ('"1,500" "2,250"', ",", False),
        ('"1,5" "2,250"', ",", True),
        ("1,5 2.5", ";", False),
        ("0,125 0,250", "\t", True),  # no number has thousands of nothing
        ("1,500 2,250", "\t", False),
        ("1.234.567 2.345", ";", True),
        ("1,234,567 2,345", ";", False),
        ("12,5% 2%", ";", True),
    ],
)
def test_a_comma_is_decimal_or_parts_thousands(cells: str, separator: str, comma: bool) -> None:
    text = "\n".join(["a" + separator + "b", *(f"{cell}{separator}x" for cell in cells.split())])
    assert dialect_of(text.encode()).commas == (frozenset("a") if comma else frozenset())


@pytest.mark.parametrize(
    ("rows", "commas", "doubtful"),
    [
        ("12,5;1.234 13,5;2.345", "ab", ("1.234 in b as 1234",)),
        ("1.5;1,234 2.5;2,345", "", ()),
        ("1.5;0,125 2.5;0,250", "b", ()),
        ("1.5;12,5;1,234;1.234 2.5;13,5;2,345;2.345", "bc", ("1,234 in c as 1.234", "1.234 in d as 1.234")),
        ("1.5\t12,5\t1,234\t1.234 2.5\t13,5\t2,345\t2.345", "b", ("1,234 in c as 1234", "1.234 in d as 1.234")),
        ("1,234;1.234 2,345;2.345", "a", ("1,234 in a as 1.234", "1.234 in b as 1.234")),
        ('"1,234",1.234 "2,345",2.345', "", ()),
        ("192.168.100.101;1.234 10.0.0.7;1.2 10.0.0.8;1.3", "", ()),
    ],
    ids=["comma", "point", "each its own", "both", "both with tabs", "neither", "as usual", "addresses"],
)
def test_what_may_be_decimal_or_thousands_is_as_in_other_columns(
    rows: str, commas: str, doubtful: tuple[str, ...]
) -> None:
    lines = rows.split(" ")
    separator = next(sign for sign in ";\t," if sign in lines[0])
    width = len(next(csv.reader(lines, delimiter=separator)))
    made = dialect_of("\n".join([separator.join("abcd"[:width]), *lines]).encode())
    assert (made.commas, made.doubtful) == (frozenset(commas), doubtful)
    assert all(one in str(made) for one in doubtful)


def test_columns_of_texts_and_codes_are_known_from_numbers() -> None:
    made = dialect_of(b"a,b,c,d\n1,x,007,NA\n2,3,8,4\n-,y,9,x\n")
    assert made.texts == {"b", "c"}


def test_an_encoding_that_is_a_guess_is_said() -> None:
    assert encoding_of("äöü".encode("cp1252") + b"abc" * 20) == "cp1252"
    assert encoding_of(b"\x00\xff") == "utf-8-sig"  # which then fails, and is said so
    assert encoding_of("aä".encode()[:-1], whole=False) == "utf-8-sig"
    assert str(Dialect()) == ""
    assert (
        str(dialect_of("a;b\n1,5;ü\n".encode("utf-16"))) == "encoded in utf-16, separated by ';', decimal commas in a"
    )


def test_a_long_text_is_not_decoded_at_once_to_find_its_encoding() -> None:
    content = ("a" * 99 + "\N{GRINNING FACE}").encode() * 100_000  # with 4 bytes a character 40 MB
    tracemalloc.start()
    try:
        assert encoding_of(content) == "utf-8-sig"
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()
    assert encoding_of("ä".encode() * 100_000 + b"\xe4") == "utf-8-sig"  # most of it is in UTF-8: the end is an error
    assert encoding_of(b"abc " * 50_000 + b"\xe4") == "cp1252"
