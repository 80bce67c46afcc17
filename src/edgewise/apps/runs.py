"""`edgewise train` and `edgewise resume`: run folders, repetitions with other seeds, and what is printed about them."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch
import yaml

from edgewise import training
from edgewise.apps import recipes
from edgewise.apps.listing import columns
from edgewise.apps.numbers import shown
from edgewise.apps.options import Overrides, configure, flat, show_options
from edgewise.errors import ConfigError
from edgewise.training import Result, RunConfig


def train(
    recipe: str, overrides: Overrides, seeds: int, folder: str | None, *, print_config: bool = False, help: bool = False
) -> dict[str, Any]:
    """Train a recipe once for each seed."""
    found = recipes.read(recipe)
    if help:
        show_options(found, overrides)
        return {"recipe": found.name}
    config = configure(found, overrides)
    if print_config:
        content = {"description": found.description, "system": list(found.system)} | flat(config)
        print(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100), end="")
        return content
    rehearse(config)
    results = []
    for seed in range(config.train.seed, config.train.seed + seeds):
        one = replace(config, train=replace(config.train, seed=seed))
        run = run_folder(one, None if folder is None else Path(folder), alone=seeds == 1)
        results.append(carry_out(run, partial(training.train, one, run)))
        if first_rank():
            print(sentence(seed, results[-1]), flush=True)
    return summary(config, results)


def resume(folder: str) -> dict[str, Any]:
    """Go on with a run, or tell the result of a finished one."""
    run = Path(folder)
    config = training.read_config(run)
    result = carry_out(run, partial(training.resume, run))
    if first_rank():
        print(sentence(config.train.seed, result))
    return summary(config, [result])


def run_folder(config: RunConfig, folder: Path | None, *, alone: bool) -> Path:
    """A new folder: the one asked for (with one inside for each of several seeds), or the next free default."""
    if folder is not None:
        return folder if alone else folder / f"seed-{config.train.seed}"
    first = Path("runs") / f"{config.recipe}-{config.train.seed}"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return first  # the ranks must agree, and some may look before others have made the folder
    later = (Path(f"{first}-{k}") for k in count(2))
    return next(path for path in chain([first], later) if not path.exists())


def rehearse(config: RunConfig) -> None:
    """Take one example through the model and the loss: what cannot run is refused before anything is written."""
    try:
        task, model = training.assemble(config)
        batch = next(iter(task.batches("valid", 1, config.graph)))
        with torch.no_grad():
            task.loss(model.eval()(batch.graph, batch.x), batch)
    except ValueError as error:  # EdgewiseError's kinds, and what PyTorch says of a number that cannot be
        raise ConfigError(str(error).replace(".options.", ".")) from error


def carry_out(run: Path, training_: Callable[[], Result]) -> Result:
    """Train, then write the report. An interruption says how to go on; a report that fails does not fail the run."""
    try:
        result = training_()
    except KeyboardInterrupt:
        if (run / "config.yaml").exists() and first_rank():
            print(f"edgewise: interrupted; go on with: edgewise resume {run}", file=sys.stderr)
        raise
    if first_rank():
        write_report(run)
    return result


def write_report(run: Path) -> None:
    """Write a run's report, or say why it could not be written."""
    from edgewise.apps.report import report

    try:
        problems = report(run)
    except Exception as error:  # the run is worth more than its report
        problems = [f"the report of {run} could not be written: {type(error).__name__}: {error}"]
    for problem in problems:
        print(f"edgewise: warning: {problem}", file=sys.stderr)


def first_rank() -> bool:
    """Whether this process speaks for all that train together."""
    return os.environ.get("RANK", "0") == "0"


def sentence(seed: int, result: Result) -> str:
    """A run in one line."""
    steps = f"{result.steps} steps, {1000 * result.step_seconds:.1f} ms each, {result.seconds:.1f} s"
    chosen = f"valid {shown(result.metric, result.valid)} at step {result.best_step}"
    reached = f"seed {seed}: {result.measure} {shown(result.metric, result.value)} ({chosen}; {steps})"
    return f"{reached}  {result.run / 'report.html'}"


def summary(config: RunConfig, results: Sequence[Result]) -> dict[str, Any]:
    """All repetitions together, printed as a table where there are several."""
    values = [result.value for result in results]
    mean, sd = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
    metric, measure = results[0].metric, results[0].measure
    if sd is not None and first_rank():
        rows = [
            {
                "run": str(result.run),
                measure: shown(metric, result.value),
                f"valid {metric}": shown(metric, result.valid),
                "steps": str(result.steps),
                "ms a step": f"{1000 * result.step_seconds:.1f}",
                "seconds": f"{result.seconds:.1f}",
            }
            for result in results
        ]
        heading = dict(zip(rows[0], rows[0], strict=True))
        print("\n" + columns([heading, *rows]))
        print(f"\n{config.recipe}: {measure} {shown(metric, mean)} ± {shown(metric, sd)} ({len(values)} seeds)")
    return {
        "recipe": config.recipe,
        "metric": metric,
        "values": values,
        "mean": mean,
        "sd": sd,
        "seconds": sum(result.seconds for result in results),
        "runs": [str(result.run) for result in results],
        "valid": [result.valid for result in results],
        "step_seconds": [result.step_seconds for result in results],
    }
