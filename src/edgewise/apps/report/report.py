"""`report.html`: what a run trained, what it reached and what attends to what, on one page that stands alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
import yaml

import edgewise
from edgewise.apps import recipes
from edgewise.apps.numbers import shown
from edgewise.apps.options import TABLES, configure, flat
from edgewise.apps.report import figures, generated, pages, rollouts
from edgewise.apps.report.attention import Drawing, draw_attention, readable
from edgewise.apps.report.clusters import draw_clusters
from edgewise.apps.report.heat_maps import heat_maps
from edgewise.apps.report.pages import Markup, element
from edgewise.apps.systems import SYSTEMS, System
from edgewise.graphs import Graph
from edgewise.models import Transformer
from edgewise.tasks import (
    CurveRegression,
    EnergiesAndForces,
    GraphClassification,
    GraphGeneration,
    GraphReconstruction,
    ImageClassification,
    LinkPrediction,
    NodeClassification,
    Simulation,
    Task,
    Text,
    Translation,
)
from edgewise.training import LoadedRun, RunConfig, finished, load_run, read_metrics, write_file

Records = list[dict[str, Any]]
SAMPLE = 300  # characters
SENTENCES = 8
TEMPERATURE = 0.8
POINTS = 2_000  # drawn at most


def report(run: Path) -> list[str]:
    """Write a run's figures and report; the problems met on the way, which its page names too."""
    with torch.random.fork_rng(devices=[]):  # whoever trains on must not notice
        found = Findings(run, load_run(run, device="cpu"), read_metrics(run))
        body = [*heading(found), *sections(found), *reproduction(found), footer()]
    write_file(run / "report.html", pages.page(f"{found.name} · Edgewise", *body).encode(errors="replace"))
    return found.problems


class Findings:
    """A run, and the parts of its page as they are drawn: a part that fails becomes a sentence that says so."""

    def __init__(self, run: Path, loaded: LoadedRun, records: Records) -> None:
        self.run = run
        self.loaded = loaded
        self.records = records
        self.problems: list[str] = []

    @property
    def name(self) -> str:
        return self.loaded.config.recipe or self.run.resolve().name

    @property
    def packaged(self) -> recipes.Recipe | None:
        """The recipe that was trained, if it is one that comes with Edgewise."""
        return recipes.read(self.name) if self.name in recipes.names() else None

    def graph(self) -> Graph | None:
        """The graph that the model read."""
        task = self.loaded.task
        if isinstance(task, NodeClassification | ImageClassification | LinkPrediction | Text):
            return task.graph(self.loaded.pattern)
        return None

    def part(self, title: str, make: Callable[[], Iterable[Drawing | Markup]]) -> list[Markup]:
        """A titled part of the page: drawings are saved in the run folder too."""
        try:
            made = [self.save(one) if isinstance(one, Drawing) else one for one in make()]
        except Exception as error:  # one picture must not cost the page, nor the page the run
            problem = f"{title}: could not be drawn ({type(error).__name__}: {error})"
            self.problems.append(f"{self.run / 'report.html'}: {problem}")
            made = [element("p", problem, class_="problem")]
        return [element("h2", title), *made] if made else []

    def save(self, drawing: Drawing) -> Markup:
        folder = self.run / "figures"
        folder.mkdir(exist_ok=True)
        drawn = figures.svg(drawing.figure, f"{self.run.name}-{drawing.name}")
        write_file(folder / f"{drawing.name}.svg", figures.standalone(drawn).encode())
        return pages.figure(drawn, drawing.caption)


def heading(found: Findings) -> list[Markup]:
    """The title, the sentence that describes the recipe, and the few numbers that matter."""
    config, result = found.loaded.config, finished(found.run)
    numbers = {}
    if result is not None:
        numbers[result.measure] = shown(result.metric, result.value)
        numbers[f"validation {result.metric}"] = shown(result.metric, result.valid)
    numbers["weights"] = f"{sum(weight.numel() for weight in found.loaded.model.parameters()):,}"
    graph = found.graph()
    if graph is not None:
        numbers["edges"] = f"{graph.num_edges:,}"
    numbers["seed"] = str(config.train.seed)
    if result is not None:
        numbers["seconds"] = f"{result.seconds:.1f}"
    described = found.packaged.description if found.packaged else f"{config.model.name} on {config.task.name}"
    return [
        element("p", "Edgewise run", class_="eyebrow"),
        element("h1", found.name),
        element("p", described, class_="lead"),
        pages.headline(numbers),
    ]


def sections(found: Findings) -> list[Markup]:
    """The parts of the page between its heading and how to repeat the run."""
    loaded = found.loaded
    return [
        *found.part("What was trained", lambda: [properties(found)]),
        *found.part("Training", lambda: training_curves(found.records)),
        *found.part("Who listens to whom", lambda: drawn_attention(loaded)),
        *found.part("Clusters", lambda: clusters(loaded)),
        *found.part("Where it looks", lambda: heat_maps(loaded)),
        *found.part("The fit", lambda: fit(loaded)),
        *found.part("Forces", lambda: forces(loaded)),
        *found.part("Going on by itself", lambda: simulated(found)),
        *found.part("Right and wrong", lambda: confusion(loaded)),
        *found.part("What it writes", lambda: sample(loaded)),
        *found.part("Graphs that it writes", lambda: written_graphs(found)),
    ]


def properties(found: Findings) -> Markup:
    """Data, graph, equation, model and optimiser, each in a line."""
    config, task = found.loaded.config, found.loaded.task
    graph = found.graph()
    rows = [("data", data_sentence(task))]
    if graph is not None:
        density = 100 * graph.num_edges / max(graph.num_receivers * graph.num_senders, 1)
        told = f"{graph.num_receivers:,} nodes, {graph.num_edges:,} edges, {density:.2g} % of all pairs"
        rows.append(("graph", f"{config.graph.name}: {told}"))
    rows += [(row.name, pages.equation(row.equation)) for row in layers_of(found.packaged)]
    rows.append(("model", options_sentence(config.model.name, config.model.options)))
    optimizer, train = config.optimizer, config.train
    rate = (
        f"learning rate {optimizer.learning_rate:g} ({config.schedule.name}), weight decay {optimizer.weight_decay:g}"
    )
    rows.append(("optimiser", f"{optimizer.name}, {rate}"))
    steps = found.records[-1]["step"] if found.records else 0
    size = "the whole graph" if isinstance(task, NodeClassification) else f"{train.batch} examples"
    rows.append(("training", f"{steps:,} of at most {train.steps:,} steps of {size}, {train.precision}"))
    rows.append(("software", f"edgewise {edgewise.__version__}, torch {torch.__version__}"))
    return pages.properties(rows)


def layers_of(recipe: recipes.Recipe | None) -> list[System]:
    """The layers among the systems that a recipe runs; of two with the same id, its own."""
    found = [row for row in SYSTEMS if recipe and row.id in recipe.system and row.file.startswith("layers/")]
    own = {row.id for row in found if recipe and row.recipe == recipe.name}
    return [row for row in found if row.id not in own or (recipe and row.recipe == recipe.name)]


def data_sentence(task: Task) -> str:
    """What the task reads, in a few words."""
    if isinstance(task, NodeClassification):
        nodes = task.nodes
        sizes = ", ".join(f"{len(rows):,} {split}" for split, rows in nodes.splits.items())
        return f"{task.name}: {nodes.graph.num_receivers:,} nodes of {len(nodes.classes)} classes ({sizes})"
    if isinstance(task, ImageClassification):
        sizes = ", ".join(f"{len(rows):,} {split}" for split, rows in task.images.splits.items())
        height, width = task.images.pixels.shape[1:]
        return f"{task.name}: {height} × {width} pixels in patches of {task.patch[0]} × {task.patch[1]} ({sizes})"
    if isinstance(task, GraphClassification):
        sizes = ", ".join(f"{len(rows):,} {split}" for split, rows in task.graphs.splits.items())
        return f"{task.name}: {len(task.graphs.members):,} graphs of {len(task.graphs.x):,} nodes ({sizes})"
    if isinstance(task, GraphGeneration | GraphReconstruction):
        sizes = ", ".join(f"{len(graphs):,} {split}" for split, graphs in task.splits.items())
        return f"{task.name}: graphs ({sizes})"
    if isinstance(task, EnergiesAndForces):
        sizes = ", ".join(f"{len(rows):,} {split}" for split, rows in task.splits.items())
        return f"{task.name}: {len(task.x):,} frames of {task.x.shape[1]} atoms ({sizes})"
    if isinstance(task, LinkPrediction):
        sizes = f"{task.cut.train.shape[1]:,} train, {task.cut.valid.shape[1]:,} valid, {task.cut.test.shape[1]:,} test"
        return f"{task.name}: {task.graph().num_receivers:,} nodes and their links ({sizes})"
    if isinstance(task, Translation):
        sizes = ", ".join(f"{len(sources):,} {split}" for split, (sources, _) in task.texts.items())
        return f"{task.name}: sentence pairs ({sizes}), {task.tokenizer.size:,} tokens ({task.manner.level})"
    if isinstance(task, Simulation):
        sizes = ", ".join(f"{len(films):,} {split}" for split, films in task.splits.items())
        return f"{task.name}: films of {task.films.shape[1]} frames of {task.films.shape[2]} particles ({sizes})"
    if isinstance(task, Text):
        return f"{task.name}: characters, {len(task.vocabulary)} different ones, {task.context} at once"
    return task.name


def options_sentence(name: str, options: Any) -> str:
    """A name and the options that say something: `transformer: width 64, heads 4, bias`."""
    said = {option: value for option, value in options.items() if value not in (None, False, "none", 0.0)}
    return f"{name}: " + ", ".join(option if value is True else f"{option} {value}" for option, value in said.items())


def training_curves(records: Records) -> list[Drawing]:
    """Loss and the task's metric over the steps."""
    metric = next((record["metric"] for record in records if "metric" in record), "accuracy")
    steps = [record for record in records if "metric" not in record]

    def curve(label: str, colour: str, value: Callable[[dict[str, Any]], Any]) -> figures.Curve:
        points = [(record["step"], value(record)) for record in steps if value(record) is not None]
        return label, [step for step, _ in points], [y for _, y in points], colour

    train = curve("train", figures.ACCENT, lambda record: record.get("loss"))
    loss = curve("valid", figures.WARM, lambda record: record.get("valid", {}).get("loss"))
    score = curve("valid", figures.WARM, lambda record: record.get("valid", {}).get(metric))
    panels = [("loss", [line for line in (train, loss) if line[1]])]
    panels += [(metric, [score])] if metric != "loss" and score[1] else []
    panels = [(title, lines) for title, lines in panels if lines]
    best = records[-1].get("best_step") if records else None
    caption = (
        "" if best is None else "The dotted line marks the weights that were kept: the best on the validation data."
    )
    return [Drawing("curves", figures.curves(panels, best), caption)] if panels else []


def drawn_attention(loaded: LoadedRun) -> list[Drawing]:
    """The attention on its graph, for the tasks that can be drawn."""
    drawn = draw_attention(loaded.task, loaded.pattern, loaded.model)
    return [] if drawn is None else [drawn]


def clusters(loaded: LoadedRun) -> list[Drawing]:
    """The clusters to which a model pools some graphs."""
    drawn = draw_clusters(loaded.task, loaded.pattern, loaded.model)
    return [] if drawn is None else [drawn]


@torch.no_grad()
def fit(loaded: LoadedRun) -> list[Drawing]:
    """The curve that was fitted beside the function, a cubic and the measurements."""
    task = loaded.task
    if not isinstance(task, CurveRegression):
        return []
    train, test = task.splits["train"], task.splits["test"]
    batch = next(task.batches("test", 1, loaded.pattern))
    places, truth = task.place[test], task.value[test]
    fitted, cubic = batch.read(loaded.model(batch.graph, batch.x))[:, 0], task.cubic(places)
    told = (("cubic", cubic, figures.MUTED), ("function", truth, figures.WARM), ("attention", fitted, figures.ACCENT))
    lines = [(name, places.tolist(), values.tolist(), colour) for name, values, colour in told]
    near, far = ((values - truth).square().mean().item() for values in (fitted, cubic))
    drawn = figures.fits(task.place[train].double().numpy(), task.value[train].double().numpy(), lines)
    return [Drawing("fit", drawn, f"Mean squared error: attention {near:.3f}, the best cubic {far:.3f}.")]


@torch.no_grad()
def forces(loaded: LoadedRun) -> list[Drawing]:
    """Learned forces over simulated ones, for test frames evenly apart."""
    task = loaded.task
    if not isinstance(task, EnergiesAndForces):
        return []
    batches = [*task.batches("test", 100, loaded.pattern)]
    learned = torch.cat([loaded.model(batch.graph, batch.x)[:, 1:].flatten() for batch in batches])
    truth = torch.cat([batch.target[:, 1:].flatten() for batch in batches])
    some = slice(None, None, -(-len(truth) // POINTS))
    error = float((learned - truth).square().mean().sqrt())
    told = f"{len(truth[some]):,} components of forces on atoms of the test frames; over all, the root mean square"
    drawn = figures.parity(truth[some].double().numpy(), learned[some].double().numpy(), "eV/Å")
    return [Drawing("forces", drawn, f"{told} error is {error:.4f} eV/Å.")]


@torch.no_grad()
def confusion(loaded: LoadedRun) -> list[Drawing]:
    """How the test examples of each class were classified."""
    task, model, names = loaded.task, loaded.model, classes_of(loaded.task)
    if not names or not task.has_test:
        return []
    counts = torch.zeros(len(names), len(names), dtype=torch.int64)
    for batch in task.batches("test", 500, loaded.pattern):
        predicted = batch.read(model(*batch.inputs)).argmax(-1)
        counts.index_put_((batch.target.reshape(-1), predicted), torch.ones_like(predicted), accumulate=True)
    table = counts.numpy()
    right = f"{int(np.trace(table)):,} of {int(table.sum()):,} test examples are on the diagonal, classified rightly."
    return [Drawing("confusion", figures.confusion(table, names), right)]


def simulated(found: Findings) -> list[Drawing | Markup]:
    """A learned simulator's films beside the truth: one that moves, one as a strip, and what they all measure."""
    task = found.loaded.task
    if not isinstance(task, Simulation):
        return []
    rollout = rollouts.roll_out(found.loaded)
    slower = f"The first test film, {rollouts.SLOWER} times slower than life."
    return [pages.figure(rollouts.animation(rollout), slower), *rollouts.drawings(rollout)]


def written_graphs(found: Findings) -> list[Drawing | Markup]:
    """What a model of graphs writes beside test graphs, and how both compare where that was measured."""
    if not isinstance(found.loaded.task, GraphGeneration):
        return []
    test = found.records[-1].get("test") if found.records else None
    return [*generated.drawings(found.loaded), *([generated.scores(test)] if test else [])]


def classes_of(task: Task) -> tuple[str, ...]:
    """The classes among which a task chooses; none where it does not."""
    if isinstance(task, NodeClassification):
        return task.nodes.classes
    if isinstance(task, ImageClassification):
        return task.images.classes
    return task.graphs.classes if isinstance(task, GraphClassification) else ()


def sample(loaded: LoadedRun) -> list[Markup]:
    """A prompt from the validation text, continued; or some validation sentences, translated."""
    task, model = loaded.task, loaded.model
    if isinstance(task, Translation):
        return translations(task, loaded)
    if not isinstance(task, Text) or not isinstance(model, Transformer):
        return []
    prompt = readable(task, loaded.pattern, task.context)
    continued = model.generate(
        prompt,
        SAMPLE,
        lambda length: task.graph(loaded.pattern, length),
        temperature=TEMPERATURE,
        generator=torch.Generator().manual_seed(0),
    )
    start = prompt.shape[-1]
    text = element("pre", element("b", task.decode(continued[0, :start])), task.decode(continued[0, start:]))
    told = (
        f"Validation text (coloured) and {SAMPLE} characters that the model adds to it, at temperature {TEMPERATURE}."
    )
    return [text, element("figcaption", told)]


def translations(task: Translation, loaded: LoadedRun) -> list[Markup]:
    """The first validation sentences, what the model makes of them, and what a person did."""
    sources, references = (side[:SENTENCES] for side in task.texts["valid"])
    written = [text for text, _ in task.translate(loaded.model, sources, loaded.pattern, "cpu")]
    rows = [list(row) for row in zip(sources, written, references, strict=True)]
    return [pages.table(["source", "written", "reference"], rows)]


def reproduction(found: Findings) -> list[Markup]:
    """The configuration, and the commands that go on from here."""
    config, run = found.loaded.config, found.run
    commands = [f"edgewise evaluate {run}", f"edgewise predict {run} INPUT"]
    if isinstance(found.loaded.task, Text):
        commands.append(f'edgewise generate {run} --prompt "..."')
    if isinstance(found.loaded.task, GraphGeneration):
        commands.append(f"edgewise generate {run} --count 10")
    if found.packaged:
        commands.insert(0, " ".join(["edgewise train", found.name, *changes(config, found.packaged)]))
    written = yaml.safe_dump(flat(config), sort_keys=False, allow_unicode=True)
    return [
        element("h2", "Again"),
        element("pre", "\n".join(commands)),
        element("details", element("summary", "All options of this run"), element("pre", written)),
    ]


def changes(config: RunConfig, recipe: recipes.Recipe) -> list[str]:
    """The command line's options that make this configuration of a recipe."""
    mine = flat(config)
    named = {part: mine[part]["name"] for part in TABLES}
    renamed = {part: name for part, name in named.items() if recipe.sections.get(part, {}).get("name", "given") != name}
    usual = flat(configure(recipe, [(f"{part}.name", name) for part, name in named.items()]))
    return [
        f"--{section}.{option} {shlex.quote(value if isinstance(value, str) else json.dumps(value))}"
        for section, options in mine.items()
        for option, value in options.items()
        if value != usual[section].get(option) or (option == "name" and section in renamed)
    ]


def footer() -> Markup:
    """What made the page."""
    return element("footer", f"Made by Edgewise {edgewise.__version__} with matplotlib {matplotlib.__version__}.")
