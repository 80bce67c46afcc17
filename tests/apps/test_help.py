"""Every command line that the help shows is one that the command takes."""

import argparse
import re
import shlex

import pytest

from edgewise.apps import help as texts
from edgewise.apps.command.main import build_parser, parse

TEXTS = [text for name, text in vars(texts).items() if name.isupper()]
LINES = [re.split(r"\s{2,}", line.strip())[0] for text in TEXTS for line in text.splitlines()
         if line.strip().startswith("edgewise ")]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_of_the_help_is_taken(line: str) -> None:
    _, command, *_ = words = shlex.split(line)
    assert parse(words[1:]).command == command


@pytest.mark.parametrize("name", build_parser()[1])
def test_the_help_of_an_option_says_its_default(name: str) -> None:
    options = [action for action in build_parser()[1][name]._actions if action.option_strings]
    usual = [one for one in options if one.default not in (None, False, [], argparse.SUPPRESS)]
    assert [one.dest for one in usual if "(default: " not in one.help] == []


def test_what_is_computed_where_an_option_is_left_out_is_called_its_default() -> None:
    text = " ".join(build_parser()[1]["explain"].format_help().split())
    assert "(default: the last)" in text and "(default: their mean)" in text
    assert "(default: 100)" in build_parser()[1]["check"].format_help()
