"""A page says all that it must, and runs nothing that a name brings with it."""

import html
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from apps.markup import Page
from edgewise import EXPLANATIONS, Graph, explain, fidelity
from edgewise.apps.command.main import main
from edgewise.apps.report import explanations
from edgewise.apps.report.explanations import default_path, write
from edgewise.explanations import Explained, Feature, Names, scores
from edgewise.layers import GCN
from edgewise.tasks.core.drawing import Alignment, Coloured, Drawing
from edgewise.tasks.core.subject import on_graph

COUNT = 20  # nodes
LINKS = torch.arange(COUNT)
RING = Graph.from_edge_index(torch.stack([LINKS, (LINKS + 1) % COUNT]), num_nodes=COUNT)
PLAIN = [f"node {number}" for number in range(COUNT)]

TAGS = ("script", "img src=x onerror=", "svg onload=", "iframe src=javascript:", "body onload=")
CLOSINGS = ("", "</span>", "</td></table>", "</style>", "</svg>", "</title>", "</pre>", "]]>", "-->", "\"'>")
BODIES = ("alert(1)", "parent.x=1")
PAYLOADS = [f"{closing}<{tag}{body}>{body}</script>" for closing in CLOSINGS for tag in TAGS for body in BODIES]


def page(folder: Path, request: str, names: list[str], what: str = "'a'") -> str:
    columns = [Feature(names[0], says=lambda x: names[1], at=names[2]), Feature(names[3])]
    made = Explained(GCN(2, 3), (RING, torch.randn(COUNT, 2)), (2, 0))
    why = scores(made, "integrated-gradients", names=Names(what, what, names, columns, baseline=what))
    assert why.edges is not None
    drawings = [
        *on_graph(RING, why.edges, why.nodes, names, 2),
        Coloured(names, why.nodes.double().numpy(), "text"),
        Drawing("edges", Alignment(np.eye(COUNT), names, names)),
    ]
    fidelities = [fidelity(why, "edges", orders=1), fidelity(why, "nodes", orders=1)]
    path = folder / "page.html"
    write(explanations.Page(folder, request, why, why.value, drawings, fidelities, "--method x", 0.1), path)
    return path.read_text(encoding="utf-8")


def test_a_page_is_understood_without_documentation(tmp_path: Path) -> None:
    text = page(tmp_path, "test:7", PLAIN)
    for part in (
        "Why &#x27;a&#x27;",
        "test:7",
        "Legend.",
        "How to read it.",
        "How far to trust it",
        "What adds up",
        "at the baseline (",
        "the remainder is",
        "random",
        "degree",
    ):
        assert part in text
    assert EXPLANATIONS["integrated-gradients"].meaning in text
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text


def test_no_payload_runs(tmp_path: Path) -> None:
    assert len(PAYLOADS) == 100
    expected = Page(page(tmp_path, "x", PLAIN)).tags
    for first in range(0, len(PAYLOADS), 4 * COUNT):  # each is a node, a token, a row, a label, and a file's name
        names = PAYLOADS[first : first + COUNT]
        found = Page(page(tmp_path, names[0], names, names[1]))
        assert found.tags <= expected - {"script", "iframe", "img", "object", "embed"}
        assert not [name for name in found.attributes if name.startswith("on")]
        assert not [link for link in found.values("href") if re.match(r"\s*javascript:", link)]


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        ("5", r"5-flow"),
        ("test:7", r"test-7-flow"),
        ("../../etc/passwd", r"etc-passwd-flow-[0-9a-f]{8}"),
        ("", r"input-flow-[0-9a-f]{8}"),
    ],
)
def test_a_page_is_named_after_its_input_inside_the_run(request_: str, name: str) -> None:
    path = default_path(Path("run"), request_, "flow")
    assert path.parent == Path("run") / "explanations" and re.fullmatch(rf"{name}\.html", path.name)


def test_the_list_of_pages_follows(tmp_path: Path) -> None:
    (tmp_path / "explanations").mkdir()
    why = explain(GCN(2, 3), RING, torch.randn(COUNT, 2), (2, 0), "gradient")
    path = default_path(tmp_path, "2", "gradient")
    made = (tmp_path, "2", why, 0.5, [], [fidelity(why, "nodes", orders=1)], "", 0.1)
    write(explanations.Page(*made), path)
    assert "./2-gradient.html" in (tmp_path / "explanations" / "index.html").read_text(encoding="utf-8")


def test_what_has_no_score_is_not_listed(tmp_path: Path) -> None:
    text = page(tmp_path, "test:7", PLAIN)
    listed = text.partition("<h3>Nodes</h3>")[2].partition("</table>")[0]
    assert listed.count("<tr>") == 1 + 2  # node 2 and the one before it on the ring; the other 18 have 0


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
