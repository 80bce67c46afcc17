"""`edgewise tune`: trials, then the best options as a recipe, one reading of the test data with it, and a page."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from edgewise import training
from edgewise.apps import recipes
from edgewise.apps.command.options import MOST_TRIALS, TRIALS
from edgewise.apps.command.runs import carry_out, one_of, rehearse, sentence, summary
from edgewise.apps.console import shown
from edgewise.apps.options import Overrides, configure
from edgewise.apps.report import figures, pages
from edgewise.apps.report.compare import MOST_PANELS
from edgewise.apps.report.pages import Markup, element, join
from edgewise.apps.tuning import space
from edgewise.apps.tuning.study import REFUSED, RUNS, Reached, Search, Study, folder_of
from edgewise.errors import ConfigError, counted
from edgewise.files import claimed, write_file
from edgewise.models import MODELS
from edgewise.tasks import Task
from edgewise.tasks.core.drawing import Curve, Curves, Panel
from edgewise.training import Result

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


SECONDS = 3600.0  # of a search without --time


def tune(
    recipe: str,
    sections: Overrides,
    search: Sequence[str],
    seeds: int,
    folds: int | None,
    trials: int | None,
    time: float | None,
    run: str | None,
) -> dict[str, Any]:
    """Search a recipe's options."""
    one_of(seeds, folds)
    written = recipes.read(recipe)
    config = configure(written, sections)
    dimensions = [space.written(text) for text in search] or space.usual(config)
    space.checked(written, sections, dimensions)
    chosen = Search(written, sections, dimensions, folds or seeds, bool(folds))
    decided = chosen.decided()
    if search and decided:
        raise ConfigError(f"{decided[0].option} is searched, but the folder of start.hub decides it: leave out one")
    task = rehearse(chosen.repetitions({})[-1])
    if task.summary:
        print("\n".join(task.summary))
    if not search:
        left = [one for one in dimensions if one not in decided]
        dimensions, left_out = space.possible(left, partial(takes, chosen, task))
        for line in [*(f"{one.option}: the folder of start.hub decides it" for one in decided), *left_out]:
            print(f"not searched: {line}")
        chosen = replace(chosen, dimensions=dimensions)
    study = Study(chosen, Path(run or f"runs/{written.name}-tuned"), task)
    study.open()
    try:
        print(f"{study.folder}: {', '.join(map(str, dimensions))}")
        for trial in study.carry_out(*limits(trials, time)):
            print(in_words(study, trial), flush=True)
    except (KeyboardInterrupt, BrokenPipeError) as stop:
        raise type(stop)("the same command goes on") from stop
    if others := study.elsewhere():
        print(f"{counted(len(others), 'trial')} running in other processes: the last to end reads the test data")
        return {"trials": len(study.done()), "running": others}
    with claimed(study.folder / RUNS, wait=True):  # which others may do, too
        return conclude(study)


def limits(trials: int | None, seconds: float | None) -> tuple[int, float]:
    """The most trials and seconds of a search: where a time is given alone, there are as many trials as it allows."""
    return trials or (TRIALS if seconds is None else MOST_TRIALS), seconds or SECONDS


def takes(search: Search, task: Task, option: str, value: space.Value) -> None:
    """Build the model of a task with one option changed: what does not go together is a ValueError."""
    model = search.with_values({option: value}).model
    if option.startswith("model."):
        settings, made = MODELS[model.name]
        made(settings(**model.options), task.signature)


def in_words(study: Study, trial: "FrozenTrial") -> str:
    """A trial in one line; the best so far has a star."""
    values = " ".join(f"{option.rpartition('.')[2]}={shortened(value)}" for option, value in trial.params.items())
    reached = trial.user_attrs.get(REFUSED, "stopped early")
    if trial.value is not None and trial.state == study.states.COMPLETE:
        star = " *" if study.complete()[0].trial.number == trial.number else ""
        reached = f"valid {study.metric} {shown(study.metric, trial.value)}{star}"
    return f"trial {folder_of(trial)}: {reached}  {values}"


def shortened(value: space.Value) -> str:
    """A value with the digits that matter."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def conclude(study: Study) -> dict[str, Any]:
    """The best trial's recipe, its runs with fresh seeds, which alone read the test data, and the page."""
    ranked, search = study.complete(), study.search
    if not ranked and (refused := study.refused()):
        number, why = next(iter(refused.items()))
        what = f"{len(refused)} of {len(study.done())} trials did not run with their values, and no other to its end"
        raise ConfigError(f"{what}; trial {number}: {why}")
    if not ranked:
        raise ConfigError("no trial was trained to its end: the same command goes on with them, give it more --time")
    best = ranked[0]
    path = study.folder / f"{search.recipe.name}-tuned.yaml"
    write_file(path, recipe_text(study, best).encode())
    results = []
    for config in search.repetitions(best.params, fresh=True):
        run = study.folder / "best" / str(best.number) / search.run_name(config)
        begun = (run / "config.yaml").is_file()
        train = partial(training.resume, run) if begun else partial(training.train, config, run)
        results.append(carry_out(run, partial(train, progress=False)))
        print(sentence(config.train.seed, results[-1]), flush=True)
    page = study.folder / "report.html"
    write_page(page, study, results)
    figures = summary(search.config, results)
    own = study.recipes_own()
    before = "" if own is None else f", {shown(study.metric, own)} as the recipe stands"
    print(f"\nvalid {study.metric}: {shown(study.metric, best.value)} in trial {best.number}{before}")
    print(f"{path}: edgewise train {path}\n{page}")
    return figures | {"trials": len(study.done()), "best": best.number, "options": best.params, "valid": best.value,
                      "recipe_file": str(path), "page": str(page)}  # fmt: skip


def recipe_text(study: Study, best: Reached) -> str:
    """The recipe with the best trial's values, as a file that `edgewise train` reads."""
    recipe = study.search.recipe
    content = {
        "description": f"{recipe.description or recipe.name}; options found by edgewise tune",
        "system": list(recipe.system),
        **study.search.with_values(best.params).to_plain(),
    }
    del content["recipe"]
    reached = f"validation {study.metric} {best.value!r}"
    head = f"# Trial {best.number} of {len(study.done())}: {reached}. No test data were read.\n"
    return head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)


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
    name = study.search.recipe.name
    body = [
        element("p", READING + (FIRST if study.search.has_recipe else ""), class_="lead"),
        *again(study),
        pages.headline(numbers),
        *plots(study),
        element("h2", "The best trials"),
        table(study),
        *refusals(study),
        element("h2", "Reproduction"),
        element("pre", f"edgewise train {study.folder / (name + '-tuned.yaml')}"),
    ]
    pages.write(path, f"{name} · tuned", "tune", f"{name}: {counted(len(done), 'trial')}", *body)


FIRST = " The first is the recipe as it stands."
IMPORTANCE = "How much of what tells the better trials from the rest each option explains."


def again(study: Study) -> list[Markup]:
    """How often the test data have been read, where a search went on after a reading."""
    read = len(list((study.folder / "best").iterdir()))
    text = f"The test data have been read {read} times, as the search went on after a reading: the later flatter."
    return [element("p", text)] if read > 1 else []


def plots(study: Study) -> Iterator[Markup]:
    """Trials in their order, which options mattered, and what was reached over the values of these."""
    ranked, dimensions = study.complete(), {one.option: one for one in study.search.dimensions}
    numbers, values = zip(*sorted((one.number, one.value) for one in ranked), strict=True)
    best = Curve("best", numbers, [*accumulate(values, max if study.maximise else min)], "accent")
    yield element("h2", "Trials")
    history = Panel(f"valid {study.metric}", [best], "trial", (numbers, values))
    yield pages.figure(figures.curves(Curves([history])), "Each trial's validation figure, and the best so far.")
    if len(set(values)) == 1:
        return
    options = [*dimensions]
    if len(ranked) >= FEWEST:
        from optuna.importance import get_param_importances

        shares = get_param_importances(study.optuna)
        yield join([element("h2", "Importance"), element("p", IMPORTANCE)])
        yield pages.table(["option", "share"], [[one, f"{share:.0%}"] for one, share in shares.items()], ["share"])
        options = [*shares]
    yield element("h2", "Options")
    drawn = figures.curves(Curves([over(dimensions[one], ranked) for one in options[:MOST_PANELS]]))
    yield pages.figure(drawn, "Each trial's validation figure over the values of the options that matter most.")


def over(dimension: space.Dimension, ranked: Sequence[Reached]) -> Panel:
    """What trials reached over the values of an option."""
    values, name = [one.params[dimension.option] for one in ranked], dimension.option.rpartition(".")[2]
    places: Sequence[Any] = values
    if dimension.choices:
        places = [dimension.choices.index(str(value)) for value in values]
        name = f"{name}: {', '.join(f'{n} = {choice}' for n, choice in enumerate(dimension.choices))}"
    elif dimension.by_magnitude:
        places, name = np.log10(places).tolist(), f"log₁₀ {name}"
    return Panel("", [], name, (places, [one.value for one in ranked]))


def table(study: Study) -> Markup:
    """The best trials and their values."""
    options = [dimension.option for dimension in study.search.dimensions]
    metric = f"valid {study.metric}"
    rows = []
    for one in study.complete()[:LISTED]:
        texts = (shortened(one.params[option]) for option in options)
        rows.append([str(one.number), shown(study.metric, one.value), *texts])
    return pages.table(["trial", metric, *(option.rpartition(".")[2] for option in options)], rows, ("trial", metric))


def refusals(study: Study) -> list[Markup]:
    """Why values did not run, each reason once."""
    reasons = dict.fromkeys(study.refused().values())
    if not reasons:
        return []
    return [element("h2", "What did not run"), element("ul", *(element("li", reason) for reason in reasons))]
