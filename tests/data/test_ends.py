"""Ends of edges by what their columns are called."""

from pathlib import Path

import pytest

from edgewise.data.ends import ENDS, ends_called
from edgewise.errors import DataError

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


def test_two_pairs_are_a_question() -> None:
    with pytest.raises(DataError, match=r"expected one of from and to; u and v: give --task\.ends"):
        ends_called(PATH, ["u", "from", "v", "to"], (), "--task.ends")
