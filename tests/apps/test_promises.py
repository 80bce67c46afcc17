"""What users rely on stays: public names, recipes, commands with their options and choices, and the tables' entries.

tests/recorded/promises.txt lists them; a line leaves it together with a line in CHANGELOG.md that says so.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import edgewise
from edgewise.apps import recipes
from edgewise.apps.command.main import build_parser
from edgewise.explanations.methods import EXPLANATIONS
from edgewise.layers import READOUTS
from edgewise.training import OPTIMIZERS, SCHEDULES

PROMISED = Path(__file__).parents[1] / "recorded" / "promises.txt"
TABLES = {
    "layer": edgewise.LAYERS,
    "model": edgewise.MODELS,
    "task": edgewise.TASKS,
    "pattern": edgewise.PATTERNS,
    "backend": edgewise.BACKENDS,
    "readout": READOUTS,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "explanation": EXPLANATIONS,
}


def offered() -> Iterator[str]:
    yield from (f"name {name}" for name in dir(edgewise) if name[0] != "_")
    yield from (f"recipe {name}" for name in recipes.names())
    yield from (f"{kind} {name}" for kind, table in TABLES.items() for name in table)
    parser, commands = build_parser()
    for command, own in {"": parser, **commands}.items():
        for action in own._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from (f"command {name}" for name in action.choices)
                continue
            names = action.option_strings or [action.dest]
            yield from (f"option {command} {name}" for name in names)
            yield from (f"option {command} {name} = {choice}" for name in names for choice in action.choices or ())


def test_what_was_promised_is_still_there() -> None:
    promised = PROMISED.read_text(encoding="utf-8").splitlines()
    assert len(promised) > 500
    assert sorted(set(promised) - set(offered())) == []
