"""Recipes on data that they were not made for, unchanged but for the data's name, beside what simple methods reach.

python -m benchmarks.studies.generalisation.others [--kept FILE.json] [--only NAME ...]

No option is chosen on these data: widths, depths, rates and numbers of steps are those that a recipe has for the data
in its name. The weights are the best on the validation data, and the test data are read once, for each of ten seeds
(CiteSeer, with its public split; three seeds of translations) or ten cuts (the others). The simple methods are those of
`benchmarks.studies.generalisation.baselines`, whose penalties and shares are chosen on the validation data. The files
lie in $EDGEWISE_DATA; those of CiteSeer, WebKB and Multi30k are also fetched with `--task.download true`.
"""

import statistics
import tempfile
from argparse import ArgumentParser
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.studies.claims.common.kept import Figures, Kept
from benchmarks.studies.generalisation.baselines import simple
from edgewise import training
from edgewise.apps import options, recipes
from edgewise.apps.command.runs import with_fold


class Other(NamedTuple):
    """A recipe, the option that names its data, another name; how many runs, cuts or seeds, and the first of these."""

    recipe: str
    option: str
    name: str
    runs: int = 10
    cuts: bool = True
    first: int = 0


NETWORK = "the recipe's network"
OTHERS = {
    "CiteSeer, GCN": Other("cora-gcn", "dataset", "citeseer", cuts=False),
    "CiteSeer, GAT": Other("cora-gat", "dataset", "citeseer", cuts=False),
    "CiteSeer, GRAND": Other("cora-random-propagation", "dataset", "citeseer", cuts=False),
    "Wisconsin, ACM": Other("texas-acm", "dataset", "wisconsin"),
    "Wisconsin, perceptron": Other("texas-mlp", "dataset", "wisconsin"),
    "PROTEINS, SAGE": Other("enzymes-sage", "dataset", "PROTEINS"),
    "NCI1, GIN": Other("mutag-gin", "dataset", "NCI1"),
    "French to English": Other("multi30k-post-norm", "direction", "fr-en", runs=3, cuts=False),
    "Czech to English": Other("multi30k-post-norm", "direction", "cs-en", runs=3, cuts=False),
    "Czech to English, 4,500 steps": Other("multi30k-de-en", "direction", "cs-en", runs=1, cuts=False, first=30),
}
# Of the network's mean: what its recipe reaches at least, as docs/results.md says.
REQUIRED = {
    "CiteSeer, GCN": 0.703,
    "CiteSeer, GAT": 0.703,
    "CiteSeer, GRAND": 0.725,
    "Wisconsin, ACM": 0.776,
    "Wisconsin, perceptron": 0.776,
    "PROTEINS, SAGE": 0.676,
    "NCI1, GIN": 0.652,
    "French to English": 9.1,
    "Czech to English, 4,500 steps": 8.7,
}
Table = dict[str, dict[str, list[float]]]


def one(other: Other, run: int) -> Figures:
    """The test figures of the network and of the simple methods, for one cut or seed."""
    chosen = [(f"task.{other.option}", other.name), ("machine.threads", "1")]
    config = options.configure(recipes.read(other.recipe), chosen)
    config = with_fold(config, run) if other.cuts else config
    config = replace(config, train=replace(config.train, seed=run))
    with tempfile.TemporaryDirectory() as folder:
        value = training.train(config, Path(folder) / "run", progress=False).value
    task, _ = training.assemble(config)
    return {NETWORK: value} | simple(task)


def measure(kept: Kept, names: list[str]) -> Table:
    print("| data | recipe | test figure | simple methods |\n|---|---|---|---|", flush=True)
    table: Table = {}
    for name in names:
        table[name] = defaultdict(list)
        for run in range(OTHERS[name].first, OTHERS[name].first + OTHERS[name].runs):
            for method, value in kept.get(f"{name} {run}", one, OTHERS[name], run).items():
                table[name][method].append(value)
        network, *others = (f"{method}: {written(values)}" for method, values in table[name].items())
        print(f"| {name} | {OTHERS[name].recipe} | {network.split(': ')[1]} | {'; '.join(others)} |", flush=True)
    return table


def written(values: list[float]) -> str:
    """Accuracies in per cent, BLEU as it is; with the sample standard deviation."""
    scale, unit = (1, "") if max(values) > 1 else (100, " %")
    deviation = f" ± {scale * statistics.stdev(values):.1f}{unit}" if len(values) > 1 else ""
    return f"{scale * statistics.fmean(values):.1f}{unit}{deviation}"


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kept", type=Path, help="a JSON file: what it holds is not measured again")
    parser.add_argument("--only", nargs="+", choices=OTHERS, default=[*OTHERS], metavar="NAME", help="these rows")
    args = parser.parse_args()
    torch.set_num_threads(1)
    measure(Kept(args.kept), args.only)


if __name__ == "__main__":
    main()
