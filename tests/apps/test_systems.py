from pathlib import Path

import edgewise
from edgewise.apps import recipes
from edgewise.apps.systems import SYSTEMS

SOURCE = Path(edgewise.__file__).parent


def test_each_row_names_a_file_and_a_recipe_that_exist() -> None:
    for row in SYSTEMS:
        assert (SOURCE / row.file).is_file(), row
        assert row.recipe in recipes.names(), row
        assert row.id in recipes.read(row.recipe).system, row


def test_each_recipe_names_only_systems_that_are_listed() -> None:
    listed = {row.id for row in SYSTEMS}
    for name in recipes.names():
        found = recipes.read(name)
        assert set(found.system) <= listed, name
        assert found.description, name
