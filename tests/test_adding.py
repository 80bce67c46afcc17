"""Adding things costs what CONTRIBUTING says: its templates go into a scratch copy, and everything else follows."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from filecmp import cmp
from pathlib import Path

import pytest

from edgewise.native import library

ROOT = Path(__file__).parent.parent
TEMPLATES = ROOT / "examples" / "adding"
COPIED = ("src", "tests", "examples", "benchmarks", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md")

# What is added: its files by template, and lines in an explicit table, each before a line that is there.
ADDED: dict[str, tuple[dict[str, str], str, list[tuple[str, str]]]] = {
    "layer": (
        {"layer.py": "src/edgewise/layers/graph/lazy_walk.py", "test_layer.py": "tests/layers/graph/test_lazy_walk.py"},
        "src/edgewise/layers/__init__.py",
        [
            (
                "from edgewise.layers.graph.sage import SAGELSTM as SAGELSTM",
                "from edgewise.layers.graph.lazy_walk import LazyWalk as LazyWalk",
            )
        ],
    ),
    "model": (
        {
            "model.py": "src/edgewise/models/graph/simplified.py",
            "test_model.py": "tests/models/graph/test_simplified.py",
        },
        "src/edgewise/models/__init__.py",
        [
            (
                "from edgewise.models.graph.gnn import GNNSettings as GNNSettings",
                "from edgewise.models.graph.simplified import Simplified as Simplified\n"
                "from edgewise.models.graph.simplified import SimplifiedSettings as SimplifiedSettings",
            )
        ],
    ),
    "score": (
        {"score.py": "src/edgewise/kernels/cosine.py", "test_score.py": "tests/kernels/test_cosine.py"},
        "src/edgewise/kernels/__init__.py",
        [
            (
                "from edgewise.kernels.scores import Additive as Additive",
                "from edgewise.kernels.cosine import Cosine as Cosine",
            )
        ],
    ),
    "backend": (
        {
            "backend.py": "src/edgewise/kernels/backends/torch/loop.py",
            "test_backend.py": "tests/kernels/backends/torch/test_loop.py",
        },
        "src/edgewise/kernels/backends/__init__.py",
        [
            ("from edgewise.kernels.backends.torch import ", "from edgewise.kernels.backends.torch import loop"),
            ("        reference.BACKEND,", "        loop.BACKEND,"),
        ],
    ),
    "task": (
        {"task.py": "src/edgewise/tasks/nodes/ring.py", "test_task.py": "tests/tasks/nodes/test_ring.py"},
        "src/edgewise/tasks/__init__.py",
        [
            (
                "from edgewise.tasks.nodes.webkb import webkb as webkb",
                "from edgewise.tasks.nodes.ring import ring as ring",
            )
        ],
    ),
    "recipe": ({"recipe.yaml": "src/edgewise/recipes/ring.yaml"}, "", []),
}


def add(root: Path, what: str) -> None:
    """Copy the templates and insert the lines of one addition."""
    files, table, lines = ADDED[what]
    for template, place in files.items():
        assert not (root / place).exists()
        shutil.copyfile(TEMPLATES / template, root / place)
    for before, line in lines:
        text = (root / table).read_text(encoding="utf-8")
        assert text.count(f"\n{before}") == 1, f"{table} has no single line that begins with {before!r}"
        (root / table).write_text(text.replace(f"\n{before}", f"\n{line}\n{before}"), encoding="utf-8")


def files_of(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for name in ("src", "tests")
        for path in (root / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }


def touched(root: Path) -> set[str]:
    """The files of a copy that are new or changed."""
    return {name for name in files_of(root) if not (ROOT / name).is_file() or not cmp(ROOT / name, root / name, False)}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scratch copy of the project, with its compiled kernels if it has some."""
    root = tmp_path_factory.mktemp("copy")
    left_out = shutil.ignore_patterns("__pycache__", "*.so", "_build", "*.svg")
    for name in COPIED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(
            source, root / name, **({"ignore": left_out} if source.is_dir() else {})
        )
    if library is not None:
        for built in Path(str(library.__file__)).parent.glob("*.so"):  # the module, and its kernels beside it
            shutil.copy(built, root / "src" / "edgewise" / "native")
    return root


@pytest.fixture(scope="module")
def extended(copy: Path) -> dict[str, set[str]]:
    """The files that each addition has touched in the copy, one addition after the other."""
    counted, before = {}, set()
    for what in ADDED:
        add(copy, what)
        counted[what] = touched(copy) - before
        before |= counted[what]
    return counted


def python(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the copy; -S keeps an installed Edgewise out of the way."""
    path = os.pathsep.join([str(root / "src"), str(root), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-S", *words], cwd=root, env=environment, capture_output=True, text=True, check=False
    )


def test_an_addition_touches_few_files(extended: dict[str, set[str]]) -> None:
    for what in ("layer", "model", "score", "backend", "task"):
        assert extended[what] == {*ADDED[what][0].values(), ADDED[what][1]}, what
        assert len(extended[what]) <= 3
    assert extended["recipe"] == {"src/edgewise/recipes/ring.yaml"}


def test_contributing_names_the_templates_and_their_places() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for files, table, _ in ADDED.values():
        for template, place in files.items():
            assert template.startswith("test_") or f"examples/adding/{template}" in text
            assert place.startswith("tests/") or place.removeprefix("src/edgewise/") in text
        assert table.removeprefix("src/edgewise/") in text


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_everything_else_follows(copy: Path, extended: dict[str, set[str]]) -> None:
    """The tests that come with the templates, the house's rules, and the conformance suite on the new layer."""
    tests = [place for files, _, _ in ADDED.values() for place in files.values() if place.endswith(".py")]
    conformance = ["tests/layers/test_conformance.py", "tests/kernels/planning"]
    chosen = "LazyWalk or lazy_walk or spread or cosine or loop or ring or house or floor or file or folder or table"
    run = python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *tests, *conformance[:1],
                 "tests/architecture")  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    assert "LazyWalk" in python(copy, "-m", "edgewise", "list", "layers").stdout
    assert "simplified" in python(copy, "-m", "edgewise", "list", "models").stdout


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_the_recipe_trains_and_its_report_shows_the_task(copy: Path, extended: dict[str, set[str]]) -> None:
    run = python(copy, "-m", "edgewise", "train", "ring", "--run", str(copy / "run"), "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1])["mean"] > 0.7
    page = (copy / "run" / "report.html").read_text(encoding="utf-8")
    assert "A small transformer on a ring of nodes with two halves" in page
    assert "60 nodes of 2 classes (20 train, 20 valid, 20 test)" in page
    assert "left" in page and "right" in page
