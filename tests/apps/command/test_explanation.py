"""`edgewise explain` on trained runs."""

import html
import json
import re
import shlex
from pathlib import Path

import pytest

from edgewise.apps.command.main import main


@pytest.fixture(scope="module")
def karate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "karate"
    assert main(["train", "karate", "--run", str(run), "--train.steps", "5"]) == 0
    return run


@pytest.mark.parametrize("method", ["relevance"])
def test_a_run_is_explained_on_a_page(karate: Path, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(karate), "5", "--method", method, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    page = Path(summary["page"])
    assert page == karate / "explanations" / f"5-{method}.html" and page.is_file()
    assert set(summary["fidelity"]) == {"edges", "nodes"} and len(summary["nodes"]) == 5
    assert 0 <= summary["value"] <= 1
    assert page.name in (karate / "explanations" / "index.html").read_text(encoding="utf-8")


def test_layer_head_target_and_place_are_chosen(karate: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    options = ["--method", "attention", "--layer", "0", "--head", "1", "--target", "Officer", "--out", str(out)]
    assert main(["explain", str(karate), "5", *options]) == 0
    assert "Officer" in out.read_text(encoding="utf-8")
    # A page elsewhere leaves the run as it is, which may be another user's.
    assert {path.name for path in (karate / "figures").iterdir()} == {"attention.svg", "confusion.svg", "curves.svg"}


def test_the_command_on_the_page_is_quoted_for_the_shell(karate: Path, tmp_path: Path) -> None:
    assert main(["explain", str(karate), "5", "--target", "Mr. Hi", "--out", str(tmp_path / "page.html")]) == 0
    command = re.search(r"<pre>(edgewise explain .*?)</pre>", (tmp_path / "page.html").read_text(encoding="utf-8"))
    assert command is not None
    words = shlex.split(html.unescape(command[1]))
    assert words[words.index("--target") + 1] == "Mr. Hi" and len(words) == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["5", "--method", "rolout"], "did you mean 'rollout'"),
        (["5", "--layer", "0"], "'attention' alone"),
        (["5,6"], "names 2 nodes: give one at a time"),
        (["99"], "no node '99'"),
        (["5", "--target", "nobody"], "target"),
        (["5", "--method", "attention", "--layer", "7"], "there is no layer 7"),
    ],
)
def test_what_cannot_be_explained_is_said_in_one_line(
    karate: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(karate), *words]) == 2
    captured = capsys.readouterr().err
    assert message in captured and len(captured.strip().splitlines()) == 1
