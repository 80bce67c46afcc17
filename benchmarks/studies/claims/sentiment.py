"""Do texts without labels help to tell film reviews apart, and from how many labels on do they not?

python -m benchmarks.studies.claims.sentiment [seeds [labels [run]]]

`own-masked-texts` reads the training phrases of SST-2 without their labels, once, unless a run that has is given.
`own-texts` then learns from 100 or 1,000 of them, drawn anew for each seed, or from all (0), by these weights and by
drawn ones; as many more, at most a tenth of all, choose the weights. The 872 labelled sentences test, which neither has
read. Beside both: TF-IDF of words and pairs of words with logistic regression on the same labels.
"""

import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import edgewise
from benchmarks.studies.training import tested
from edgewise.tasks.core.source import local_folder

STEPS = {100: 300, 1000: 800, 0: 0}  # for each number of labels, at most; 0 labels: all, and as many as own-texts takes
TENTH = 10


def read() -> tuple[pl.DataFrame, pl.DataFrame]:
    """The phrases, each once, and the sentences that test."""
    place = local_folder("sst2", ["train.tsv.gz", "dev.tsv"])
    train, test = (pl.read_csv(place / name, separator="\t", quote_char=None) for name in ("train.tsv.gz", "dev.tsv"))
    return train.unique("sentence", maintain_order=True), test


def parts(train: pl.DataFrame, test: pl.DataFrame, labels: int, seed: int) -> pl.DataFrame:
    """So many labelled phrases to train, others to choose the weights, and what tests, with a column `split`."""
    held = min(labels or len(train), len(train) // TENTH)
    rows = random.Random(seed).sample(range(len(train)), min(labels + held, len(train)) if labels else len(train))
    chosen = train[rows].with_columns(split=pl.Series(["valid"] * held + ["train"] * (len(rows) - held)))
    return pl.concat([chosen, test.with_columns(split=pl.lit("test"))])


def simple(table: pl.DataFrame) -> float:
    """The test accuracy of the simple method; C is chosen as the weights are."""
    text = {split: table.filter(pl.col("split") == split) for split in ("train", "valid", "test")}
    words = TfidfVectorizer(ngram_range=(1, 2), analyzer="word")
    x = {"train": words.fit_transform(text["train"]["sentence"])}
    x |= {split: words.transform(text[split]["sentence"]) for split in ("valid", "test")}
    fitted = [LogisticRegression(C=c, max_iter=1000).fit(x["train"], text["train"]["label"]) for c in (0.1, 1, 10, 100)]
    best = max(fitted, key=lambda one: one.score(x["valid"], text["valid"]["label"]))
    return float(best.score(x["test"], text["test"]["label"]))


def measure(seeds: int, numbers: Iterable[int] = STEPS, before: str = "") -> Iterator[tuple[str, str, list[float]]]:
    """The test accuracies of each method from so many labels; from all of them for one seed."""
    train, test = read()
    with TemporaryDirectory() as folder:
        place = Path(folder)
        if not before:
            parts(train, test, 0, 0).write_csv(place / "all.csv")
            before = str(place / "masked")
            edgewise.train("own-masked-texts", before, file=str(place / "all.csv"), epochs=6)
        for labels in numbers:
            found: dict[str, list[float]] = {"TF-IDF": [], "from drawn weights": [], "pre-trained": []}
            for seed in range(seeds if labels else 1):
                table = parts(train, test, labels, seed)
                table.write_csv(place / "labelled.csv")
                found["TF-IDF"].append(simple(table))
                for name, start in (("from drawn weights", ""), ("pre-trained", before)):
                    run, data = place / f"{labels}-{seed}-{bool(start)}", {"file": str(place / "labelled.csv")}
                    chosen: dict[str, Any] = {"start": {"run": start}, "train": {"seed": seed, "steps": STEPS[labels]}}
                    found[name].append(tested("own-texts", run, task=data | {"vocabulary": 8000}, **chosen))
            yield from (
                (f"{labels:,}" if labels else f"all {len(train):,}", name, each) for name, each in found.items()
            )


def main(seeds: int = 5, labels: int | None = None, before: str = "") -> None:
    print("| labels, method | test accuracy | seeds |\n|---|---|---|")
    for number, name, each in measure(seeds, STEPS if labels is None else [labels], before):
        spread = f" ± {100 * stdev(each):.1f} %" if len(each) > 1 else ""
        print(f"| {number}, {name} | {100 * mean(each):.1f} %{spread} | {len(each)} |", flush=True)


if __name__ == "__main__":
    given = dict(zip(("seeds", "labels"), map(int, sys.argv[1:3]), strict=False))
    main(**given, before="".join(sys.argv[3:4]))
