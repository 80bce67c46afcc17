"""Does a text model write molecules that exist, and new ones, more often than n-grams do?

python -m benchmarks.studies.claims.molecules [seeds]

The molecules of ESOL, Lipophilicity, BACE and ClinTox, each once, in RDKit's spelling of at most 100 characters: 80 %
train, 10 % choose the weights. A small `own-text-model` reads their characters for 800 steps; n-grams (Kneser and Ney)
count the same ones. Each writes 1,000 texts at temperature 1, for each of five seeds. Valid: RDKit reads and sanitises
it; unique: of the valid ones, those that differ; novel: of these, those that are no training molecule. Atoms: how large
valid ones are, since a text of few atoms is easily valid.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

import edgewise
from edgewise.data.splits import Split, shuffled
from edgewise.errors import DataError
from edgewise.tasks.core.source import local_folder
from edgewise.tasks.graphs.molecules import parse
from edgewise.tasks.own.language import NGrams
from edgewise.tasks.text.smiles import canonical
from edgewise.tasks.text.tokenization import CharacterTokenizer

FILES = (
    ("esol", "delaney-processed.csv", "smiles"),
    ("moleculenet", "lipo.csv", "smiles"),
    ("moleculenet", "bace.csv", "mol"),
    ("moleculenet", "clintox.csv", "smiles"),
)
LONGEST, DRAWN, ORDERS = 100, 1000, (3, 5, 9)
SMALL: dict[str, Any] = {
    "model": {"width": 96, "depth": 3},
    "train": {"steps": 800},
    "schedule": {"name": "cosine", "warmup": 50, "minimum": 0.0},
}


def spelt(texts: Sequence[str]) -> list[str]:
    """The molecules among some texts, in RDKit's spelling."""
    found = list[str]()
    for text in texts:
        try:
            found.append(canonical(text))
        except DataError:
            continue
    return found


def read() -> list[str]:
    """The molecules of all files, each once."""
    files = [(local_folder(folder, [file]) / file, column) for folder, file, column in FILES]
    texts = [text for file, column in files for text in pl.read_csv(file)[column].to_list()]
    return [text for text in dict.fromkeys(spelt(texts)) if len(text) <= LONGEST]


def from_counts(texts: Sequence[str], order: int, count: int, seed: int = 0) -> list[str]:
    """What n-grams of these texts write: each character by its probability after those before it."""
    tokenizer = CharacterTokenizer.learn(texts)
    end, size, draw = tokenizer.end, tokenizer.size, np.random.default_rng(seed)
    apart = [end] * (order - 1)  # so that no text reads the one before it
    tokens = [token for text in tokenizer.encode(texts) for token in (*apart, *text)]
    model = NGrams(np.array([*tokens, *apart]), size, order)
    written = np.full((count, order - 1), end)
    going = np.ones(count, dtype=bool)
    for _ in range(LONGEST):
        before = np.repeat(written[going, written.shape[1] - order + 1 :], size, 0)
        each = np.column_stack([before, np.tile(np.arange(size), going.sum())])
        p = model.probabilities(each.ravel())[order - 1 :: order].reshape(-1, size).cumsum(1)
        drawn = (p < draw.random((len(p), 1)) * p[:, -1:]).sum(1)
        written = np.column_stack([written, np.full(count, end)])
        written[going, -1] = drawn
        going[going] = drawn != end
    return ["".join(tokenizer.decode(row)) for row in written[~going].tolist()]


def from_model(texts: Mapping[Split, list[str]], place: Path, count: int, **options: Any) -> list[str]:
    """What `own-text-model` writes, of which texts without an end are left out."""
    rows = [(text, split) for split, own in texts.items() for text in own]
    pl.DataFrame(rows, schema=["text", "split"], orient="row").write_csv(place / "molecules.csv")
    data = {"file": str(place / "molecules.csv"), "level": "character"}
    edgewise.train("own-text-model", place / "run", task=data, evaluation={"simple": 0}, **options)
    made = edgewise.load(place / "run").generate("", steps=LONGEST, count=count, temperature=1.0)
    return [text for text, ended in zip(made["texts"], made["ended"], strict=True) if ended == "end"]


def judged(written: Sequence[str], known: set[str], count: int) -> list[float]:
    """The shares of valid, unique and novel molecules among `count`, and of all three; the mean number of atoms."""
    valid = spelt(written)
    unique = set(valid)
    new = unique - known
    atoms = [parse(text).GetNumAtoms() for text in valid]
    shares = [len(valid) / count, len(unique) / max(1, len(valid)), len(new) / max(1, len(unique)), len(new) / count]
    return [*shares, float(np.mean(atoms or [0])), float(np.std(atoms or [0]))]


def measure(
    molecules: list[str], seeds: int, count: int = DRAWN, **options: Any
) -> Iterator[tuple[str, list[list[float]]]]:
    """What each method writes, judged for each seed; before it what neither trained nor chose the weights."""
    cut = shuffled(len(molecules), 0)
    texts = {split: [molecules[row] for row in rows.tolist()] for split, rows in cut.items()}
    known = set(texts["train"])
    yield "held-out molecules", [judged(texts["test"], known, len(texts["test"]))]
    for n in ORDERS:
        written = [from_counts(texts["train"], n, count, seed) for seed in range(seeds)]
        yield f"{n}-grams", [judged(one, known, count) for one in written]
    found = []
    for seed in range(seeds):
        own = {**options, "train": {**options["train"], "seed": seed}}
        with TemporaryDirectory() as place:
            found.append(judged(from_model(texts, Path(place), count, **own), known, count))
    yield "text model", found


def main(seeds: int = 5) -> None:
    print("| written by | valid | unique | novel | all three | atoms |\n|---|---|---|---|---|---|")
    for name, found in measure(read(), seeds, **SMALL):
        *shares, atoms, apart = np.mean(found, 0)
        spread = np.std(found, 0, ddof=1) if len(found) > 1 else None
        cells = [
            f"{100 * share:.1f} %" + ("" if spread is None else f" ± {100 * spread[column]:.1f} %")
            for column, share in enumerate(shares)
        ]
        print(f"| {name} | {' | '.join(cells)} | {atoms:.1f} ± {apart:.1f} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
