"""The house stays true: floors, tables, tree, limits. Each test reads the sources and names every offender."""

import ast
import importlib
import inspect
import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx
import pytest

from edgewise.apps import options, recipes
from edgewise.apps.systems import SYSTEMS
from edgewise.configuration import options_of
from edgewise.graphs import PATTERNS
from edgewise.kernels import BACKENDS
from edgewise.layers import LAYERS
from edgewise.models import MODELS
from edgewise.tasks import TASKS
from reach import COVERED_ELSEWHERE

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "edgewise"
SOURCES = sorted(PACKAGE.rglob("*.py"))
README = (ROOT / "README.md").read_text(encoding="utf-8")

FLOORS = {
    "errors": 0,
    "files": 0,
    "tables": 0,
    "memory": 0,
    "configuration": 0,
    "native": 0,
    "graphs": 1,
    "kernels": 2,
    "layers": 3,
    "models": 4,
    "explanations": 4,
    "interop": 4,
}
FLOORS |= {"tasks": 5, "training": 6, "recipes": 7, "deployment": 7, "apps": 8}
TESTING = 4  # edgewise.testing may use graphs to models, and only apps may use it


def name_of(path: Path) -> str:
    """edgewise.layers.graph.gat, for the file of that module."""
    parts = ("edgewise", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that the code imports, wherever it does; `from edgewise import x` counts as edgewise.x."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from ((f"{origin}.{alias.name}" for alias in node.names) if origin == "edgewise" else (origin,))


def climbs(module: str, tree: ast.AST) -> list[str]:
    """The imports that go upwards, name no floor or are relative, as "importer -> imported"."""
    floor = module.split(".")[1] if "." in module else ""
    allowed = TESTING if floor == "testing" else FLOORS.get(floor, max(FLOORS.values()))
    found = []
    for name in imported(tree):
        target = name.removeprefix("edgewise").strip(".").split(".")[0]
        if name.startswith("."):
            found.append(f"{module} -> {name} (relative)")
        elif not name.startswith("edgewise.") or target in ("__version__", floor):
            continue
        elif target == "testing":
            found += [f"{module} -> {name}"] if floor != "apps" else []
        elif target not in FLOORS:
            found.append(f"{module} -> {name} (import it from its floor)")
        elif FLOORS[target] > allowed:
            found.append(f"{module} -> {name}")
    return found


@pytest.mark.parametrize(
    ("module", "code", "offenders"),
    [
        ("edgewise.graphs.graph", "from edgewise.kernels import attend", 1),
        ("edgewise.layers.graph.gat", "def f():\n    import edgewise.training.loop", 1),
        ("edgewise.layers.graph.gat", "if TYPE_CHECKING:\n    from edgewise.models import GNN", 1),
        ("edgewise.layers.graph.gat", "from . import gcn", 1),
        ("edgewise.layers.graph.gat", "from edgewise import attend", 1),
        ("edgewise.layers.graph.gat", "import edgewise.testing", 1),
        ("edgewise.testing", "from edgewise.tasks import TASKS", 1),
        ("edgewise.errors", "from edgewise.graphs import Graph", 1),
        (
            "edgewise.layers.graph.gat",
            "from edgewise.layers.plain.linear import Linear\nimport edgewise.errors, torch",
            0,
        ),
        ("edgewise.apps.command.demo", "from edgewise.training import train\nfrom edgewise import __version__", 0),
        ("edgewise.testing", "from edgewise.models import MODELS", 0),
    ],
)
def test_the_floor_checker_sees_an_import_that_climbs(module: str, code: str, offenders: int) -> None:
    assert len(climbs(module, ast.parse(code))) == offenders


def test_imports_go_downwards_only() -> None:
    inside = [path for path in SOURCES if path.parent != PACKAGE or path.stem in ("errors", "files")]
    assert [line for path in inside for line in climbs(name_of(path), tree_of(path))] == []


def circles(trees: dict[str, ast.Module]) -> list[list[str]]:
    """The sets of modules that import each other, at import or later: what an empty list says there are none of."""
    arrows = networkx.DiGraph()
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                arrows.add_edges_from((module, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                parts = [f"{node.module}.{alias.name}" for alias in node.names]
                arrows.add_edges_from((module, part if part in trees else node.module) for part in parts)
    return sorted(sorted(some) for some in networkx.strongly_connected_components(arrows) if len(some) > 1)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("import torch", []),
        ("from edgewise.first import x", [["edgewise.first", "edgewise.second"]]),
        ("from edgewise import first", [["edgewise.first", "edgewise.second"]]),
        ("def f():\n    import edgewise.first", [["edgewise.first", "edgewise.second"]]),
        ("if TYPE_CHECKING:\n    from edgewise.first import x", [["edgewise.first", "edgewise.second"]]),
    ],
)
def test_the_circle_checker_sees_modules_that_import_each_other(second: str, expected: list[list[str]]) -> None:
    trees = {"edgewise.first": "from edgewise.second import y", "edgewise.second": second}
    assert circles({module: ast.parse(code) for module, code in trees.items()}) == expected


def test_no_modules_import_each_other() -> None:
    assert circles({name_of(path): tree_of(path) for path in SOURCES}) == []


def test_every_file_belongs_to_a_floor() -> None:
    known = {*FLOORS, "testing", "__init__", "__main__"}
    assert [str(path) for path in SOURCES if path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in known] == []


def is_deferred(node: ast.stmt) -> bool:
    """Whether a statement of a module imports nothing when the module is imported."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    return isinstance(node, ast.FunctionDef | ast.ClassDef)


def test_optional_packages_are_imported_only_where_they_are_used() -> None:
    names = (
        "ase|e3nn|openmm|openslide|rdkit|sacrebleu|tokenizers|torch_geometric|tensorboard|torch\\.utils\\.tensorboard"
    )
    optional = re.compile(rf"({names})\b")
    at_import = [
        f"{name_of(path)}: {name}"
        for path in SOURCES
        for node in tree_of(path).body
        for name in ([] if is_deferred(node) else imported(node))
        if optional.match(name)
    ]
    assert at_import == []


def test_the_package_itself_holds_names_only() -> None:
    functions = [node.name for node in tree_of(PACKAGE / "__init__.py").body if isinstance(node, ast.FunctionDef)]
    classes = [node.name for node in tree_of(PACKAGE / "__init__.py").body if isinstance(node, ast.ClassDef)]
    assert (functions, classes) == (["_homes", "__getattr__", "__dir__"], [])


# What the code must not do


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
    """Each `isinstance` or `issubclass` whose class was imported from tasks or models."""
    classes = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and re.match(r"edgewise\.(tasks|models)\b", node.module or "")
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


# The sizes of rooms

FULL = {"tests/benchmarks": 13}  # still to be split


def test_no_file_is_longer_than_400_lines() -> None:
    files = [path for ending in ("py", "hpp", "cpp") for path in PACKAGE.rglob(f"*.{ending}")]
    assert {path.name for path in files if len(path.read_text(encoding="utf-8").splitlines()) > 400} == set()


def test_no_folder_has_more_than_twelve_modules() -> None:
    tests = (ROOT / "tests").rglob("test_*.py")
    modules = [*SOURCES, *(ROOT / "benchmarks").rglob("*.py"), *tests]
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in modules if not path.stem.startswith("__"))
    assert {folder: count for folder, count in counts.items() if count > 12} == FULL


def test_no_forward_is_longer_than_25_lines() -> None:
    forwards = [
        (f"{name_of(path)}:{node.lineno}", (node.end_lineno or 0) - node.lineno + 1)
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and node.name == "forward"
    ]
    assert [(where, lines) for where, lines in forwards if lines > 25] == []


def test_no_constructor_takes_more_than_six_arguments() -> None:
    constructors = [
        (f"{name_of(path)}:{node.lineno}", len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) - 1)
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    assert [(where, count) for where, count in constructors if count > 6] == []


def test_names_are_the_fields_own() -> None:
    modules = [name_of(path) for path in SOURCES if re.search("util|helper|misc|common", path.stem)]
    bases = [
        f"{name_of(path)}: {node.name}"
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and node.name.lstrip("_").startswith("Base")
    ]
    assert (modules, bases) == ([], [])


# Every file has its test


def test_every_file_has_its_test() -> None:
    files = {str(path.relative_to(PACKAGE).with_suffix("")) for path in SOURCES if not path.stem.startswith("__")}
    tests = {str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests").rglob("test_*.py")}
    mirrored = {file: re.sub(r"(\w+)$", r"test_\1.py", file) for file in files}
    assert sorted(file for file, test in mirrored.items() if test not in tests and file not in COVERED_ELSEWHERE) == []
    assert sorted(file for file in COVERED_ELSEWHERE if mirrored.get(file) in tests) == []
    assert sorted(test for test in COVERED_ELSEWHERE.values() if not (ROOT / test).is_file()) == []


def test_the_benchmarks_stay_outside_and_have_their_tests() -> None:
    assert [
        name_of(path) for path in SOURCES if any(re.match(r"benchmarks\b", m) for m in imported(tree_of(path)))
    ] == []
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__"}
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "benchmarks").glob("test_*.py")}
    assert {file.strip("_") for file in files} - tests == set()


# The tables


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_says_what_it_computes(name: str) -> None:
    text = inspect.getdoc(LAYERS[name]) or ""
    parts = ("Equation", "Shapes", "Edge cases", "Cost", "Example")
    assert [part for part in parts if not re.search(rf"^{part}\b", text, re.MULTILINE)] == []
    assert ">>> " in text


TABLES: dict[str, dict[str, Any]] = {
    "PATTERNS": dict(PATTERNS),
    "BACKENDS": dict(BACKENDS),
    "TASKS": dict(TASKS),
    "MODELS": {name: model for name, (_, model) in MODELS.items()},
    "settings": {name: settings for name, (settings, _) in MODELS.items()},
}


@pytest.mark.parametrize(("table", "name"), [(table, name) for table, entries in TABLES.items() for name in entries])
def test_an_entry_of_a_table_is_documented(table: str, name: str) -> None:
    text = TABLES[table][name].__doc__ or ""
    assert re.match(r"\S.{20,}\.", text, re.DOTALL), f"{table}[{name!r}] has no sentence that says what it is"


@pytest.mark.parametrize("table", ["TASKS", "settings"])
def test_every_option_is_explained(table: str) -> None:
    silent = [
        f"{name}.{option}"
        for name, entry in TABLES[table].items()
        for option in inspect.signature(entry).parameters
        if not options_of(entry)[option].description
    ]
    assert silent == []


WITHOUT_A_GRAPH = {
    "examples",
    "geometry",
    "linear",
    "low_rank",
    "mlp",
    "randomized",
    "resnet",
    "sides",
    "spherical",
    "types",
    "uncompiled",
}  # no layer(graph, x)


def test_every_file_of_layers_is_in_the_table() -> None:
    files = {path.stem for path in (PACKAGE / "layers").rglob("*.py")} - {"__init__"} - WITHOUT_A_GRAPH
    assert files - {layer.__module__.split(".")[-1] for layer in LAYERS.values()} == set()


def test_every_layer_with_an_example_is_in_the_table() -> None:
    modules = [importlib.import_module(name_of(path)) for path in (PACKAGE / "layers").rglob("*.py")]
    found = {
        thing
        for module in modules
        for name, thing in vars(module).items()
        if inspect.isclass(thing)
        and "example" in vars(thing)
        and thing.__module__ == module.__name__
        and name[0] != "_"
    }
    assert found == set(LAYERS.values())


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_fits_the_tables(name: str) -> None:
    recipe = recipes.read(name)
    config = options.configure(recipe)
    assert config.task.name in TASKS
    assert config.model.name in MODELS
    assert config.graph.name in {"given", *PATTERNS}
    assert set(recipe.system) <= {row.id for row in SYSTEMS}
    assert recipe.description


# README


def listed() -> dict[str, str]:
    """The README's file tree: path -> the rest of its line; a folder ends in a slash."""
    block = re.search(r"^```\n(src/edgewise/\n.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert block, "the README has no file tree"
    entries = {}
    for line in block[1].splitlines():
        name, _, rest = line.strip().partition(" ")
        entries[f"src/edgewise/{name}" if line.startswith("  ") else name] = rest
    return entries


def test_what_the_readme_lists_exists() -> None:
    assert [
        path for path in listed() if not ((ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file())
    ] == []


def test_the_readme_lists_what_exists() -> None:
    found = {
        f"src/edgewise/{path.name}{'/' if path.is_dir() else ''}"
        for path in PACKAGE.iterdir()
        if "cache" not in path.name
    }
    assert found - set(listed()) == set()


def test_the_readme_numbers_the_floors() -> None:
    numbered = re.compile(r"\s*(\d)\s")
    numbers = {Path(path).stem: int(found[1]) for path, rest in listed().items() if (found := numbered.match(rest))}
    assert numbers == FLOORS


def test_the_readme_has_the_table_of_systems() -> None:
    shown = re.search(r"<!-- systems: .*? -->\n(.*?)\n<!-- end of systems -->", README, re.DOTALL)
    assert shown, "the README has lost the marks around its table"
    table = runpy.run_path(str(ROOT / "docs" / "readme.py"))["systems_table"]()
    assert shown[1] == table, "run `python docs/readme.py`"


@pytest.mark.parametrize("row", SYSTEMS, ids=lambda row: f"{row.id} {row.name}")
def test_a_system_has_its_file_and_its_recipe(row: Any) -> None:
    assert (PACKAGE / row.file).is_file()
    assert row.recipe in recipes.names()
