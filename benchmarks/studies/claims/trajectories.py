"""Networks that know what a turn is against one that does not, at equal budgets: error over training trajectories.

python -m benchmarks.studies.claims.trajectories [--kept FILE.json] [--picture FILE.svg]

The columns of the table of equivariant networks, but for the SE(3)-Transformer, forecast the charged particles of
`nbody`: message passing on coordinates (GNN), radial field, tensor field network (TFN), SchNet and EGNN. Each has the
layers and the rate of its recipe and takes 1,500 steps of 50 trajectories (seed 0), which are read as they are, or
turned and mirrored at random whenever they are read. The mean squared error of a coordinate on 2,000 test
trajectories, with the weights that were best on 2,000 validation trajectories.
"""

import tempfile
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure

from benchmarks.studies.claims.common.budget import parameters
from benchmarks.studies.claims.common.kept import Figures, Kept, arguments, draw
from benchmarks.studies.claims.common.plots import names, over
from edgewise import training
from edgewise.apps import options, recipes
from edgewise.apps.report import figures

SIZES, STEPS, BATCH = (100, 300, 1_000, 3_000), 1_500, 50
# The recipe, and whether training trajectories are turned.
NETWORKS = {
    "GNN": ("nbody-gnn", False),
    "GNN, turned data": ("nbody-gnn", True),
    "radial field": ("nbody-radial-field", False),
    "TFN": ("nbody-tfn", False),
    "SchNet": ("nbody-schnet", False),
    "EGNN": ("nbody-egnn", False),
    "EGNN, turned data": ("nbody-egnn", True),
}
FEWER = 0.5  # EGNN's error over that of the GNN from the fewest trajectories, at most
SAME = 0.1  # by what share turned data may change EGNN's error


def one(recipe: str, turned: bool, size: int, steps: int = STEPS) -> Figures:
    """The test error from so many trajectories, with the processor's seconds and the number of weights."""
    chosen = {
        "task.training": size,
        "task.turned": turned,
        "train.steps": steps,
        "train.batch": BATCH,
        "train.checkpoints.every": steps,
        "evaluation.every": max(1, steps // 15),
        "evaluation.patience": 0,
    }
    config = options.configure(recipes.read(recipe), [(name, str(value).lower()) for name, value in chosen.items()])
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result = training.train(config, Path(folder) / "run", progress=False)
        size = parameters(training.load_run(result.run).model)
    return {"mse": result.value, "seconds": time.process_time() - began, "parameters": size}


Table = dict[str, list[Figures]]


def measure(kept: Kept, sizes: tuple[int, ...] = SIZES, steps: int = STEPS) -> Table:
    print(f"| network | weights | {' | '.join(f'{size:,} trajectories' for size in sizes)} | seconds |")
    print(f"|---{'|---' * (len(sizes) + 2)}|", flush=True)
    table: Table = {}
    for name, (recipe, turned) in NETWORKS.items():
        table[name] = [kept.get(f"{name} {size}", one, recipe, turned, size, steps) for size in sizes]
        cells = " | ".join(f"{own['mse']:.4f}" for own in table[name])
        seconds = sum(own["seconds"] for own in table[name])
        print(f"| {name} | {table[name][0]['parameters']:,.0f} | {cells} | {seconds:.0f} |", flush=True)
    return table


def picture(table: Table, sizes: tuple[int, ...] = SIZES) -> Figure:
    """Error over the number of trajectories, dashed where they are turned."""
    shown = list(dict.fromkeys(recipe for recipe, _ in NETWORKS.values()))
    with figures.drawing(3.2, width=6.2) as (figure, grid):
        axes = grid[0, 0]
        for name, row in table.items():
            recipe, turned = NETWORKS[name]
            colour, line = figures.CLASSES[shown.index(recipe)], "--" if turned else "-"
            axes.plot(sizes, [own["mse"] for own in row], line, color=colour, marker="o", markersize=3, label=name)
        over(axes, sizes, "training trajectories", "mean squared error of a coordinate")
        names(figure)
    return figure


def main() -> None:
    args = arguments(__doc__)
    torch.set_num_threads(1)
    draw(picture(measure(Kept(args.kept))), args.picture, "trajectories")


if __name__ == "__main__":
    main()
