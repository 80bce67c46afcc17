"""What the README, the guide and the examples say is run: Python, commands, links."""

import doctest
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks
from edgewise.apps import options, recipes
from edgewise.apps.command import main as command_line

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
TEXT = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # by torch_geometric
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.compiled] * (page == "docs/export.md"))
        for page, text in TEXT.items()
        if blocks(text, "python")
    ],
)
def test_the_code_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, object] = {}
    for block in blocks(TEXT[page], "python"):
        if ">>>" in block:
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            test = doctest.DocTestParser().get_doctest(block, names, page, page, 0)
            assert doctest.DocTestRunner(optionflags=flags).run(test, clear_globs=False).failed == 0
            names |= test.globs
        else:
            exec(compile(block, page, "exec"), names)  # noqa: S102 (our own documentation)


def check(line: str) -> None:
    """A command can be run: its recipe, study, case or file of tests is there, and takes these options."""
    program, *words = shlex.split(line, comments=True)
    if program == "pytest":
        assert (ROOT / words[0]).is_file(), line
    elif words[:2] == ["-m", "benchmarks"]:
        asked = benchmarks.build_parser().parse_args(words[2:])
        assert set(asked.cases) <= {*benchmarks.CASES, *benchmarks.CASES_OF_A_GPU, "all"}, line
    elif program == "python":
        path = ROOT / words[1].replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), line
    elif "--help" not in words:
        args = command_line.parse(words)
        if args.command == "train":
            options.configure(recipes.read(args.recipe), args.sections)


def test_every_command_is_one_that_can_be_run() -> None:
    lines = {line for text in TEXT.values() for block in blocks(text, "sh") for line in block.splitlines() if line}
    tables = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "tables").glob("*.csv"))
    lines |= set(re.findall("`(edgewise train [^`]+)`", tables))
    claims = set(re.findall(r"`((?:pytest|python|edgewise) [^`]+)`", TEXT["docs/claims.md"]))
    assert len(lines) > 150 and len(claims) > 100
    for line in sorted(lines | claims):
        check(line)


def test_links_lead_somewhere() -> None:
    targets = [(name, target) for name, text in TEXT.items() for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    assert [(name, target) for name, target in targets if "://" not in target and not leads(ROOT / name, target)] == []


def leads(page: Path, target: str) -> bool:
    """Whether a page's link is to a file that there is, and to a heading in it."""
    path, _, part = target.partition("#")
    end = page.parent / path if path else page
    return end.exists() and (not part or part in anchors(end))


def anchors(page: Path) -> set[str]:
    """What a link can name of a page: its headings in small letters, without marks, a hyphen for each space."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(
    example: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_pictures_show_the_tables() -> None:
    speed, curves = (runpy.run_path(str(DOCS / "images" / name)) for name in ("speed.py", "curves.py"))
    drawn = {"speed": speed["picture"]()} | {name: curves["picture"](name) for name in curves["PICTURES"]}
    for name, picture in drawn.items():
        assert picture == (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8"), name


def test_a_docstring_becomes_fields_with_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from docstrings import rewrite

    lines = [
        "Sum *all* of `x`_i.",
        "",
        "Equation    y_ij = Σ_j x_j",
        "Shapes      x [J] -> [I]",
        "Example",
        "    >>> 1",
        "    1",
    ]
    rewrite(lines)
    text = "\n".join(lines)
    assert r"Sum \*all\* of ``x``\ \_i." in text
    assert "y<sub>ij</sub> = Σ<sub>j</sub> x<sub>j</sub>" in text
    assert ":Shapes:\n    .. code-block:: text\n\n        x [J] -> [I]" in text
    assert ":Example:\n    .. code-block:: pycon\n\n        >>> 1" in text


NUMBERED = {  # the documents' numbers, as (first, last) in each series
    "000": "(3.1-27) (4.1-16) (5.1-19) Fig.1-12 Table1-3 Alg.1-4",
    "001": "(1-4)",
    "002": "",
    "003": "(1-20) Fig.1-4",
    "004": "(3-4) Fig.1-1 Fig.3-3 Fig.5-11 Table1-2",
}


def test_every_number_of_the_documents_leads_to_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from pages import cells

    _, *rows = cells(DOCS / "tables" / "documents.csv")
    ids = {f"systems/{row.id[0].lower()}.md#{row.id.lower()}" for row in recipes.SYSTEMS}
    wrong = [
        f"{place}: {target}"
        for _, place, _, page in rows
        for target in re.findall(r"\]\(([^)]+)\)", page) or ["" if page.startswith("not shown: ") else "no page"]
        if target and target not in ids and not leads(DOCS / "claims.md", target)
    ]
    assert wrong == []
    for document, series in NUMBERED.items():
        found = [number for row in rows if row[0] == document for number in numbers(row[1])]
        assert sorted(found) == sorted(number for one in series.split() for number in numbers(one)), document


def numbers(place: str) -> list[str]:
    """The equations, figures, tables and algorithms of a place: of "(3.1)–(3.3), Fig. 1" four."""
    series = re.findall(r"(\((?:\d\.)?|Fig\.|Table|Alg\.) ?(\d+)\)?(?:[-–]\(?(?:\d\.)?(\d+))?", place)
    return [f"{kind}{n}" for kind, first, last in series for n in range(int(first), int(last or first) + 1)]


def test_systems_have_figures_but_for_data_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from pages import measured

    bare = {row.recipe for row in recipes.SYSTEMS if not row.recipe.startswith("own-")} - set(measured())
    assert bare == {"store-sage"}  # a store that the user builds


def test_the_locks_pin_exact_versions() -> None:
    for name in ("lock.txt", "lock-tools.txt"):
        lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line)] == []
