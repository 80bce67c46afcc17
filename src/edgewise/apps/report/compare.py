"""`edgewise report compare`: runs side by side on one page that stands alone: results, curves, options that differ."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from edgewise.apps.console import shown
from edgewise.apps.report import figures, pages
from edgewise.apps.report.pages import Markup, element
from edgewise.errors import ConfigError, counted
from edgewise.tasks.core.drawing import Curve, Curves, Panel
from edgewise.training import Result, finished, read_config, read_metrics

MOST_PANELS = 4  # side by side, beyond which their numbers cannot be read
REPEATED = ("train.seed", "task.fold")  # what differs between repetitions of one configuration
READING = (
    "Runs that differ in their seed or fold alone repeat one configuration and share a letter and a colour. Deviations "
    "are sample standard deviations over these repetitions: where two means are closer than that, the repetitions do "
    "not tell them apart. Test figures are with the weights that were best on the validation data."
)


@dataclass(frozen=True)
class Run:
    """A run folder: its options by their paths, its records, and its result where it is finished."""

    folder: Path
    options: dict[str, str]
    records: list[dict[str, Any]]
    result: Result | None

    @property
    def configuration(self) -> tuple[tuple[str, str], ...]:
        """What repetitions have in common."""
        return tuple((name, value) for name, value in self.options.items() if name not in REPEATED)


@dataclass(frozen=True)
class Group:
    """The repetitions of one configuration, by a letter."""

    letter: str
    runs: list[Run]


def compare(runs: Sequence[str], out: str | None = None, what: str = "compare") -> dict[str, Any]:
    """Write the page; print where it is, and the mean of each configuration.

    Errors      ConfigError for less than two runs; CheckpointError for a folder that holds none
    Edge cases  a run that is named twice counts once
    """
    named: dict[Path, str] = {}
    for folder in runs:
        named.setdefault(Path(folder).resolve(), folder)
    folders = [*named.values()]
    if len(folders) < 2:
        raise ConfigError("a comparison needs two runs or more: give their folders")
    path = Path("comparison.html" if out is None else out)
    groups = write_page(folders, path)
    summary = [{"letter": group.letter, "runs": [str(run.folder) for run in group.runs]} | means(group)
               for group in groups]  # fmt: skip
    for group in groups:
        print(f"{group.letter}  {recipe(group)}: {in_words(group, 'test')}")
    print(path)
    return {"page": str(path), "configurations": summary}


def write_page(folders: Sequence[str], path: Path) -> list[Group]:
    """Write the page of some runs; the configurations that they repeat."""
    groups = grouped([read(Path(folder)) for folder in folders])
    names = " ".join(shlex.quote(folder) for folder in folders)
    body = [
        element("p", READING, class_="lead"),
        element("h2", "Results"),
        *results(groups),
        *curves(groups),
        element("h2", "Options that differ"),
        differing(groups),
        element("h2", "Each run"),
        each(groups),
        element("h2", "Reproduction"),
        element("pre", f"edgewise report compare {names}"),
    ]
    pages.write(
        path, "Comparison", "comparison", f"{len(folders)} runs of {counted(len(groups), 'configuration')}", *body
    )
    return groups


def read(folder: Path) -> Run:
    """A run folder as it is compared: neither its data nor its weights are read."""
    config = read_config(folder, own=True).to_plain()
    return Run(folder, dict(flat(config)), read_metrics(folder), finished(folder))


def flat(options: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Options by their paths, as the command line has them."""
    for name, value in options.items():
        if isinstance(value, dict):
            yield from flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value if isinstance(value, str) else json.dumps(value)


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Repetitions together, in the order in which their configurations are first met."""
    by_configuration: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        by_configuration.setdefault(run.configuration, []).append(run)
    return [Group(letter(number), members) for number, members in enumerate(by_configuration.values())]


def letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ... as the columns of a table are named.

    Example
        >>> letter(0), letter(25), letter(26), letter(51), letter(52)
        ('A', 'Z', 'AA', 'AZ', 'BA')
    """
    before, last = divmod(number, 26)
    return (letter(before - 1) if before else "") + chr(ord("A") + last)


def recipe(group: Group) -> str:
    """The recipe of a configuration, or the model and the task where there is none."""
    options = group.runs[0].options
    return options.get("recipe") or f"{options['model.name']} on {options['task.name']}"


def means(group: Group) -> dict[str, Any]:
    """The metric, and the mean and deviation of its values on the validation and the test data."""
    results = [run.result for run in group.runs if run.result is not None]
    made: dict[str, Any] = {"metric": results[0].metric if results else None}
    for split in ("valid", "test"):
        values = [getattr(result, split) for result in results if getattr(result, split) is not None]
        made[split] = statistics.fmean(values) if values else None
        made[f"{split}_sd"] = statistics.stdev(values) if len(values) > 1 else None
    return made


def in_words(group: Group, split: str) -> str:
    """`accuracy 81.5 % ± 0.4 %`, or why there is none."""
    figures = means(group)
    if figures["metric"] is None:
        return "not finished"
    if figures[split] is None:
        return "no such data"
    metric, deviation = figures["metric"], figures[f"{split}_sd"]
    return f"{metric} {shown(metric, figures[split])}" + ("" if deviation is None else f" ± {shown(metric, deviation)}")


def results(groups: Sequence[Group]) -> list[Markup]:
    """What each configuration reached."""
    rows = []
    for group in groups:
        done = [run.result for run in group.runs if run.result is not None]
        seconds = f"{statistics.fmean(result.seconds for result in done):.1f}" if done else "–"
        count = f"{len(done)} of {len(group.runs)}" if len(done) < len(group.runs) else str(len(done))
        rows.append([group.letter, recipe(group), count, in_words(group, "test"), in_words(group, "valid"), seconds])
    head = ["", "configuration", "runs", "test", "validation", "seconds"]
    return [pages.table(head, rows, ("runs", "test", "validation", "seconds"))]


def curves(groups: Sequence[Group]) -> list[Markup]:
    """Loss and validation scores of all runs over the steps, each configuration in a colour."""
    found = [[curves_of(run) for run in group.runs] for group in groups]
    panels = []
    for name in dict.fromkeys(name for runs in found for run in runs for name in run):
        lines = [
            Curve(
                groups[colour].letter if number == 0 else "",
                [x for x, _ in run[name]],
                [y for _, y in run[name]],
                colour,
            )
            for colour, runs in enumerate(found)
            for number, run in enumerate(runs)
            if run.get(name)
        ]
        panels += [Panel(name, lines)] if lines else []
    if not panels:
        return []
    drawn = figures.curves(Curves(panels[:MOST_PANELS]))
    letters = ", ".join(f"{group.letter} = {recipe(group)}" for group in groups)
    return [element("h2", "Training"), pages.figure(drawn, f"A line for each run. {letters}.")]


def curves_of(run: Run) -> dict[str, list[tuple[float, float]]]:
    """The curves of a run by their names: (step, value), without what is no finite number."""
    found: dict[str, list[tuple[float, float]]] = {"loss": []}
    for record in run.records:
        valid, step = record.get("valid"), record.get("step")
        if "metric" in record or not isinstance(step, int | float):  # the last record is the result
            continue
        scores = {f"valid {name}": value for name, value in valid.items()} if isinstance(valid, dict) else {}
        for name, value in {"loss": record.get("loss"), **scores}.items():
            if isinstance(value, int | float) and isfinite(value):
                found.setdefault(name, []).append((float(step), float(value)))
    return found


def differing(groups: Sequence[Group]) -> Markup:
    """The options that not all configurations have alike, a column for each configuration."""
    names = list(dict.fromkeys(name for group in groups for name in group.runs[0].options if name not in REPEATED))
    listed = ([name, *(group.runs[0].options.get(name, "–") for group in groups)] for name in names)
    rows = [row for row in listed if len(set(row[1:])) > 1]
    if not rows:
        return element("p", "None: all runs have one configuration, and differ in seed or fold.")
    return pages.table(["option", *(group.letter for group in groups)], rows)


def each(groups: Sequence[Group]) -> Markup:
    """A line for each run."""
    rows = []
    for group in groups:
        for run in group.runs:
            repeated = ", ".join(f"{name.split('.')[1]} {run.options[name]}" for name in REPEATED
                                 if name in run.options)  # fmt: skip
            alone = Group(group.letter, [run])
            steps = run.result.steps if run.result else max((r.get("step", 0) for r in run.records), default=0)
            figures = [in_words(alone, "test"), in_words(alone, "valid"), str(steps)]
            rows.append([group.letter, str(run.folder), repeated, *figures])
    return pages.table(["", "run", "repetition", "test", "validation", "steps"], rows, ("test", "validation", "steps"))
