import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from edgewise.apps.command.main import main

Runs = Callable[[str], Path]


def data_of(page: Path) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found
    return json.loads(found[1])


def test_without_a_run_the_page_shows_the_model_that_comes_with_edgewise(capsys) -> None:
    assert main(["explore", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["page"] == "explorer.html"
    assert summary["bytes"] == Path("explorer.html").stat().st_size <= 2_000_000
    assert summary["graphs"] == ["given", "causal", "window", "grid", "complete", "molecule"]
    assert data_of(Path("explorer.html"))["examples"][0]["graphs"][0]["title"] == "friendship"


@pytest.mark.parametrize("name", ["text"])
def test_a_runs_page_has_its_weights_and_lies_in_its_folder(own: Runs, name: str, capsys) -> None:
    run = own(name)
    assert main(["explore", str(run)]) == 0
    assert data_of(run / "explorer.html")["model"]["width"] == 8
    assert main(["explore", str(run), "--out", "elsewhere.html"]) == 0
    assert Path("elsewhere.html").read_bytes() == (run / "explorer.html").read_bytes()


@pytest.mark.parametrize(("name", "what"), [("gnn", "a GNN has no blocks"), ("mlp", "a Perceptron has no blocks")])
def test_a_model_without_attention_is_refused_and_what_can_be_explored_is_said(
    trained: Runs, name: str, what: str, capsys
) -> None:
    assert main(["explore", str(trained(name))]) == 2
    error = capsys.readouterr().err
    assert what in error and "transformers and graph transformers with plain q·k attention" in error


def test_a_place_of_data_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["explore", "--task.folder", str(tmp_path), "--out", str(page)]) == 2
    assert "give the run, too" in capsys.readouterr().err and not page.exists()
