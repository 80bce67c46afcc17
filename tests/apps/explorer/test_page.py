import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from apps.explorer.payloads import PAYLOADS
from apps.explorer.peer import close, edited, in_double, in_node, node_needed, random_edits
from edgewise.apps.explorer import page
from edgewise.apps.explorer.page import LARGEST, Words, contents, demonstration, sha256, written
from edgewise.errors import ConfigError

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return contents(demonstration(), Words("Title", "Lead.", "Source.", {"i": 1}))


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open == "script":
            self.scripts[-1] += data


def test_the_policy_allows_its_own_script_and_style_by_hash_and_nothing_else(content: dict[str, Any]) -> None:
    text = written(content)
    elements = Elements(text)
    policy = next(attributes["content"] for tag, attributes in elements.tags if "http-equiv" in attributes)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style
    assert rules == {
        "default-src": "'none'",
        "script-src": f"'{sha256(elements.scripts[1])}'",
        "style-src": f"'{sha256(style[1])}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert [attributes for tag, attributes in elements.tags if tag == "script"] == [
        {"type": "application/json", "id": "data"},
        {},
    ]


def test_the_page_names_no_other_place_and_has_no_handler(content: dict[str, Any]) -> None:
    elements = Elements(written(content))
    names = {name for _, attributes in elements.tags for name in attributes}
    assert {name for name in names if name.startswith("on") or name in ("src", "href", "style", "srcdoc")} == set()
    assert len(written(content).encode()) <= LARGEST


def test_no_name_ends_the_data_or_becomes_markup(content: dict[str, Any]) -> None:
    names = PAYLOADS
    example = content["examples"][0] | {"title": "".join(names), "names": names, "note": names[0]}
    words = {name: "".join(names) for name in ("title", "lead", "source")}
    model = content["model"] | {"outputs": names}
    elements = Elements(written(content | words | {"examples": [example], "model": model}))
    assert [tag for tag, _ in elements.tags] == [tag for tag, _ in Elements(written(content)).tags]
    assert len(elements.scripts) == 2
    assert json.loads(elements.scripts[0])["examples"][0]["names"] == names


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
