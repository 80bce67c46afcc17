import argparse

import pytest

from edgewise.apps.arguments import Parser, amount, duration, folder, whole
from edgewise.errors import ConfigError


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400)])
def test_a_time_has_a_unit_or_is_in_seconds(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("kind", "text"),
    [(duration, text) for text in ("", "0", "-1", "1d", "m", "nan", "1e3", "9999999999h")]
    + [(whole(1, 5), text) for text in ("0", "6", "2.0", "٣", "")]
    + [(amount, text) for text in ("-0.1", "inf", "nan", "warm")],
)
def test_what_is_no_such_number_is_quoted(kind, text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"is no|is not"):
        kind(text)


def test_a_folder_has_a_name():
    assert folder("runs/a b") == "runs/a b"
    for text in ("", " "):
        with pytest.raises(argparse.ArgumentTypeError, match="the name of a folder is empty"):
            folder(text)


def test_a_complaint_is_an_error_that_names_the_nearest_word():
    parser = Parser(prog="edgewise")
    parser.add_argument("what", choices=("build", "check"))
    parser.add_argument("--memory")
    with pytest.raises(ConfigError, match="'biuld' is unknown; did you mean 'build'"):
        parser.parse_args(["biuld"])
    with pytest.raises(ConfigError, match="unknown option '--memroy'; did you mean '--memory'"):
        parser.refuse("--memroy=3")
    with pytest.raises(ConfigError, match=r"'--device'; did you mean '--machine.device'\? see `edgewise --help`"):
        parser.refuse("--device=tpu", ["train.steps", "machine.device"])
    parser.add_argument("--json", action="store_true")
    with pytest.raises(ConfigError, match="--json: takes no value, not '3'"):
        parser.parse_args(["build", "--json=3"])
