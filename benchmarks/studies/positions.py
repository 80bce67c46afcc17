"""One small language model with each way of telling positions: its loss, and its loss on texts four times as long.

python -m benchmarks.studies.positions [STEPS]

Trains the recipe shakespeare-positions once for each name of POSITIONS, on texts of 64 characters, and reads the
validation part in windows of 64 and of 256 characters with the same weights.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from edgewise import training
from edgewise.apps import options, recipes
from edgewise.errors import ShapeError
from edgewise.models.text.transformer import POSITIONS

LONG = 256


def loss_on_longer_texts(run: Path) -> float | None:
    """The validation loss in windows of LONG characters; None where the positions end before."""
    loaded = training.load_run(run)
    task = replace(loaded.config.task, options={**loaded.config.task.options, "context": LONG})
    longer, _ = training.assemble(replace(loaded.config, task=task))
    try:
        return training.evaluate(loaded.model, longer, "valid", 32, loaded.pattern)["loss"]
    except ShapeError:
        return None


def main(steps: str) -> None:
    print(f"| positions | loss at 64 | loss at {LONG} |\n|---|---|---|", flush=True)
    for name in POSITIONS:
        chosen = [("model.positions", name), ("train.steps", steps)]
        config = options.configure(recipes.read("shakespeare-positions"), chosen)
        with tempfile.TemporaryDirectory() as folder:
            result = training.train(config, Path(folder) / "run", progress=False)
            longer = loss_on_longer_texts(result.run)
        shown = "refused: there is no such position" if longer is None else f"{longer:.3f}"
        print(f"| {name} | {result.value:.3f} | {shown} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "1000")
