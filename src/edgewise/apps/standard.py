"""Standard data by name: where each set is published, its hash, and how it becomes files that a recipe for data of
one's own reads. Nothing of an archive is unpickled, or written under a name that it gives."""

from __future__ import annotations

import io
import json
import re
import shlex
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import IO, TYPE_CHECKING, Any
from zipfile import ZipFile

import numpy as np

from edgewise.apps import recipes
from edgewise.apps.console import columns
from edgewise.data.examples import ARRAYS
from edgewise.data.graph import read_arrays
from edgewise.errors import ConfigError, DataError, nearest
from edgewise.files import cache_path, gunzip, read_bytes, reading
from edgewise.tasks.core.source import Remote, find_folder, local_folder, unpacked

if TYPE_CHECKING:
    import polars as pl

Array = np.ndarray[Any, np.dtype[Any]]
Made = dict[str, bytes]  # the files to write, by name

LARGEST = 1 << 32  # bytes of a file in an archive, unpacked
HELD_OUT = 0.1  # of what trains, to choose the weights by, where nothing is published for that


def unpack(archive: Path, wanted: str) -> Iterator[tuple[str, bytes]]:
    """The files of a zip or tar archive whose names match a pattern; a .gz among them is unpacked."""

    def content(name: str, file: IO[bytes]) -> tuple[str, bytes]:
        found = file.read(LARGEST + 1)
        if len(found) > LARGEST:
            raise DataError(f"{archive}: {name} is longer than the {LARGEST:,} bytes that it may have")
        return name.removesuffix(".gz"), gunzip(archive, found, LARGEST) if name.endswith(".gz") else found

    with reading(archive, "an archive"):
        if archive.suffix == ".zip":
            with ZipFile(archive) as file:
                for name in filter(re.compile(wanted).search, file.namelist()):
                    with file.open(name) as part:
                        yield content(name, part)
        else:
            with tarfile.open(archive) as tar:
                for entry in tar:
                    if entry.isfile() and re.search(wanted, entry.name) and (body := tar.extractfile(entry)):
                        yield content(entry.name, body)


def table(content: bytes, names: list[str] | None = None, **options: Any) -> pl.DataFrame:
    """A table of a file, whose columns have these names where it has no header."""
    import polars as pl

    with reading("the published file", "a table as expected"):
        return pl.read_csv(content, has_header=names is None, new_columns=names, **options)


def _written(rows: pl.DataFrame) -> bytes:
    return rows.write_csv().encode()


def _arrays(arrays: dict[str, Array]) -> Made:
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return {ARRAYS: content.getvalue()}


def _held_out(count: int) -> Array:
    """The parts of rows that train: a tenth of them, drawn once and for all, chooses the weights."""
    return np.where(np.random.default_rng(0).random(count) < HELD_OUT, "valid", "train")


def facts(files: list[Path], out: Path) -> Made:
    """Three files of facts, as they are."""
    return {Path(name).name: content for name, content in unpack(files[0], r"(^|/)(train|valid|test)\.txt$")}


def heterophilous(files: list[Path], out: Path) -> Made:
    """Features, classes and edges; of the ten published cuts the first."""
    names = ("node_features", "node_labels", "edges", "train_masks", "val_masks", "test_masks")
    found = read_arrays(files[0], names)
    x, labels, edges, *masks = (found[name] for name in names)
    parts = zip(("train", "valid", "test"), (mask[0].astype(bool) for mask in masks), strict=True)
    return _arrays({"x": x, "labels": labels, "edge_index": edges.T.astype(np.int64), **dict(parts)})


def ogb_arrays(archive: Path) -> dict[str, Array]:
    """A graph of the Open Graph Benchmark with classes of nodes, from its tables."""
    import polars as pl

    found = dict(unpack(archive, r"/(raw/(edge|node-feat|node-label)|split/\w+/(train|valid|test))\.csv\.gz$"))
    by_name = {name.rpartition("/")[2].removesuffix(".csv"): content for name, content in found.items()}
    kinds: dict[str, Any] = {"node-feat": pl.Float32}
    read = {}
    for name, content in by_name.items():
        width = content.partition(b"\n")[0].count(b",") + 1
        names = [str(column) for column in range(width)]
        kind = kinds.get(name, pl.Int64)
        read[name] = table(content, names, schema_overrides=dict.fromkeys(names, kind)).to_numpy(writable=True)
    with reading(archive, "a graph of the Open Graph Benchmark"):
        parts = {part: read[part][:, 0] for part in ("train", "valid", "test")}
        labels = read["node-label"][:, 0]
        return {"x": read["node-feat"], "labels": labels, "edge_index": read["edge"].T.astype(np.int32), **parts}


def ogb_nodes(files: list[Path], out: Path) -> Made:
    """One file of arrays."""
    return _arrays(ogb_arrays(files[0]))


def ogb_store(files: list[Path], out: Path) -> Made:
    """A graph on disk, both ways."""
    import torch

    from edgewise.data.building import build_store

    found = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in ogb_arrays(files[0]).items()}
    senders, receivers = found.pop("edge_index").long()
    count = len(found["labels"])
    for part in ("train", "valid", "test"):
        found[part] = torch.zeros(count, dtype=torch.bool).index_fill(0, found[part], True)
    build_store(out / ".making" / "store", [(senders, receivers, None)], [found], undirected=True)
    return {}


def ogb_molecules(files: list[Path], out: Path) -> Made:
    """A table of SMILES with the published parts."""
    import polars as pl

    found = dict(unpack(files[0], r"/(mapping/mol|split/\w+/(train|valid|test))\.csv\.gz$"))
    by_name = {name.rpartition("/")[2].removesuffix(".csv"): content for name, content in found.items()}
    with reading(files[0], "molecules of the Open Graph Benchmark"):
        rows, split = table(by_name["mol"]), np.full(by_name["mol"].count(b"\n") + 1, "", dtype="<U5")
        for part in ("train", "valid", "test"):
            split[table(by_name[part], ["row"])["row"].to_numpy()] = part
    return {"molecules.csv": _written(rows.with_columns(pl.Series("split", split[: len(rows)])))}


def peptides(files: list[Path], out: Path) -> Made:
    """A table of SMILES; of ten classes in one cell, a column each."""
    import polars as pl

    rows = table(gunzip(files[0], read_bytes(files[0], LARGEST), LARGEST))
    if "labels" in rows.columns:
        with reading(files[0], "a table of peptides"):
            known = np.array([json.loads(cell) for cell in rows["labels"]])
            targets = [pl.Series(f"function_{number}", column) for number, column in enumerate(known.T)]
        rows = rows.select("smiles").with_columns(targets)
    return {"molecules.csv": _written(rows)}


QM9 = ("a", "b", "c", "mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u298", "h298", "g298", "cv")
HARTREE = 27.211386  # eV


def qm9(files: list[Path], out: Path) -> Made:
    """A table of SMILES with 15 quantities, and frames with positions and U0 in eV, without the molecules whose form
    changed in relaxation."""
    lines = (line.split() for line in read_bytes(files[1], LARGEST).decode().splitlines())
    wrong = {int(words[0]) for words in lines if len(words) > 2 and words[0].isdigit()}
    rows, frames = [",".join(("id", "smiles", *QM9))], list[str]()
    for name, content in unpack(files[0], r"\.xyz$"):
        with reading(files[0], f"molecules as in QM9: {name}"):
            count, about, *others = content.decode().splitlines()
            number, *values = about.split()[1:]
            if int(number) in wrong:
                continue
            atoms = [line.replace("*^", "e").split()[:4] for line in others[: int(count)]]
            rows.append(
                ",".join((number, others[int(count) + 1].split()[1], *(str(float(one)) for one in values[:15])))
            )
            head = f"Properties=species:S:1:pos:R:3 energy={float(values[QM9.index('u0')]) * HARTREE:.8f}"
            frames.append("\n".join((count.strip(), head, *map(" ".join, atoms))))
    return {"molecules.csv": ("\n".join(rows) + "\n").encode(), "frames.xyz": ("\n".join(frames) + "\n").encode()}


def movielens(files: list[Path], out: Path) -> Made:
    """Who rated what and when."""
    (_, content), *_ = unpack(files[0], r"/u\.data$")
    return {"choices.csv": _written(table(content, ["user", "item", "rating", "time"], separator="\t"))}


def ag_news(files: list[Path], out: Path) -> Made:
    """Titles and texts of news."""
    import polars as pl

    train, test = (table(read_bytes(path, LARGEST), ["class", "title", "body"]) for path in files)
    names = dict(enumerate(("World", "Sports", "Business", "Sci/Tech"), start=1))
    parts = [train.with_columns(split=_held_out(len(train))), test.with_columns(split=pl.lit("test"))]
    rows = pl.concat(parts, how="vertical_relaxed").select(
        text=pl.col("title") + " " + pl.col("body"), label=pl.col("class").replace_strict(names), split="split"
    )
    return {"texts.csv": _written(rows)}


def sst2(files: list[Path], out: Path) -> Made:
    """Phrases of film reviews; the labelled sentences of dev.tsv test."""
    import polars as pl

    found = {Path(name).name: content for name, content in unpack(files[0], r"^SST-2/(train|dev)\.tsv$")}
    train, test = (table(found[name], separator="\t", quote_char=None) for name in ("train.tsv", "dev.tsv"))
    parts = [train.with_columns(split=_held_out(len(train))), test.with_columns(split=pl.lit("test"))]
    rows = pl.concat(parts, how="vertical_relaxed")
    return {"texts.csv": _written(rows.with_columns(pl.col("label").replace_strict({0: "negative", 1: "positive"})))}


def cifar(files: list[Path], out: Path) -> Made:
    """Pictures in folders of their parts and classes."""
    from PIL import Image

    found = {Path(name).name: content for name, content in unpack(files[0], r"\.(bin|meta\.txt)$")}
    classes, made = found.pop("batches.meta.txt").decode().split(), Made()
    for batch, content in sorted(found.items()):
        with reading(files[0], "pictures as in CIFAR-10"):
            records = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
            parts = ["test"] * len(records) if batch.startswith("test") else _held_out(len(records))
            for number, (record, part) in enumerate(zip(records, parts, strict=True)):
                picture = io.BytesIO()
                Image.fromarray(record[1:].reshape(3, 32, 32).transpose(1, 2, 0)).save(picture, "PNG")
                made[f"images/{part}/{classes[record[0]]}/{Path(batch).stem}-{number}.png"] = picture.getvalue()
    return made


def pickled(files: list[Path], out: Path) -> Made:
    """Nothing."""
    raise DataError(
        "zinc-12k is published as pickles alone, which are never read: write its graphs as graphs.csv, nodes.csv and "
        "edges.csv, which `edgewise train own-graphs` reads"
    )


@dataclass(frozen=True)
class Standard:
    """One set of data, a line of `standard.tsv`.

    Symbols     options = what the recipe needs to train on it, {} being the folder; make = what makes the files `made`
                of those that are published, which have no sha256 where nobody publishes one
    """

    what: str
    recipe: str
    options: tuple[tuple[str, str], ...]
    make: Callable[[list[Path], Path], Made]
    made: tuple[str, ...]
    files: tuple[Remote, ...]
    licence: str
    split: str
    simple: str

    @classmethod
    def read(cls, what: str, recipe: str, options: str, make: str, made: str, files: str, *known: str) -> Standard:
        """One from the cells of its line."""
        of = [file.split("|") for file in files.split()]
        remotes = tuple(Remote(name, url, sha256, int(most)) for name, url, sha256, most in of)
        given = tuple((option, value) for option, _, value in (one.partition("=") for one in options.split()))
        return cls(what, recipe, given, MAKERS[make], tuple(made.split()), remotes, *known)


MAKERS: dict[str, Callable[[list[Path], Path], Made]] = {
    make.__name__: make
    for make in (facts, heterophilous, ogb_nodes, ogb_store, ogb_molecules, peptides, qm9, movielens)
    + (ag_news, sst2, cifar, pickled)
}
_LINES = Path(__file__).with_name("standard.tsv").read_text(encoding="utf-8").splitlines()[1:]
STANDARD = {name: Standard.read(*cells) for name, *cells in (line.split("\t") for line in _LINES)}


def named(name: str) -> Standard:
    """A set by its name."""
    if name not in STANDARD:
        raise ConfigError(f"unknown data {name!r}{nearest(name, STANDARD)}; `edgewise data list` names them")
    return STANDARD[name]


def ready(name: str, folder: str | None = None, download: bool = False) -> Path:
    """The folder with a set as its recipe reads it: as it is, or made of the published files, which lie there, in
    $EDGEWISE_DATA/NAME or in the cache, or are fetched there.

    Errors      ConfigError for an unknown name; DataError for files that are missing, malformed or have another hash
    """
    known = named(name)
    with suppress(DataError):
        if known.made:
            return local_folder(name, known.made, folder)
    names = [file.name for file in known.files]
    if unsure := [file.url for file in known.files if not file.sha256]:
        advice = f"Nobody publishes its sha256, so it is not downloaded: put it there from {unsure[0]}"
        place = local_folder(name, names, folder, advice)
    else:
        place = find_folder(name, known.files, folder, download)
    out = Path(folder).expanduser() if folder else cache_path(name)
    part = out / ".making"
    rmtree(part, ignore_errors=True)  # what was broken off before
    for path, content in known.make([unpacked(place / one) for one in names], out).items():
        (part / path).parent.mkdir(parents=True, exist_ok=True)
        (part / path).write_bytes(content)
    for path in known.made:  # what is there by its name is whole
        with reading(place, f"the files of {name}"):
            (part / path).rename(out / path)
    part.rmdir()
    return out


def options(name: str, place: Path) -> list[tuple[str, str]]:
    """The options of a recipe that train on a set in its folder."""
    task = recipes.task_of(recipes.read(STANDARD[name].recipe))
    return [("task", task), *((option, value.format(place)) for option, value in STANDARD[name].options)]


def placed(overrides: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Options with `task.data NAME`, and perhaps `task.download true`, in place of a file or folder; others win."""
    given = dict(overrides)
    if "task.data" not in given:
        return overrides
    if (download := given.get("task.download", "false")) not in ("true", "false"):
        raise ConfigError(f"task.download must be true or false, not {download!r}")
    rest = [(option, value) for option, value in overrides if option not in ("task.data", "task.download")]
    name = given["task.data"]
    made = options(name, ready(name, download=download == "true"))
    return [*((option, value) for option, value in made if option not in dict(rest)), *rest]


def data(what: str, name: str | None, folder: str | None) -> dict[str, Any]:
    """Carry out `data list` or `data get`."""
    if what == "list":
        if name or folder:
            raise ConfigError("data list takes no name and no folder")
        rows = [
            {
                "data": one,
                "what": known.what,
                "recipe": known.recipe,
                "get": "no" if not known.files else "yes" if all(file.sha256 for file in known.files) else "bring it",
                "split": known.split,
                "a simple method": known.simple,
                "licence": known.licence,
            }
            for one, known in STANDARD.items()
        ]
        print(columns(rows))
        return {"data": rows}
    if not name:
        raise ConfigError("data get takes a NAME; `edgewise data list` shows them")
    place = ready(name, folder, download=True)
    given = [f"--{option}={value}" for option, value in options(name, place)[1:]]
    command = shlex.join(["edgewise", "train", STANDARD[name].recipe, *given])
    print(f"{place}: {', '.join(STANDARD[name].made)}\n{command}")
    return {"data": name, "folder": str(place), "train": command}
