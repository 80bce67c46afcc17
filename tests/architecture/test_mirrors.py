"""Every file has its test. Every offender is named."""

import re

from architecture.package import PACKAGE, ROOT, SOURCES, imported, name_of, tree_of
from reach import COVERED_ELSEWHERE


def test_every_file_has_its_test() -> None:
    files = {str(path.relative_to(PACKAGE).with_suffix("")) for path in SOURCES if not path.stem.startswith("__")}
    tests = {str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests").rglob("test_*.py")}
    mirrored = {file: re.sub(r"(\w+)$", r"test_\1.py", file) for file in files}
    assert sorted(file for file, test in mirrored.items() if test not in tests and file not in COVERED_ELSEWHERE) == []
    assert sorted(file for file in COVERED_ELSEWHERE if mirrored.get(file) in tests) == []
    assert sorted(test for test in COVERED_ELSEWHERE.values() if not (ROOT / test).is_file()) == []


def test_the_benchmarks_stay_outside_and_have_their_tests() -> None:
    assert [
        name_of(path) for path in SOURCES if any(re.match(r"benchmarks\b", m) for m in imported(tree_of(path)))
    ] == []
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__"}
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "benchmarks").glob("test_*.py")}
    assert {file.strip("_") for file in files} - tests == set()
