"""Nested lists of up to 512 tokens, worked out by seven kinds of attention: accuracy, time of a step, memory.

python benchmarks/listops.py [STEPS]

Trains each recipe listops-* for the same steps with the same batches, in a process of its own; a step's time is the
processor's on one thread, the median of ten after training; memory is the peak above what was resident before.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from edgewise import training
from edgewise.apps import options, recipes

KINDS = ("full", "sparse", "lsh", "routing", "sinkhorn", "performer", "linear")


def peak() -> int:
    """The most bytes that this process has had resident."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(kind: str, chosen: list[tuple[str, str]]) -> str:
    """One row of the table."""
    config = options.configure(recipes.read(f"listops-{kind}"), chosen)
    task, _ = training.assemble(config)
    task.train_batch(1, torch.Generator())
    resident, began = peak(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = training.train(config, Path(folder) / "run", progress=False)
        minutes, memory = (time.perf_counter() - began) / 60, (peak() - resident) / 1e6
        loaded = training.load_run(result.run)
    loaded.model.train()
    seconds, generator = [], torch.Generator().manual_seed(0)
    for _ in range(10):
        batch = task.train_batch(config.train.batch, generator, loaded.pattern)
        began = time.process_time()
        task.loss(loaded.model(batch.graph, batch.x), batch).backward()
        seconds.append(time.process_time() - began)
    step = f"{1000 * statistics.median(seconds):.0f} ms"
    return f"| {kind} | {result.value:.1%} | {step} | {memory:.0f} MB | {minutes:.1f} |"


def main(steps: str | None) -> None:
    chosen = [] if steps is None else [steps]
    print("| attention | test accuracy | a step | memory | minutes |\n|---|---|---|---|---|", flush=True)
    for kind in KINDS:
        command = [sys.executable, __file__, kind, *chosen]
        print(subprocess.check_output(command, text=True).strip(), flush=True)  # noqa: S603


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in KINDS:
        torch.set_num_threads(1)
        print(measure(sys.argv[1], [("train.steps", steps) for steps in sys.argv[2:]]))
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else None)
