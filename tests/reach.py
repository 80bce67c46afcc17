"""Names the tests that a change can reach, for `make check`: python tests/reach.py [BASE], one pytest argument a line.

A test file is reached if it changed itself, if it imports a changed module by name, or if it is the mirror of one (as
tests/layers/graph/test_gat.py is of layers/graph/gat.py, or as COVERED_ELSEWHERE says) or of a module that imports it.
The names that a floor's `__init__` offers count as imports of the module that defines them. A changed layer brings its
rows of the conformance suite, a changed module its docstrings' examples, and a file that everything reads (as
pyproject.toml is) all tests.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE, TESTS = ROOT / "src", ROOT / "tests"
EVERYTHING = re.compile(r"tests/conftest\.py|pyproject\.toml|requirements/.*")
NATIVE = re.compile(r".*\.(cpp|hpp)|.*CMakeLists\.txt")
ALWAYS = ("tests/architecture",)
COVERED_ELSEWHERE = {
    "apps/command/listing": "tests/apps/command/test_main.py",
    "apps/numbers": "tests/apps/command/test_runs.py",
    "apps/command/planning": "tests/apps/command/test_main.py",
    "deployment/graph": "tests/deployment/test_forms.py",
    "deployment/program": "tests/deployment/test_exporting.py",
    "deployment/runs": "tests/apps/command/test_export.py",
    "deployment/serving/description": "tests/deployment/serving/test_application.py",
    "graphs/adjacency": "tests/graphs/test_graph.py",
    "graphs/checks": "tests/graphs/test_malformed.py",
    "interop/twin": "tests/interop/test_converting.py",
    "kernels/operator/gradients": "tests/kernels/backends/cpu/test_edges.py",
    "kernels/operator/second_derivatives": "tests/kernels/backends/cpu/test_edges.py",
    "training/machine/threads": "tests/training/test_seeds.py",
    "kernels/call": "tests/kernels/test_verbs.py",
    "kernels/choose/dispatch": "tests/kernels/choose/test_planner.py",
    "kernels/choose/machines": "tests/kernels/choose/test_measure.py",
    "kernels/kinds": "tests/kernels/test_backend.py",
    "kernels/operator/attention": "tests/kernels/backends/cpu/test_edges.py",
    "kernels/operator/products": "tests/kernels/backends/cpu/test_edges.py",
    "kernels/backends/cpu/features": "tests/kernels/backends/cpu/test_vectors.py",
    "kernels/backends/cpu/scoring": "tests/kernels/backends/cpu/test_vectors.py",
    "kernels/operator/layout": "tests/kernels/backends/cpu/native/test_layouts.py",
    "kernels/backends/torch/reference": "tests/kernels/test_verbs.py",
    "kernels/backends/cuda/attention": "tests/kernels/backends/cuda/programs/test_attention.py",
    "models/hub/layout": "tests/models/hub/test_folder.py",
    "tasks/core/drawing": "tests/apps/report/test_render.py",
    "tasks/images/digits": "tests/tasks/images/test_classification.py",
    "tasks/images/idx": "tests/tasks/images/test_mnist.py",
    "tasks/nodes/karate": "tests/tasks/nodes/test_classification.py",
    "tasks/nodes/planetoid": "tests/tasks/nodes/test_citation.py",
}


@cache
def exports(package: str) -> dict[str, str]:
    """Where a package's `__init__` has each of its names from."""
    path = SOURCE / package.replace(".", "/") / "__init__.py"
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.asname or alias.name: str(node.module) for node in found for alias in node.names}


def home(module: str, name: str) -> str:
    """The module that defines a name that another offers."""
    while name in exports(module):
        module = exports(module)[name]
    return (
        f"{module}.{name}" if (SOURCE / f"{module}.{name}".replace(".", "/")).with_suffix(".py").is_file() else module
    )


@cache
def imports(path: Path) -> frozenset[str]:
    """The modules of Edgewise that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("edgewise"):
            found |= {home(str(node.module), alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("edgewise")}
    return frozenset(found)


@cache
def modules_named(path: Path) -> frozenset[str]:
    """The modules that a file imports from by their names, or as modules."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    return frozenset({f"{node.module}.{alias.name}" for node in nodes for alias in node.names}).union(
        str(node.module) for node in nodes
    )


def layers_of(path: Path) -> list[str]:
    """The classes of a file that have an example."""
    classes = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
    return [
        one.name for one in classes if any(isinstance(n, ast.FunctionDef) and n.name == "example" for n in one.body)
    ]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def mirror(path: Path) -> Path:
    inside = path.relative_to(SOURCE / "edgewise")
    if elsewhere := COVERED_ELSEWHERE.get(str(inside.with_suffix(""))):
        return ROOT / elsewhere
    return TESTS / inside.parent / f"test_{inside.name}"


def reached(changed: Iterable[str]) -> list[str]:
    """Arguments of pytest for a change to these files, named from the root."""
    changed = [name for name in changed if (ROOT / name).exists()]
    if any(EVERYTHING.fullmatch(name) for name in changed):
        return ["tests", "src"]
    modules = [ROOT / name for name in changed if re.fullmatch(r"src/edgewise/.*\.py", name)]
    names = {module_of(path) for path in modules if path.name != "__init__.py"}
    sources = [path for path in (SOURCE / "edgewise").rglob("*.py") if path.name != "__init__.py"]
    importers = [path for path in sources if imports(path) & names]
    tests = {path for path in TESTS.rglob("test_*.py") if imports(path) & names}
    tests |= {mirror(path) for path in (*modules, *importers)}
    tests |= {ROOT / name for name in changed if re.fullmatch(r"tests/.*/?test_[^/]*\.py", name)}
    chosen = {str(path.relative_to(ROOT)) for path in tests if path.is_file()} | {
        str(p.relative_to(ROOT)) for p in modules
    }
    if any(NATIVE.fullmatch(name) for name in changed):
        chosen |= {"tests/native", "tests/kernels"}
    layers = {name for path in modules for name in layers_of(path) if name in exports("edgewise.layers")}
    conformance = {f"tests/layers/test_conformance.py::{test}[{name}]" for name in layers for test in CONFORMANCE}
    return sorted({*chosen, *conformance, *ALWAYS})


CONFORMANCE = tuple(
    node.name
    for node in ast.parse((TESTS / "layers" / "test_conformance.py").read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef) and [argument.arg for argument in node.args.args] == ["name"]
)


CONFORMING = "tests/layers/test_conformance.py"
ROWS = f"{CONFORMING}::test_layer_conforms"
KERNELS = [
    f"tests/kernels/test_{name}.py" for name in ("results", "random_calls", "extremes", "numerics", "transforms")
]
RUNS = ["tests/apps/test_defaults.py", "tests/apps/test_first_step.py"]
SUITES = dict.fromkeys(
    ("models", "training", "apps", "configuration", "tables", "explanations", "interop", "deployment", "testing"), RUNS
)
COSTS = [f"tests/kernels/choose/test_{name}.py" for name in ("costs", "predictions")]
OUTPUTS, CONSTANTS = "tests/layers/test_first_output.py", "tests/apps/test_defaults.py"
SUITES["layers"] = [OUTPUTS, *RUNS]
SUITES["tasks"] = ["tests/tasks/test_malformed.py", *RUNS]
SUITES |= {
    "graphs": ["tests/graphs/test_results.py", CONSTANTS, *KERNELS, OUTPUTS, ROWS],
    "kernels": [*COSTS, CONSTANTS, *KERNELS, OUTPUTS, ROWS],
}
CARD = SOURCE / "edgewise" / "kernels" / "backends" / "cuda"
FEW = 6  # modules that import a file, or tests beside it: then these are close to it as well


def part(path: Path) -> str:
    """The part of the package that a source file belongs to."""
    return path.relative_to(SOURCE / "edgewise").parts[0].removesuffix(".py")


def closest(path: Path) -> list[str]:
    """Arguments of pytest for one source file, what is likeliest to notice a change first."""
    folder, name = mirror(path).parent, module_of(path)
    while not list(folder.glob("test_*.py")):
        folder = folder.parent
    chosen = [mirror(path)] if mirror(path).is_file() else sorted(folder.glob("test_*.py"))
    beside = sorted((TESTS / path.relative_to(SOURCE / "edgewise").parent).glob("test_*.py"))
    chosen += beside if len(beside) <= FEW else []
    chosen += [test for test in sorted(TESTS.rglob("test_*.py")) if name in modules_named(test)]
    sources = [one for one in sorted((SOURCE / "edgewise").rglob("*.py")) if one.name != "__init__.py"]
    importers = [mirror(one) for one in sources if name in imports(one)]
    chosen += [test for test in importers if len(importers) <= FEW and test.is_file()]
    suites = SUITES.get(part(path), [])
    if CARD in path.parents:  # which the suites, on the CPU, plan with but do not run
        chosen += sorted((TESTS / "kernels" / "backends" / "cuda").glob("test_*.py"))
        suites = [*COSTS, CONSTANTS]
    own = [layer for layer in layers_of(path) if layer in exports("edgewise.layers")]
    rows = [f"{CONFORMING}::{test}[{layer}]" for layer in own for test in CONFORMANCE]
    files = [str(one.relative_to(ROOT)) for one in (*chosen, path)]
    return list(dict.fromkeys([*files, *rows, *suites]))


def changed(base: str) -> list[str]:
    """What differs from a commit, files that git does not know yet included."""

    def lines(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()

    return [*lines("diff", "--name-only", base), *lines("ls-files", "--others", "--exclude-standard")]


if __name__ == "__main__":
    print("\n".join(reached(changed(sys.argv[1] if len(sys.argv) > 1 else "HEAD"))))
