"""The commands as functions: `edgewise.train("own-nodes", folder=...)` trains as `edgewise train own-nodes` does."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from edgewise.apps.arguments import duration
from edgewise.apps.options import Overrides, paths
from edgewise.apps.recipes import SECTIONS
from edgewise.errors import ConfigError, nearest
from edgewise.training import Moved, Result, finished

Place = str | PathLike[str]


def train(
    recipe: str,
    run: Place | None = None,
    *,
    seeds: int = 1,
    folds: int | None = None,
    time: float | str | None = None,
    **options: Any,
) -> Result | list[Result]:
    """Train a recipe, as `edgewise train` does: its run folder with its report, and the lines that are printed.

    Symbols     run = the run folder; seeds, folds = how many repetitions, each with a result of its own; time = seconds
                of training at most, or "10m"; options = those of the recipe: a section (model={"width": 32}), or an
                option of the task, of training, the optimiser or the model by itself (folder="mine", steps=50)
    Errors      ConfigError for an option that there is not, or that two sections have; those of training
    """
    from edgewise.apps.command import runs

    overrides = overrides_of(recipe, options)
    place, seconds = None if run is None else fspath(run), _seconds(time)
    made = runs.train(recipe, overrides, seeds, folds, None, seconds, None, place, False, False)
    results = [result for one in made["runs"] if (result := finished(Path(one)))]
    return results if folds or seeds > 1 else results[0]


def tune(
    recipe: str,
    run: Place | None = None,
    *,
    search: Sequence[str] = (),
    trials: int | None = None,
    time: float | str | None = None,
    seeds: int = 1,
    folds: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Search the options of a recipe that validate best, as `edgewise tune` does.

    Symbols     search = what is searched, as "model.depth=1..4"; others as for `train`
    """
    from edgewise.apps.tuning import command

    place, seconds = None if run is None else fspath(run), _seconds(time)
    return command.tune(recipe, overrides_of(recipe, options), search, seeds, folds, trials, seconds, place)


def evaluate(run: Place, *, accept: bool = False, data: Moved | None = None) -> dict[str, Any]:
    """Measure a run on its validation and test data, as `edgewise evaluate` does.

    Symbols     accept = take an altered configuration or history as it is; data = where its data lie now
    """
    from edgewise.apps.command import inference

    return inference.evaluate(fspath(run), accept, data or {})


def serve(
    run: Place,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    timeout: int = 30,
    megabytes: int = 8,
    accept: bool = False,
    data: Moved | None = None,
) -> dict[str, Any]:
    """Predict over HTTP until interrupted, as `edgewise serve` does.

    Symbols     timeout = seconds for a request; megabytes = of a request at most; others as for `evaluate`
    """
    from edgewise.apps.command import inference

    return inference.serve(fspath(run), host, port, timeout, megabytes, accept, data or {})


def overrides_of(recipe: str, options: Mapping[str, Any]) -> Overrides:
    """Options of a recipe as the command line has them.

    >>> overrides_of("cora-gat", {"steps": 5, "model": {"layer": {"heads": 2}}})
    [('model.layer.heads', '2'), ('train.steps', '5')]
    """
    whole = {name: value for name, value in options.items() if name.partition(".")[0] in SECTIONS}
    made = [pair for name, value in whole.items() for pair in _written(name, value)]
    known = paths(recipe, made)
    for name, value in options.items():
        if name in whole:
            continue
        meant = [path for path in known if path.count(".") == 1 and path.endswith(f".{name}")]
        if len(meant) > 1:
            section, _, option = meant[0].partition(".")
            raise ConfigError(
                f"{name} is {' and '.join(meant)}: give {section}={{{option!r}: {value!r}}}, or the other"
            )
        if not meant:
            tails = [path.partition(".")[2] for path in known]
            raise ConfigError(f"the recipe {recipe!r} has no option {name!r}{nearest(name, tails)}")
        made += _written(meant[0], value)
    return made


def _seconds(time: float | str | None) -> float | None:
    try:
        return None if time is None else duration(str(time))
    except ArgumentTypeError as error:
        raise ConfigError(f"time: {error}") from error


def _written(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _written(f"{path}.{name}", part)
    elif isinstance(value, bool | list | tuple):
        yield path, json.dumps(value)
    elif value is not None:
        yield path, fspath(value) if isinstance(value, PathLike) else str(value)
