"""The README's file tree and table of systems are true. Every offender is named."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from architecture.package import FLOORS, PACKAGE, README, ROOT
from edgewise.apps import recipes
from edgewise.apps.systems import SYSTEMS


def listed() -> dict[str, str]:
    """The README's file tree: path -> the rest of its line; a folder ends in a slash."""
    block = re.search(r"^```\n(src/edgewise/\n.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert block, "the README has no file tree"
    entries = {}
    for line in block[1].splitlines():
        name, _, rest = line.strip().partition(" ")
        entries[f"src/edgewise/{name}" if line.startswith("  ") else name] = rest
    return entries


def test_what_the_readme_lists_exists() -> None:
    assert [
        path for path in listed() if not ((ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file())
    ] == []


def test_the_readme_lists_what_exists() -> None:
    found = {
        f"src/edgewise/{path.name}{'/' if path.is_dir() else ''}"
        for path in PACKAGE.iterdir()
        if "cache" not in path.name
    }
    assert found - set(listed()) == set()


def test_the_readme_numbers_the_floors() -> None:
    numbered = re.compile(r"\s*(\d)\s")
    numbers = {Path(path).stem: int(found[1]) for path, rest in listed().items() if (found := numbered.match(rest))}
    assert numbers == FLOORS


def test_the_readme_has_the_table_of_systems() -> None:
    shown = re.search(r"<!-- systems: .*? -->\n(.*?)\n<!-- end of systems -->", README, re.DOTALL)
    assert shown, "the README has lost the marks around its table"
    table = runpy.run_path(str(ROOT / "docs" / "readme.py"))["systems_table"]()
    assert shown[1] == table, "run `python docs/readme.py`"


@pytest.mark.parametrize("row", SYSTEMS, ids=lambda row: f"{row.id} {row.name}")
def test_a_system_has_its_file_and_its_recipe(row: Any) -> None:
    assert (PACKAGE / row.file).is_file()
    assert row.recipe in recipes.names()
