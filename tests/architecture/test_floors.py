"""Imports go downwards only, and optional packages are imported where they are used. Every offender is named."""

import ast
import re
from collections import defaultdict

import networkx
import pytest

from architecture.package import FLOORS, PACKAGE, SOURCES, imported, name_of, tree_of

TESTING = 4  # edgewise.testing may use graphs to models, and only apps may use it


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


def circles(trees: dict[str, ast.Module]) -> list[set[str]]:
    """The sets of files or folders, side by side in one folder, that import each other, at import or later."""
    folders: defaultdict[str, networkx.DiGraph] = defaultdict(networkx.DiGraph)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            names = imported(node) if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                parts = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [part if part in trees else str(node.module) for part in parts]
            for name in names:
                both = [one.split(".") for one in (module, name)]
                depth = next((n for n, (a, b) in enumerate(zip(*both, strict=False)) if a != b), min(map(len, both)))
                if depth and module != name and name != "edgewise":  # whose version anything may ask for
                    folders[".".join(both[0][:depth])].add_edge(*(".".join(one[: depth + 1]) for one in both))
    return [some for tree in folders.values() for some in networkx.strongly_connected_components(tree) if len(some) > 1]


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ({"edgewise.b": "import torch"}, []),
        ({"edgewise.b": "from edgewise.a import x"}, [{"edgewise.a", "edgewise.b"}]),
        ({"edgewise.b": "def f():\n    from edgewise import a"}, [{"edgewise.a", "edgewise.b"}]),
        ({"edgewise.b": "if TYPE_CHECKING:\n    import edgewise.a"}, [{"edgewise.a", "edgewise.b"}]),
        ({"edgewise.b": "from edgewise.c.d import x", "edgewise.c.e": "import edgewise.a"}, [set("abc")]),
        ({"edgewise.b": "", "edgewise.c.d": "import edgewise.c.e", "edgewise.c.e": "import edgewise.a"}, []),
    ],
)
def test_the_circle_checker_sees_files_and_folders_that_import_each_other(modules, expected) -> None:
    trees = {name: ast.parse(code) for name, code in {"edgewise.a": "from edgewise.b import y", **modules}.items()}
    expected = [{one if "." in one else f"edgewise.{one}" for one in some} for some in expected]
    assert circles(trees) == expected


def test_no_files_or_folders_import_each_other() -> None:
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
