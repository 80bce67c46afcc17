"""Columns as features, fitted to some rows and applied to others."""

import json
from pathlib import Path

import numpy as np
import pytest

from edgewise.data.encoding import features, fit, from_plain, to_plain
from edgewise.data.features import Column, read_columns
from edgewise.data.reading import File
from edgewise.errors import DataError

TRAIN = "a,b,c,d\n1,5,x,yes\n3,5,y,no\n,5,x,\n9,5,y,yes\n"


def columns(folder: Path, text: str, known: dict | None = None) -> list[Column]:
    (folder / "a.csv").write_text(text, encoding="utf-8")
    file = File(folder / "a.csv")
    found, problems = read_columns(file, file.table(), list(known or file.names), known)
    assert not problems
    return found


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
    new = columns(tmp_path, "d,c,b,a\nyes,y,7,3\n,z,5,\n", known)  # another order, a new level, two gaps
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
