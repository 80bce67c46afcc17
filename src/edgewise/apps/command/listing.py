"""`edgewise list`: the systems and recipes, and the tables that a recipe may name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from edgewise.apps import recipes
from edgewise.apps.systems import SYSTEMS

Rows = list[dict[str, str]]


def show(what: str | None) -> dict[str, Any]:
    """Print one table, or the systems and the recipes."""
    wanted = [what] if what else ["systems", "recipes"]
    answer = {name: TABLES[name]() for name in wanted}
    for name, rows in answer.items():
        print(f"{name}\n{columns(rows)}\n")
    if what is None:
        print(f"`edgewise list TABLE` shows one of {', '.join(TABLES)}; `edgewise train RECIPE --help` its options.")
    return answer


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


def _documented(table: dict[str, Any], key: str) -> Rows:
    """Names of a table, each with the first line of its documentation."""
    rows = []
    for name, entry in table.items():
        documented = entry[1] if isinstance(entry, tuple) else entry
        rows.append({key: name, "description": (inspect.getdoc(documented) or "").split("\n")[0]})
    return rows


def _layers() -> Rows:
    from edgewise.layers import LAYERS

    return _documented(LAYERS, "layer")


def _models() -> Rows:
    from edgewise.models import MODELS

    return _documented(MODELS, "model")


def _patterns() -> Rows:
    from edgewise.graphs import PATTERNS

    rows = _documented(PATTERNS, "pattern")
    options = (inspect.signature(pattern).parameters for pattern in PATTERNS.values())
    return [row | {"options": ", ".join(parameters)} for row, parameters in zip(rows, options, strict=True)]


def _backends() -> Rows:
    from edgewise.kernels import BACKENDS

    return [{"backend": name, "description": backend.summary} for name, backend in BACKENDS.items()]


def _tasks() -> Rows:
    from edgewise.tasks import TASKS

    return _documented(TASKS, "task")


TABLES: dict[str, Callable[[], Rows]] = {
    "systems": _systems,
    "recipes": _recipes,
    "layers": _layers,
    "models": _models,
    "patterns": _patterns,
    "backends": _backends,
    "tasks": _tasks,
}
