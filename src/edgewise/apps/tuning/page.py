"""The page of a search: how far it came, which options mattered, and all trials at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.apps.numbers import shown
from edgewise.apps.report import figures, pages
from edgewise.apps.report.figures import ACCENT, INK, MUTED, RULE, WARM
from edgewise.apps.report.pages import Markup, element
from edgewise.apps.report.report import footer
from edgewise.apps.tuning.study import Study
from edgewise.errors import counted
from edgewise.files import write_file
from edgewise.training import Result

FEWEST = 10  # trials from which on the importance of options is estimated
LISTED = 15
READING = (
    "Each trial trains the recipe with other options and is compared with the rest by the validation data alone. "
    "The best trial's options were then trained with seeds that no trial had, and "
    "the test data were read with those alone."
)


def write_page(path: Path, study: Study, results: Sequence[Result]) -> None:
    """Write the page; it stands alone."""
    ranked, done, metric = study.complete(), study.done(), study.metric
    refused = len(study.refused())
    stopped = f"{len(done)}, {len(done) - len(ranked) - refused} stopped early"
    own = study.recipes_own()
    numbers = {
        **({} if own is None else {"the recipe, validation": shown(metric, own)}),
        f"trial {ranked[0].number}, validation": shown(metric, ranked[0].value),
        results[0].measure: shown(metric, float(np.mean([result.value for result in results]))),
        "trials": stopped + (f", {refused} did not run" if refused else ""),
    }
    weights = importance(study)
    body = [
        element("p", "Edgewise tune", class_="eyebrow"),
        element("h1", f"{study.search.recipe.name}: {counted(len(done), 'trial')}"),
        element("p", READING + (FIRST if study.search.has_recipe else ""), class_="lead"),
        *again(study),
        pages.headline(numbers),
        element("h2", "Trials"),
        pages.figure(figures.svg(history(study), "history"), "Each trial's validation figure, and the best so far."),
        *([pages.figure(figures.svg(bars(weights), "importance"), IMPORTANCE)] if weights else []),
        element("h2", "Options"),
        pages.figure(
            figures.svg(parallel(study), "parallel"),
            LINES,
        ),
        element("h2", "The best trials"),
        table(study),
        *refusals(study),
        element("h2", "Reproduction"),
        element("pre", f"edgewise train {study.folder / (study.search.recipe.name + '-tuned.yaml')}"),
        footer(),
    ]
    write_file(path, pages.page(f"{study.search.recipe.name} · tuned", *body).encode(errors="replace"))


FIRST = " The first is the recipe as it stands."
LINES = "A line for each trial that was not stopped early; the best in colour."
IMPORTANCE = "How much of what tells the better trials from the rest each option explains (PED-ANOVA)."


def again(study: Study) -> list[Markup]:
    """How often the test data have been read, where a search went on after a reading."""
    read = len(list((study.folder / "best").iterdir()))
    text = f"The test data have been read {read} times, as the search went on after a reading: the later flatter."
    return [element("p", text)] if read > 1 else []


def importance(study: Study) -> dict[str, float]:
    """The importance of each option, where there are enough trials to tell."""
    values = {one.value for one in study.complete()}
    if len(study.complete()) < FEWEST or len(values) < 2:
        return {}
    found: dict[str, float] = study.library.importance.get_param_importances(study.optuna)
    return found


def history(study: Study) -> Any:
    """Trials in their order, and the running best."""
    complete = sorted(study.complete(), key=lambda one: one.number)
    numbers, values = [one.number for one in complete], [one.value for one in complete]
    best = (np.maximum if study.maximise else np.minimum).accumulate(values)
    with figures.drawing(2.4) as (figure, grid):
        axes = grid[0][0]
        axes.plot(numbers, values, "o", color=MUTED, markersize=3, markeredgewidth=0)
        axes.step(numbers, best, where="post", color=ACCENT)
        axes.set_title(f"validation {study.metric}")
        axes.set_xlabel("trial")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", color=RULE, linewidth=0.6)
        axes.tick_params(length=0)
        axes.spines["left"].set_visible(False)
    return figure


def bars(weights: dict[str, float]) -> Any:
    """The importance of each option."""
    names = sorted(weights, key=weights.__getitem__)
    with figures.drawing(0.5 + 0.22 * len(names)) as (figure, grid):
        axes = grid[0][0]
        axes.barh(range(len(names)), [weights[name] for name in names], color=ACCENT, height=0.6)
        axes.set_yticks(range(len(names)), names)
        axes.set_title("importance")
        axes.tick_params(length=0)
        axes.spines["left"].set_visible(False)
    return figure


def parallel(study: Study) -> Any:
    """Parallel coordinates: an axis for each option, the validation figure on the last."""
    ranked, dimensions = study.complete(), study.search.dimensions
    values = np.array([one.value for one in ranked])
    low, high = values.min(), values.max()
    places = (values - low) / (high - low or 1.0)
    with figures.drawing(0.5 + 0.42 * (len(dimensions) + 1)) as (figure, grid):
        axes = grid[0][0]
        rows = range(len(dimensions), -1, -1)
        for rank in range(len(ranked) - 1, -1, -1):
            x = [dimension.place(ranked[rank].params[dimension.option]) for dimension in dimensions]
            colour, width = (WARM, 1.8) if rank == 0 else (MUTED, 0.7)
            alpha = 1.0 if rank == 0 else 0.15 + 0.5 * (1 - rank / len(ranked))
            axes.plot([*x, places[rank]], rows, color=colour, linewidth=width, alpha=alpha)
        for row, dimension in zip(rows, dimensions, strict=False):
            _mark(axes, row, dimension.choices or (f"{dimension.low:g}", f"{dimension.high:g}"))
        _mark(axes, 0, [shown(study.metric, value) for value in (low, high)])
        axes.set_yticks(rows, [*(dimension.option for dimension in dimensions), f"validation {study.metric}"])
        axes.set_xticks([])
        axes.tick_params(length=0)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
    return figure


def _mark(axes: Any, row: int, texts: Sequence[str]) -> None:
    """An axis of parallel coordinates, and what lies along it."""
    axes.axhline(row, color=RULE, linewidth=0.8, zorder=0)
    place: dict[str, Any] = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center"}
    for number, text in enumerate(texts):
        axes.annotate(text, (number / max(1, len(texts) - 1), row), fontsize=6.5, color=INK, **place)


def table(study: Study) -> Markup:
    """The best trials and their values."""
    options = [dimension.option for dimension in study.search.dimensions]
    metric = f"valid {study.metric}"
    rows = []
    for one in study.complete()[:LISTED]:
        values = (one.params[option] for option in options)
        texts = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in values)
        rows.append([str(one.number), shown(study.metric, one.value), *texts])
    return pages.table(["trial", metric, *(option.rpartition(".")[2] for option in options)], rows, ("trial", metric))


def refusals(study: Study) -> list[Markup]:
    """Why values did not run, each reason once."""
    reasons = dict.fromkeys(study.refused().values())
    if not reasons:
        return []
    return [element("h2", "What did not run"), element("ul", *(element("li", reason) for reason in reasons))]
