"""What the columns of a table hold, as features: read, fitted to some rows and applied to others; and ends of edges."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from edgewise.data.columns import Column, ends_called, features, fit, from_plain, read_columns, to_plain
from edgewise.data.table import SHOWN, read_table
from edgewise.data.words import ENDS
from edgewise.deployment.answering import encoded
from edgewise.errors import DataError


def write(folder: Path, text: str) -> Path:
    (folder / "a.csv").write_text(text, encoding="utf-8")
    return folder / "a.csv"


def columns(folder: Path, text: str) -> list[Column]:
    return read_all(write(folder, text))


def read_all(path: Path, names: Sequence[str] = (), known: dict | None = None) -> list[Column]:
    table = read_table(path)
    found, problems = read_columns(table, names or table.header, known)
    if problems:
        raise DataError("\n".join(problems))
    return found


@pytest.mark.parametrize(
    ("cells", "kind", "levels"),
    [
        ("t f t f", "boolean", ()),
        ("ja nein YES no", "boolean", ()),
        ("N F N F", "category", ("F", "N")),  # both were 0
        ("y T y T", "category", ("T", "y")),
        ("red null red blue", "category", ("blue", "red")),
        ("yes maybe no no", None, ()),
        ("1 2 inf 4", None, ()),
        ("- - ? NA", None, ()),
    ],
)
def test_a_column_is_what_most_of_its_cells_are(tmp_path: Path, cells: str, kind: str | None, levels: object) -> None:
    text = "x\n" + "\n".join(cells.split()) + "\n"
    if kind is None:
        with pytest.raises(DataError, match=r"a\.csv: .*x (is|holds) "):
            columns(tmp_path, text)
        return
    (column,) = columns(tmp_path, text)
    assert (column.kind, column.levels) == (kind, levels)
    assert column.values.shape == (4,)
    missing = sum(cell.lower() in ("na", "n/a", "-", "?", "null") for cell in cells.split())
    assert (~column.present).sum() == missing
    assert (f"missing in {missing} rows" in str(column)) == (missing > 0)


def test_a_column_whose_kind_is_known_is_not_guessed(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c,d\n1,1,u,\n2,0,v,\n3,,w,\n")
    kinds = {"a": "category", "b": "boolean", "c": "category", "d": "number"}
    a, b, c, d = read_all(path, "abcd", kinds)  # type: ignore[arg-type]
    assert a.levels == ("1", "2", "3") and a.values.tolist() == [0, 1, 2]
    assert b.kind == "boolean" and b.values.tolist() == [1, 0, 0] and b.present.tolist() == [True, True, False]
    assert c.levels == ("u", "v", "w")  # all different: by guess no feature
    assert not d.present.any()
    for kind, what in (("boolean", "line 3: a is '2', not a truth value"), ("number", "line 2: c is 'u'")):
        with pytest.raises(DataError, match=what):
            read_all(path, "a" if kind == "boolean" else "c", dict.fromkeys("ac", kind))  # type: ignore[arg-type]


def test_codes_are_texts_wherever_they_come_first(tmp_path: Path) -> None:
    """Behind the rows that are looked at, 01067 was the number 1067."""
    zips = ["53113", "10115"] * 600 + ["01067"]
    (column,) = columns(tmp_path, "zip\n" + "\n".join(zips) + "\n")
    assert (column.kind, column.levels) == ("category", ("01067", "10115", "53113"))
    (number,) = columns(tmp_path, "share\n" + "\n".join(["1", "0.5", "0"] * 400) + "\n")
    assert number.kind == "number"


def test_truth_values_may_be_written_as_numbers_with_a_point(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c\n1.0,1.0,1\n,0.0,0\n0.0,yes,0\n")
    (guessed,) = read_all(path, "a")
    known = read_all(path, "abc", dict.fromkeys("abc", "boolean"))  # type: ignore[arg-type]
    assert guessed.kind == "boolean" and guessed.present.tolist() == [True, False, True]
    assert [column.values.tolist() for column in known] == [guessed.values.tolist(), [1, 0, 1], [1, 0, 0]]


def test_all_columns_that_cannot_be_read_are_named_but_not_without_end(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(SHOWN + 3)]
    rows = [",".join(f"{name} {row}" for name in names) for row in range(4)]
    with pytest.raises(DataError) as caught:
        columns(tmp_path, "\n".join([",".join(names), *rows]) + "\n")
    lines = str(caught.value).split("\n")
    assert len(lines) == SHOWN + 1 and lines[-1].endswith("and 3 more columns")
    assert "c0 holds 4 different texts in 4 rows" in lines[0]


def test_a_column_with_many_mistakes_is_one_of_few(tmp_path):
    """Its lines were counted as columns."""
    cells = "".join(f"{number},{'inf' if number < 12 else number}\n" for number in range(30))
    with pytest.raises(DataError) as caught:
        columns(tmp_path, "a,b\n" + cells)
    assert str(caught.value).splitlines()[-1] == "and 2 more cells of b"


def test_rows_that_are_taken_are_called_as_in_their_file(tmp_path: Path) -> None:
    file = write(tmp_path, "x,y\n1,2\n\n3,4\n5,6\n")
    column, _ = read_all(file)
    assert column.taken(np.arange(3)) is column
    assert [column.at(row) for row in range(3)] == [f"{file}: line {line}" for line in (2, 4, 5)]
    taken = column.taken(np.array([2, 0]))
    assert taken.values.tolist() == [5, 1]
    assert [taken.at(row) for row in range(2)] == [f"{file}: line {line}" for line in (5, 2)]


TRAIN = "a,b,c,d\n1,5,x,yes\n3,5,y,no\n,5,x,\n9,5,y,yes\n"


def test_numbers_are_standardised_by_the_rows_that_train(tmp_path: Path) -> None:
    read = columns(tmp_path, TRAIN)[:3]
    rows = np.array([0, 1])
    x = features(read, fit(read, rows, True))
    assert x.tolist() == [[-1, 0, 1, 0], [1, 0, 0, 1], [0, 0, 1, 0], [7, 0, 0, 1]]
    plain = features(read, fit(read, rows, False))
    assert plain[:, :2].tolist() == [[1, 5], [3, 5], [2, 5], [9, 5]]
    none = np.array([], dtype=int)
    assert features(read, fit(read, none, True))[:, 0].tolist() == [1, 3, 0, 9]


def test_no_feature_is_of_a_level_that_no_row_that_trains_has(tmp_path: Path) -> None:
    read = columns(tmp_path, "a,b\nx,u\ny,\nz,u\nx,\nx,\ny,\n")
    letter, single = fitted = fit(read, np.array([1, 3]), True)
    assert letter.levels == ("x", "y") and single.width == 0
    assert [one.unknown(column) for one, column in zip(fitted, read, strict=True)] == [["z"], ["u"]]
    assert features(read, fitted).tolist() == [[1, 0], [0, 1], [0, 0], [1, 0], [1, 0], [0, 1]]
    with pytest.raises(DataError, match="no row that trains has a value of b"):
        fit(read[1:], np.array([1, 3]), True)


def test_no_feature_says_of_a_value_that_it_is_missing_where_no_row_that_trains_lacks_it(tmp_path: Path) -> None:
    """It was 0 in all rows that train, so that nothing trained it."""
    read = columns(tmp_path, "a,b,c\n1,yes,3\n3,no,\n,,4\n")
    fitted = fit(read, np.array([0, 1]), False)
    assert [one.flagged for one in fitted] == [False, False, True]
    assert features(read, fitted).tolist() == [[1, 1, 3, 0], [3, 0, 3, 1], [2, 0.5, 4, 0]]
    assert [one.filled(column) for one, column in zip(fitted, read, strict=True)] == [1, 1, 0]


@pytest.mark.parametrize("unit", [1.0, 1.6e-19, 1e-100, 1e30])
def test_numbers_are_standardised_whatever_their_unit(unit: float) -> None:
    numbers = unit * np.array([[1.0, 3.0], [0.3, 0.3], [-1.0, 1.0]])
    there = np.ones(2, dtype=bool)
    read = [Column(name, "number", values, there) for name, values in zip("abc", numbers, strict=True)]
    assert np.allclose(features(read, fit(read, slice(None), True)), [[-1, 0, -1], [1, 0, 1]])


@pytest.mark.parametrize(("far", "dtype"), [(2e38, "float64"), (-3e38, "float32"), (3e38, "float64")])
def test_a_number_that_no_float32_holds_once_it_is_scaled_is_refused(far: float, dtype: str) -> None:
    """It was infinite to the model, whose predictions for the row and all that read it were NaN."""
    values, there = np.array([0.5, 0.6, 0.4, far], dtype), np.ones(4, dtype=bool)
    column = Column("a", "number", values, there)
    with pytest.raises(
        DataError, match=r"row 3: a is -?\de\+38, too far from the 0.5 ± 0.0816\d of the rows that train"
    ):
        features([column], fit([column], np.arange(3), scale=True))


def test_what_was_fitted_is_applied_to_other_rows_and_survives_json(tmp_path: Path) -> None:
    read = columns(tmp_path, TRAIN)
    fitted = fit(read, np.arange(4), True)
    again = from_plain(json.loads(json.dumps(to_plain(fitted))))
    assert again == fitted
    known = {one.name: one.kind for one in fitted}
    new = read_all(
        write(tmp_path, "d,c,b,a\nyes,y,7,3\n,z,5,\n"), list(known), known
    )  # another order, a new level, two gaps
    deviation = np.std([1, 3, 9])
    mean = 13 / 3
    assert np.allclose(
        features(new, again),
        [[(3 - mean) / deviation, 0, 2, 0, 1, 1, 0], [0, 1, 0, 0, 0, 2 / 3, 1]],
    )
    assert [one.unknown(column) for one, column in zip(again, new, strict=True)] == [[], [], ["z"], []]
    assert sum(one.width for one in again) == 7


@pytest.mark.parametrize(
    "content", [[{"name": "a"}], [{"name": "a", "kind": "number", "size": 2}], ["a"], [{"name": "a", "kind": "x"}]]
)
def test_what_is_no_encoding_is_refused(content: list) -> None:
    with pytest.raises(DataError, match="no encodings of columns"):
        from_plain(content)


PATH = Path("edges.csv")


@pytest.mark.parametrize("pair", ENDS)
def test_each_pair_is_found_in_capitals_too_the_sender_first(pair: tuple[str, str]) -> None:
    names = ["weight", pair[1].upper(), pair[0]]
    assert ends_called(PATH, names, (), "--ends") == [pair[0], pair[1].upper()]


def test_those_that_are_chosen_come_first_and_must_be_there() -> None:
    assert ends_called(PATH, ["from", "to", "a", "b"], ("b", "a"), "--ends") == ["b", "a"]
    assert ends_called(PATH, ["a", "b"], (), "--ends") == []
    for chosen in (("a", "c"), ("a",), ("a", "b", "a")):
        with pytest.raises(DataError, match=r"edges\.csv: its columns are a, b; expected a"):
            ends_called(PATH, ["a", "b"], chosen, "--ends")


def test_texts_of_words_are_scikit_learns_tf_idf_of_those_that_train(tmp_path: Path) -> None:
    texts = [f"The {['red', 'blue', 'green'][n % 3]} car number {n} isn't fast" for n in range(11)]
    lines = ["about", *texts, '""']
    (known,) = columns(tmp_path, "\n".join(lines) + "\n")
    assert str(known) == "about (a text, TF-IDF of its words, missing in 1 rows)"
    encodings = from_plain(json.loads(json.dumps(to_plain(fit([known], np.arange(6), scale=True)))))
    peer = TfidfVectorizer(min_df=2).fit(texts[:6])
    assert encodings[0].levels == tuple(peer.get_feature_names_out()) and "blue" in encodings[0].levels
    new = ["A green one, GREEN and fast", "none of them"]
    (other,) = read_all(
        write(tmp_path, "\n".join(["about", *(f'"{text}"' for text in (*new, ""))]) + "\n"), known={"about": "text"}
    )
    np.testing.assert_allclose(features([other], encodings), peer.transform([*new, ""]).toarray(), atol=1e-12)
    rows = [{"about": text} for text in (*new, "")]
    np.testing.assert_allclose(encoded(rows, to_plain(encodings)), features([other], encodings), atol=1e-7)
    assert other.texts(np.arange(3)) == [*new, ""] and len(known.with_rows(other).levels) == 13
