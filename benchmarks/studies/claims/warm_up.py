"""Pre- and post-norm over depth, with and without warm-up: which networks train?

python -m benchmarks.studies.claims.warm_up [--kept FILE.json] [--picture FILE.svg]

The recipe digits-vit with layer norms and width 32, at three depths, for 200 steps at a rate of 0.001 that falls
along a cosine: at once, or after a warm-up of 50 steps. Test accuracy of the weights that were best on the validation
data, the mean of seeds 0 and 1.
"""

import tempfile
import time
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.studies.claims.kept import Figures, Kept, arguments, draw
from benchmarks.studies.claims.plots import names, over
from edgewise import training
from edgewise.apps import options, recipes
from edgewise.apps.report import figures

DEPTHS, SEEDS, STEPS = (2, 8, 24), 2, 200
KINDS = {
    (block, warm_up): f"{block}, {'warm-up' if warm_up else 'none'}"
    for block in ("pre-norm", "post-norm")
    for warm_up in (0, 50)
}
# With 24 layers: pre-norm without warm-up, post-norm without, and what warm-up adds to the latter.
LEAST, MOST, GAIN = 0.90, 0.50, 0.20


def one(block: str, warm_up: int, depth: int, seed: int, steps: int = STEPS) -> Figures:
    """Test accuracy, and the processor's seconds."""
    began = time.process_time()
    chosen = [("model.block.name", block), ("model.block.norm", "layer"), ("model.depth", str(depth))]
    chosen += [("model.width", "32"), ("optimizer.learning_rate", "0.001"), ("schedule.warmup", str(warm_up))]
    chosen += [("train.steps", str(steps)), ("evaluation.every", "50"), ("train.checkpoints.every", "1000")]
    chosen += [("train.seed", str(seed)), ("machine.threads", "1")]
    config = options.configure(recipes.read("digits-vit"), chosen)
    with tempfile.TemporaryDirectory() as folder:
        result = training.train(config, Path(folder) / "run", progress=False)
    return {"accuracy": result.value, "seconds": time.process_time() - began}


Table = dict[tuple[str, int], list[float]]


def measure(kept: Kept, depths: tuple[int, ...] = DEPTHS, seeds: int = SEEDS, steps: int = STEPS) -> Table:
    """The mean accuracy of each kind at each depth, printed line by line."""
    table: Table = {}
    print(
        f"| block, warm-up | {' | '.join(map(str, depths))} | seconds |\n|---{'|---' * (len(depths) + 1)}|", flush=True
    )
    for (block, warm_up), name in KINDS.items():
        table[block, warm_up], seconds = [], 0.0
        for depth in depths:
            runs = [
                kept.get(f"{name} {depth} {seed}", lambda b=block, w=warm_up, d=depth, s=seed: one(b, w, d, s, steps))  # type: ignore[misc]
                for seed in range(seeds)
            ]
            table[block, warm_up].append(sum(run["accuracy"] for run in runs) / seeds)
            seconds += sum(run["seconds"] for run in runs)
        cells = " | ".join(f"{100 * accuracy:.1f} %" for accuracy in table[block, warm_up])
        print(f"| {name} | {cells} | {seconds:.0f} |", flush=True)
    return table


def picture(table: Table, depths: tuple[int, ...] = DEPTHS) -> Figure:
    """Accuracy over depth; dashed without warm-up."""
    with figures.drawing(2.8, width=5.6) as (figure, grid):
        axes = grid[0, 0]
        for (block, warm_up), accuracies in table.items():
            colour, style = figures.CLASSES[block == "post-norm"], "-" if warm_up else "--"
            label = f"{block}, {'with' if warm_up else 'without'} warm-up"
            axes.plot(depths, accuracies, style, color=colour, marker="o", markersize=3, label=label)
        over(axes, depths, "blocks", "test accuracy on digits", percent=True)
        names(figure)
    return figure


def main() -> None:
    args = arguments(__doc__)
    draw(picture(measure(Kept(args.kept))), args.picture, "warm-up")


if __name__ == "__main__":
    main()
