"""The page of a search: how far it came, which options mattered, and all trials at once."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.apps.numbers import shown
from edgewise.apps.report import figures, pages
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
    body = [
        element("p", "Edgewise tune", class_="eyebrow"),
        element("h1", f"{study.search.recipe.name}: {counted(len(done), 'trial')}"),
        element("p", READING + (FIRST if study.search.has_recipe else ""), class_="lead"),
        *again(study),
        pages.headline(numbers),
        *plots(study),
        element("h2", "The best trials"),
        table(study),
        *refusals(study),
        element("h2", "Reproduction"),
        element("pre", f"edgewise train {study.folder / (study.search.recipe.name + '-tuned.yaml')}"),
        footer(),
    ]
    write_file(path, pages.page(f"{study.search.recipe.name} · tuned", *body).encode(errors="replace"))


FIRST = " The first is the recipe as it stands."
IMPORTANCE = "How much of what tells the better trials from the rest each option explains."


def again(study: Study) -> list[Markup]:
    """How often the test data have been read, where a search went on after a reading."""
    read = len(list((study.folder / "best").iterdir()))
    text = f"The test data have been read {read} times, as the search went on after a reading: the later flatter."
    return [element("p", text)] if read > 1 else []


def plots(study: Study) -> Iterator[Markup]:
    """Optuna's own: trials in their order, which options mattered, and all options at once."""
    from matplotlib import pyplot
    from optuna.visualization import matplotlib as drawn

    values = {one.value for one in study.complete()}
    enough = len(study.complete()) >= FEWEST and len(values) > 1
    made: dict[str, tuple[Any, str, bool]] = {
        "Trials": (drawn.plot_optimization_history, "Each trial's validation figure, and the best so far.", True),
        "Importance": (drawn.plot_param_importances, IMPORTANCE, enough),
        "Options": (
            drawn.plot_parallel_coordinate,
            "A line for each trial that was not stopped early.",
            len(values) > 1,
        ),
    }
    for title, (plot, caption, possible) in made.items():
        if possible:
            with pyplot.rc_context(), warnings.catch_warnings():  # it chooses a style for all
                warnings.simplefilter("ignore", UserWarning)  # of an axis with one value
                picture = plot(study.optuna).get_figure()
                picture.set_size_inches(9, 4)
                svg = figures.svg(picture, title)
                pyplot.close(picture)
            yield element("h2", title)
            yield pages.figure(svg, caption)


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
