"""Networks that know what a turn is against one that does not, at equal budgets: error over training trajectories.

python -m benchmarks.studies.claims.trajectories

The columns of the table of equivariant networks forecast the charged particles of `nbody`: message passing on
coordinates (GNN), radial field, tensor field network (TFN), SE(3)-Transformer, SchNet and EGNN. Each has the layers and
the rate of its recipe and takes 1,500 steps of 50 trajectories, which are read as they are, or turned and mirrored at
random whenever they are read. The mean squared error of a coordinate on 2,000 test trajectories, with the weights that
were best on 2,000 validation trajectories. From 100 trajectories its mean and sample deviation over three seeds, which
draw weights and batches; the trajectories are the same.
"""

import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.studies.training import parameters
from edgewise import training
from edgewise.apps import options, recipes

SIZES, STEPS, BATCH, SEEDS = (100, 300, 1_000, 3_000), 1_500, 50, (0, 1, 2)
# The recipe, and whether training trajectories are turned.
NETWORKS = {
    "GNN": ("nbody-gnn", False),
    "GNN, turned data": ("nbody-gnn", True),
    "radial field": ("nbody-radial-field", False),
    "TFN": ("nbody-tfn", False),
    "SE(3)-Transformer": ("nbody-se3", False),
    "SchNet": ("nbody-schnet", False),
    "EGNN": ("nbody-egnn", False),
    "EGNN, turned data": ("nbody-egnn", True),
}


def one(recipe: str, turned: bool, size: int, steps: int = STEPS, seed: int = 0) -> dict[str, float]:
    """The test error from so many trajectories, with the processor's seconds and the number of weights."""
    chosen = {
        "train.seed": seed,
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


Table = dict[str, list[dict[str, float]]]


def measure(sizes: tuple[int, ...] = SIZES, steps: int = STEPS, seeds: tuple[int, ...] = SEEDS) -> Table:
    """All seeds from the fewest trajectories, and the first one from more."""
    print(f"| network | weights | {' | '.join(f'{size:,} trajectories' for size in sizes)} | seconds |")
    print(f"|---{'|---' * (len(sizes) + 2)}|", flush=True)
    table: Table = {}
    for name, (recipe, turned) in NETWORKS.items():
        table[name] = []
        for size in sizes:
            drawn = seeds if size == min(sizes) else seeds[:1]
            runs = [one(recipe, turned, size, steps, seed) for seed in drawn]
            errors, own = [run["mse"] for run in runs], {"seconds": sum(run["seconds"] for run in runs)}
            deviation = statistics.stdev(errors) if len(errors) > 1 else 0.0
            own |= {"mse": statistics.fmean(errors), "sd": deviation, "parameters": runs[0]["parameters"]}
            table[name].append(own)
        cells = " | ".join(map(written, table[name]))
        seconds = sum(own["seconds"] for own in table[name])
        print(f"| {name} | {table[name][0]['parameters']:,.0f} | {cells} | {seconds:.0f} |", flush=True)
    return table


def written(own: dict[str, float]) -> str:
    deviation = f" ± {own['sd']:.4f}" if own["sd"] else ""
    return f"{own['mse']:.4f}{deviation}"


def main() -> None:
    torch.set_num_threads(1)
    measure()


if __name__ == "__main__":
    main()
