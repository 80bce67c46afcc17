from edgewise.apps.arguments import Parser
from edgewise.apps.tuning.options import add_options


def test_a_search_is_of_fifty_trials_or_an_hour_unless_one_says_otherwise():
    parser = Parser(prog="edgewise tune")
    add_options(parser)
    args = parser.parse_args(["karate"])
    assert (args.trials, args.time, args.search, args.seeds, args.folds, args.run) == (50, 3600, [], 1, None, None)
    args = parser.parse_args(["karate", "--search=a.b=1..2", "--search", "a.c=x,y", "--time=2m", "--folds=4"])
    assert (args.time, args.search, args.folds) == (120, ["a.b=1..2", "a.c=x,y"], 4)
