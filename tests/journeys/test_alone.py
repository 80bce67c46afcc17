"""A run stands alone: trained from files that are then deleted, from another working folder it predicts, explains,
serves and exports."""

import asyncio
import html
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import edgewise
from apps.markup import Page
from deployment.test_answering import run_script, same
from edgewise.apps import recipes
from edgewise.apps.command.inference import evaluate
from edgewise.apps.options import configure
from edgewise.deployment import export_run, predict_file
from edgewise.deployment.service import application
from edgewise.errors import DataError
from edgewise.explanations import scores
from edgewise.training import load_run, read_metrics, train
from journeys.own import KINDS, Kind

TABLE_TAGS = ("table", "thead", "tbody", "tr", "th", "td", "wbr")


class Journey(NamedTuple):
    """A run whose data are gone, and what it said while they were there."""

    kind: Kind
    run: Path
    new: Path  # files like those that trained
    said: dict[str, Any]

    @property
    def asked(self) -> str:
        """The input that predictions are asked for."""
        return f"{self.new}{self.kind.asked}" if self.kind.asked.startswith("/") else self.kind.asked


@pytest.fixture(scope="module", params=KINDS)
def journey(request, tmp_path_factory):
    kind, place, before = KINDS[request.param], tmp_path_factory.mktemp(request.param), Path.cwd()
    new = kind.make(place / "new")
    os.chdir(place)
    try:
        made = kind.make(Path("mine"))
        ends = {"task.source": made / "de/train.txt", "task.target": made / "el/train.txt"}
        places = [(option, str(ends.get(option, made))) for option in kind.places]
        few = [("train.steps", "2"), ("evaluation.every", "1"), ("train.batch", "4")]
        known = configure(recipes.read(kind.recipe)).schedule.options
        few += [("schedule.warmup", "0")] if "warmup" in known else []
        train(configure(recipes.read(kind.recipe), [*places, *kind.options.items(), *few]), Path("run"), progress=False)
        one = Journey(kind, place / "run", new, {})
        said = edgewise.load("run").predict([one.asked])[0]
        shutil.rmtree("mine")
        elsewhere = place / "elsewhere"
        elsewhere.mkdir()
        os.chdir(elsewhere)
        yield one._replace(said=said)
    finally:
        os.chdir(before)


def test_it_predicts_what_it_did(journey) -> None:
    assert edgewise.load(journey.run).predict([journey.asked]) == [journey.said]


def test_a_place_where_nothing_lies_is_refused(journey) -> None:
    for option in journey.kind.places:
        with pytest.raises(DataError, match=r"(?i)no such"):
            load_run(journey.run, folder={option.removeprefix("task."): "nowhere"})


def test_it_predicts_for_all_that_is_new(journey, tmp_path) -> None:
    file = journey.new
    if journey.kind.inputs:
        file = tmp_path / "inputs.txt"
        file.write_text(f"{journey.kind.inputs}\n" * 3)
    said = list[str]()
    rows = predict_file(edgewise.load(journey.run), file, tmp_path / "out.csv", say=said.append)
    assert rows >= 3 and len((tmp_path / "out.csv").read_text().splitlines()) == rows + 1
    assert not said


def test_it_explains(journey) -> None:
    loaded = load_run(journey.run, device="cpu")
    subject = loaded.task.subject(loaded.model, loaded.pattern, journey.asked)
    explained, _, _ = subject.explained(loaded.model, next(iter(subject.parts), None))
    assert scores(explained, "gradient", None, None).nodes.isfinite().all()


def test_its_explanation_names_what_it_read_and_adds_up(journey) -> None:
    why = edgewise.load(journey.run).explain(journey.asked)
    assert why.sums() and all(abs(one.remainder) < 1e-3 * max(1, abs(why.value)) for one in why.sums())
    named = {cell for one in why.listings() for row in one.cells for cell in row}
    assert {*filter(None, journey.kind.told.split(";"))} <= named
    parts = next((one for one in why.listings() if one.title == "Entries"), None)
    assert parts is None or sum(parts.scores) == pytest.approx(why.sums()[0].parts, abs=1e-4)


def test_a_notebook_shows_it_and_its_data_without_a_request(journey) -> None:
    trained = edgewise.load(journey.run)
    for shown in (trained, trained.task, trained.explain(journey.asked, method="gradient")):
        page = Page(shown._repr_html_())
        assert page.tags <= {"div", "p", "b", "pre", "details", "summary", "ul", "li", *TABLE_TAGS}
        assert page.attributes <= {"class"} and len(shown._repr_html_()) < 50_000
    assert html.escape(trained.task.summary[0] if trained.task.summary else trained.task.describe()) in (
        trained._repr_html_()
    )


def answered(app: Any, content: dict[str, Any]) -> tuple[int, Any]:
    """The status and the JSON of a request to a service in this process."""
    body, sent = json.dumps(content).encode(), list[dict[str, Any]]()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/predict", "raw_path": b"/predict", "query_string": b""}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(
        app(scope | {"headers": headers, "http_version": "1.1", "root_path": "", "scheme": "http"}, receive, send)
    )
    return sent[0]["status"], json.loads(b"".join(one.get("body", b"") for one in sent))


def test_it_serves(journey) -> None:
    row = "test:0" if journey.asked.startswith("/") else journey.asked  # a service reads no files of its machine
    trained = edgewise.load(journey.run)
    status, content = answered(application(trained), {"rows": [row]})
    assert status == 200 and content["predictions"] == json.loads(json.dumps(trained.predict([row])))


@pytest.mark.exports
def test_it_exports(journey, tmp_path) -> None:
    export_run(journey.run, "onnx", tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size and (tmp_path / "model.onnx.md").exists()
    given = journey.new
    if journey.kind.inputs:
        given = tmp_path / "inputs.txt"
        given.write_text(f"{journey.kind.inputs}\n" * 3)
    run_script(tmp_path / "model.onnx", given, tmp_path / "answers.csv")
    same(edgewise.load(journey.run), given, tmp_path / "answers.csv")


def test_it_measures_what_it_still_has_or_says_what_to_give(journey) -> None:
    if journey.kind.whole:
        measured = evaluate(str(journey.run), accept=False, data=None)["test"]
        assert measured == pytest.approx(read_metrics(journey.run)[-1]["test"])
    else:
        with pytest.raises(DataError, match="is gone, but for the few examples that the run keeps: give --task"):
            evaluate(str(journey.run), accept=False, data=None)
