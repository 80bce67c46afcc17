"""On real data, the order of an explanation's scores is closer to what the model reads than random orders are.

python -m benchmarks.studies.explanations

Trains recipes, Multi30k's with fewer steps and smaller sizes, and explains ten held-out examples of each as `edgewise
explain` does unless another method is named: the margins above random orders, mean and smallest.
"""

import io
import json
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from statistics import fmean
from typing import Any

from edgewise.apps.command.main import main as command_line
from edgewise.apps.console import shown
from edgewise.tasks.core.source import find_folder, local_folder
from edgewise.tasks.text.translation import multi30k_files, read_language

EXAMPLES = 10
SMALL_MODEL = "--model.width 128 --model.encoder_depth 1 --model.decoder_depth 1 --model.feed_forward.hidden 256"
FEW_STEPS = "--train.steps 600 --schedule.warmup 60 --evaluation.every 600 --task.beam 1"
ONE = range(7, 8)
SEVERAL = range(8, 13)  # of networks that differ much in how their explanations fare
# What a row is called, its recipe and options, seeds.
ROWS = {
    "`cora-gcn`": ("cora-gcn", ONE),
    "`esol-gin`": ("esol-gin", ONE),
    "`demo-digits`": ("demo-digits", ONE),
    "`demo-text` on Shakespeare": ("demo-text --task.source shakespeare", ONE),
    "`multi30k-de-en`, shortened": (f"multi30k-de-en {SMALL_MODEL} {FEW_STEPS}", ONE),
    "`slides-min-cut`": ("slides-min-cut", ONE),
    "`mutag-gin`, five seeds": ("mutag-gin", SEVERAL),
}


def held_out(recipe: str) -> Sequence[str]:
    """Inputs of the split that neither trains nor chooses the weights; a text has none: of its validation part."""
    if recipe == "cora-gcn":
        return [str(node) for node in range(1708, 2708, 100)]
    if recipe == "demo-text":
        text = (local_folder("tinyshakespeare", ["input.txt"]) / "input.txt").read_text()
        first = int(0.9 * len(text))
        return [text[start : start + 32] for start in range(first, first + 50_000, 5_000)]
    if recipe == "multi30k-de-en":
        return read_language(find_folder("multi30k", multi30k_files("de", "en")), "de")["test"][:EXAMPLES]
    return [f"test:{number}" for number in range(EXAMPLES)]


def result(*words: str) -> dict[str, Any]:
    """What a command of `edgewise` prints at its end."""
    with redirect_stdout(io.StringIO()) as printed:
        assert command_line([*words, "--json"]) == 0
    return json.loads(printed.getvalue().splitlines()[-1])


def margins(command: str, seeds: Sequence[int]) -> tuple[str, dict[str, list[float]]]:
    """The test measure, and the margins of edges and nodes."""
    recipe, *options = command.split()
    reached, found = [], dict[str, list[float]](edges=[], nodes=[])
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            run, where = f"{folder}/run-{seed}", ["--machine.device", "cpu", "--machine.threads", "1"]
            trained = result("train", recipe, *options, *where, "--train.seed", str(seed), "--run", run)
            reached.append(trained["mean"])
            for text in held_out(recipe):
                fidelity = result("explain", run, text, "--out", str(Path(folder) / "page.html"))["fidelity"]
                for part, values in found.items():
                    values.append(fidelity[part])
    return f"{trained['metric']} {shown(trained['metric'], fmean(reached))}", found


def main() -> None:
    print("| recipe | test measure | edges | nodes |\n|---|---|---|---|", flush=True)
    for name, (command, seeds) in ROWS.items():
        measure, found = margins(command, seeds)
        cells = " | ".join(f"{fmean(values):.2f} ({min(values):.2f})" for values in found.values())
        print(f"| {name} | {measure} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
