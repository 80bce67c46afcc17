"""`report.html`: what a run trained, what it reached and what its task shows of it, on one page that stands alone."""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import yaml

import edgewise
from edgewise.apps import recipes
from edgewise.apps.arguments import typed_places
from edgewise.apps.console import compared, shown
from edgewise.apps.options import configure
from edgewise.apps.recipes import SYSTEMS, System
from edgewise.apps.report import pages
from edgewise.apps.report.pages import Markup, element
from edgewise.apps.report.render import part
from edgewise.configuration import Choice
from edgewise.errors import ConfigError
from edgewise.tasks import Task
from edgewise.tasks.core.abilities import Draws, Generates, OneGraphForAll
from edgewise.tasks.core.drawing import Colour, Content, Curve, Curves, Drawing, Panel, Section, TextTable
from edgewise.tasks.core.measures import in_rows
from edgewise.training import LoadedRun, Moved, RunConfig, finished, load_run, read_metrics
from edgewise.training.calibration import told
from edgewise.training.ensemble import joinable
from edgewise.training.simple import Simple, beside

Records = list[dict[str, Any]]
MARK = "The dotted line marks the weights that were saved: the best on the validation data."


def report(run: Path, accept: bool = False, folder: Moved | None = None, task: Task | None = None) -> list[str]:
    """Write a run's figures and report; the problems met on the way, which its page names too.

    Symbols     accept, folder = as in `load_run`; task = that of the run where it is at hand, which is not read anew
    Errors      CheckpointError: what `load_run` refuses
    """
    with torch.random.fork_rng(devices=[]):  # the random numbers of a training that goes on stay as they are
        shared = None if task is None or joinable(task) else task  # those are calibrated as they are loaded
        loaded = load_run(run, device="cpu", accept=accept, folder=folder, shared=shared)
        page = RunPage(run, loaded, read_metrics(run), folder)
        page.compare()
        sections = [made for section in page.sections() for made in page.section(section.title, section.make)]
    pages.write(run / "report.html", page.title, "run", page.title, *heading(page), *sections, *reproduction(page))
    return page.problems


class RunPage:
    """A run, and the sections of its page: one that fails becomes a sentence that says so."""

    def __init__(self, run: Path, loaded: LoadedRun, records: Records, folder: Moved | None = None) -> None:
        self.run, self.loaded, self.records = run, loaded, records
        self.places = typed_places(folder)  # of its data, after a command on the run
        self.problems: list[str] = []
        self.simple: Simple | None = None
        task, config = loaded.task, loaded.config
        self.graph = task.graph(loaded.pattern) if isinstance(task, OneGraphForAll) else None
        self.name = self.title = config.recipe or run.resolve().name
        self.description, self.layers = f"{config.model.name} on {config.task.name}", list[System]()
        self.packaged = recipes.read(self.name) if self.name in recipes.names() else None
        if self.packaged is None:
            return
        usual = configure(self.packaged)  # a folder only says where the same data lie
        elsewhere = named(usual.task) | {"folder": None} != named(config.task) | {"folder": None}
        remade = named(usual.model) != named(config.model)
        self.title += f" on {task.name}" if elsewhere else ""
        self.description += f", with the other settings of the recipe {self.name}"
        if not elsewhere and not remade:
            self.description = self.packaged.description
        self.layers = [] if remade else layers_of(self.packaged)

    def compare(self) -> None:
        """Try simple methods on the data of a finished run, unless it knows what they reach."""
        if finished(self.run) is None:
            return
        try:
            self.simple = beside(self.run, self.loaded.task, self.loaded.config)
        except Exception as error:  # the run is worth more than what stands beside it
            self.problem("a simple method", error)

    def sections(self) -> list[Section]:
        """How the training went, then what the task shows of it."""
        task = self.loaded.task
        return [
            Section("Training", lambda: training_curves(self.records, ("loss", *(task.curves or (task.metric,))))),
            Section("Measures", lambda: measured(self.records)),
            *self.drawn(),
        ]

    def drawn(self) -> list[Section]:
        """What the task shows of the run."""
        test, task = self.records[-1].get("test", {}) if self.records else {}, self.loaded.task
        if not isinstance(task, Draws):
            return []
        try:
            return list(task.draw(self.loaded.model.eval(), self.loaded.pattern, test))
        except Exception as error:  # a task's mistake must not cost the page, nor the page the run
            self.problem(task.name, error)
            return []

    def section(self, title: str, make: Callable[[], Iterable[Content]]) -> list[Markup]:
        """A titled part of the page; its drawings are saved in the run folder too."""
        try:
            made = [part(content, self.run) for content in make()]
        except Exception as error:  # nor must one picture
            made = [self.problem(title, error)]
        return [element("h2", title), *made] if made else []

    def problem(self, title: str, error: Exception) -> Markup:
        """What failed, as a sentence."""
        problem = f"{title}: could not be drawn ({type(error).__name__}: {error})"
        self.problems.append(f"{self.run / 'report.html'}: {problem}")
        return element("p", problem, class_="problem")


def heading(page: RunPage) -> list[Markup]:
    """The sentence that describes the recipe, and the few numbers that matter."""
    config, result, graph = page.loaded.config, finished(page.run), page.graph
    numbers = {}
    if result is not None:
        numbers[result.measure] = shown(result.metric, result.value)
        numbers[f"validation {result.metric}"] = shown(result.metric, result.valid)
    numbers["weights"] = f"{sum(weight.numel() for weight in page.loaded.model.parameters()):,}"
    if graph is not None:
        numbers["edges"] = f"{graph.num_edges:,}"
    numbers["seed"] = str(config.train.seed)
    if result is not None:
        numbers["seconds"] = f"{result.seconds:.1f}"
    return [
        element("p", page.description, class_="lead"),
        pages.headline(numbers),
        element("h2", "What was trained"),
        properties(page),
    ]


def properties(page: RunPage) -> Markup:
    """Data, graph, equation, model and optimiser, each in a line."""
    config, task, graph = page.loaded.config, page.loaded.task, page.graph
    rows = [("data", task.describe())]
    if graph is not None:
        density = 100 * graph.num_edges / max(graph.num_receivers * graph.num_senders, 1)
        size = f"{graph.num_receivers:,} nodes, {graph.num_edges:,} edges, {density:.3g} % of all pairs"
        rows.append(("graph", f"{config.graph.name}: {size}"))
    rows += [(row.name, pages.equation(row.equation)) for row in page.layers]
    rows.append(("model", sentence(config.model)))
    train = config.train
    rows.append(("optimiser", sentence(config.optimizer)))
    rows.append(("schedule", sentence(config.schedule)))
    steps = page.records[-1]["step"] if page.records else 0
    size = "the whole graph" if task.epoch_size == 1 else f"{train.batch} {task.unit}"
    rows.append(("training", f"{steps:,} of at most {train.steps:,} steps of {size}, {config.machine.precision}"))
    if page.simple is not None and (reached := finished(page.run)):
        rows.append(("beside it", compared(page.simple, reached)))
    rows.append(("software", f"edgewise {edgewise.__version__}, torch {torch.__version__}"))
    return pages.properties(rows)


def layers_of(recipe: recipes.Recipe) -> list[System]:
    """The layers among the systems that a recipe runs; of several with one id its own, or else the first, of which the
    others are variants."""
    rows = [row for row in SYSTEMS if row.id in recipe.system]
    first = {row.id: row for row in reversed(rows)}
    own = {row.id for row in rows if row.recipe == recipe.name}
    chosen = [row for row in rows if row.recipe == recipe.name or (row.id not in own and row is first[row.id])]
    return [row for row in chosen if row.file.startswith("layers/")]


def named(choice: Choice) -> dict[str, Any]:
    """What is chosen by name in a choice and in those among its options, without numbers and flags."""
    inside = {name: Choice(option) if isinstance(option, str) else option for name, option in choice.options.items()}
    return {"": choice.name} | {name: named(part) for name, part in inside.items() if isinstance(part, Choice)}


def sentence(choice: Choice) -> str:
    """A name and the options that are set.

    >>> sentence(Choice("gnn", {"layer": Choice("gat", {"heads": 8}), "width": 64, "norm": "none", "loops": True}))
    'gnn: layer gat (heads 8), width 64, loops'
    >>> sentence(Choice("constant"))
    'constant'
    """
    told = _told(choice)
    return f"{choice.name}: {told}" if told else choice.name


def _told(choice: Choice) -> str:
    options = {name: value for name, value in choice.options.items() if _is_set(value)}
    return ", ".join(name if value is True else f"{name} {_value(value)}" for name, value in options.items())


def _is_set(value: Any) -> bool:
    return (value.name if isinstance(value, Choice) else value) not in (None, False, "none", "", 0.0, (), [])


def _value(value: Any) -> str:
    if isinstance(value, Choice):
        told = _told(value)
        return f"{value.name} ({told})" if told else value.name
    return " and ".join(map(_value, value)) if isinstance(value, tuple | list) else str(value)


def training_curves(records: Records, scores: Iterable[str]) -> list[Drawing]:
    """Loss and other scores over the steps."""
    steps = [record for record in records if "metric" not in record]

    def curve(label: str, colour: Colour, values: list[Any]) -> list[Curve]:
        points = [(record["step"], value) for record, value in zip(steps, values, strict=True) if value is not None]
        return [Curve(label, [step for step, _ in points], [y for _, y in points], colour)] if points else []

    train = {"loss": curve("train", "accent", [record.get("loss") for record in steps])}
    valid = {name: curve("valid", "warm", [r.get("valid", {}).get(name) for r in steps]) for name in scores}
    panels = [Panel(name, train.get(name, []) + curves) for name, curves in valid.items()]
    best = records[-1].get("best_step") if records else None
    caption = "" if best is None else MARK
    drawn = [panel for panel in panels if panel.curves]
    return [Drawing("curves", Curves(drawn, best), caption)] if drawn else []


def measured(records: Records) -> list[TextTable]:
    """Every measure of the test data, or of the validation data where there are no others, with its interval."""
    last = records[-1] if records else {}
    found, lines = last.get("measures"), [(line,) for line in told(last)]
    made = [TextTable(("measure", "value", "95 % of a bootstrap"), [*in_rows(found)])] if found else []
    return [*made, *([TextTable(("how sure it is",), lines)] if lines else [])]


def reproduction(page: RunPage) -> list[Markup]:
    """The configuration, and the commands that go on from here."""
    config, run = page.loaded.config, shlex.quote(str(page.run))
    commands = [f"edgewise evaluate {run}", f"edgewise predict {run} INPUT", f"edgewise explain {run} INPUT"]
    if isinstance(page.loaded.task, Generates):
        commands.append(f"edgewise generate {run} {page.loaded.task.generates}")
    commands = [command + page.places for command in commands]
    if page.packaged:
        commands.insert(0, " ".join(["edgewise train", page.name, *changes(config, page.packaged)]))
    written = yaml.safe_dump(config.to_plain(), sort_keys=False, allow_unicode=True)
    return [
        element("h2", "Reproduction"),
        element("pre", "\n".join(commands)),
        element("p", element("a", "Explanations of its predictions", href="explanations/index.html")),
        element("details", element("summary", "All options of this run"), element("pre", written)),
    ]


def changes(config: RunConfig, recipe: recipes.Recipe) -> list[str]:
    """The command line's options that make this configuration of a recipe."""
    overrides: list[tuple[str, str]] = []
    mine = config.to_plain()
    while True:
        try:
            usual = configure(recipe, overrides).to_plain()
        except ConfigError:  # the last one is a choice with an option that has no default, such as a window's radius
            path, options = overrides[-1][0], mine
            for name in path.split("."):
                options = options[name]
            overrides += [(f"{path}.{name}", as_typed(value)) for name, value in options.items() if name != "name"]
            usual = configure(recipe, overrides).to_plain()
        change = next((one for one in differences(mine, usual) if one not in overrides), None)
        if change is None:
            return [f"--{option} {shlex.quote(text)}" for option, text in overrides]
        overrides.append(change)


def as_typed(value: object) -> str:
    """A value as the command line takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def differences(mine: dict[str, Any], usual: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Where plain settings differ, as options of the command line: another choice before its own options."""
    for name, value in mine.items():
        before = usual.get(name)
        if isinstance(value, dict):
            if isinstance(before, dict) and before.get("name") == value.get("name"):
                yield from differences(value, before, f"{path}{name}.")
            else:
                yield f"{path}{name}", value["name"]
        elif value != before:
            yield f"{path}{name}", as_typed(value)
