"""What the tables list is documented, and everything that belongs there is listed. Every offender is named."""

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from architecture.package import PACKAGE, name_of
from edgewise.apps import recipes
from edgewise.apps.recipes import SYSTEMS, System
from edgewise.graphs import PATTERNS
from edgewise.kernels import BACKENDS
from edgewise.layers import LAYERS
from edgewise.models import MODELS
from edgewise.tasks import TASKS


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_says_what_it_computes(name: str) -> None:
    text = inspect.getdoc(LAYERS[name]) or ""
    parts = ("Equation", "Shapes", "Example")
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


def test_a_recipe_is_described_and_names_systems_that_are_listed() -> None:
    found = {name: recipes.read(name) for name in recipes.names()}
    assert [name for name, one in found.items() if not one.description] == []
    assert {row for one in found.values() for row in one.system} <= {row.id for row in SYSTEMS}
    assert [
        row for row in SYSTEMS if not (PACKAGE / row.file).is_file() or row.id not in found[row.recipe].system
    ] == []


@pytest.mark.parametrize("row", SYSTEMS, ids=lambda row: f"{row.id}-{row.recipe}")
def test_a_system_shows_what_computes_it(row: System) -> None:
    """Its code is in its file and documented; what its recipe chooses there by name is among it."""
    module = importlib.import_module(name_of(PACKAGE / row.file))
    there = {name: thing for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__}
    shown = row.code.split()
    assert [name for name in shown if len(inspect.getdoc(there[name]) or "") < 20] == []
    chosen = set(words(recipes.read(row.recipe).sections))
    by_name = {
        name for name in there if re.sub("(?<=.)(Attention|Encoding|Pooling|Block)$", "", name).lower() in chosen
    }
    if by_name and row.file.startswith(("layers/", "models/", "training/")):
        assert by_name & set(shown), f"{row.recipe} chooses {', '.join(sorted(by_name))}"


def words(options: Any) -> Iterator[str]:
    """What a recipe chooses by name, in small letters without hyphens."""
    if isinstance(options, Mapping | list):
        for option in options.values() if isinstance(options, Mapping) else options:
            yield from words(option)
    elif isinstance(options, str):
        yield options.replace("-", "")
