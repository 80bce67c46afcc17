import json
from pathlib import Path

import pytest

from edgewise.apps.command import demo
from edgewise.apps.command.main import main
from edgewise.kernels import BACKENDS


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    configure = demo.configure
    tiny = [("train.steps", "2"), ("train.batch", "2"), ("model.width", "8"), ("evaluation.every", "2")]
    monkeypatch.setattr(demo, "configure", lambda recipe: configure(recipe, tiny))


def test_the_demonstration_prints_one_table_and_the_page(quick, capsys) -> None:
    assert main(["demo", "--json"]) == 0
    told = capsys.readouterr().out
    answer = json.loads(told.splitlines()[-1])
    assert [row["graph"] for row in answer["rows"]] == ["causal", "complete", "grid", "friendship"]
    assert [row["edges"] for row in answer["rows"]] == ["2,080", "256", "100", "190"]
    assert all(row["backend"] in BACKENDS for row in answer["rows"])
    assert answer["report"] in told
    page = Path(answer["report"])
    text = page.read_text(encoding="utf-8")
    assert text.count("<figure>") == 4
    assert 'class="problem"' not in text
    for run in ("text", "digits", "digits-grid", "karate"):
        assert f'href="{run}/report.html"' in text
        assert (page.parent / run / "report.html").is_file()


def test_a_demonstration_is_never_overwritten(quick, capsys) -> None:
    Path("mine").mkdir()
    Path("mine/report.html").write_text("precious", encoding="utf-8")
    assert main(["demo", "--run", "mine"]) == 2
    assert "already holds a demonstration" in capsys.readouterr().err
    assert Path("mine/report.html").read_text(encoding="utf-8") == "precious"
