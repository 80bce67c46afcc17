"""What a refusal is: one line on standard error and exit code 2, and nothing is left behind."""

import hashlib
from pathlib import Path

import pytest

from edgewise.apps.command.main import main


def listing(folder: Path) -> dict[str, str]:
    """Everything in a folder, with the hash of each file."""
    paths = sorted(folder.rglob("*"))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in paths}


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must be refused, in the current folder, and return its one line on standard error."""
    capsys.readouterr()
    before = listing(Path())
    assert main(arguments) == 2
    assert listing(Path()) == before
    told = capsys.readouterr()
    last = told.err.strip().splitlines()[-1]
    assert last.startswith("edgewise: error: ")
    assert "Traceback" not in told.err
    assert len(last) < 1500
    return last
