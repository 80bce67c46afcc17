import pytest

from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.apps.tuning import space
from edgewise.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "low", "high", "whole", "by_magnitude"),
    [
        ("model.depth=1..4", 1, 4, True, False),
        ("model.width=16..512", 16, 512, True, True),
        ("optimizer.learning_rate=1e-4..0.1", 1e-4, 0.1, False, True),
        ("--model.dropout=0..0.8", 0, 0.8, False, False),
        ("model.a=-1..1.0", -1, 1, False, False),
    ],
)
def test_a_range_is_of_whole_numbers_or_not_and_searched_by_magnitude_where_it_spans_one(
    text, low, high, whole, by_magnitude
):
    found = space.written(text)
    assert (found.low, found.high, found.whole, found.by_magnitude) == (low, high, whole, by_magnitude)
    assert space.written(str(found)) == found


@pytest.mark.parametrize(
    "text", ["model.depth", "depth=1..4", "model.depth=", "model.depth=4..1", "model.depth=1..1", "model.layer=gcn,gcn",
             "model.layer=gcn,", "model.depth=1..inf"],
)  # fmt: skip
def test_what_is_no_range_and_no_list_is_refused(text):
    with pytest.raises(ConfigError, match="--search"):
        space.written(text)


@pytest.mark.parametrize(
    ("overrides", "texts", "message"),
    [
        ([], ["model.dept=1..4"], "takes no option 'dept'"),
        ([], ["model.layer=gcn,gta"], "'gta' is unknown"),
        ([], ["train.batch=0..4"], "at least 1"),
        ([("model.depth", "3")], ["model.depth=1..4"], "set as well"),
        ([], ["model.depth=1..4", "model.depth=2..3"], "searched twice"),
    ],
)
def test_an_option_that_cannot_be_searched_is_named(overrides, texts, message):
    with pytest.raises(ConfigError, match=message):
        space.checked(recipes.read("texas-sage"), overrides, [space.written(text) for text in texts])


@pytest.mark.parametrize("name", ["texas-gat", "digits-vit"])
def test_the_usual_search_holds_the_recipe_itself(name):
    recipe = recipes.read(name)
    config = configure(recipe)
    dimensions = space.usual(config)
    space.checked(recipe, [], dimensions)
    own = space.own(config, dimensions)
    assert own.keys() == {dimension.option for dimension in dimensions}
    assert configure(recipe, [(option, space.as_text(value)) for option, value in own.items()]) == config


def test_a_truth_value_of_the_recipe_is_among_those_that_are_searched():
    config = configure(recipes.read("karate"))
    assert space.own(config, [space.written("task.loops=false,true")]) == {"task.loops": "true"}


def test_values_that_the_model_refuses_by_themselves_are_not_searched():
    tried = [
        space.written(text)
        for text in ("model.a=0.5..0.8", "model.b=x,y,z", "model.c=u,v", "model.d=1..4", "o.e=0..1.5")
    ]

    def takes(option, value):
        if (option, value) in {("model.a", 0.8), ("model.b", "y"), ("model.c", "v")}:
            raise ConfigError(f"no {value}")

    found, left_out = space.possible(tried, takes)
    assert [str(one) for one in found] == ["model.b=x,z", "model.d=1..4", "o.e=0.0..1.5"]
    assert left_out == ["model.a: no 0.8", "model.b=y: no y", "model.c: no v"]
