"""Every command, study, recipe and test that docs/claims.md names exists."""

import re
import shlex
from pathlib import Path

from edgewise.apps import options, recipes
from edgewise.apps.command import main as command_line

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


def exists(command: str) -> bool:
    """Whether a command can be run: its recipe, study, model or file of tests is there, and takes these options."""
    program, *words = shlex.split(command)
    if program == "pytest":
        return (ROOT / words[0]).is_file()
    if program == "python":
        path = ROOT / words[1].replace(".", "/")
        return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
    args = command_line.parse(words)
    if args.command == "train":
        options.configure(recipes.read(args.recipe), args.sections)
    return True


def test_what_shows_a_claim_is_there() -> None:
    commands = set(re.findall(r"`((?:pytest|python|edgewise) [^`]+)`", PAGE))
    assert len(commands) > 100
    assert [command for command in sorted(commands) if not exists(command)] == []
    assert not exists("pytest tests/nothing.py") and not exists("python -m benchmarks.studies.nothing")
