"""The options that tasks on data of one's own share, each described once."""

import inspect
import re
from collections.abc import Callable
from textwrap import wrap
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable[..., Any])

SHARED = {
    "label": "The columns with targets, with commas between them. Empty: those of `like`, else `label`, `target`, or "
    "the only one left.",
    "target": 'Whether labels are classes or numbers. "auto": numbers with fractions are a quantity, texts and up to '
    "20 different whole numbers classes; of more whole numbers it must be said.",
    "id": "The column that names the {unit}s. Empty: `id`, `name`, ..., or they are their rows.",
    "ends": "The two columns of edges with senders and receivers, with a comma between them. Empty: they are found.",
    "text": "The column with the texts. Empty: `text`, `sentence`, `review`, ...",
    "ignore": "Columns that are not read, with commas between them.",
    "undirected": "Let every node also attend to those that attend to it.",
    "parallel": 'Whether parallel edges, and both directions of one, keep their own features ("keep") or are one edge '
    'with their "mean".',
    "fanouts": "Neighbours to draw in each hop of training, one number per layer. Empty: the whole graph at once.",
    "vocabulary": 'Tokens, for "bpe".',
    "length": "Most tokens of a text, with its two ends.",
    "lowercase": "Read small letters only.",
    "truncate": "Leave out what a text has beyond `length` tokens.",
    "like": "A run folder: its parts, and all that was fitted to its data, are taken.",
    "cut": 'How to cut: "random"; "stratified", with equal shares of each class; by "group" or "time"; "given", as a '
    'column `split` says. "auto": as that or what is named below says, else stratified where there is one target of '
    "classes, else random.",
    "fold": "Seed of the random cut: another number, another cut.",
    "folds": "Parts of a cross-validation (`--folds`): part `fold` tests, a fifth of the others chooses the weights.",
    "group": "A column: what has the same cell there, such as a patient or an author, is in one part.",
    "time": 'A column of dates or numbers: the earliest train, the latest test. With cut "time" and without a name: '
    "the only one with dates.",
    "bad_rows": '"refuse": all rows that cannot be read are named; "skip": they are left out, and listed in the run.',
    "edge_weight": "A column of edges, numbers of at least 0: how much an edge counts in the sums and means of layers "
    "that have a place for that. `scale` divides them by their mean. Empty: all columns are features.",
    "sample_weight": "A column: how much each {unit} counts in the loss and the measures, from 0 on. Empty: all alike.",
}


def on_own(unit: str) -> Callable[[T], T]:
    """A task on data of one's own, whose docstring gets what it lacks about the options that all share.

    Symbols     unit = what an example is
    """

    def filled(task: T) -> T:
        if task.__doc__:
            before, _, rest = inspect.cleandoc(task.__doc__).partition("Args:\n")
            listed, gap, after = rest.partition("\n\n")
            own = dict(re.findall(r"^    (\w+): (.*(?:\n        .*)*)", listed, re.MULTILINE))
            for name in inspect.signature(task).parameters.keys() - own.keys():
                own[name] = "\n        ".join(wrap(SHARED[name].format(unit=unit), 100))
            lines = [f"    {name}: {own[name]}" for name in inspect.signature(task).parameters]
            task.__doc__ = "\n".join([f"{before}Args:", *lines]) + gap + after
        return task

    return filled
