from pathlib import Path

import pytest

from edgewise.apps.recipes import LARGEST, described, names, parse, read
from edgewise.errors import ConfigError, nearest


def test_a_recipe_is_read_as_it_is_written() -> None:
    text = "description: two\n  lines\nsystem: [B5]\ntask: {name: text, context: 8}\nmodel: {name: mlp, hidden: [8, 4]}"
    recipe = parse("mine", text)
    assert recipe.description == "two lines"
    assert recipe.system == ("B5",)
    assert recipe.sections == {"task": {"name": "text", "context": 8}, "model": {"name": "mlp", "hidden": [8, 4]}}


@pytest.mark.parametrize("path", ["mine.yaml", "./mine.yaml", "folder/mine.yml", "folder/mine"])
def test_a_recipe_of_ones_own_is_a_path(path: str) -> None:
    Path("folder").mkdir()
    Path(path).write_text("task: {name: karate}", encoding="utf-8")
    assert read(path).name == "mine"


def test_the_largest_recipe_is_read_and_one_byte_more_is_refused() -> None:
    body = "task: {name: karate}\n#"
    Path("fits.yaml").write_text(body + (LARGEST - len(body)) * "x", encoding="utf-8")
    Path("exceeds.yaml").write_text(body + (LARGEST + 1 - len(body)) * "x", encoding="utf-8")
    assert read("fits.yaml").sections == {"task": {"name": "karate"}}
    with pytest.raises(ConfigError, match="larger than 64 KiB"):
        read("exceeds.yaml")


@pytest.mark.parametrize(
    ("word", "hint"),
    [("cora-gnc", "'cora-gcn'"), ("cora_gat", "'cora-gat'"), ("digitsvit", "'digits-vit'"), ("zzz", ""), ("", "")],
)
def test_the_nearest_name(word: str, hint: str) -> None:
    assert nearest(word, names()) == (f"; did you mean {hint}?" if hint else "")


@pytest.mark.parametrize(("task", "recipe"), [("node-folder", "own-nodes"), ("knowledge-folder", "own-facts")])
def test_a_task_in_a_recipe_s_place_is_answered_with_its_recipe(task: str, recipe: str) -> None:
    with pytest.raises(ConfigError, match=f"{task!r} is a task, and no recipe: `edgewise train {recipe}` trains on it"):
        read(task)


def test_the_first_line_of_each_recipe_describes_it() -> None:
    assert described() == {name: read(name).description for name in names()}
