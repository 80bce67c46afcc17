"""Plain data into typed settings: what fits, what may stand for what, and an error that names everything else."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch

from edgewise.configuration import (
    Bounds,
    Choice,
    Count,
    OneOf,
    Share,
    Text,
    build,
    chosen,
    convert,
    known,
    plain,
    typed,
)
from edgewise.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Outer:
    count: int
    rate: float = 0.5
    name: str | None = None
    mode: Literal["fast", "exact"] = "exact"
    inner: Inner = field(default_factory=Inner)
    folder: Path | None = None
    options: dict[str, bool | int | str] = field(default_factory=dict)


FULL = {
    "count": 3,
    "rate": "1e-3",
    "name": "n",
    "mode": "fast",
    "inner": {"sizes": [4]},
    "folder": "data/x",
    "options": {"a": True, "b": 2, "c": "text"},
}


def test_every_kind_of_value_is_read_and_written_back():
    outer = build(Outer, FULL, "outer")
    assert outer == Outer(3, 1e-3, "n", "fast", Inner((4,)), Path("data/x"), {"a": True, "b": 2, "c": "text"})
    assert plain(outer) == FULL | {"rate": 1e-3}
    assert build(Outer, plain(outer), "outer") == outer
    assert outer.options["a"] is True


def test_a_typed_function_is_called_like_a_dataclass():
    def repeated(word: str, times: int = 2) -> str:
        return word * times

    assert build(repeated, {"word": "ab", "times": 3}, "f") == "ababab"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"count": 1, "cuont": 2},
            "outer takes no option 'cuont'; did you mean 'count'? it takes count, rate, name, mode",
        ),
        ({}, "outer.count is missing"),
        ({"count": True}, "outer.count must be an integer, not True"),
        ({"count": 2**63}, "outer.count must be an integer, not a huge integer"),
        ({"count": 1, "rate": "fast"}, "outer.rate must be a number, not 'fast'"),
        ({"count": 1, "rate": 16**400}, "outer.rate must be a number, not a huge integer"),
        ({"count": 1, "name": 3}, "outer.name must be text or null, not 3"),
        ({"count": 1, "mode": "slow"}, "outer.mode must be one of fast, exact, not 'slow'"),
        ({"count": 1, "inner": {"size": [1]}}, "outer.inner takes no option 'size'; did you mean 'sizes'"),
        ({"count": 1, "inner": {"sizes": ["a"]}}, "outer.inner.sizes must be an integer, not 'a'"),
        ({"count": 1, "options": {"a": [1]}}, "outer.options.a must be true or false or an integer or text"),
        ({"count": 1, "options": {1: 2}}, "outer.options has an option 1, which is not a name"),
        ([("count", 1)], "outer must hold options by name, not a list"),
        ({"count": 1, "name": "x" * 10**6, "mode": "y" * 10**6}, "not a long text"),
    ],
)
def test_what_does_not_fit_is_named_in_one_short_line(options: Any, message: str):
    with pytest.raises(ConfigError) as caught:
        build(Outer, options, "outer")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_pair_has_two_values():
    assert convert([0, "1"], tuple[float, float], "pair") == (0.0, 1.0)
    with pytest.raises(ConfigError, match="pair must hold 2 values, not 3"):
        convert([1, 2, 3], tuple[float, float], "pair")


def test_an_alternative_that_already_fits_comes_first():
    assert convert(1, float | int, "x") == 1
    assert type(convert(1, float | int, "x")) is int
    assert convert(True, int | bool, "x") is True
    assert type(convert("1e-3", float | None, "x")) is float


def test_numbers_are_finite():
    for value in (float("nan"), "inf", -float("inf")):
        with pytest.raises(ConfigError, match=r"x must be a finite number, not -?(nan|inf)"):
            convert(value, float, "x")


# Choices: a name of a table, with options of its own


def even(at: int, /) -> str:
    return f"even at {at}"


def odd(at: int, /, *, by: Count = 1, scale: float = 1.0) -> str:
    """Odd.

    Args:
        by: How far.
    """
    return f"odd at {at} by {by}, {scale}"


KINDS = {"even": even, "odd": odd}


@dataclass(frozen=True)
class Chooser:
    kind: Annotated[Choice | str, OneOf(KINDS)] = "odd"
    plain: Annotated[str, OneOf(KINDS)] = "even"
    share: Share = 0.5


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ("even", Choice("even")),
        ("odd", Choice("odd", {"by": 1, "scale": 1.0})),
        ({"name": "odd", "scale": 2}, Choice("odd", {"by": 1, "scale": 2.0})),
        ({"by": 3}, Choice("odd", {"by": 3, "scale": 1.0})),
        (Choice("odd", {"by": 3}), Choice("odd", {"by": 3, "scale": 1.0})),
        (Text("{name: odd, by: 4}"), Choice("odd", {"by": 4, "scale": 1.0})),
        (Text("even"), Choice("even")),
    ],
)
def test_a_choice_is_a_name_or_a_name_with_options_and_is_completed(given, choice):
    made = build(Chooser, {"kind": given}, "model")
    assert made == Chooser(choice)
    assert build(Chooser, plain(made), "model") == made
    assert plain(made)["kind"] == ("even" if choice.name == "even" else {"name": "odd", **choice.options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "odds"}, "model.kind 'odds' is unknown; did you mean 'odd'? choose one of even, odd"),
        ({"kind": 3}, "model.kind must be a name with options, not 3"),
        ({"kind": {"name": "even", "by": 2}}, "model.kind 'even' takes no option 'by'; it takes none"),
        ({"kind": {"bye": 2}}, "model.kind 'odd' takes no option 'bye'; did you mean 'by'? it takes by, scale"),
        ({"kind": {"by": 0}}, "model.kind.by must be at least 1, not 0"),
        ({"plain": {"name": "odd"}}, "model.plain must be a name, not a mapping"),
        ({"plain": "evn"}, "model.plain 'evn' is unknown; did you mean 'even'"),
        ({"share": 1}, "model.share must be at least 0 and below 1, not 1.0"),
    ],
)
def test_an_unknown_or_unread_option_names_itself_the_choice_and_what_that_takes(options, message):
    with pytest.raises(ConfigError) as caught:
        build(Chooser, options, "model")
    assert message in str(caught.value)


def test_what_is_chosen_has_its_options_bound():
    assert chosen("kind", "even", KINDS)(5) == "even at 5"
    assert chosen("kind", Choice("odd", {"by": 2}), KINDS)(5) == "odd at 5 by 2, 1.0"
    with pytest.raises(ConfigError, match="kind 'odd' takes no option 'step'"):
        chosen("kind", Choice("odd", {"step": 1}), KINDS)
    with pytest.raises(ConfigError, match="kind 'nine' is unknown: choose one of even, odd"):
        chosen("kind", "nine", KINDS)
    with pytest.raises(ConfigError, match="kind must be a name, not 3"):
        known("kind", 3, KINDS)


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("3", str, "3"),
        ("1e-3", float, 0.001),
        ("[8, 4]", tuple[int, ...], (8, 4)),
        ("false", bool, False),
        ("null", str | None, None),
        ("17", str | None, "17"),
        ("None", int | None, None),
        ("None", str, "None"),
        ("off", Literal["on", "off"], "off"),
        ("a: b [", str, "a: b ["),
    ],
)
def test_text_of_the_command_line_becomes_what_its_option_wants(text, hint, value):
    made = convert(Text(text), hint, "x")
    assert (made, type(made)) == (value, type(value))


@pytest.mark.parametrize(("text", "hint"), [("[", int), ("!!python/name:os.system", float), ("two", int), ("3", bool)])
def test_text_that_is_none_of_it_is_refused(text, hint):
    with pytest.raises(ConfigError, match=r"^x must be"):
        convert(Text(text), hint, "x")


def test_settings_made_in_python_are_brought_to_their_types():
    @dataclass(frozen=True)
    class Rates:
        betas: tuple[Share, Share] = (0.9, 0.999)
        count: Annotated[int, Bounds(at_least=2)] = 2

        def __post_init__(self) -> None:
            typed(self, "rates")

    assert Rates([0, "0.5"]).betas == (0.0, 0.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"rates\.count must be at least 2, not 1"):
        Rates(count=1)


def test_numbers_and_arrays_of_other_libraries_are_python_s() -> None:
    made = [
        convert(np.int64(3), Count, "x"),
        convert(np.float32(0.5), float, "x"),
        convert(np.bool_(True), bool | None, "x"),
        convert(np.array([3, 4]), tuple[Count, ...], "x"),
        convert([np.int32(1), torch.tensor(2)], list[int], "x"),
    ]
    assert made == [3, 0.5, True, (3, 4), [1, 2]] and [type(one) for one in made] == [int, float, bool, tuple, list]
    with pytest.raises(ConfigError, match=r"x must be an integer, not 0\.5"):
        convert(np.float32(0.5), int, "x")
