"""Every figure that docs/results.md requires of a recipe is asserted by a test of that very figure."""

import re
from pathlib import Path

import pytest

from tests import test_accuracy

PAGE = (Path(__file__).parent.parent / "docs" / "results.md").read_text(encoding="utf-8")
BOUND = re.compile(r"(?:([≥≤]) |^(?=\d+ %))([\d.]+(?:e-\d+)?)( %)?")
SOURCE = Path(test_accuracy.__file__).read_text(encoding="utf-8")

# Figures of a recipe that another test asserts than the tables of test_accuracy.py, and the words in which it does.
WRITTEN = {
    ("cora-vgae", 0.926): 'if recipe == "cora-vgae"',
    ("copper-schnet", 0.05): '["mean"] <= 0.05',
    ("copper-schnet", 1e-6): ".max() <= 1e-6",
    ("digits-vit-lora", 0.90): ">= 0.90 * (all_weights - before)",
    ("mutag-gin", 0.88): '["mean_curve"]["mean"] >= 0.88',
    ("planted-sage", 3.0): "<= 3e9",
    ("skip-links-gin", 0.10): '["mean"] == 0.1',
}


def required() -> list[tuple[str, float]]:
    """Recipe and figure of each row with a bound: of several the strictest; percentages as shares."""
    found, columns, recipe = [], [], ""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if "required" not in columns or not cells:
            columns, recipe = cells, ""
            continue
        command = re.match(r"`(?:edgewise train ([\w-]+)|)", cells[0])
        recipe = (command[1] or "") if command else recipe if cells[0].startswith("the same") else ""
        bounds = BOUND.findall(cells[columns.index("required")])
        figures = [float(number) / (100 if percent else 1) for _, number, percent in bounds]
        if recipe and figures:
            found.append((recipe, round(min(figures) if bounds[0][0] == "≤" else max(figures), 8)))
    return found


def asserted(recipe: str) -> set[float]:
    """The figures of a recipe in the tables of test_accuracy.py."""
    tables = [*test_accuracy.FIGURES, *test_accuracy.FOLDS, *test_accuracy.PARTICLES]
    return {abs(bound) for name, _, bound in tables if name == recipe}


@pytest.mark.parametrize(("recipe", "figure"), required())
def test_a_required_figure_is_asserted_as_it_is_required(recipe: str, figure: float) -> None:
    if (recipe, figure) in WRITTEN:
        assert WRITTEN[recipe, figure] in SOURCE
    else:
        assert figure in asserted(recipe)


def test_the_page_is_read_whole() -> None:
    rows = required()
    assert len(rows) >= 35
    assert {
        ("cora-gcn", 0.813),
        ("shakespeare-gpt-cpu", 1.669),
        ("skip-links-gps", 1.0),
        ("nbody-egnn", 0.0071),
    } <= set(rows)
    assert set(WRITTEN) <= set(rows), "a figure that the page no longer requires"
