"""Do a graph transformer's blocks find mines that neither a node's own features nor a graph convolution's do?

python -m benchmarks.studies.claims.mines [seeds]

A lattice as in the game, whose squares touch their eight neighbours; a fifth are mines. A square says how many mines
touch it, or, one in two, nothing; which are mines is asked for. `own-nodes` learns each model with the same width,
depth, rate and patience; the validation squares choose its weights, by the area under the ROC curve. Without blocks
(depth 0) there are a square's own features alone.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.studies.training import tested

SIDE, MINES, HIDDEN = 60, 0.2, 0.5
SHARED = {"width": 64, "dropout": 0.2}
TRANSFORMER = SHARED | {"name": "graph-transformer", "heads": 4, "block": "pre-norm"}
GNN = SHARED | {"name": "gnn", "depth": 4, "connection": "residual", "norm": "layer"}
MODELS: dict[str, dict[str, Any]] = {
    "graph transformer": TRANSFORMER | {"depth": 4},
    "the same without blocks": TRANSFORMER | {"depth": 0},
    "GCN": GNN | {"layer": "gcn"},
    "GraphSAGE": GNN | {"layer": "sage-mean"},
}


def lattice(side: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, list[tuple[int, int]]]:
    """Which squares are mines, how many touch each (-1: it does not say), and which squares touch, each pair once."""
    draw = torch.Generator().manual_seed(seed)
    mines = (torch.rand(side, side, generator=draw) < MINES).long()
    padded = torch.nn.functional.pad(mines, (1, 1, 1, 1))
    around = sum(padded[1 + i : 1 + i + side, 1 + j : 1 + j + side] for i in (-1, 0, 1) for j in (-1, 0, 1)) - mines
    told = torch.where(torch.rand(side, side, generator=draw) < HIDDEN, -1, torch.as_tensor(around))
    steps = ((0, 1), (1, -1), (1, 0), (1, 1))
    squares = [(i, j, i + a, j + b) for i in range(side) for j in range(side) for a, b in steps]
    pairs = [(i * side + j, k * side + m) for i, j, k, m in squares if k < side and 0 <= m < side]
    return mines.flatten(), told.flatten(), pairs


def write(folder: Path, side: int, seed: int) -> None:
    """The tables that `own-nodes` reads."""
    mines, told, pairs = lattice(side, seed)
    folder.mkdir(parents=True)
    with (folder / "nodes.csv").open("w", newline="") as file:
        rows = [
            [f"s{n}", mine, *(int(count == k) for k in range(9))]
            for n, (mine, count) in enumerate(zip(mines.tolist(), told.tolist(), strict=True))
        ]
        csv.writer(file).writerows([["id", "label", *(f"touches {k}" for k in range(9))], *rows])
    with (folder / "edges.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["source", "target"], *((f"s{a}", f"s{b}") for a, b in pairs)])


def measure(
    seeds: int, side: int = SIDE, models: dict[str, dict[str, Any]] = MODELS, **options: Any
) -> Iterator[tuple[str, list[float]]]:
    """Each model's areas under the curve on the test squares of a lattice for each seed."""
    with TemporaryDirectory() as place:
        for name, model in models.items():
            found = []
            for seed in range(seeds):
                data = Path(place) / f"{seed}"
                if not data.exists():
                    write(data, side, seed)
                run = Path(place) / f"{name}-{seed}"
                chosen = {"folder": str(data), "model": model, "evaluation": {"metric": "roc_auc"}}
                found.append(tested("own-nodes", run, **chosen, **options))
            yield name, found


def main(seeds: int) -> None:
    print("| model | test | seeds |\n|---|---|---|")
    for name, each in measure(seeds, optimizer={"learning_rate": 0.003}):
        print(f"| {name} | {100 * mean(each):.1f} % ± {100 * stdev(each):.1f} % | {len(each)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
