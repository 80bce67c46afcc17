"""What annotations and docstrings say about an option."""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import pytest

from edgewise.configuration import Bounds, Choice, Count, OneOf, Positive, Share, descriptions, options_of


@dataclass(frozen=True)
class First:
    """First.

    Args:
        width: How wide.
        kind: Which.
    """

    width: Count = 3
    kind: Annotated[str, OneOf(("a", "b"))] = "a"


@dataclass(frozen=True)
class Second(First):
    """Second.

    Args:
        inner: More of it.
    """

    inner: First = field(default_factory=First)


class Made:
    """Made.

    Args:
        depth: How deep.
    """

    def __init__(self, kind: str, at: int, /, *, depth: int = 4) -> None:
        self.made = (kind, at, depth)


def test_a_dataclass_inherits_the_descriptions_of_its_options() -> None:
    options = options_of(Second)
    assert {name: option.description for name, option in options.items()} == {
        "width": "How wide.",
        "kind": "Which.",
        "inner": "More of it.",
    }
    assert options["inner"].default == First()
    assert list(options["kind"].table.table) == ["a", "b"]
    assert options["width"].table is None


def test_what_can_be_passed_by_position_only_is_no_option() -> None:
    assert list(options_of(Made)) == ["depth"]
    assert options_of(partial(Made, "x"))["depth"].description == "How deep."


def test_a_table_may_leave_out_what_its_caller_gives() -> None:
    table = {"first": First, "pair": (Second, object)}
    assert list(OneOf(table, without=("kind",)).options("first")) == ["width"]
    assert list(OneOf(table).options("pair")) == ["width", "kind", "inner"]


def test_descriptions_come_from_the_docstring() -> None:
    documented = "Train.\n\nArgs:\n    steps: How many,\n        at most.\n    batch: How much.\n\nErrors: none."
    assert descriptions(documented) == {"steps": "How many, at most.", "batch": "How much."}


@pytest.mark.parametrize(
    ("hint", "inside", "outside", "said"),
    [
        (Count, (1, 5), (0, -1), "at least 1"),
        (Positive, (1e-9, 7.0), (0.0, -1.0), "above 0"),
        (Share, (0.0, 0.999), (1.0, -0.1), "at least 0 and below 1"),
        (Annotated[float, Bounds(at_least=0, at_most=1)], (0.0, 1.0), (1.1, -0.1), "at least 0 and at most 1"),
    ],
)
def test_bounds_say_what_they_hold(hint, inside, outside, said) -> None:
    (bounds,) = hint.__metadata__
    assert all(value in bounds for value in inside)
    assert not any(value in bounds for value in outside)
    assert str(bounds) == said


def test_a_name_stands_for_a_choice_without_options() -> None:
    assert Choice.of("gat") == Choice.of(Choice("gat")) == Choice("gat", {})
