"""The book: a page and a picture for each system, and built pages that need nothing but themselves."""

import ast
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from edgewise.apps.systems import SYSTEMS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))
try:
    import book
    import charts
    from images import speed
    from offline import check
finally:
    sys.path.pop(0)

PAGES = book.pages()
IDS = sorted({row.id for row in SYSTEMS})


@pytest.mark.parametrize("id_", IDS)
def test_each_system_has_a_picture_and_a_page(id_: str) -> None:
    picture = (DOCS / "gallery" / "pictures" / f"{id_}.svg").read_text(encoding="utf-8")
    assert len(picture) < 40_000
    drawing = ElementTree.fromstring(picture)  # noqa: S314 (our own)
    assert len(drawing[0].text or "") > 80  # what it shows
    assert len(drawing) > 3
    page = PAGES[id_.lower()]
    for row in SYSTEMS:
        if row.id == id_:
            assert f"edgewise train {row.recipe}\n" in page
            assert row.file in page
            assert '<div class="equation">' in page
            assert re.search(r"```python\n.*\b(def|class) ", page)
    assert "What it reaches" in page
    assert "(../your-data.md#a-recipe-on-other-data)" in page
    assert f"`python docs/gallery/draw.py {id_}`" in page


def test_the_gallery_shows_all_systems_and_draws_no_others() -> None:
    assert re.findall(r'class="card" href="(\w+)\.html"', PAGES["gallery"]) == [
        id_.lower() for id_ in dict.fromkeys(row.id for row in SYSTEMS)
    ]
    drawn = re.findall(r'^    "(\w+)": \w+\.\w+,$', (DOCS / "gallery" / "draw.py").read_text("utf-8"), re.MULTILINE)
    assert sorted(drawn) == IDS
    assert sorted(path.stem for path in (DOCS / "gallery" / "pictures").iterdir()) == IDS


TRAINED = {
    "B1": "kernel-regression",
    "D8": "cora-monet",
    "D10": "esol-graph-network",
    "E6": "slides-min-cut",
    "F1": "nbody-schnet",
    "F2": "nbody-radial-field",
    "F5": "nbody-se3",
    "F6": "mnist-rotated-p4",
    "F7": "granular-gns",
    "G6": "esol-bert-100",
}


@pytest.mark.parametrize(("id_", "recipe"), TRAINED.items())
def test_a_picture_is_drawn_by_the_systems_own_recipe_when_trained(id_: str, recipe: str) -> None:
    assert recipe in {row.recipe for row in SYSTEMS if row.id == id_}
    module, name = re.findall(rf'"{id_}": (\w+)\.(\w+),', (DOCS / "gallery" / "draw.py").read_text("utf-8"))[0]
    tree = ast.parse((DOCS / "gallery" / f"{module}.py").read_text("utf-8"))
    drawing = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    calls = [node for node in ast.walk(drawing) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert recipe in {ast.literal_eval(call.args[0]) for call in calls if call.func.id == "trained"}
    caption = " ".join((ast.get_docstring(drawing) or "").split())
    shown = ElementTree.fromstring((DOCS / "gallery" / "pictures" / f"{id_}.svg").read_text("utf-8"))[0].text  # noqa: S314
    assert shown == caption


def test_what_a_recipe_reaches_is_what_the_results_say() -> None:
    results = (DOCS / "results.md").read_text(encoding="utf-8")
    shown = book.figures("cora-gat")
    assert "`edgewise train cora-gat --seeds 10`" in shown
    assert "%" in shown
    assert all(cell.strip() in results for line in shown.splitlines() for cell in line[2:].split(" · "))
    assert "cora-gatv2" not in shown


def test_a_page_that_needs_another_machine_or_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text(
        '<h1 id="top">A</h1><a href="#top">up</a><a href="https://elsewhere.org">a link</a>'
    )
    assert check(tmp_path) == []
    (tmp_path / "sheet.css").write_text('@import "https://fonts.org/a.css"; b { background: url(//cdn.org/x.png) }')
    (tmp_path / "bad.html").write_text(
        '<script src="https://cdn.org/a.js"></script><img src="gone.png"><link rel="stylesheet" href="//cdn.org/b.css">'
        '<a href="good.html#missing">x</a><a href="good.html#top">y</a>'
    )
    assert check(tmp_path) == [
        "bad.html loads https://cdn.org/a.js",
        "bad.html loads //cdn.org/b.css",
        "bad.html: gone.png leads nowhere",
        "bad.html: good.html#missing leads nowhere",
        "sheet.css loads https://fonts.org/a.css",
        "sheet.css loads //cdn.org/x.png",
    ]


def test_the_charts_are_drawn_from_the_tables() -> None:
    results = (DOCS / "results.md").read_text(encoding="utf-8")
    drawn = charts.filled(results)
    assert charts.ACCURACY not in drawn
    assert drawn.count("<circle") >= 20
    assert ">cora-gat</text>" in drawn
    assert "mnist-rotated-p4" not in drawn.split("</svg>")[0]  # a table of errors, without a required figure
    head = "| command | measure | required | measured |\n|---|---|---|---|\n"
    table = (
        head + "| `edgewise train a` | accuracy | ≥ 50 % | 75.5 % ± 1.0 % |\n| `edgewise train b` | loss | ≤ 1 | 0.5 |"
    )
    assert charts.accuracy(table).count("<circle") == 1
    assert "M370.0 24H472.0" in charts.accuracy(table)
    measured = (DOCS / "performance.md").read_text(encoding="utf-8")
    assert charts.filled(measured).count("<rect") >= 10


def test_the_picture_of_speed_is_drawn_from_the_tables_as_they_are() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    drawn = speed.picture(page)
    assert drawn == (DOCS / "images" / "speed.svg").read_text(encoding="utf-8"), "run docs/images/speed.py"
    found = speed.groups(page)
    bars = sum(len(rows) for rows in found.values())
    slower = sum(value < 1 for rows in found.values() for _, value in rows)
    assert bars >= 30
    plain = next(row for row in speed.tables(page, "Whole training steps")[1] if row["case"] == "cora-gat")
    assert ("cora-gat", speed.ratio(plain["×"])) in found["Training on Cora, an epoch"]
    assert drawn.count(f'fill="{speed.FASTER}"') == bars - slower
    assert drawn.count(f'fill="{speed.SLOWER}"') == slower
