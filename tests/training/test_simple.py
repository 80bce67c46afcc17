"""Simple methods beside a network, on the same cut: what they reach, and that they are chosen without the test part."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from data.test_graph import write
from edgewise.apps.command.main import main
from edgewise.tasks import (
    graph_folder,
    image_folder,
    kinship,
    link_folder,
    molecule_table,
    node_folder,
    point_folder,
    tastes,
    text_table,
)
from edgewise.training import Choice, EvaluationSettings, RunConfig, simple
from edgewise.training.simple import Simple, best_simple
from tasks.own import test_images, test_points


def graphs(folder: Path, count: int = 60) -> Path:
    """Paths whose mass is that of their nodes, and now and then unknown, and whose kind is their length's."""
    draw, tables = (
        random.Random(0),
        {"graphs": ["graph,mass,kind"], "nodes": ["graph,weight"], "edges": ["graph,from,to"]},
    )
    for number in range(count):
        weights = [draw.randint(1, 90) for _ in range(draw.randint(3, 8))]
        mass = "" if number % 6 == 0 else sum(weights) + 0.5
        tables["graphs"].append(f"g{number},{mass},{'long' if len(weights) > 5 else 'short'}")
        tables["nodes"] += [f"g{number},{weight}" for weight in weights]
        tables["edges"] += [f"g{number},{node},{node + 1}" for node in range(len(weights) - 1)]
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def texts(path: Path, count: int = 90) -> Path:
    draw = random.Random(0)
    words = ["one", "two", "three", "four", "five", "six"]
    rows = [f"{' '.join(draw.choices(words, k=6))} {('good', 'bad')[n % 2]}{n},{n % 2}" for n in range(count)]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def test_a_linear_model_on_sums_is_that_of_scikit_learn_on_the_same_cut(tmp_path) -> None:
    task = graph_folder(str(graphs(tmp_path)), label="mass")
    found = best_simple(task)
    assert found is not None and found.name == "a linear model on sums and counts" and found.metric == "rmse"
    assert found.valid == min(found.tried.values()) < found.tried["the mean"] / 10
    numbers, y = torch.cat([*task.splits.values()]), task.graphs.targets[:, 0]
    (rows,) = task.rows(torch.arange(60))
    train, test = task.splits["train"], task.splits["test"]
    usual = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 8))).fit(rows.x[train], y[train])
    errors = usual.predict(rows.x[test]) - y[test].numpy()
    assert found.test == pytest.approx(float(np.sqrt(np.square(errors).mean())), rel=1e-3)
    assert len(numbers) == 50  # those without a mass are in no part
    both = best_simple(graph_folder(str(tmp_path), label="mass,kind"))
    assert both is not None and both.metric == "loss" and both.valid < both.tried["the commonest class and the mean"]


def test_the_test_part_is_read_once_by_the_method_that_is_best_on_validation(tmp_path, monkeypatch) -> None:
    read, scores = [], simple._scores
    monkeypatch.setattr(simple, "_scores", lambda *given: read.append(given[-1]) or scores(*given))
    found = best_simple(text_table(str(texts(tmp_path / "t.csv"))))
    assert found is not None and found.name.startswith("TF-IDF of letters") and found.test == 1.0
    assert read == ["valid"] * len(found.tried) + ["test"]
    assert found.tried["the commonest class"] < 0.8


def test_labels_spread_along_edges(tmp_path) -> None:
    """Two communities, of which nothing is known but a noise."""
    draw = random.Random(1)
    rows = "".join(f"n{n},{draw.random():.3f},{'ab'[n % 2]}\n" for n in range(80))
    edges = "".join(f"n{n},n{(n + 2 * draw.randint(1, 20)) % 80}\n" for n in range(80) for _ in range(3))
    task = node_folder(write(tmp_path, f"id,noise,label\n{rows}", f"from,to\n{edges}"))
    found = best_simple(task)
    assert found is not None and found.name.startswith("labels that spread") and found.test == 1.0
    assert {name.rpartition(" on ")[2] for name in found.tried} >= {
        "a node's features", "a node's features and its neighbours' means",
    }  # fmt: skip


def test_moments_of_clouds_and_thumbnails_of_images_tell_classes_apart(tmp_path) -> None:
    clouds = best_simple(point_folder(str(test_points.write(tmp_path / "clouds", 90)), label="form"))
    images = best_simple(image_folder(str(test_images.write(tmp_path / "images")), patch=4))
    assert clouds is not None and images is not None
    assert images.test == 1.0 and clouds.name.endswith("moments")
    assert clouds.test is not None and min(clouds.valid, clouds.test) > clouds.tried["the commonest class"] + 0.2


def test_molecules_have_a_forest_on_fingerprints(tmp_path) -> None:
    pytest.importorskip("rdkit")
    rows = "".join(f"{'C' * (2 + n // 2)}{'ON'[n % 2]},{'ab'[n % 2]}\n" for n in range(40))
    (tmp_path / "m.csv").write_text(f"smiles,label\n{rows}")
    found = best_simple(molecule_table(str(tmp_path / "m.csv")))
    assert found is not None and found.test == 1.0
    assert found.tried["a random forest on Morgan fingerprints"] == 1.0


def test_rankings_count(tmp_path) -> None:
    """Of links common neighbours, of choices the items of the same users, of facts what a relation often has."""
    pairs = [(a, b) for block in range(8) for a in range(6) for b in range(a)]
    edges = "".join(f"n{6 * (n // 15) + a},n{6 * (n // 15) + b}\n" for n, (a, b) in enumerate(pairs))
    nodes = "".join(f"n{n}\n" for n in range(48))
    links = best_simple(link_folder(write(tmp_path, f"id\n{nodes}", f"from,to\n{edges}")))
    assert links is not None and links.test is not None and links.test > 0.95 and "common neighbours" in links.name
    choices = best_simple(tastes(users=200, items=120, genres=4))
    assert choices is not None and choices.name == "item similarity"
    assert choices.valid == max(choices.tried.values())
    facts = kinship(families=3)
    found = best_simple(facts)
    assert found is not None and found.test is not None
    best = dict[tuple[int, bool], list[int]]()
    known = {tuple(fact) for split in facts.splits.values() for fact in split.tolist()}
    for head, relation, tail in facts.splits["train"].tolist():
        best.setdefault((relation, True), []).append(tail)
        best.setdefault((relation, False), []).append(head)
    ranks = []
    for head, relation, tail in facts.splits["test"].tolist():
        for sought, there, other in ((tail, True, head), (head, False, tail)):
            counts = best[relation, there]
            fits = lambda one: (other, relation, one) if there else (one, relation, other)  # noqa: B023, E731
            rivals = [e for e in range(facts.count) if e == sought or fits(e) not in known]
            ranks.append(sum(counts.count(e) >= counts.count(sought) for e in rivals))
    assert found.test == pytest.approx(sum(1 / rank for rank in ranks) / len(ranks))


def test_a_line_and_a_row_say_which_is_better(tmp_path, capsys) -> None:
    """A model of two steps is worse than the words; of several seeds the methods are tried once."""
    tiny = ("--train.steps", "2", "--model.width", "8", "--task.vocabulary", "300", "--run", str(tmp_path / "run"))
    given = ("--task.file", str(texts(tmp_path / "t.csv")), *tiny)
    assert main(["train", "own-texts", *given, "--seeds", "2"]) == 0
    told = capsys.readouterr().out
    assert told.count("a simple method is better: TF-IDF of letters") == 2 and "test accuracy 100.0 % (valid" in told
    first, second = (Simple.read(tmp_path / "run" / f"seed-{seed}") for seed in (0, 1))
    assert first == second and first is not None and first.seconds > 0
    page = (tmp_path / "run" / "seed-1" / "report.html").read_text(encoding="utf-8")
    assert "beside it" in page and "a simple method is better: TF-IDF of letters" in page


def test_there_are_bounds_which_are_said(tmp_path, monkeypatch) -> None:
    task = text_table(str(texts(tmp_path / "t.csv")))
    found = best_simple(task, seconds=1e-9)
    assert found is not None and [*found.tried] == ["the commonest class"] and found.left == "stopped after 1e-09 s"
    monkeypatch.setattr(simple, "LEARNS", 20)
    found = best_simple(task)
    assert found is not None and found.left == "trained on 20 of 54 texts"
    none = RunConfig(Choice("text-table"), Choice("bert"), evaluation=EvaluationSettings(simple=0))
    assert simple.beside(tmp_path, task, none) is None and Simple.read(tmp_path) is None
