"""Do the tests notice a change of the source? python tests/mutants.py [--count 40] [--seed N] [part ...]

Draws mutants of src/edgewise with cosmic-ray, writes each into a copy of the tree, and runs what is close to its file
(`closest`). A mutant that fails a test, crashes or hangs is killed.
Prints each survivor as a diff, and the score of each part. Each mutant runs in a fork of this process, which has
imported PyTorch and nothing of Edgewise. Not drawn, as no test can tell: annotations, `strict=True`, `is` for `==`, and
`@staticmethod` of an autograd function, which PyTorch reads from the class. Needs cosmic-ray.
"""

import argparse
import ast
import difflib
import importlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "edgewise"
TIME, MEMORY = 600, 16 << 30  # seconds and bytes for all tests of a mutant: about four times what the longest take
WARM = "scipy.sparse.csgraph torch torch._dynamo torch.testing networkx sklearn.cluster yaml tqdm"
SAME = (
    "_Is_Eq",
    "_IsNot_NotEq",
    "_Eq_Is",
    "_NotEq_IsNot",
)  # they tell apart only what is equal but not the same object
RUNS = "tests/training/test_loop.py"
ROWS, DATA = "tests/layers/test_conformance.py", "tests/apps/test_data_on_record.py"
SUITES = {"graphs": [ROWS], "kernels": [ROWS], "layers": [ROWS, "tests/layers/test_first_output.py"], "tasks": [DATA]}
SUITES |= {"data": [DATA], "models": [RUNS], "training": [RUNS]}
FEW = 12  # tests of what imports a file
SWAPS = "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_FloorDiv Pow_Mul BitAnd_BitOr BitOr_BitAnd LShift_RShift"


@cache
def exports(package: str) -> dict[str, str]:
    """Where a package's `__init__` has each of its names from."""
    path = ROOT / "src" / package.replace(".", "/") / "__init__.py"
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else ()
    found = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.asname or alias.name: str(node.module) for node in found for alias in node.names}


@cache
def imports(path: Path) -> frozenset[str]:
    """The modules that a file imports; a name that a package offers counts for the module that defines it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("edgewise"):
            for alias in node.names:
                module = str(node.module)
                while alias.name in exports(module):
                    module = exports(module)[alias.name]
                found |= {module, f"{module}.{alias.name}"}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found)


def closest(path: Path) -> list[str]:
    """Arguments of pytest for one source file, what is likeliest to notice a change first: the test of its name, those
    that import it, its docstrings' examples, those that import what imports it, and the suites of its part."""
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    chosen = [test for test in tests if test.stem == f"test_{path.stem}"]
    chosen += [test for test in tests if name in imports(test)] + [path]
    above = {
        ".".join(one.relative_to(ROOT / "src").with_suffix("").parts)
        for one in SOURCE.rglob("*.py")
        if name in imports(one)
    }
    chosen += [test for test in tests if imports(test) & above][:FEW]
    return [*dict.fromkeys(str(one.relative_to(ROOT)) for one in chosen), *SUITES.get(part(path), [])]


def part(path: Path) -> str:
    """The part of the package that a source file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def last_name(node: ast.expr) -> str:
    """What follows the last dot."""
    return ast.unparse(node).rpartition(".")[2]


@cache
def places(path: Path) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """The mutations at each place: the name of cosmic-ray's operator, and which of its occurrences."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.operators.provider import OperatorProvider

    text, operators, found = path.read_text(encoding="utf-8"), OperatorProvider(), {}
    every = list(ast.walk(ast.parse(text)))
    left_out = [getattr(node, name, None) for node in every for name in ("annotation", "returns")]
    left_out += [node.value for node in every if isinstance(node, ast.keyword) and node.arg == "strict"]
    functions = [node for node in every if isinstance(node, ast.ClassDef) and "Function" in map(last_name, node.bases)]
    decorators = [d for node in functions for method in ast.walk(node) for d in getattr(method, "decorator_list", [])]
    spans = [((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)) for node in left_out if node]
    spans += [((d.lineno, d.col_offset - 1), (d.end_lineno, d.end_col_offset)) for d in decorators]  # with the @
    nodes = list(ast_nodes(get_ast(text)))
    for name in operators:
        kind, _, swap = name.partition("_")
        if (
            not name.startswith("Variable")
            and not name.endswith(SAME)
            and (kind != "ReplaceBinaryOperator" or swap in SWAPS.split())
        ):
            starts = [start for node in nodes for start, _ in operators[name]().mutation_positions(node)]
            for occurrence, start in enumerate(starts):
                if not any(first <= start < last for first, last in spans):
                    found.setdefault(start, []).append((name, occurrence))
    return found


def draw(parts: list[str], count: int, chance: random.Random) -> list[tuple[Path, str]]:
    """Every place of the files as often, and of a place any mutant."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    files = [path for path in sorted(SOURCE.rglob("*.py")) if not parts or part(path) in parts]
    drawn: dict[tuple[Path, str], None] = {}
    while len(drawn) < count:
        [path] = chance.choices(files, [len(places(path)) for path in files])
        text, found = path.read_text(encoding="utf-8"), places(path)
        name, occurrence = chance.choice(found[chance.choice(sorted(found))])
        if (mutant := mutate_code(text, OperatorProvider()[name](), occurrence)) != text:
            drawn[path, mutant] = None
    return list(drawn)


def first_failure(copy: Path, arguments: list[str]) -> str:
    """The first test that fails in the copy; "" if all pass."""
    if not (child := os.fork()):
        os.setsid()
        os.chdir(copy)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        output = os.open(copy / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1), os.dup2(output, 2)
        os.environ["PYTHONPATH"] = f"{copy / 'src'}:{copy}"
        sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
        sys.path[:0] = [str(copy / "src"), str(copy)]
        os._exit(pytest.main(["-x", "-q", "-rfE", "-p", "no:cacheprovider", *arguments]))
    end = time.monotonic() + TIME
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.05)
    if os.waitstatus_to_exitcode(ended[1]) in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    printed = (copy / "output").read_text(errors="replace")
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", printed, re.MULTILINE)
    return failed[1] if failed else "no test ran to its end"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="such as kernels or tasks")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    drawn = draw(options.parts, options.count, random.Random(options.seed))
    kernels = [sys.executable, "-c", "import edgewise.native._native as native; print(native.__file__)"]
    library = subprocess.run(kernels, check=True, capture_output=True, text=True).stdout.strip()
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
    for name in WARM.split():
        importlib.import_module(name)
    killers, score = set(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "edgewise"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "build", "__pycache__"))
        shutil.copy(library, copy / "src" / "edgewise" / "native")
        for path, mutant in drawn:
            started, text, name = time.monotonic(), path.read_text(encoding="utf-8"), path.relative_to(ROOT)
            (copy / name).write_text(mutant, encoding="utf-8")
            killer = first_failure(copy, closest(path))
            (copy / name).write_text(text, encoding="utf-8")
            killers.add(killer)
            score[part(path), bool(killer)] += 1
            print(f"{killer or 'SURVIVED'}: {name} ({time.monotonic() - started:.0f} s)", flush=True)
            lines = text.splitlines(keepends=True), mutant.splitlines(keepends=True)
            if not killer:
                print("".join(difflib.unified_diff(*lines, str(name), "mutant", n=1)), flush=True)
        broken = first_failure(copy, sorted(killer for killer in killers if "::" in killer))
    for name in sorted({name for name, _ in score}):
        print(f"{name:16} {score[name, True]:4} of {score[name, True] + score[name, False]} killed")
    sys.exit(f"fails without a mutant as well: {broken}" if broken else 0)


if __name__ == "__main__":
    main()
