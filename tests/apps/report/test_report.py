import re
import shlex
from html import escape

import pytest
import torch

from apps.markup import Page
from edgewise.apps.command import runs
from edgewise.apps.command.main import main
from edgewise.apps.options import configure
from edgewise.apps.recipes import read
from edgewise.apps.report import report as module
from edgewise.apps.report.report import changes, layers_of, report
from edgewise.tasks import NodeClassification
from tasks.miniature import write_planetoid

EXPECTED = {
    # run: headings of its page between "Training" and "Reproduction", figures in its folder
    "karate": (["Measures", "Attention", "Confusion matrix"], {"attention", "confusion"}),
    "digits": (["Measures", "Attention", "Confusion matrix"], {"attention", "confusion"}),
    "text": (["Attention", "Generated text"], {"attention"}),
    "gnn": (["Measures", "Attention", "Confusion matrix"], {"graph", "confusion"}),
    "granular": (["Roll-out"], {"animation", "rollout", "laws"}),
    "graphs": (["Generated graphs"], {"generated"}),
    "mlp": (["Measures", "Attention", "Confusion matrix"], {"examples", "confusion"}),
}


@pytest.mark.parametrize("run", EXPECTED)
def test_a_page_stands_alone_and_holds_its_parts(run: str, trained) -> None:
    folder = trained(run)
    text = (folder / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    headings, figures = EXPECTED[run]
    assert page.texts["h2"] == ["What was trained", "Training", *headings, "Reproduction"]
    assert page.tags.isdisjoint({"script", "link", "iframe", "object", "embed", "base", "form"})
    assert not any(name.startswith("on") for name in page.attributes)
    linked = {"explanations/index.html"}  # beside the report, in the run's own folder
    references = page.values("src", "href", "xlink:href", "action", "data", "srcset", "poster")
    assert all(one.startswith(("#", "data:image/png;base64,")) for one in set(references) - linked)
    assert not re.search(r"url\((?!#)|@import|expression\(|javascript:", text)
    assert "default-src 'none'" in page.policy
    assert figures | {"curves"} == {path.stem for path in (folder / "figures").glob("*.svg")}
    assert 'class="problem"' not in text
    assert "Choice(" not in text and "={" not in text  # options in words, not as Python writes them
    sections = re.findall(r"^(task|model|graph|optimizer|train|evaluation):", text, re.MULTILINE)
    assert sections == ["task", "model", "graph", "optimizer", "train", "evaluation"]


@pytest.mark.parametrize("run", ["digits", "gnn"])
def test_every_reference_inside_the_page_has_its_one_target(run: str, trained) -> None:
    text = (trained(run) / "report.html").read_text(encoding="utf-8")
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'href="#([^"]*)"', text)) | set(re.findall(r"url\(#([^)]*)\)", text))
    assert wanted <= set(ids)


def test_the_numbers_are_the_runs_own(trained) -> None:
    folder = trained("karate")
    result = runs.training.finished(folder)
    loaded = runs.training.load_run(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert f"<dt>test accuracy</dt><dd>{100 * result.test:.1f} %</dd>" in text
    assert f"<dt>weights</dt><dd>{sum(w.numel() for w in loaded.model.parameters()):,}</dd>" in text
    assert "190 edges" in text


def test_a_figure_that_fails_leaves_the_page_and_a_sentence(own, monkeypatch) -> None:
    folder = own("karate")

    def faulty(*given: object) -> None:
        raise ZeroDivisionError("a <fault>")

    monkeypatch.setattr(NodeClassification, "attention", faulty)
    problems = report(folder)
    assert len(problems) == 1
    assert "Attention: could not be drawn (ZeroDivisionError: a <fault>)" in problems[0]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "could not be drawn (ZeroDivisionError: a &lt;fault&gt;)" in page
    assert "Confusion matrix" in page
    monkeypatch.setattr(NodeClassification, "draw", faulty)
    problems = report(folder)
    assert problems == [f"{folder / 'report.html'}: karate: could not be drawn (ZeroDivisionError: a <fault>)"]
    assert "Reproduction" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_report_does_not_touch_the_random_numbers_of_its_caller(own) -> None:
    folder = own("text")
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    report(folder)
    assert torch.rand(1) == expected


def test_the_command_that_repeats_a_run_names_what_was_changed() -> None:
    recipe = read("karate")
    overrides = [("model.name", "gnn"), ("model.width", "8"), ("train.seed", "4"), ("optimizer.betas", "[0.8, 0.9]")]
    told = changes(configure(recipe, overrides), recipe)
    assert told == ["--model gnn", "--model.width 8", "--optimizer.betas '[0.8, 0.9]'", "--train.seed 4"]
    assert changes(configure(recipe), recipe) == []
    near = configure(recipe, [("graph", "window"), ("graph.radius", "3")])  # an option that has no default
    assert configure(recipe, options_of(changes(near, recipe))) == near


def options_of(told: list[str]) -> list[tuple[str, str]]:
    """What the command line reads of the options that a report names."""
    return [
        (option.removeprefix("--"), shlex.split(text)[0]) for option, _, text in (line.partition(" ") for line in told)
    ]


def test_of_two_systems_with_one_id_the_recipes_own_is_shown() -> None:
    assert [row.name for row in layers_of(read("cora-gatv2"))] == ["GATv2"]
    assert [row.id for row in layers_of(read("digits-vit"))] == ["B2", "B3"]
    named = [
        row.name for row in layers_of(read("karate"))
    ]  # whose own none of them is: no variant that it does not have
    assert named == ["Multi-head scaled dot-product attention", "Transformer block, pre/post-norm"]
    assert layers_of(read("digits-memory")) == []  # its own is a model


@pytest.mark.parametrize(
    ("options", "title", "sentence", "layers"),
    [
        (
            [],
            "cora-gcn",
            "Graph convolution on Cora's citations, the network of Kipf and Welling",
            ["Graph convolution (GCN)"],
        ),
        (["--model.width", "4"], "cora-gcn", "Graph convolution on Cora's citations", ["Graph convolution (GCN)"]),
        (
            ["--task.name", "karate"],
            "cora-gcn on karate",
            "gnn on karate, with the other settings of the recipe",
            ["Graph convolution (GCN)"],
        ),
        (["--task.name", "karate", "--model.layer", "gat"], "cora-gcn on karate", "gnn on karate, with the other", []),
    ],
)
def test_title_sentence_and_equations_are_those_of_what_ran(tmp_path, options, title, sentence, layers) -> None:
    """A recipe's sentence used to stand above a run on another task, and its equations above another layer."""
    data = [] if "karate" in options else ["--task.folder", str(write_planetoid(tmp_path / "planetoid"))]
    assert main(["train", "cora-gcn", "--train.steps", "1", "--run", str(tmp_path / "run"), *options, *data]) == 0
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"<h1>{title}</h1>" in text and f"<title>{title} · Edgewise</title>" in text
    assert f'<p class="lead">{escape(sentence)}' in text
    shown = [row.name for row in layers_of(read("cora-gcn")) if f"<th>{row.name}</th>" in text]
    assert shown == layers


@pytest.mark.parametrize(("metric", "titles"), [("rmse", ["loss", "rmse"]), ("loss", ["loss"])])
def test_the_curve_is_that_of_the_tasks_own_metric(metric, titles):
    valid = {"loss": 2.0, metric: 1.0}
    records = [{"step": 1, "loss": 3.0}, {"step": 1, "valid": valid}, {"step": 2, "valid": valid}]
    records.append({"step": 2, "metric": metric, "best_step": 1, "valid": valid})
    (drawn,) = module.training_curves(records, ("loss", metric))
    assert [panel.title for panel in drawn.figure.panels] == titles
    assert [curve.label for curve in drawn.figure.panels[0].curves] == ["train", "valid"]
    assert drawn.figure.mark == 1
