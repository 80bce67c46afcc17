"""A page says all that it must, and runs nothing that a name brings with it."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise import EXPLANATIONS, Graph, explain, fidelity
from edgewise.apps.report.explanations import Explained, default_path, write
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


class Elements(HTMLParser):
    """What a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def page(folder: Path, request: str, names: list[str], what: str = "'a'") -> str:
    why = explain(GCN(2, 3), RING, torch.randn(COUNT, 2), (2, 0))
    assert why.edges is not None
    drawings = [
        *on_graph(RING, why.edges, why.nodes, names, 2),
        Coloured(names, why.nodes.double().numpy(), "text"),
        Drawing("edges", Alignment(np.eye(COUNT), names, names)),
    ]
    fidelities = [fidelity(why, "edges", orders=1), fidelity(why, "nodes", orders=1)]
    path = folder / "page.html"
    write(Explained(folder, request, why, what, why.value, names, drawings, fidelities, "--method x", 0.1), path)
    return path.read_text(encoding="utf-8")


def test_a_page_is_understood_without_documentation(tmp_path: Path) -> None:
    text = page(tmp_path, "test:7", PLAIN)
    for part in (
        "Why &#x27;a&#x27;",
        "test:7",
        "Legend.",
        "How to read it.",
        "How far to trust it",
        "random",
        "degree",
    ):
        assert part in text
    assert EXPLANATIONS["integrated-gradients"].meaning in text
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text


def test_no_payload_runs(tmp_path: Path) -> None:
    assert len(PAYLOADS) == 100
    plain = Elements()
    plain.feed(page(tmp_path, "x", PLAIN))
    expected = {tag for tag, _ in plain.seen}
    for first in range(0, len(PAYLOADS), 4 * COUNT):  # each is a node, a token, a row, a label, and a file's name
        names = PAYLOADS[first : first + COUNT]
        found = Elements()
        found.feed(page(tmp_path, names[0], names, names[1]))
        assert {tag for tag, _ in found.seen} <= expected
        for tag, attributes in found.seen:
            assert not [name for name in attributes if name.startswith("on")], tag
            assert tag not in ("script", "iframe", "img", "object", "embed")
            assert not re.match(r"\s*javascript:", attributes.get("href") or "")


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
    made = (tmp_path, "2", why, "'a'", 0.5, (), [], [fidelity(why, "nodes", orders=1)], "", 0.1)
    write(Explained(*made), path)
    assert "./2-gradient.html" in (tmp_path / "explanations" / "index.html").read_text(encoding="utf-8")


def test_what_has_no_score_is_not_listed(tmp_path: Path) -> None:
    text = page(tmp_path, "test:7", PLAIN)
    listed = text.partition("<h3>Nodes</h3>")[2].partition("</table>")[0]
    assert listed.count("<tr>") == 1 + 2  # node 2 and the one before it on the ring; the other 18 have 0
