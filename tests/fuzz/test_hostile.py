"""What a hostile file can make a reader take: at most 1 GB and 20 seconds, and one clean error or a result."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import hostile
from fuzz.hostile import LARGE, QUICK

MEMORY, TIME = 1000, 20  # MB of a process with torch and all parsers in it, seconds on a quiet machine


def outcomes(cases: list[str]) -> dict[str, tuple[str, int, float]]:
    """How each case ended, its memory and its time."""
    pytest.importorskip("openslide")
    pytest.importorskip("rdkit")
    pytest.importorskip("pyarrow")
    command = [sys.executable, "-W", "ignore", str(Path(hostile.__file__)), *cases]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {case: (end, memory, time) for case, end, _, memory, time in map(json.loads, said.splitlines())}


def test_small_files_that_ask_for_much_are_refused_or_read_within_the_budget() -> None:
    found = outcomes(list(QUICK))
    assert set(found) == set(QUICK)
    assert {case: end for case, (end, memory, time) in found.items() if memory > MEMORY or time > TIME} == {}
    assert {case: end for case, (end, _, _) in found.items() if end.startswith(("RAW", "SIGNAL"))} == {}
    assert {case for case, (end, _, _) in found.items() if end == "read"} <= {
        "slide: 0.01 microns per pixel", "slide: tiles of a pixel", "yaml: many keys",
        "yaml: many values", "yaml: a long number",
    }  # fmt: skip
    assert "16.0 TB" in found["hub: a vocabulary of 1e12"][0] and "weights" in found["hub: a billion layers"][0]
    assert "1.0 microns are 0.000355 of its own" in found["slide: 90,000 microns per pixel"][0]


@pytest.mark.endurance
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", LARGE)
def test_the_largest_files_stay_within_the_budget(case: str) -> None:
    end, memory, time = outcomes([case])[case]
    assert memory <= MEMORY and time <= 3 * TIME and not end.startswith(("RAW", "SIGNAL")), end
