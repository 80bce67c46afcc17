"""Every command, study, recipe and test that docs/claims.md names exists."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from edgewise.apps import options, recipes
from edgewise.apps.command import main as command_line

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
OPEN = "Not shown yet"


def rows(section: str) -> list[list[str]]:
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ENTRIES = sorted(
    {span for name in SECTIONS if name != OPEN for row in rows(name) for span in re.findall("`([^`]+)`", row[2])}
)


def exists(command: str) -> bool:
    """Whether a command can be run: its recipe, study, model or test is there, and takes these options."""
    program, *words = shlex.split(command)
    if program == "pytest":
        file, name = words[0].split("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)
    if program == "python":
        _, module, *_ = words
        path = ROOT / module.replace(".", "/")
        return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
    assert program == "edgewise"
    args = command_line.parse(words)
    if args.command == "train":
        options.configure(recipes.read(args.recipe), args.sections)
    return True


@pytest.mark.parametrize("command", ENTRIES)
def test_what_shows_a_claim_is_there(command: str) -> None:
    assert exists(command)


def test_a_command_that_is_not_there_is_noticed() -> None:
    assert not exists("pytest tests/test_claims.py::test_nothing")
    assert not exists("python -m benchmarks.studies.nothing")
    with pytest.raises(Exception, match="nothing"):
        exists("edgewise train nothing")


def test_every_claim_of_every_document_has_a_command_and_a_finding_or_is_listed_as_open() -> None:
    assert list(SECTIONS) == ["000", "001", "002", "003", "004", OPEN]
    for name in SECTIONS:
        assert rows(name)
        for row in rows(name):
            assert len(row) == (3 if name == OPEN else 4), row
            assert all(row), row
            assert name == OPEN or "`" in row[2], row
