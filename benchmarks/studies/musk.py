"""Cross-validation of the recipe musk-hopfield: ten folds, five times over.

python -m benchmarks.studies.musk [REPEATS [FIRST SEED]]
"""

import statistics
import sys
import tempfile
from pathlib import Path

from edgewise import training
from edgewise.apps import options, recipes
from edgewise.tasks.graphs.musk import BagClassification


def accuracy(fold: int, seed: int) -> tuple[float, int]:
    """The share of the fold's bags that the weights after the last step classify correctly, and how many there are."""
    chosen = [("task.fold", str(fold)), ("task.seed", str(seed)), ("train.seed", str(seed))]
    config = options.configure(recipes.read("musk-hopfield"), chosen)
    with tempfile.TemporaryDirectory() as folder:
        result = training.train(config, Path(folder) / "run", progress=False)
        task = training.load_run(result.run).task
    assert isinstance(task, BagClassification)
    return result.value, len(task.graphs.splits["test"])


def main(repeats: int = 5, first: int = 0) -> None:
    means = []
    print("| repeat | bags | test accuracy |\n|---|---|---|")
    for seed in range(first, first + repeats):
        folds = [accuracy(fold, seed) for fold in range(10)]
        means.append(sum(right * bags for right, bags in folds) / sum(bags for _, bags in folds))
        print(f"| {seed} | {sum(bags for _, bags in folds)} | {100 * means[-1]:.1f} % |", flush=True)
    deviation = f" ± {100 * statistics.stdev(means):.1f} %" if repeats > 1 else ""
    print(f"| mean | | {100 * statistics.mean(means):.1f} %{deviation} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
