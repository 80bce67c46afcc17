"""`edgewise train` and `edgewise resume`: run folders, repetitions with other seeds, and what is printed about them."""

import os
import shlex
import statistics
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
from edgewise.apps.console import columns, compared, shown
from edgewise.apps.options import Overrides, configure, show_options
from edgewise.errors import ConfigError, counted
from edgewise.tasks import Task
from edgewise.tasks.core.measures import in_rows
from edgewise.training import Moved, Result, RunConfig
from edgewise.training.calibration import told
from edgewise.training.distributed import restarted
from edgewise.training.journal import say
from edgewise.training.simple import Simple


def train(
    recipe: str,
    sections: Overrides,
    seeds: int,
    folds: int | None,
    epochs: float | None,
    time: float | None,
    bad_rows: str | None,
    run: str | None,
    print_config: bool,
    help: bool,
) -> dict[str, Any]:
    """Train a recipe once for each seed, or for each fold of its data; `sections`: its options on the command line."""
    limits = (("train.epochs", epochs), ("train.time", time))
    sections = [*sections, *((name, str(limit)) for name, limit in limits if limit is not None)]
    sections += [("task.bad_rows", bad_rows)] if bad_rows else []
    written = recipes.read(recipe)
    if help:
        show_options(written, sections)
        return {"recipe": written.name}
    config = training.settled(configure(written, sections))
    if print_config:
        content = {"description": written.description, "system": list(written.system), **config.to_plain()}
        del content["recipe"]
        print(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100), end="")
        return content
    if "folds" not in config.task.options:
        one_of(seeds, folds)
    repeated = repetitions(config, folds or seeds, bool(folds), seeds if folds else 1)
    task = rehearse(repeated[-1])
    results, place, runs = list[Result](), None if run is None else Path(run), list[Path]()
    try:
        if first_rank() and task.summary:
            print("\n".join(task.summary), flush=True)
        for one in repeated:
            runs.append(run_folder(one, place, alone=len(repeated) == 1))
            same = runs[0] if len(runs) > 1 and not folds else None
            rehearsed = task if one is repeated[-1] else None
            trained = partial(training.train, one, runs[-1], task=rehearsed)
            results.append(carry_out(runs[-1], trained, same=same, task=rehearsed))
            if first_rank():
                print(sentence(one.train.seed, results[-1]), *beside(results[-1]), sep="\n", flush=True)
    except (KeyboardInterrupt, BrokenPipeError) as stop:
        if len(results) == len(repeated):
            raise
        advice = stop.args if isinstance(stop, KeyboardInterrupt) else ()  # on the run that is begun, where one is
        known = [f"{len(results)} of {len(repeated)} runs are trained"] if len(repeated) > 1 else []
        raise type(stop)(*advice, *known) from stop
    made = summary(config, results)
    if folds and "folds" in config.task.options and task.has_test and first_rank():
        made["pooled"] = [over_folds(results[first : first + folds]) for first in range(0, len(results), folds)]
    if not folds and len(results) > 1 and training.joinable(task) and first_rank():
        made["ensemble"] = str(as_one(results, place) or "") or None
    return made


def as_one(results: Sequence[Result], place: Path | None) -> Path | None:
    """The folder that makes one model of the runs of several seeds, around or beside theirs; what it reaches is
    printed."""
    first, last = results[0].run, results[-1].run
    folder = place or first.with_name(f"{first.name}-to-{last.name}")
    metric = results[0].metric
    try:
        found = training.join_runs([result.run for result in results], folder)
    except (OSError, ValueError) as error:  # the runs are worth more than their ensemble
        say(f"edgewise: warning: the runs could not become one: {error}")
        return None
    part = "test" if "test" in found else "valid"
    print(f"as one: {part} {metric} {shown(metric, found[part][metric])}  {folder}", *told(found), sep="\n")
    return folder


def over_folds(results: Sequence[Result]) -> dict[str, Any]:
    """Every measure of the test parts of all folds together, which is printed with its deviation between the folds."""
    count, together, alone = training.pooled([result.run for result in results])
    rows = []
    for name, value, interval in in_rows(together):
        each = [known for one in alone if (known := one.get(name, {}).get("value")) is not None]
        spread = f"{statistics.stdev(each):.4g}" if len(each) > 1 else "-"
        rows.append(
            {f"{count:,} examples of {len(results)} folds": name, "value": value, "95 %": interval, "sd": spread}
        )
    if rows:
        print("\n" + columns(rows, heads=True))
    return {"examples": count, "measures": together, "folds": alone}


def one_of(seeds: int, folds: int | None) -> None:
    """Refuse repetitions of both kinds."""
    if folds and seeds > 1:
        raise ConfigError("--folds and --seeds exclude one another: each fold has its own seed")


def repetitions(config: RunConfig, count: int, folds: bool, draws: int = 1) -> list[RunConfig]:
    """The same configuration with so many seeds in a row, or on so many folds of its data, each with its own seed.

    Symbols     draws = how often one's own data are cut into folds, each time in another way
    """
    first = config.train.seed
    seeded = [replace(config, train=replace(config.train, seed=seed)) for seed in range(first, first + count * draws)]
    return [with_fold(one, fold, count) for fold, one in enumerate(seeded)] if folds else seeded


def with_fold(config: RunConfig, fold: int, folds: int) -> RunConfig:
    """The same configuration on another fold of its data; one's own are cut into so many."""
    options = config.task.options
    if "fold" not in options:
        raise ConfigError(f"the task {config.task.name!r} has no folds: use --seeds")
    options = options | {"fold": fold} | ({"folds": folds} if "folds" in options else {})
    return replace(config, task=replace(config.task, options=options))


def resume(run: str, accept: bool, data: Moved) -> dict[str, Any]:
    """Go on with a run, or print the result of a finished one; `accept` takes its files as they are, and `data` is
    where its task's data lie now."""
    config = training.read_config(run)
    result = carry_out(Path(run), partial(training.resume, run, accept=accept, folder=data), accept, data)
    if first_rank():
        print(sentence(config.train.seed, result), *beside(result), sep="\n")
    return summary(config, [result])


def run_folder(config: RunConfig, folder: Path | None, *, alone: bool) -> Path:
    """A new folder: the given one (with one inside for each of several seeds), or the next free default."""
    if folder is not None:
        return folder if alone else folder / f"seed-{config.train.seed}"
    first = Path("runs") / f"{config.recipe}-{config.train.seed}"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or restarted():
        return first  # the ranks must agree, and some may look before others have made the folder
    return free(first)


def free(first: Path) -> Path:
    """This folder, or where it is taken the next one that is not: FIRST-2, ..."""
    later = (Path(f"{first}-{k}") for k in count(2))
    return next(path for path in chain([first], later) if not path.exists())


def rehearse(config: RunConfig) -> Task:
    """Take one example through the model and the loss: what cannot run is refused before anything is written."""
    try:
        task, model = training.assemble(config)
        training.begin(model, config)
        batch = next(iter(task.batches("valid", 1, config.graph)))
        with torch.no_grad():
            outputs = model.eval()(*batch.inputs)
            task.loss(outputs, batch)
            training.check_metric(task, outputs, batch)
    except ValueError as error:  # EdgewiseError's kinds, and what PyTorch says of a number that cannot be
        raise ConfigError(*map(str, error.args)) from error
    return task


def carry_out(
    run: Path,
    training_: Callable[[], Result],
    accept: bool = False,
    data: Moved | None = None,
    same: Path | None = None,
    task: Task | None = None,
) -> Result:
    """Train, then write the report. An interruption says how to go on; a report that fails does not fail the run.

    Symbols     same = a run on the same data, cut alike, whose simple methods need not be tried again; task = the one
                that is trained, whose data are not read once more for the report
    """
    try:
        result = training_()
        if first_rank():
            if same and (found := Simple.read(same)):
                found.keep(run)
            write_report(run, accept, data, task)
    except KeyboardInterrupt as stop:
        if (run / "config.yaml").exists():
            raise KeyboardInterrupt(f"go on with: edgewise resume {shlex.quote(str(run))}") from stop
        raise
    return result


def write_report(run: Path, accept: bool, data: Moved | None = None, task: Task | None = None) -> None:
    """Write a run's report, or say why it could not be written."""
    from edgewise.apps.report.report import report

    try:
        from edgewise.apps.report.explanations import write_list

        problems = report(run, accept, data, task)
        write_list(run)
    except Exception as error:  # the run is worth more than its report
        problems = [f"the report of {run} could not be written: {type(error).__name__}: {error}"]
    for problem in problems:
        say(f"edgewise: warning: {problem}")


def first_rank() -> bool:
    """Whether this process speaks for all that train together."""
    return os.environ.get("RANK", "0") == "0"


def sentence(seed: int, result: Result) -> str:
    """A run in one line."""
    steps = f"{counted(result.steps, 'step')}, {1000 * result.step_seconds:.1f} ms each, {result.seconds:.1f} s"
    chosen = f"valid {shown(result.metric, result.valid)} at step {result.best_step}"
    reached = f"seed {seed}: {result.measure} {shown(result.metric, result.value)} ({chosen}; {steps})"
    return f"{reached}  {result.run / 'report.html'}"


def beside(result: Result) -> list[str]:
    """How sure a model of one's own data is, and what a simple method reached on the same, where there is one."""
    found = Simple.read(result.run)
    return [*told(training.record_of(result.run)), *([compared(found, result)] if found else [])]


def summary(config: RunConfig, results: Sequence[Result]) -> dict[str, Any]:
    """All repetitions together, printed as a table where there are several."""
    values = [result.value for result in results]
    mean, sd = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
    metric, measure = results[0].metric, results[0].measure
    page: Path | None = None
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
        print("\n" + columns(rows, heads=True))
        page = one_page([result.run for result in results])
        print(f"\n{config.recipe}: {measure} {shown(metric, mean)} ± {shown(metric, sd)} ({len(values)} runs)")
    made = {
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
    return made if page is None else made | {"page": str(page)}


def one_page(runs: Sequence[Path]) -> Path | None:
    """One page for all repetitions, beside their folders: its place is printed, or why it could not be written."""
    from edgewise.apps.report.compare import write_page

    path = runs[0].with_name(f"{runs[0].name}-to-{runs[-1].name}.html")
    try:
        write_page([str(run) for run in runs], path)
    except Exception as error:  # the runs are worth more than their page
        say(f"edgewise: warning: {path} could not be written: {type(error).__name__}: {error}")
        return None
    print(path)
    return path
