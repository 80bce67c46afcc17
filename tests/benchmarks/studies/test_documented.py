"""Each claim's study is on the two pages, with its picture, and a test asserts what it requires."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "benchmarks" / "studies" / "claims"
STUDIES = sorted(path.stem for path in FOLDER.glob("*.py") if "def main" in path.read_text(encoding="utf-8"))
CLAIMS, RESULTS = ((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("claims", "results"))


def test_the_studies_are_found() -> None:
    assert {"lottery", "remedies", "learned", "alignment", "far"} <= set(STUDIES)


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_is_documented_drawn_and_asserted(study: str) -> None:
    command = f"python -m benchmarks.studies.claims.{study}"
    assert f"`{command}`" in CLAIMS
    section = next(part for part in RESULTS.split("\n## ") if command in part)
    assert "Required" in section.split(command)[1]
    pictures = re.findall(r"\]\((images/[\w-]+\.svg)\)", section)
    assert pictures and all((ROOT / "docs" / picture).is_file() for picture in pictures)
    source = (ROOT / "tests" / "benchmarks" / "studies" / f"test_{study}.py").read_text(encoding="utf-8")
    assert re.search(rf"@pytest\.mark\.accuracy\n(?:@.*\n)*def test_[^@]*{study}\.[A-Z]+", source)
