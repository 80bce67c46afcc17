"""New examples as rows: of each kind the prediction for an object of JSON is that for the same in files."""

import asyncio
import csv
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgewise.deployment import load, predict_file
from edgewise.deployment.inputs import one_input
from edgewise.deployment.serving import application
from edgewise.errors import ConfigError, DataError
from edgewise.training import Choice, RunConfig, TrainSettings, train

GNN = Choice("gnn", {"width": 8})
WHOLE = Choice("gnn", {"width": 8, "readout": "mean"})
EDGES = Choice("gnn", {"width": 8, "readout": "mean", "layer": "gatv2"})
TEXT = Choice("bert", {"width": 8, "heads": 2, "depth": 1, "readout": "mean"})
PAIRS = Choice("encoder-decoder", {"width": 8, "heads": 2, "encoder_depth": 1, "decoder_depth": 1})
TASKS = {
    "node-folder": (GNN, {"folder": "nodes", "ignore": "weight"}),
    "link-folder": (GNN, {"folder": "nodes", "ignore": "weight,label", "variational": False}),
    "graph-folder": (EDGES, {"folder": "graphs"}),
    "molecule-table": (WHOLE, {"file": "molecules.csv", "label": "y"}),
    "text-table": (TEXT, {"file": "texts.csv", "text": "Review", "level": "character"}),
    "point-folder": (WHOLE, {"folder": "clouds", "neighbors": 3}),
    "parallel-text": (PAIRS, {"file": "pairs.csv", "columns": "de,el", "level": "character", "length": 40, "beam": 1}),
}


def write(place: Path, **tables: list[list[Any]]) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        with (place / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    return place


def files(place: Path) -> None:
    draw = random.Random(0)
    nodes = [[f"p{n}", draw.randint(1, 90), "rgb"[n % 3], "uv"[n % 2]] for n in range(30)]
    edges = [[f"p{n}", f"p{(n + 2) % 30}", draw.randint(1, 9)] for n in range(30)]
    write(place / "nodes", nodes=[["who", "age", "colour", "label"], *nodes], edges=[["from", "to", "weight"], *edges])
    graphs = [[f"g{g}", "uv"[g % 2]] for g in range(20)]
    inside = [[f"g{g}", f"n{n}", draw.randint(1, 90)] for g in range(20) for n in range(4)]
    within = [[f"g{g}", "n0", f"n{n}", draw.randint(1, 9)] for g in range(20) for n in range(1, 4)]
    heads = [["graph", "label"], ["graph", "node", "age"], ["graph", "source", "target", "weight"]]
    write(place / "graphs", graphs=[heads[0], *graphs], nodes=[heads[1], *inside], edges=[heads[2], *within])
    molecules = [[f"{'C' * (n % 9 + 1)}{'ON'[n % 2]}", f"{n / 7:.2f}"] for n in range(20)]
    texts = [[n, f"{('good', 'bad')[n % 2]} number {n}", ("good", "bad")[n % 2]] for n in range(20)]
    pairs = [[f"Wort {n}", f"word {n}"] for n in range(20)]
    write(
        place,
        molecules=[["smiles", "y"], *molecules],
        texts=[["id", "Review", "label"], *texts],
        pairs=[["de", "el"], *pairs],
    )
    for n in range(20):
        points = np.random.default_rng(n).normal(size=(6, 3)) * [1 + n % 2, 1, 1]
        write(place / "clouds" / ("round", "long")[n % 2], **{f"{n}": [["x", "y", "z"], *points.tolist()]})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("own")
    files(place)
    made = {}
    for name, (model, options) in TASKS.items():
        options = {key: str(place / value) if key in ("file", "folder") else value for key, value in options.items()}
        train(RunConfig(Choice(name, options), model, train=TrainSettings(steps=2)), place / name, progress=False)
        made[name] = load(place / name, device="cpu")
    return made


NODE = {"node": {"who": "me", "age": 30, "colour": "r"}, "edges": [["me", "p3"], ["p4", "me"]]}
GRAPH = {
    "nodes": [{"node": "a", "age": 3}, {"node": "b", "age": 50}, {"node": "c", "age": None}],
    "edges": [["a", "b", 2], {"source": "b", "target": "c", "weight": 5}],
}
POINTS = np.random.default_rng(99).normal(size=(5, 3)).tolist()
ROWS: dict[str, dict[str, Any]] = {
    "node-folder": NODE,
    "link-folder": NODE,
    "graph-folder": GRAPH,
    "molecule-table": {"smiles": "CCCN"},
    "text-table": {"Review": "a good one"},
    "point-folder": {"points": POINTS},
    "parallel-text": {"de": "Wort 7"},
}


def numbers(row: dict[str, Any]) -> list[float]:
    p = row.get("probabilities", {})
    return [row["value"]] if "value" in row else [p[name] for name in sorted(p)]


def in_files(name: str, place: Path) -> Path | str:
    """The same example as files."""
    if name == "graph-folder":
        nodes = [["g", node["node"], node["age"]] for node in GRAPH["nodes"]]
        edges = [["g", "a", "b", 2], ["g", "b", "c", 5]]
        heads = [["graph", "node", "age"], ["graph", "source", "target", "weight"]]
        return write(place, graphs=[["graph"], ["g"]], nodes=[heads[0], *nodes], edges=[heads[1], *edges])
    if name == "point-folder":
        return write(place, cloud=[["x", "y", "z"], *POINTS]) / "cloud.csv"
    cell = next(iter(ROWS[name].values()))
    return write(place, more=[[{"molecule-table": "smiles", "text-table": "Review"}[name]], [cell]]) / "more.csv"


@pytest.mark.parametrize("name", ["graph-folder", "molecule-table", "text-table", "point-folder"])
def test_an_object_is_predicted_as_the_same_example_in_files(name: str, runs, tmp_path: Path) -> None:
    trained = runs[name]
    (alone,), (whole,) = trained.predict([ROWS[name]]), trained.predict(in_files(name, tmp_path / "same"))
    assert numbers(alone) == pytest.approx(numbers(whole), rel=1e-5)
    assert "label" not in alone and "measured" not in alone  # nothing is known of it
    assert trained.task.subject(trained.model, trained.pattern, json.dumps(ROWS[name])).inputs


def test_a_new_node_is_predicted_as_if_it_were_in_the_graph(runs, tmp_path: Path) -> None:
    trained, old = runs["node-folder"], runs["node-folder"].task.given.place
    for name in ("nodes", "edges"):
        (tmp_path / f"{name}.csv").write_text((old / f"{name}.csv").read_text(encoding="utf-8"), encoding="utf-8")
    with (tmp_path / "nodes.csv").open("a") as nodes, (tmp_path / "edges.csv").open("a") as edges:
        nodes.write("me,30,r,\n")
        edges.write("me,p3,\np4,me,\n")
    row, other = trained.predict([NODE, "p7"])
    assert numbers(row) == pytest.approx(numbers(trained.predict(tmp_path)[-1]), rel=1e-5)
    assert row["node"] == "me" and other == trained.predict(["p7"])[0]
    assert len(trained.task.given) == 30 and trained.predict([{"who": "p7"}]) == [other]
    subject = trained.task.subject(trained.model, trained.pattern, json.dumps(NODE))
    assert subject.node == 30 and subject.names[-1] == "me"


def test_a_new_node_has_likely_links(runs) -> None:
    (row,) = runs["link-folder"].predict([NODE])
    assert row["node"] == "me" and len(row["links"]) == 10
    assert not {"p3", "p4", "me"} & {link["node"] for link in row["links"]}


def test_a_sentence_is_read_from_its_column(runs) -> None:
    trained = runs["parallel-text"]
    assert trained.predict([ROWS["parallel-text"]])[0]["translation"] == trained.predict(["Wort 7"])[0]["translation"]


@pytest.mark.parametrize(
    ("name", "row", "why"),
    [
        (
            "node-folder",
            NODE | {"edges": [["me", "p99"], ["q", "me"]]},
            "edges: line 1: there is no node 'p99'",
        ),
        ("node-folder", {"node": {"age": "x", "colour": "r"}}, "node: line 1: age is 'x', not a finite number"),
        (
            "node-folder",
            {"node": {"agee": 3, "colour": "r"}},
            "node: it lacks the columns age, which the run was trained",
        ),
        ("node-folder", {"node": {"who": "p3", "age": 3, "colour": "r"}}, "there is a node 'p3' already"),
        ("node-folder", {"nod": 3}, 'a row names a node as {"node": NAME}, or has a new one as {"node": {'),
        ("link-folder", NODE | {"edges": {}}, "'edges' is a dict in place of a list"),
        ("graph-folder", {"edges": []}, 'a graph has nodes: give {"nodes":'),
        ("graph-folder", GRAPH | {"edges": [["a", "z", 1]]}, "edges: line 1: there is no node 'z'"),
        ("graph-folder", GRAPH | {"edges": ["ab"]}, "edges: row 0 is no row: give an object, or a list of"),
        ("point-folder", {"points": [[1, 2]]}, "points: its columns are x, y; expected x, y, z"),
        ("text-table", {"Review": ""}, "the text is empty"),
        ("text-table", {"review": "x"}, "and it has review"),
        ("molecule-table", {"smiles": "C(C)(C)(C)(C)C"}, "SMILES"),
    ],
)
def test_a_row_that_is_none_is_named_without_the_place_where_it_was_read(name, row, why, runs) -> None:
    with pytest.raises(DataError) as caught:
        runs[name].predict([row])
    assert why in str(caught.value) and "edgewise-" not in str(caught.value)


def test_a_graph_may_have_no_edges(runs) -> None:
    assert len(runs["graph-folder"].predict([{"nodes": GRAPH["nodes"]}, GRAPH])) == 2
    assert runs["node-folder"].predict([{"node": {"age": 3, "colour": "g"}}])[0]["node"] == "new"


@pytest.mark.parametrize("kind", ["text-table", "parallel-text"])
def test_the_name_of_a_table_is_no_text(runs, tmp_path: Path, kind: str) -> None:
    task, table = runs[kind].task, write(tmp_path, rows=[["text"], ["a good one"]]) / "rows.csv"
    with pytest.raises(DataError, match=r"rows\.csv is the name of a file, not a text"):
        one_input(str(table), task)
    for text in ("rows.csv, they say", str(tmp_path), "a\0b", "x" * 10_000):
        assert one_input(text, task) == text


def test_tables_of_polars_and_files_are_rows(runs, tmp_path: Path) -> None:
    import polars

    trained, texts = runs["text-table"], ["a good one", "a bad one"]
    expected = [row["probabilities"] for row in trained.predict(texts)]
    frame = polars.DataFrame({"Review": texts, "id": [7, 8]})
    frame.write_csv(tmp_path / "a.csv")
    frame.write_ndjson(tmp_path / "a.jsonl")
    (tmp_path / "a.json").write_text(json.dumps(frame.to_dicts()))
    pandas = SimpleNamespace(columns=["Review"], to_dict=lambda kind: frame.to_dicts())
    for rows in (frame, pandas, *(tmp_path / f"a.{kind}" for kind in ("csv", "jsonl", "json"))):
        made = [row["probabilities"] for row in trained.predict(rows)]
        for one, other in zip(made, expected, strict=True):
            assert one == pytest.approx(other, rel=1e-5)
    graphs = tmp_path / "graphs.jsonl"
    graphs.write_text(f"{json.dumps(GRAPH)}\n{json.dumps(GRAPH)}\n")
    assert len(runs["graph-folder"].predict(graphs)) == 2
    with pytest.raises(ConfigError, match="rows are a list of inputs, not one of them"):
        trained.predict({"Review": "x"})


LIBRARY = "id,smiles\n1,CCO\n2,C(C)(C)(C)(C)C\n3,CCN\n4,c1cccc1\n5\n6,xyz\n7,\n"


@pytest.mark.parametrize("column", [None, "smiles"])
def test_all_rows_that_cannot_be_read_are_named_or_skipped(column, runs, tmp_path: Path) -> None:
    file, out, said = tmp_path / "new.csv", tmp_path / "out.csv", []
    file.write_text(LIBRARY)
    with pytest.raises(DataError) as caught:
        predict_file(runs["molecule-table"], file, out, column)
    lines = str(caught.value)
    assert [n for n in range(2, 10) if f"line {n}" in lines] == [3, 5, 6, 7, 8] and not out.exists()
    assert predict_file(runs["molecule-table"], file, out, column, skip=True, say=said.append) == 2
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["molecule" if column is None else "input"] for row in rows] == (
        ["1", "3"] if column is None else ["CCO", "CCN"]
    )
    skipped = list(csv.DictReader((tmp_path / "out.skipped.csv").read_text().splitlines()))
    assert len(skipped) == 5 and said == [f"5 inputs skipped: {tmp_path / 'out.skipped.csv'} says why"]
    file.write_text("id,smiles\n1,x\n")
    with pytest.raises(DataError, match=r"it has no inputs that can be read\n.*line 2"):
        predict_file(runs["molecule-table"], file, out, column, skip=True)


def send(app: Any, body: Any) -> tuple[int, Any]:
    """What an application answers to a request."""
    sent, events = [], [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        return events.pop()

    async def note(event: dict[str, Any]) -> None:
        sent.append(event)

    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/predict", "query_string": b""}
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    asyncio.run(app(scope | {"scheme": "http", "headers": headers, "server": ("localhost", 80)}, receive, note))
    return sent[0]["status"], json.loads(b"".join(event.get("body", b"") for event in sent))


@pytest.mark.parametrize("name", ROWS)
def test_a_service_takes_objects_and_names_those_that_it_cannot_read(name: str, runs) -> None:
    app, (expected,) = application(runs[name]), runs[name].predict([ROWS[name]])
    assert send(app, {"rows": [ROWS[name]]}) == (200, {"predictions": [json.loads(json.dumps(expected))]})
    status, told = send(app, {"rows": [ROWS[name], {"what": 1}, {"what": 2}]})
    assert status == 422 and "row 1: " in told["error"] and "row 0" not in told["error"]
    status, told = send(app, {"rows": [[1]]})
    assert status == 422 and runs[name].task.form[:8] in told["error"]


def test_a_history_and_a_fact_are_rows(tmp_path: Path) -> None:
    choices = [[f"u{u}", f"{'ab'[u % 2]}{(u * 7 + n * (1 + u % 5)) % 12}"] for u in range(40) for n in range(6)]
    write(tmp_path, choices=[["user", "item"], *choices])
    (tmp_path / "facts.txt").write_text("".join(f"p{n}\tlikes\tp{(n + 1) % 20}\n" for n in range(20)))
    task = Choice("own-choices", {"file": str(tmp_path / "choices.csv"), "width": 8, "k": 5})
    light = Choice("light-gcn", {"depth": 2})
    config = RunConfig(task, light, optimizer=Choice("adam", {"learning_rate": 0.05}), train=TrainSettings(steps=60))
    train(config, tmp_path / "run", progress=False)
    trained = load(tmp_path / "run", device="cpu")
    (new,), (old,) = trained.predict([{"items": ["a1", "a2", "a3"]}]), trained.predict([{"user": "u3"}])
    assert old == trained.predict(["u3"])[0]
    found = [item["item"] for item in new["items"]]
    assert not {"a1", "a2", "a3"} & {*found} and [name[0] for name in found[:6]].count("a") >= 5
    subject = trained.task.subject(trained.model, None, '{"items": ["a1", "a2"]}')
    assert len(subject.names) == subject.inputs[0].num_receivers and subject.names[-1] == "new"
    for row, why in (({"items": ["a1", "z"]}, "no item 'z'"), ({"items": []}, "a new user has chosen something")):
        with pytest.raises(DataError, match=why):
            trained.predict([row])
    facts = Choice("knowledge-folder", {"folder": str(tmp_path), "width": 8, "decoder": "distmult"})
    rgcn = Choice("gnn", {"width": 8, "layer": Choice("rgcn")})
    train(RunConfig(facts, rgcn, train=TrainSettings(steps=2)), tmp_path / "facts", progress=False)
    trained = load(tmp_path / "facts", device="cpu")
    (row,), (text,) = trained.predict([{"head": "p1", "relation": "likes"}]), trained.predict(["p1, likes, ?"])
    assert row["entities"] == text["entities"]
