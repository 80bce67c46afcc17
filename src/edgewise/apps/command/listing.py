"""`edgewise list`: the systems and recipes, and the tables that a recipe may name."""

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from edgewise.apps import recipes
from edgewise.apps.console import columns

Rows = list[dict[str, str]]


def show(what: str | None) -> dict[str, Any]:
    """Print one table, or the systems and the recipes."""
    wanted = [what] if what else ["systems", "recipes"]
    tables = {name: TABLES[name]() for name in wanted}
    for name, rows in tables.items():
        print(f"{name}\n{columns(rows)}\n")
    if what is None:
        print(f"`edgewise list TABLE` shows one of {', '.join(TABLES)}; `edgewise train RECIPE --help` its options.")
    return tables


def _documented(package: str, table: str, key: str) -> Rows:
    """Names of a package's table, each with its summary or the first line of its documentation."""
    rows = []
    for name, entry in getattr(import_module(package), table).items():
        documented = inspect.getdoc(entry[1] if isinstance(entry, tuple) else entry) or ""
        rows.append({key: name, "description": getattr(entry, "summary", documented.partition("\n")[0])})
    return rows


def _patterns() -> Rows:
    from edgewise.graphs import PATTERNS

    rows = _documented("edgewise.graphs", "PATTERNS", "pattern")
    return [row | {"options": ", ".join(inspect.signature(PATTERNS[row["pattern"]]).parameters)} for row in rows]


TABLES: dict[str, Callable[[], Rows]] = {
    "systems": lambda: [row._asdict() for row in recipes.SYSTEMS],
    "recipes": lambda: [{"recipe": name, "description": text} for name, text in recipes.described().items()],
    "layers": partial(_documented, "edgewise.layers", "LAYERS", "layer"),
    "models": partial(_documented, "edgewise.models", "MODELS", "model"),
    "patterns": _patterns,
    "backends": partial(_documented, "edgewise.kernels", "BACKENDS", "backend"),
    "tasks": partial(_documented, "edgewise.tasks", "TASKS", "task"),
}
