import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from apps.explorer.payloads import PAYLOADS
from apps.explorer.peer import close, edited, in_double, in_node, node_needed, random_edits
from apps.markup import Page
from edgewise.apps.command.main import main
from edgewise.apps.explorer import page
from edgewise.apps.explorer.page import LARGEST, contents, demonstration, sha256, written
from edgewise.errors import ConfigError

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return contents(demonstration(), "Title", "Lead.", "Source.", {"i": 1})


def test_the_policy_allows_its_own_script_and_style_by_hash_and_nothing_else(content: dict[str, Any]) -> None:
    text = written(content)
    shown = Page(text)
    rules = dict(rule.strip().split(" ", 1) for rule in shown.policy.split(";"))
    assert rules == {
        "default-src": "'none'",
        "script-src": f"'{sha256(shown.texts['script'][1])}'",
        "style-src": f"'{sha256(shown.texts['style'][0])}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    scripts = [attributes for tag, attributes in shown.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]


def test_the_page_names_no_other_place_and_has_no_handler(content: dict[str, Any]) -> None:
    names = Page(written(content)).attributes
    assert {name for name in names if name.startswith("on") or name in ("src", "href", "style", "srcdoc")} == set()
    assert len(written(content).encode()) <= LARGEST


def test_no_name_ends_the_data_or_becomes_markup(content: dict[str, Any]) -> None:
    names = PAYLOADS
    example = content["examples"][0] | {"title": "".join(names), "names": names, "note": names[0]}
    words = {name: "".join(names) for name in ("title", "lead", "source")}
    model = content["model"] | {"outputs": names}
    shown = Page(written(content | words | {"examples": [example], "model": model}))
    assert [tag for tag, _ in shown.elements] == [tag for tag, _ in Page(written(content)).elements]
    assert len(shown.texts["script"]) == 2
    assert json.loads(shown.texts["script"][0])["examples"][0]["names"] == names


def test_a_page_that_would_be_too_large_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"would have [\d,]+ bytes, of at most 2,000,000"):
        written(content | {"lead": "x" * LARGEST})


def test_the_built_page_is_that_of_the_sources() -> None:
    web = ROOT / "web"
    names = [f"src/{path.name}" for path in (web / "src").iterdir()]
    names += ["build.mjs", "package-lock.json", "tsconfig.json"]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(name.encode() + b"\0" + (web / name).read_bytes())
    first = (page.FOLDER / "page.js").read_text(encoding="utf-8").splitlines()[0]
    assert first == f"/* sources sha256:{digest.hexdigest()} */", "run `make web`"


@node_needed
def test_after_10_random_edits_the_demonstrations_numbers_are_pytorchs(content: dict[str, Any]) -> None:
    loaded = demonstration()
    graph = loaded.task.graph(loaded.pattern)
    assert graph is not None
    pairs = random_edits(34, 10, 0)
    cases = [{"graph": "given", "edits": [list(pair) for pair in pairs[: k + 1]]} for k in range(10)]
    for k, found in enumerate(in_node(content, cases)):
        expected = in_double(loaded.model, edited(graph, pairs[: k + 1]), torch.eye(34))
        assert close(found, expected, 1e-9)


Runs = Callable[[str], Path]


def data_of(page: Path) -> dict:
    return json.loads(Page(page.read_text(encoding="utf-8")).texts["script"][0])


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
