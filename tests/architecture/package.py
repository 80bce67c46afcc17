"""The package's files, and what their code imports: what every test of the architecture reads."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "edgewise"
SOURCES = sorted(PACKAGE.rglob("*.py"))

FLOORS = {
    "errors": 0,
    "files": 0,
    "memory": 0,
    "markup": 0,
    "configuration": 0,
    "native": 0,
    "graphs": 1,
    "kernels": 2,
    "layers": 3,
    "models": 4,
    "explanations": 4,
    "interop": 4,
}
FLOORS |= {"data": 5, "tasks": 6, "training": 7, "recipes": 8, "deployment": 8, "apps": 9}


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
