"""Calls that the code must not make. Every offender is named."""

import ast
import re
from collections.abc import Iterator

import pytest

from architecture.package import PACKAGE, SOURCES, name_of, tree_of


def dangers(tree: ast.AST) -> Iterator[str]:
    """Calls that run or unpickle what a user supplies. A yaml.load is safe with a SafeLoader of the same file."""
    safe = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "yaml.SafeLoader" in map(ast.unparse, node.bases)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        loader = {ast.unparse(word.value) for word in node.keywords if word.arg == "Loader"}
        forbidden = {"eval", "exec", "pickle.load", "pickle.loads", "torch.load", "os.system", "marshal.loads"}
        if name in forbidden or (name in ("yaml.load", "yaml.load_all") and not (loader and loader <= safe)):
            yield name
        if any(word.arg == "shell" for word in node.keywords):
            yield f"{name}(shell=...)"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("eval(text)", ["eval"]),
        ("model.eval()", []),
        ("torch.load(path)", ["torch.load"]),
        ("safetensors.torch.load(data)", []),
        ("yaml.load(text, Loader=yaml.Loader)", ["yaml.load"]),
        ("class L(yaml.SafeLoader): pass\nyaml.load(text, Loader=L)", []),
        ("subprocess.run(line, shell=True)", ["subprocess.run(shell=...)"]),
    ],
)
def test_the_danger_checker_sees_each_danger(code: str, found: list[str]) -> None:
    assert list(dangers(ast.parse(code))) == found


def test_nothing_supplied_by_a_user_is_run_or_unpickled() -> None:
    assert [f"{name_of(path)}: {call}" for path in SOURCES for call in dangers(tree_of(path))] == []


def kinds_asked(tree: ast.Module) -> list[str]:
    """Each `isinstance` or `issubclass` whose class was imported from tasks or models, but for what a task can do."""
    classes = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and re.match(r"edgewise\.(tasks|models)\b(?!\.core\.abilities)", node.module or "")
        for alias in node.names
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 2]
    tests = [node for node in calls if ast.unparse(node.func) in ("isinstance", "issubclass")]
    modules = re.compile(r"edgewise\.(tasks|models)\b")
    return [
        ast.unparse(node)
        for node in tests
        if modules.search(ast.unparse(node.args[1]))
        or classes & {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
    ]


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("from edgewise.tasks import Text\nisinstance(task, Text)", 1),
        ("def f(x):\n    from edgewise.models.graph.gnn import GNN as G\n    return isinstance(x, G | int)", 1),
        ("import edgewise.tasks\nisinstance(task, edgewise.tasks.Text)", 1),
        ("from edgewise import models\nfrom edgewise.graphs import Graph\nisinstance(x, Graph)", 0),
    ],
)
def test_the_checker_sees_what_asks_for_a_kind_of_task_or_model(code: str, count: int) -> None:
    assert len(kinds_asked(ast.parse(code))) == count


def test_apps_ask_no_task_or_model_what_kind_it_is() -> None:
    apps = [path for path in SOURCES if "apps" in path.relative_to(PACKAGE).parts]
    assert [f"{name_of(path)}: {test}" for path in apps for test in kinds_asked(tree_of(path))] == []
