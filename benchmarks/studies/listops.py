"""Nested lists of up to 512 tokens, worked out by seven kinds of attention: accuracy, time of a step, memory.

python -m benchmarks.studies.listops [STEPS]

A step's time is the processor's on one thread, forward and backward, the median of ten rounds in which each kind in
turn reads the same 32 expressions. Then each recipe listops-* is trained for the same steps with the same batches, in a
process of its own, whose memory is the peak above what was resident before.
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
from edgewise.training.settings import RunConfig

KINDS = ("full", "sparse", "lsh", "routing", "sinkhorn", "performer", "linear")
ROUNDS = 10


def configured(kind: str, steps: str | None = None) -> RunConfig:
    """The recipe of that kind, for as many steps as were asked for."""
    return options.configure(recipes.read(f"listops-{kind}"), [] if steps is None else [("train.steps", steps)])


def milliseconds() -> dict[str, float]:
    """The time of a step of each kind, taken in turns, after a round that counts for nothing."""
    configs = {kind: configured(kind) for kind in KINDS}
    assembled = {kind: training.assemble(config) for kind, config in configs.items()}
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(ROUNDS + 1):
        for kind, (task, model) in assembled.items():
            batch = task.train_batch(32, torch.Generator().manual_seed(number), configs[kind].graph)
            began = time.process_time()
            task.loss(model(batch.graph, batch.x), batch).backward()
            seconds[kind].append(time.process_time() - began)
            model.zero_grad()
    return {kind: 1000 * statistics.median(measured[1:]) for kind, measured in seconds.items()}


def peak() -> int:
    """The most bytes that this process has had resident."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def learn(kind: str, steps: str | None) -> str:
    """Test accuracy, memory and the processor's minutes of one kind, as columns of the table."""
    config = configured(kind, steps)
    task, _ = training.assemble(config)
    task.train_batch(1, torch.Generator())
    resident, began = peak(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result = training.train(config, Path(folder) / "run", progress=False)
    minutes = (time.process_time() - began) / 60
    return f"{result.value:.1%} | {(peak() - resident) / 1e6:.0f} MB | {minutes:.1f}"


def main(steps: str | None) -> None:
    measured = milliseconds()
    print("| attention | a step | test accuracy | memory | minutes |\n|---|---|---|---|---|", flush=True)
    for kind in KINDS:
        command = [sys.executable, "-m", "benchmarks.studies.listops", kind, *([] if steps is None else [steps])]
        columns = subprocess.check_output(command, text=True).strip()  # noqa: S603
        print(f"| {kind} | {measured[kind]:.0f} ms | {columns} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    asked = sys.argv[1:]
    if asked and asked[0] in KINDS:
        print(learn(asked[0], asked[1] if len(asked) > 1 else None))
    else:
        main(asked[0] if asked else None)
