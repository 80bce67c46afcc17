import json
from pathlib import Path

from benchmarks.studies.claims.common.kept import Kept, draw
from edgewise.apps.report import figures


def test_a_study_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    file, asked = tmp_path / "kept.json", []

    def measured(value: float) -> dict[str, float]:
        asked.append(value)
        return {"loss": value}

    first = Kept(file)
    assert first.get("one", lambda: measured(1.0)) == first.get("one", lambda: measured(2.0)) == {"loss": 1.0}
    assert json.loads(file.read_text()) == {"one": {"loss": 1.0}}
    later = Kept(file)
    assert later.get("one", lambda: measured(3.0)) == {"loss": 1.0}
    assert later.get("two", lambda: measured(4.0)) == {"loss": 4.0}
    assert asked == [1.0, 4.0]
    assert json.loads(file.read_text()).keys() == {"one", "two"}


def test_without_a_file_nothing_is_written_and_without_a_picture_nothing_drawn(tmp_path: Path) -> None:
    assert Kept().get("one", lambda: {"loss": 1.0}) == {"loss": 1.0}
    with figures.drawing(1.0) as (figure, _):
        draw(figure, None, "nothing")
        assert list(tmp_path.iterdir()) == []
        draw(figure, tmp_path / "one.svg", "one")
    assert (tmp_path / "one.svg").read_text().rstrip().endswith("</svg>")
