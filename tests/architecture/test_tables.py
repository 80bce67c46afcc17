"""What the tables list is documented, and everything that belongs there is listed. Every offender is named."""

import importlib
import inspect
import re
from typing import Any

import pytest

from architecture.package import PACKAGE, name_of
from edgewise.apps import options, recipes
from edgewise.apps.systems import SYSTEMS
from edgewise.configuration import options_of
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


@pytest.mark.parametrize("table", ["TASKS", "settings"])
def test_every_option_is_explained(table: str) -> None:
    silent = [
        f"{name}.{option}"
        for name, entry in TABLES[table].items()
        for option in inspect.signature(entry).parameters
        if not options_of(entry)[option].description
    ]
    assert silent == []


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


@pytest.mark.parametrize("row", SYSTEMS, ids=lambda row: f"{row.id} {row.name}")
def test_a_system_has_its_file_and_its_recipe(row: Any) -> None:
    assert (PACKAGE / row.file).is_file()
    assert row.recipe in recipes.names()
