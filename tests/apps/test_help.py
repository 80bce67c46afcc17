"""Every command line that the help shows is one that the command takes."""

import argparse
import importlib
import inspect
import re
import shlex

from edgewise.apps.command.main import build_parser, parse
from edgewise.apps.command.options import COMMANDS, EXAMPLES

TEXTS = [EXAMPLES, *(command.details for command in COMMANDS.values())]
LINES = [re.split(r"\s{2,}", line.strip())[0] for text in TEXTS for line in text.splitlines()
         if line.strip().startswith("edgewise ")]  # fmt: skip


def test_a_command_line_of_the_help_is_taken() -> None:
    for line in LINES:
        _, command, *_ = words = shlex.split(line)
        assert parse(words[1:]).command == command


def test_each_command_has_a_function_that_takes_its_options_and_the_help_says_their_defaults() -> None:
    for name, parser in build_parser()[1].items():
        module, _, function = COMMANDS[name].function.partition(":")
        taken = inspect.signature(getattr(importlib.import_module(f"edgewise.apps.{module}"), function)).parameters
        options = {action.dest for action in parser._actions} - {"json", "help" if name != "train" else ""}
        assert set(taken) == options | ({"sections"} if name in ("train", "tune") else set()), name
        usual = [one for one in parser._actions if one.option_strings and one.default]
        lacking = [one.dest for one in usual if one.default != argparse.SUPPRESS and "(default: " not in one.help]
        assert lacking == [], name
