"""What the README, the guide and the examples say is run: Python, commands, links."""

import ast
import doctest
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

from benchmarks import __main__ as benchmarks
from edgewise.apps import options, recipes
from edgewise.apps.command import main as command_line
from edgewise.graphs import PATTERNS

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "path").glob("*.md")),
]
TEXT = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # by torch_geometric
@pytest.mark.parametrize("page", [page for page, text in TEXT.items() if blocks(text, "python")])
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


@pytest.mark.parametrize("page", TEXT)
def test_no_code_is_indented_where_nothing_runs_it(page: str) -> None:
    outside = re.sub(r"^```.*?^```$", "", TEXT[page], flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^ {4}(?:from \S+ import|import|>>>) .*$", outside, re.MULTILINE) == []


def test_the_readme_shows_two_graphs_in_twelve_lines() -> None:
    (code,) = blocks(TEXT["README.md"], "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 12


COMMANDS = [
    (page, line) for page, text in TEXT.items() for block in blocks(text, "sh") for line in block.splitlines() if line
]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=lambda part: part)
def test_a_command_is_one_that_edgewise_takes(page: str, line: str) -> None:
    if line.startswith("python -m benchmarks"):
        asked = benchmarks.build_parser().parse_args(shlex.split(line)[3:])
        assert set(asked.cases) <= {*benchmarks.CASES, *benchmarks.ALSO}
        return
    program, *words = shlex.split(line)
    assert program == "edgewise"
    if "--help" in words and "train" not in words:
        assert words == ["--help"]
        return
    args = command_line.parse(words) if "--help" not in words or len(words) > 2 else None
    if args is not None and args.command == "train":
        options.configure(recipes.read(args.recipe), args.sections)


def test_every_option_of_a_command_is_on_a_page() -> None:
    parser, commands = command_line.build_parser()
    options = {flag for one in (parser, *commands.values()) for flag in one._option_string_actions}
    assert options - {"-h", *re.findall(r"--[a-z][a-z.-]*[a-z]", "\n".join(TEXT.values()))} == set()


def test_the_page_on_the_architecture_names_every_folder_of_a_floor() -> None:
    page = TEXT["docs/architecture.md"]
    floors = [floor for floor in (ROOT / "src" / "edgewise").iterdir() if floor.name not in ("tasks", "testing")]
    folders = [place.parent.name for floor in floors for place in floor.glob("*/__init__.py")]
    assert "relational" in folders and [name for name in folders if f"`{name}/`" not in page] == []


def test_the_tests_that_are_left_out_are_those_that_contributing_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    left_out = re.findall(r"not (\w+)", project["tool"]["pytest"]["ini_options"]["addopts"])
    named = re.findall(r"^    \.venv/bin/pytest -m (\w+)", TEXT["CONTRIBUTING.md"], re.MULTILINE)
    assert sorted(named) == sorted(left_out)


@pytest.mark.parametrize("page", TEXT)
def test_links_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", TEXT[page])
    found = [target.partition("#")[::2] for target in targets if "://" not in target]
    ends = [((ROOT / page).parent / path if path else ROOT / page, part) for path, part in found]
    assert [str(path) for path, _ in ends if not path.exists()] == []
    assert [(path.name, part) for path, part in ends if part and part not in anchors(path)] == []


def anchors(page: Path) -> set[str]:
    """What a link can name of a page: its headings in small letters, without marks, a hyphen for each space."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(example: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "error", example], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_picture_shows_five_graphs() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "images" / "one_attention.py"))["picture"]()
    committed = (ROOT / "docs" / "images" / "one-attention.svg").read_text(encoding="utf-8")
    words = [re.findall(r">([^<>]+)</(?:text|tspan|title)>", svg) for svg in (drawn, committed)]
    assert words[0] == words[1]
    assert {"complete(12)", "causal(12)", "window(12, 2)", "grid(5, 5)", "from_networkx(club)"} <= set(words[0])


def test_the_picture_of_the_patterns_is_up_to_date() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "images" / "patterns.py"))
    assert drawn["picture"]() == (ROOT / "docs" / "images" / "patterns.svg").read_text(encoding="utf-8")
    assert {call.split("(")[0] for call in drawn["PATTERNS"]} == set(PATTERNS)


def test_the_picture_of_content_is_up_to_date() -> None:
    done = ROOT / "docs" / "images"
    sys.path.insert(0, str(done))
    try:
        drawn = runpy.run_path(str(done / "content.py"))["picture"]()
    finally:
        sys.path.pop(0)
    committed = (done / "content.svg").read_text(encoding="utf-8")
    shapes = [re.findall(r">([^<>]+)</(?:text|title)>|(<path d=[^>]*>)", svg) for svg in (drawn, committed)]
    assert shapes[0] == shapes[1]
    assert len(shapes[0]) == 1 + 2 * 6


def test_docstrings_become_fields_and_their_equations_are_typeset() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from docstrings import rewrite
    finally:
        sys.path.pop(0)
    lines = dedent(
        """\
        Sum *all* of `x`_i.

        Equation    y_i = Σ_j x_j
                    over N(i)
        Symbols     rate = η; N = whom a node listens to (`graph`; none
                    by default)
        Shapes      x [*, J] -> [*, I]
        Cost        time O(E)
        Example
            >>> 1 + 1
            2
        """
    ).splitlines()
    rewrite(lines)
    text = "\n".join(lines)
    assert r"Sum \*all\* of ``x``\_i." in text
    assert ':Equation:\n    .. raw:: html\n\n        <div class="equation"><div class="row">' in text
    assert "<munder>" in text and "over <math" in text
    assert ':Symbols:\n    .. raw:: html\n\n        <ul class="symbols"><li>rate <math' in text
    assert text.count("<li>") == 2
    assert ":Shapes:\n    .. code-block:: text\n\n        x [*, J] -> [*, I]" in text
    assert ":Cost:\n    time O(E)" in text
    assert ":Example:\n    .. code-block:: pycon\n\n        >>> 1 + 1\n        2" in text


def test_every_part_of_a_docstring_becomes_a_field() -> None:
    """A part that is not known would go on in the one before it."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from docstrings import PARTS
    finally:
        sys.path.pop(0)
    parts = set()
    for file in (ROOT / "src" / "edgewise").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                parts |= {
                    *re.findall(r"^([A-Z][a-z]+(?: [a-z]+)?) {2,}\S", ast.get_docstring(node) or "", re.MULTILINE)
                }
    assert {"Equation", "Scores"} <= parts and parts - {*PARTS} == set()


def test_the_reference_shows_every_module_of_a_floor() -> None:
    reference = runpy.run_path(str(ROOT / "docs" / "reference.py"))["filled"]
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        shown = re.findall(r"^\.\. automodule:: (\S+)$", reference(page.read_text(encoding="utf-8")), re.MULTILINE)
        floor = ROOT / "src" / "edgewise" / page.stem
        files = [path for path in floor.rglob("*.py") if path.stem != "__init__" and "programs" not in path.parts]
        assert len(set(shown)) == len(shown) == max(len(files), 1)
        assert all(find_spec(name) for name in shown)


def test_the_locks_pin_exact_versions_and_nothing_of_this_machine() -> None:
    for name in ("lock.txt", "lock-tools.txt"):
        lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line)] == []
    assert "torch==2.13.0" in (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8").splitlines()


def test_this_module_reads_python_blocks_that_parse() -> None:
    plain = [block for text in TEXT.values() for block in blocks(text, "python") if ">>>" not in block]
    assert len(plain) >= 8
    for block in plain:
        ast.parse(block)
