"""Recipes that are malformed."""

from pathlib import Path

import pytest

from apps.malformed.refused import complaint

RECIPES = {
    # name of the case: the recipe's text, a part of the complaint
    "empty": ("", "must be a mapping"),
    "a list": ("[1, 2]", "must be a mapping"),
    "a word": ("karate", "must be a mapping"),
    "no YAML": ("task: [", "not valid YAML"),
    "tabs": ("task:\n\tname: karate", "not valid YAML"),
    "a null byte": ("task: {name: 'kar\0ate'}", "not valid YAML"),
    "an unknown section": ("tsk: {name: karate}", "did you mean 'task'"),
    "a number as a section": ("1: {name: karate}", "unknown section 1"),
    "a section that is a list": ("task: [karate]\nmodel: gnn", "task must be a name with options, not a list"),
    "a section that is a word": (
        "task: karate\nmodel: gnn\ntrain: long",
        "train must hold options by name, not 'long'",
    ),
    "an empty section": ("task:\nmodel: gnn", "task must be a name with options, not None"),
    "no task": ("model: {name: gnn}", "names no task"),
    "no model": ("task: {name: karate}", "names no model"),
    "an unknown task": ("task: {name: kareta}\nmodel: {name: gnn}", "did you mean 'karate'"),
    "a task that is a number": ("task: {name: 3}\nmodel: {name: gnn}", "task must be a name, not 3"),
    "a task that is a list": ("task: {name: [karate]}\nmodel: {name: gnn}", "task must be a name, not a list"),
    "an unknown model": ("task: {name: karate}\nmodel: {name: gnnn}", "did you mean 'gnn'"),
    "an unknown graph": ("task: {name: karate}\nmodel: {name: gnn}\ngraph: {name: casual}", "did you mean 'causal'"),
    "an unknown option": ("task: {name: karate, lops: true}\nmodel: {name: gnn}", "did you mean 'loops'"),
    "an option that is a number": (
        "task: {name: karate, 3: 4}\nmodel: {name: gnn}",
        "task has an option 3, which is not a name",
    ),
    "a mapping as a value": ("task: {name: karate, loops: {a: b}}\nmodel: {name: gnn}", "not a mapping"),
    "a nested list": ("task: {name: karate}\nmodel: {name: mlp, hidden: [[8]]}", "not a list"),
    "a text for a number": ("task: {name: karate}\nmodel: {name: gnn, width: wide}", "model.width"),
    "a fraction for a whole number": ("task: {name: karate}\nmodel: {name: gnn, width: 8.5}", "model.width"),
    "a truth value for a number": ("task: {name: karate}\nmodel: {name: gnn, width: true}", "model.width"),
    "nothing for a number": ("task: {name: karate}\nmodel: {name: gnn, width: }", "model.width"),
    "not a number": ("task: {name: karate}\nmodel: {name: gnn, dropout: .nan}", "must be a finite number"),
    "infinity": ("task: {name: karate}\nmodel: {name: gnn, dropout: -.inf}", "must be a finite number"),
    "a date": ("task: {name: karate}\nmodel: {name: gnn, width: 2020-01-01}", "not a date"),
    "an impossible date": ("task: {name: karate}\nmodel: {name: gnn, width: 2020-99-99}", "not valid YAML"),
    "an option given twice": ("task: {name: karate, name: text}\nmodel: {name: gnn}", "'name' is given twice"),
    "a section given twice": ("task: {name: karate}\ntask: {name: text}", "'task' is given twice"),
    "an alias": ("task: &a {name: karate}\nmodel: *a", "aliases (*name) are not allowed"),
    "a merge": ("task: &a {name: karate}\nmodel: {<<: *a}", "aliases (*name) are not allowed"),
    "a python tag": ("task: !!python/object/apply:os.system ['echo hi']", "not valid YAML"),
    "a python name": ("task: !!python/name:os.system", "not valid YAML"),
    "a binary value": ("task: {name: karate}\nmodel: {name: gnn, layer: !!binary aGk=}", "not a bytes"),
    "a set": ("task: {name: karate}\nmodel: {name: gnn, layer: !!set {a}}", "not a set"),
    "a class path": ("task: {name: karate}\noptimizer: {class_path: os.system}\nmodel: {name: gnn}", "class_path"),
    "a class path with arguments": (
        "task: {name: karate}\nmodel: {name: gnn}\noptimizer: {class_path: antigravity, init_args: {a: 1}}",
        "optimizer 'adamw' takes no option 'class_path'",
    ),
    "deep nesting": ("task: " + 20_000 * "[", "not valid YAML"),
    "two documents": ("task: {name: karate}\n---\nmodel: {name: gnn}", "not valid YAML"),
    "a description that is a list": ("description: [a]\ntask: {name: karate}\nmodel: {name: gnn}", "must be text"),
    "systems that are a word": ("system: B5\ntask: {name: karate}\nmodel: {name: gnn}", "a list of identifiers"),
    "too large": ("# " + 70_000 * "x", "is larger than 64 KiB"),
    "a huge number": (f"task: {{name: karate}}\nmodel: {{name: gnn, width: {10**30}}}", "model.width"),
    "a number of many digits": (f"task: {{name: karate}}\nmodel: {{width: {5000 * '9'}}}", "not valid YAML"),
}


@pytest.mark.parametrize("case", RECIPES)
def test_a_malformed_recipe_is_refused(case: str, capsys) -> None:
    text, expected = RECIPES[case]
    Path("mine.yaml").write_text(text, encoding="utf-8")
    assert expected in complaint(["train", "mine.yaml"], capsys)


def test_a_recipe_that_is_not_text_is_refused(capsys) -> None:
    Path("mine.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in complaint(["train", "mine.yaml"], capsys)
