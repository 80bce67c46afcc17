"""Names that somebody else chose: folders, files, recipes and labels come out as text, whatever they hold."""

import re
import shlex
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from apps.markup import Page
from edgewise.apps.command.main import main
from edgewise.apps.report import figures
from edgewise.tasks.core.drawing import Confusion

NAMES = [
    r"\1<script>$x$",
    r"\g<0>\g<name>\x",
    '" onload="alert(1)" x="',
    "' onclick='alert(1)'",
    "a) url(#b",
    "]]><svg onload=alert(1)>",
    "{0}%s%(x)s$\\frac{1}{",
    "# --flag; rm -rf ~ `id` $(id)",
    "two\nlines\ttab",
    "\x1b[31mred\x07\x01",
    "\udcff\udc80",  # bytes that are not UTF-8
    "\N{RIGHT-TO-LEFT OVERRIDE}gpj.\N{SNOWMAN}",
]
TINY = ["--train.steps", "2", "--evaluation.every", "2", "--train.checkpoints.every", "2", "--model.width", "8"]


def check_svg(content: bytes) -> None:
    """It is XML, without scripts and handlers, and refers only to itself."""
    for node in ElementTree.fromstring(content).iter():  # noqa: S314 (our own file)
        assert not node.tag.lower().endswith(("script", "foreignobject"))
        for name, value in node.attrib.items():
            assert not name.lower().startswith("on")
            assert not re.search(r"javascript:|url\((?!#f[0-9a-f]{8}-[\w-]+\))", value)
            assert not name.endswith("href") or re.fullmatch(r"#f[0-9a-f]{8}-[\w-]+", value)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of a run in a folder of an ordinary name."""
    run = tmp_path_factory.mktemp("plain") / "run"
    assert main(["train", "demo-karate", *TINY, "--run", str(run)]) == 0
    return Page((run / "report.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [NAMES[0], NAMES[5], NAMES[8] + NAMES[9], NAMES[10]], ids=ascii)
def test_a_folder_and_a_recipe_of_any_name_come_out_as_text(name: str, plain: Page, capsys) -> None:
    recipe = Path(f"{name}.yaml")
    capsys.readouterr()
    assert main(["train", "demo-karate", "--print-config"]) == 0
    recipe.write_text(capsys.readouterr().out.replace("dropout: 0.0", "dropout: 0.1"), encoding="utf-8")
    run = Path("runs") / name
    assert main(["train", f"./{recipe}", *TINY, "--run", str(run)]) == 0
    for words in (["evaluate"], ["resume"], ["predict", "3"]):
        assert main([words[0], str(run), *words[1:]]) == 0
    told = capsys.readouterr()
    assert "warning" not in told.err and "Traceback" not in told.err
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    assert page.tags == plain.tags
    assert page.attributes == plain.attributes
    readable = name.encode(errors="replace").decode()
    assert page.texts["h1"] == [readable]
    assert shlex.split(page.texts["pre"][0])[:3] == ["edgewise", "evaluate", f"runs/{readable}"]
    drawn = list((run / "figures").glob("*.svg"))
    assert drawn
    for path in drawn:
        check_svg(path.read_bytes())


def test_a_missing_folder_of_any_name_is_refused_in_one_printable_line(capsys) -> None:
    for name in NAMES:
        assert main(["evaluate", name]) == 2
        told = capsys.readouterr().err
        assert told.startswith("edgewise: error: ") and "is not a run folder" in told
        assert told.endswith("\n") and told[:-1].isprintable()


def test_a_label_of_any_text_stays_as_it_is() -> None:
    labels = [
        *(name for name in NAMES if name.isprintable()),
        "#000001",
        ' id="x"',
        "font: 9px serif",
        "$\\alpha$",
        r"\$",
    ]
    drawn = figures.confusion(Confusion(np.eye(len(labels), dtype=int), labels))
    texts = ["".join(node.itertext()) for node in ElementTree.fromstring(drawn).iter() if node.tag.endswith("}text")]  # noqa: S314
    assert all(texts.count(figures.short(label, figures.NAME_OF_CLASS)) == 2 for label in labels)
    check_svg(drawn.encode())
