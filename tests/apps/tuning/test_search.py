from edgewise.apps import recipes
from edgewise.apps.tuning.search import Search
from edgewise.apps.tuning.space import written


def test_trials_share_seeds_and_the_reading_of_the_test_has_fresh_ones():
    search = Search(recipes.read("karate"), [("train.seed", "5")], [written("model.depth=1..3")], repeats=3)
    seeds = [config.train.seed for config in search.repetitions({"model.depth": 2})]
    fresh = [config.train.seed for config in search.repetitions({"model.depth": 2}, fresh=True)]
    assert (seeds, fresh) == ([5, 6, 7], [8, 9, 10])
    assert {config.model.options["depth"] for config in search.repetitions({"model.depth": 2})} == {2}


def test_folds_are_the_same_and_their_seeds_fresh():
    search = Search(recipes.read("texas-sage"), [], [written("model.depth=1..3")], repeats=2, folds=True)
    configs = search.repetitions({}), search.repetitions({}, fresh=True)
    assert [[one.task.options["fold"] for one in some] for some in configs] == [[0, 1], [0, 1]]
    assert [[one.train.seed for one in some] for some in configs] == [[0, 1], [2, 3]]
    assert [search.run_name(one) for one in configs[1]] == ["fold-0", "fold-1"]


def test_what_is_kept_of_a_search_decides_its_figures():
    search = Search(recipes.read("karate"), [("train.seed", "5")], [written("model.depth=1..3")])
    content = search.to_plain()
    assert content["search"] == ["model.depth=1..3"] and content["repeat"] == {"seeds": 1}
    assert content["recipe"]["train"]["seed"] == 5
