from edgewise.apps.arguments import Parser
from edgewise.apps.tuning.options import MOST, add_options, limits


def test_a_search_is_of_fifty_trials_or_an_hour_unless_one_says_otherwise():
    parser = Parser(prog="edgewise tune")
    add_options(parser)
    args = parser.parse_args(["karate"])
    assert (args.search, args.seeds, args.folds, args.run) == ([], 1, None, None)
    assert limits(args.trials, args.time) == (50, 3600)
    args = parser.parse_args(["karate", "--search=a.b=1..2", "--search", "a.c=x,y", "--time=2m", "--folds=4"])
    assert (args.time, args.search, args.folds) == (120, ["a.b=1..2", "a.c=x,y"], 4)


def test_a_time_alone_is_filled_with_trials():
    parser = Parser(prog="edgewise tune")
    add_options(parser)
    given = {"--time=30m": (MOST, 1800), "--trials=7": (7, 3600), "--trials=7 --time=30m": (7, 1800)}
    for words, wanted in given.items():
        args = parser.parse_args(["karate", *words.split()])
        assert limits(args.trials, args.time) == wanted
