"""From raw rows to named answers by a file alone: those that the run itself gives, for every kind of one's own data."""

import ast
import csv
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from edgewise.configuration import Choice
from edgewise.data.record import Sure
from edgewise.deployment import answering, export, predict_file
from edgewise.deployment.exporting import alone_of, in_own_units
from edgewise.deployment.files import SOURCES, readme_of
from edgewise.deployment.interface import Exportable
from edgewise.deployment.program import standard
from edgewise.deployment.trained import Trained
from edgewise.tasks.own.several import SeveralTargets
from edgewise.tasks.text.tokenization import ByteTokenizer, CharacterTokenizer, for_library
from edgewise.training import RunConfig
from edgewise.training.calibration import calibrate
from edgewise.training.runs import assemble
from journeys.own import frames

COUNT = 100
Kind = tuple[Choice, Choice, Path]


def written(path: Path, head: str, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(map(str, row)) if isinstance(row, tuple) else row for row in rows]
    path.write_text("\n".join(([head] if head else []) + lines) + "\n", encoding="utf-8")
    return path


def nodes(place: Path, draw: random.Random, labels: bool = True) -> Path:
    rows = [
        (
            f"n{n}",
            "" if n % 9 == 0 else draw.randint(1, 90),
            draw.choice(["Bonn", "Ulm", "Köln"]),
            f"2024-0{1 + n % 9}-1{n % 9}",
            draw.choice(["yes", "no"]),
            *(("ab"[n % 2], n / 8) if labels else ()),
        )
        for n in range(COUNT)
    ]
    written(place / "nodes.csv", "node,age,city,since,member" + ",label,weight" * labels, rows)
    ends = [(f"n{draw.randrange(COUNT)}", f"n{draw.randrange(COUNT)}") for _ in range(250)]
    more = [(*pair, round(draw.random(), 3)) for pair in [*ends, *(pair[::-1] for pair in ends[:40]), *ends[:20]]]
    written(place / "edges.csv", "from,to" + ",strength" * labels, more if labels else ends)
    return place


def graphs(place: Path, draw: random.Random) -> Path:
    sizes = [draw.randint(2, 7) for _ in range(COUNT)]
    labels = [(f"g{g}", "uv"[g % 2], f"{draw.random():.3f}") for g in range(COUNT)]
    written(place / "graphs.csv", "graph,kind,mass", labels)
    points = [(f"g{g}", f"x{n}", draw.randint(1, 9)) for g, size in enumerate(sizes) for n in range(size)]
    written(place / "nodes.csv", "graph,node,charge", draw.sample(points, len(points)))
    ends = [(g, draw.randrange(size), draw.randrange(size)) for g, size in enumerate(sizes) for _ in range(2 * size)]
    lines = [(f"g{g}", f"x{i}", f"x{j}", draw.choice(["s", "d"])) for g, i, j in ends if i != j]
    written(place / "edges.csv", "graph,source,target,bond", lines)
    return place


GNN = {"width": 8, "depth": 2}


def made(kind: str, place: Path) -> Kind:
    """A task of that kind, a small model for it, and what is to be answered."""
    draw, own = random.Random(0), place / "own"
    if kind in ("nodes", "nodes, mean"):
        options = {"folder": str(nodes(own, draw)), "label": "label,weight", "parallel": kind.split(", ")[-1] == "mean"}
        options["parallel"] = "mean" if options["parallel"] else "keep"
        return Choice("node-folder", options), Choice("gnn", {"layer": "gine", **GNN}), own
    if kind == "links":
        asked = [f"n{n}" if n % 2 else f"n{n}, n{(7 * n) % COUNT}" for n in range(COUNT)]
        nodes(own, draw, labels=False)
        given = written(place / "pairs.txt", "", asked)
        return Choice("link-folder", {"folder": str(own), "width": 4}), Choice("gnn", {"layer": "gcn", **GNN}), given
    if kind == "graphs":
        options = {"folder": str(graphs(own, draw)), "label": "kind,mass"}
        return Choice("graph-folder", options), Choice("gnn", {"layer": "gine", "readout": "sum", **GNN}), own
    if kind == "molecules":
        parts = ["C", "O", "N", "C(C)", "C(=O)", "C=C", "c1ccccc1C", "C(F)", "[C@H](F)", "C([O-])"]
        rows = [
            (f"m{n}", "C" + "".join(draw.choices(parts, k=1 + n % 6)), round(draw.random(), 3)) for n in range(COUNT)
        ]
        file = written(own / "molecules.csv", "id,smiles,logp", rows)
        model = Choice("gnn", {"layer": "gine", "readout": "sum", **GNN})
        return Choice("molecule-table", {"file": str(file), "bonds": True}), model, file
    if kind == "texts":
        words = [
            "good",
            "bad",
            "film",
            "Plot",
            "the",
            "ÄRGER",
            "very",
            "not",
            "'so'",
            "don't",
            "7",
            "…",
            "<mask>",
            "end",
        ]
        rows = [(" ".join(draw.choices(words, k=1 + n % 9)) + f" x{n}", "np"[n % 2]) for n in range(COUNT)]
        file = written(own / "texts.csv", "text,label", rows)
        options = {"file": str(file), "vocabulary": 280, "length": 20, "truncate": True, "lowercase": True}
        return (
            Choice("text-table", options),
            Choice("bert", {"width": 8, "depth": 1, "heads": 2, "readout": "mean"}),
            file,
        )
    if kind == "images":
        noise = np.random.default_rng(0)
        for n in range(COUNT):
            file = own / "ab"[n % 2] / f"{n}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(noise.integers(0, 256, (9 + n % 5, 11, 4 if n % 3 else 3), dtype=np.uint8)).save(file)
        model = Choice("transformer", {"width": 8, "depth": 1, "heads": 2, "readout": "mean"})
        return Choice("image-folder", {"folder": str(own), "size": 8, "patch": 4}), model, own
    if kind in ("clouds", "files of points"):
        clouds = [[tuple(round(draw.gauss(0, 1), 3) for _ in "xyzw") for _ in range(5 + n % 7)] for n in range(COUNT)]
        if kind == "clouds":
            written(own / "clouds.csv", "cloud,label", [(f"c{n}", "ab"[n % 2]) for n in range(COUNT)])
            rows = [(f"c{n}", *point) for n, cloud in enumerate(clouds) for point in cloud]
            written(own / "points.csv", "cloud,x,y,z,w", rows)
        else:
            for n, cloud in enumerate(clouds):
                written(own / "ab"[n % 2] / f"{n}.csv", "x,y,z,w", list(cloud))
        model = Choice("gnn", {"layer": "edge-conv", "readout": "max", **GNN})
        return Choice("point-folder", {"folder": str(own), "neighbors": 4}), model, own
    if kind == "facts":
        lines = {f"e{draw.randrange(20)}\tr{draw.randrange(3)}\te{draw.randrange(20)}" for _ in range(300)}
        written(own / "facts.txt", "", sorted(lines))
        asked = [f"e{n % 20}, r{n % 3}, ?" if n % 2 else f"?, r{n % 3}, e{n % 20}" for n in range(COUNT)]
        given = written(place / "queries.txt", "", asked)
        return (
            Choice("knowledge-folder", {"folder": str(own), "width": 8}),
            Choice("gnn", {"layer": "rgcn", **GNN}),
            given,
        )
    if kind == "choices":
        rows = [(f"u{draw.randrange(COUNT)}", f"i{draw.randrange(40)}") for _ in range(800)]
        file = written(own / "choices.csv", "user,item", rows)
        given = written(place / "users.txt", "", [*dict.fromkeys(user for user, _ in rows), "new"])
        return Choice("own-choices", {"file": str(file), "width": 8}), Choice("light-gcn", {"depth": 2}), given
    if kind == "frames":
        file = frames(own)
        return Choice("atom-frames", {"file": str(file)}), Choice("potential", {"layer": "painn", **GNN}), file
    if kind == "films":
        x = [[[draw.random() for _ in "xyz"] for _ in range(5)] for _ in range(6)]
        x = [[[[a + t * a * b / 20 for a, b in pairwise([*one, 1])] for one in film] for t in range(5)] for film in x]
        rows = [(f"f{f}", t, f"p{n}", "ab"[n % 2], *one) for f, film in enumerate(x) for t, frame in enumerate(film)
                for n, one in enumerate(frame)]  # fmt: skip
        draw.shuffle(rows)
        file = written(own / "films.csv", "trajectory,step,particle,kind,x,y,z", rows)
        options = {"folder": str(file), "box": [1.5, 0.7, 2.0], "periodic": [False, True, False], "history": 2}
        return Choice("trajectories", options | {"steps": 3}), Choice("simulator", {"width": 8, "depth": 2}), file
    if kind == "continued":
        lines = [f"{draw.choice(['Ärger', 'it', 'no'])} is {draw.choice('abc')}{n % 7}" for n in range(300)]
        options = {"file": str(written(own / "tale.txt", "", lines)), "vocabulary": 280, "context": 16}
        model = Choice("transformer", {"width": 8, "depth": 1, "heads": 2, "positions": "rotary"})
        return Choice("text-files", options), model, written(place / "prompts.txt", "", [*lines[:9], "", "x"])
    words = ["ein", "Hund", "Katze", "läuft", "schnell", "und", "der"]
    lines = [" ".join(draw.choices(words, k=1 + n % 5)) for n in range(COUNT)]
    file = written(own / "pairs.csv", "source,target", [(line, line.upper()) for line in lines])
    options = {"file": str(file), "level": "character", "beam": 3}
    shape = {"width": 8, "encoder_depth": 1, "decoder_depth": 1, "heads": 2}
    return (
        Choice("parallel-text", options),
        Choice("encoder-decoder", shape),
        written(place / "s.txt", "", [*lines[:9], ""]),
    )


KINDS = [
    "nodes",
    "nodes, mean",
    "links",
    "graphs",
    "molecules",
    "texts",
    "images",
    "clouds",
    "files of points",
    "facts",
]
KINDS += ["choices", "pairs", "continued", "frames", "films"]


def of(kind: str, place: Path) -> tuple[Trained, Path]:
    """An untrained model with its task: any weights do, and any temperature, threshold and interval."""
    chosen, network, given = made(kind, place)
    task, model = assemble(RunConfig(chosen, network))
    if isinstance(task, SeveralTargets):
        calibrate(model, task, [Sure(1.7, 0.45, 0.25)] * len(task.several.targets))
    return Trained(model, task).eval(), given


def equal(one: Any, other: Any) -> bool:
    """Whether two answers are the same but for roundings."""
    if isinstance(one, str) and one[:1] in ("[", "{"):
        one, other = json.loads(one), json.loads(other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    try:
        return float(other) == pytest.approx(float(one), rel=1e-5, abs=1e-5)
    except (TypeError, ValueError):
        return one == other


def rows_of(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def same(trained: Trained, given: Path, found: Path) -> None:
    """The answers in a table are those of the model with its task."""
    expected = found.with_name("expected.csv")
    predict_file(trained, given, expected)
    right, answers = rows_of(expected), rows_of(found)
    assert len(right) == len(answers) > 2
    assert [one for one, other in zip(right, answers, strict=True) if not equal(one, other)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_model_with_its_task(kind: str, tmp_path: Path) -> None:
    trained, given = of(kind, tmp_path)
    alone, about = in_own_units(alone_of(trained.task, trained.model, None), trained.task.preprocessing())
    graph, *tensors = alone.call
    first = {"pairs": "pairs", "texts": "tokens", "continued": "tokens", "frames": "features", "films": "features"}.get(
        kind, "x"
    )
    wrapped = Exportable(alone.model, graph, alone.names or (first, "edge_attr")[: len(tensors)]).eval()
    example = wrapped.inputs(graph, *tensors), wrapped.outputs(graph, *tensors)
    inputs = {name: wrapped.shape(name, tensor) for name, tensor in example[0].items()}
    said = json.loads(json.dumps({"preprocessing": about, "inputs": inputs, "model": "m", "made by": "e"}))

    @torch.no_grad()
    def call(arrays: dict[str, Any]) -> dict[str, Any]:
        with standard():
            return {name: y.numpy() for name, y in wrapped(**{n: torch.from_numpy(arrays[n]) for n in inputs}).items()}

    answering.answer(call, said, [str(given), str(tmp_path / "answers.csv")])
    same(trained, given, tmp_path / "answers.csv")
    page = readme_of("m.onnx", "onnx", said, example)
    assert "`python m.onnx.py INPUT [ANSWERS.csv]`" in page and said["preprocessing"]["rows"]["input"] in page
    if kind == "facts":
        assert "`y` has how true each entity makes a query, in their order" in page
    if kind == "frames":
        assert "`edge_index` has an edge from each image of an atom to each atom within 5 Å" in page
        assert "| 0 | x of a sender's image less its own (Å) |" in page and "`forces` are in eV/Å" in page
    if kind == "nodes":
        assert "| 1 | 1 where age is missing, else 0 |" in page and "| 2 | 1 where city is 'Bonn', else 0 |" in page
        assert "the opposites of those without one, with the same features" in page
        assert "| 0 | label is 'a': a logit" in page
        assert "| 2 | weight, in its own unit; 90 % of values are within ± 0.25 |" in page


BLOCKED = """import runpy, sys
sys.modules["edgewise"] = None  # it cannot be imported
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")"""


def run_script(file: Path, given: Path, out: Path) -> None:
    """Run the script beside a file where nothing can import Edgewise."""
    command = [sys.executable, "-I", "-c", BLOCKED, str(file.with_name(f"{file.name}.py")), str(given), str(out)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, env={})
    assert done.returncode == 0, done.stderr


@pytest.mark.compiled
@pytest.mark.parametrize("to", ["pt2", "onnx"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_script_answers_without_edgewise(kind: str, to: str, tmp_path: Path) -> None:
    trained, given = of(kind, tmp_path)
    alone, about = in_own_units(alone_of(trained.task, trained.model, None), trained.task.preprocessing())
    file = tmp_path / f"model.{to}"
    export(alone.model, alone.call, to, file, names=alone.names, preprocessing=about)
    run_script(file, given, tmp_path / "answers.csv")
    same(trained, given, tmp_path / "answers.csv")


def test_what_a_script_is_made_of_has_each_name_once() -> None:
    names = list[str]()
    for module in SOURCES:
        for node in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body:
            targets = getattr(node, "targets", [getattr(node, "target", node)])  # of an assignment, or its own
            names += [name for one in targets if (name := getattr(one, "id", getattr(one, "name", "")))]
    assert [name for name, times in Counter(names).items() if times > 1] == [] != names


def test_graphs_in_json_are_those_of_the_tables(tmp_path: Path) -> None:
    trained, given = of("graphs", tmp_path)
    rows = trained.task.preprocessing()["rows"]
    tables, content = list(answering.graphs_of(given, rows)), []
    for number, one in enumerate(tables):
        edges = [{name: edge[name] for name in ("source", "target", "bond")} for edge in one["edges"]]
        content.append({"nodes": one["nodes"], "edges": [[*edge.values()] for edge in edges] if number % 2 else edges})
    (tmp_path / "graphs.json").write_text(json.dumps(content), encoding="utf-8")
    for one, other in zip(tables, answering.graphs_of(tmp_path / "graphs.json", rows), strict=True):
        first, second = (answering.graph_arrays(graph, rows) for graph in (one, other))
        assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("kind", "change", "what"),
    [
        ("nodes", lambda text: text.replace("age", "years"), "no column 'age'"),
        ("nodes", lambda text: text.replace("2024-", "soon-"), r"row 0: since is 'soon-.*which is no date\nrow 1: "),
        ("molecules", lambda text: text.replace(",C", ",Q"), r"row 0: 'Q.* is no molecule in SMILES\nrow 1: "),
        ("links", lambda text: "nobody\n", "no node 'nobody', such as 'n0'"),
        ("facts", lambda text: "e1, r1\n", "expected HEAD, RELATION"),
    ],
)
def test_what_cannot_be_read_is_named(kind: str, change: Callable[[str], str], what: str, tmp_path: Path) -> None:
    trained, given = of(kind, tmp_path)
    about = {"preprocessing": trained.task.preprocessing(), "inputs": {}}
    file = given / "nodes.csv" if given.is_dir() else given
    file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(ValueError, match=what):
        list(answering.answers(lambda arrays: {}, about, given))


@pytest.mark.parametrize("made", [ByteTokenizer(), CharacterTokenizer("abcü <>\n")])
def test_the_library_reads_every_level_of_tokens(made: Any) -> None:
    from tokenizers import Tokenizer

    read = Tokenizer.from_str(json.dumps(for_library(made)["tokenizer"]))
    for text in ("ab\nü <c>", "", " a"):
        tokens = read.encode(text).ids
        assert tokens == [made.begin, *made.encode([text])[0], made.end]
        assert read.decode(tokens[1:-1]) == text
