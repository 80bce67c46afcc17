"""One's own data of every kind, small: the files that train, and new ones like them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image


def table(path: Path, head: str, rows: Iterable[str]) -> Path:
    """A CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return path


def one_graph(place: Path, count: int = 20) -> Path:
    """A ring of two classes, with a number, a category and a date that some nodes lack."""
    dates = [f"2024-01-{1 + n % 9:02}" if n % 4 else "" for n in range(count)]
    table(
        place / "nodes.csv",
        "id,size,kind,born,label",
        (f"n{n},{n % 5}.5,{'xyz'[n % 3]},{dates[n]},{'ab'[n % 2]}" for n in range(count)),
    )
    table(place / "edges.csv", "source,target", (f"n{n},n{(n + k) % count}" for n in range(count) for k in (1, 2)))
    return place


def graphs(place: Path, count: int = 12) -> Path:
    """Rings and stars whose nodes and edges have features; the nodes are known by their rows in each graph."""
    each = [(g, n) for g in range(count) for n in range(4)]
    table(place / "graphs.csv", "label", (("ring", "star")[g % 2] for g in range(count)))
    table(place / "nodes.csv", "graph,age,kind", (f"{g},{g + n}.5,{'xy'[n % 2]}" for g, n in each))
    ends = [(g, n if g % 2 else 0, (n + 1) % 4) for g, n in each]
    table(place / "edges.csv", "graph,source,target,long", (f"{g},{i},{j},{'yes' if i else 'no'}" for g, i, j in ends))
    return place


def clouds(place: Path, count: int = 12) -> Path:
    """Long and round clouds, a file for each."""
    draw = np.random.default_rng(0)
    for n in range(count):
        points = draw.normal(size=(6, 3)) * [1 + 4 * (n % 2), 1, 1]
        rows = (",".join(f"{one:.3f}" for one in point) for point in points)
        table(place / ("round", "long")[n % 2] / f"{n}.csv", "x,y,z", rows)
    return place


def pictures(place: Path, count: int = 12) -> Path:
    """Red and blue pictures, in a folder for each colour."""
    draw = np.random.default_rng(0)
    for n in range(count):
        pixels = draw.integers(0, 100, (16, 16, 3), dtype=np.uint8)
        pixels[..., 2 * (n % 2)] += 100
        path = place / ("red", "blue")[n % 2] / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return place


def molecules(place: Path, count: int = 12) -> Path:
    """Alcohols and amines, with a number that some lack; their column of notes is not read."""
    rows = (f"{'C' * (n + 1)}{'ON'[n % 2]},{n / 10 if n % 4 else ''},{'yn'[n % 2]},note {n}" for n in range(count))
    return table(place / "molecules.csv", "smiles,logp,toxic,note", rows)


def texts(place: Path, count: int = 14) -> Path:
    """Good and bad words, between marks of quotation that hold what separates cells."""
    words = [("good", "bad")[n % 2] for n in range(count)]
    return table(
        place / "texts.csv", "id;text;label", (f'{n};"{word}; ""no"" {n}, so";{word}' for n, word in enumerate(words))
    )


def choices(place: Path) -> Path:
    """Who chose what, and when."""
    rows = (f"u{u},i{(u + k) % 7},{k}" for u in range(6) for k in range(4))
    return table(place / "choices.csv", "user,item,time", rows)


def facts(place: Path) -> Path:
    """A circle of friends."""
    rows = [f"p{n}\tlikes\tp{(n + 1) % 10}" for n in range(10)] + [f"p{n}\tknows\tp{(n + 2) % 10}" for n in range(10)]
    place.mkdir(parents=True, exist_ok=True)
    (place / "facts.txt").write_text("\n".join(rows) + "\n")
    return place


def pairs(place: Path, count: int = 14) -> Path:
    """Sentences and their translations, a file of each language of the same name."""
    for language, word in (("de", "Wort"), ("el", "λέξη")):
        table(place / language / "train.txt", f"{word} null", (f"{word} {n}" for n in range(count)))
    return place


def text(place: Path, count: int = 200) -> Path:
    """A text of lines."""
    rows = (f"{('good', 'bad')[n % 2]} lines of {n % 7} words, {n % 3}" for n in range(count))
    return table(place / "tale.txt", "A tale of lines.", rows)


def frames(place: Path, count: int = 12) -> Path:
    """Chains of two elements, in open space and in small cells, some without forces."""
    draw, lines = np.random.default_rng(0), list[str]()
    for n in range(count):
        size = 2 + n % 3
        x = draw.normal(size=(size, 3)) * 0.1 + np.arange(size)[:, None] * [1.1, 0.2, 0]
        forces = f" {n}.5 0 -1" if n % 4 else ""
        cell = 'Lattice="3 0 0 1 3 0 0 0 9" pbc="T T F" ' if n % 2 else ""
        properties = "species:S:1:pos:R:3" + ":forces:R:3" * bool(forces)
        lines += [str(size), f"{cell}Properties={properties} energy={-9.5 * size + n}"]
        lines += ["HO"[k % 2] + "".join(f" {one!r}" for one in x[k].tolist()) + forces for k in range(size)]
    place.mkdir(parents=True, exist_ok=True)
    (place / "frames.xyz").write_text("\n".join([*lines, ""]))
    return place / "frames.xyz"


def films(place: Path, count: int = 6) -> Path:
    """Particles of two kinds in a box of unequal sides that is periodic along one, beyond whose end some move."""
    place.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for n in range(count):
        size, t = 4 + n % 2, np.arange(8)[:, None, None]
        x = draw.uniform(1, 2, (size, 2)) + t * draw.uniform(-0.2, 0.2, (size, 2)) - t * t * [0.01, 0.0]
        kinds = np.array([*"abab"] + ["b"] * (n % 2))
        np.savez(place / f"{n}.npz", positions=x % [2.0, 9.0], kinds=kinds, box=[2.0, 3.0], periodic=[True, False])
    return place


@dataclass(frozen=True)
class Kind:
    """How data of a kind are made, read and asked for."""

    recipe: str
    make: Callable[[Path], Path]  # the files in a folder: the place of the data
    asked: str  # an input: its place, where it starts with /
    options: dict[str, str] = field(default_factory=dict)
    places: tuple[str, ...] = ("task.folder",)  # the options with places, below what `make` gives
    whole: bool = False  # whether the run holds all data, so that its parts can be measured without their files
    told: str = ""  # what explanations name, with semicolons in between
    inputs: str = ""  # a table of predictions reads these lines, where it reads no files like those that trained


SMALL = {"model.width": "8", "model.depth": "1"}
TABLE = ("task.file",)
KINDS = {
    "nodes": Kind("own-nodes", one_graph, "n3", SMALL, whole=True, told="size;kind;n3"),
    "links": Kind(
        "own-links", one_graph, "n1,n5", SMALL | {"task.ignore": "label"}, whole=True, told="n1;size", inputs="n1,n2"
    ),
    "facts": Kind("own-facts", facts, "p1, likes, ?", SMALL, whole=True, told="likes", inputs="?, likes, p1"),
    "choices": Kind(
        "own-choices", choices, "u1", {"model.depth": "1"}, TABLE, whole=True, told="u1", inputs="a new one"
    ),
    "graphs": Kind("own-graphs", graphs, "test:1", SMALL | {"model.layer": "gat"}, told="age;kind;edge long"),
    "molecules": Kind(
        "own-molecules",
        molecules,
        "CCO",
        SMALL | {"task.label": "logp,toxic", "task.ignore": "note"},
        TABLE,
        told="element O",
    ),
    "texts": Kind("own-texts", texts, "a good one", SMALL | {"model.hidden": "8"}, TABLE, told="good;one"),
    "text": Kind(
        "own-text-model", text, "good lines", SMALL | {"task.context": "16"}, TABLE, told="good", inputs="bad lines"
    ),
    "images": Kind("own-images", pictures, "/red/0.png", SMALL | {"task.size": "16"}, told="row 1, column 1"),
    "points": Kind("own-points", clouds, "/long/1.csv", SMALL | {"task.neighbors": "3"}, told="x from the middle"),
    "parallel": Kind(
        "own-translation",
        pairs,
        "Wort 3",
        {"model.width": "8", "model.heads": "2", "model.encoder_depth": "1", "model.decoder_depth": "1"}
        | {"model.feed_forward.hidden": "8", "task.length": "40", "task.beam": "1"},
        ("task.source", "task.target"),
        told="Wort;⟨begin⟩",
        inputs="Wort 5",
    ),
    "films": Kind("own-trajectories", films, "/1.npz", SMALL | {"task.history": "3", "task.steps": "4"}, told="b1;b4"),
    "potential": Kind("own-potential", frames, "test:1", SMALL, TABLE, told="H0;O1"),
}
