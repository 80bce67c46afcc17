"""`edgewise list`: the systems and recipes, and the tables that a recipe may name."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from edgewise.apps import recipes
from edgewise.apps.systems import SYSTEMS

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


def columns(rows: Sequence[dict[str, str]]) -> str:
    """Rows of text in columns as wide as their widest cell, indented by two."""
    if not rows:
        return "  (none)"
    widths = [max(len(row[key]) for row in rows) for key in rows[0]]
    return "\n".join(
        "  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row.values(), widths, strict=True)).rstrip() for row in rows
    )


def _systems() -> Rows:
    return [row._asdict() for row in SYSTEMS]


def _recipes() -> Rows:
    return [{"recipe": name, "description": recipes.read(name).description} for name in recipes.names()]


def _documented(package: str, table: str, key: str) -> Rows:
    """Names of a package's table, each with the first line of its documentation."""
    entries: dict[str, Any] = getattr(import_module(package), table)
    documented = {name: entry[1] if isinstance(entry, tuple) else entry for name, entry in entries.items()}
    return [
        {key: name, "description": (inspect.getdoc(entry) or "").split("\n")[0]} for name, entry in documented.items()
    ]


def _patterns() -> Rows:
    from edgewise.graphs import PATTERNS

    rows = _documented("edgewise.graphs", "PATTERNS", "pattern")
    options = (inspect.signature(pattern).parameters for pattern in PATTERNS.values())
    return [row | {"options": ", ".join(parameters)} for row, parameters in zip(rows, options, strict=True)]


def _backends() -> Rows:
    from edgewise.kernels import BACKENDS

    return [{"backend": name, "description": backend.summary} for name, backend in BACKENDS.items()]


TABLES: dict[str, Callable[[], Rows]] = {
    "systems": _systems,
    "recipes": _recipes,
    "layers": partial(_documented, "edgewise.layers", "LAYERS", "layer"),
    "models": partial(_documented, "edgewise.models", "MODELS", "model"),
    "patterns": _patterns,
    "backends": _backends,
    "tasks": partial(_documented, "edgewise.tasks", "TASKS", "task"),
}
