"""What `edgewise tune` takes. Only argparse is imported here: the rest loads when the command runs."""

import argparse

from edgewise.apps.arguments import duration, folder, whole

TUNE = """Search the options of a recipe that validate best, with Optuna (extra `tune`), and write them as a recipe.

The first trial is the recipe as it stands. Without --search, the learning rate, weight decay and, of the model, width,
depth, dropouts and names such as norm and activation are searched. Poor trials are stopped early. After a kill, or in
several terminals at once, the same command goes on with the same trials. Only at the end are the test data read, once,
with the best options and fresh seeds.

    edgewise tune texas-sage --folds 10 --time 30m
    edgewise tune cora-gcn --trials 40 --search model.layer=gcn,gat,sage-mean --search model.width=16..256"""

MOST, TRIALS, SECONDS = 1_000_000, 50, 3600.0


def limits(trials: int | None, seconds: float | None) -> tuple[int, float]:
    """The most trials and seconds of a search: where a time is given alone, there are as many trials as it allows."""
    return trials or (TRIALS if seconds is None else MOST), seconds or SECONDS


def add_options(command: argparse.ArgumentParser) -> None:
    """Its options, beside those of the recipe."""
    command.add_argument("recipe", metavar="RECIPE", help="a name of `edgewise list recipes`, or a YAML file's path")
    command.add_argument(
        "--trials",
        type=whole(1, MOST),
        metavar="N",
        help=f"in all, those of earlier calls among them (default: {TRIALS}, or as many as --time allows)",
    )
    command.add_argument(
        "--time", type=duration, metavar="T", help="of this call, such as 90s, 30m or 2h (default: 1h)"
    )
    command.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="OPTION=VALUES",
        help="search this instead: model.depth=1..4 or model.layer=gcn,gat; may be repeated",
    )
    command.add_argument(
        "--seeds", type=whole(1, 1000), default=1, metavar="N", help="a trial is the mean of N seeds (default: 1)"
    )
    command.add_argument(
        "--folds", type=whole(2, 1000), metavar="N", help="a trial is the mean of task.fold = 0 to N - 1"
    )
    command.add_argument(
        "--run", type=folder, metavar="FOLDER", help="the folder of the search (default: runs/RECIPE-tuned)"
    )
