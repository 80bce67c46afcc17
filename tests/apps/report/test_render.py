import numpy as np
import pytest

from edgewise.apps.report import render
from edgewise.apps.report.pages import Markup
from edgewise.tasks.core import drawing
from edgewise.tasks.core.drawing import Confusion, Drawing, Passage, TextTable

CONFUSION = Drawing("confusion", Confusion(np.eye(2, dtype=int), ["<a>", "b"]), "2 < 3")


def test_all_that_a_task_can_show_is_rendered() -> None:
    assert set(render.FIGURES) == set(drawing.Figure.__args__)
    assert set(render.PARTS) == set(drawing.Content.__args__)


def test_a_drawing_is_a_file_and_a_part_of_the_page(tmp_path) -> None:
    path, svg = render.save(CONFUSION, tmp_path)
    assert path == tmp_path / "figures" / "confusion.svg"
    assert path.read_text(encoding="utf-8").startswith("<?xml")
    shown = render.part(CONFUSION, tmp_path)
    assert svg in shown and "2 &lt; 3" in shown


@pytest.mark.parametrize(
    "content", [TextTable(["<x>", "y"], [["<1>", "2"]]), Passage("<prompt>", "<text>", "<caption>")]
)
def test_tables_and_texts_are_escaped(content, tmp_path) -> None:
    shown = render.part(content, tmp_path)
    assert isinstance(shown, Markup)
    assert "&lt;" in shown
    assert not any(f"<{word}>" in shown for word in ("x", "1", "prompt", "text", "caption"))
