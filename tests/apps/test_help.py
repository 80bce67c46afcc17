"""Every command line that the help shows is one that the command takes."""

import re
import shlex

import pytest

from edgewise.apps import help as texts
from edgewise.apps.command.main import parse

TEXTS = [text for name, text in vars(texts).items() if name.isupper()]
LINES = [re.split(r"\s{2,}", line.strip())[0] for text in TEXTS for line in text.splitlines()
         if line.strip().startswith("edgewise ")]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_of_the_help_is_taken(line: str) -> None:
    _, command, *_ = words = shlex.split(line)
    assert parse(words[1:]).command == command
