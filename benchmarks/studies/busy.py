"""Training steps beside other programs: on one thread, on two and by default, quiet and beside a busy loop per core.

python -m benchmarks.studies.busy
python -m benchmarks.studies.busy --seconds 10 --recipes karate cora-gcn
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import edgewise  # noqa: F401 - before PyTorch, as by the command: it sets how long threads spin

RECIPES = ("karate", "cora-gcn", "digits-vit", "shakespeare-gpt-cpu")
COLUMNS = {"one": "one thread", "all": "all threads", "default": "default"}
TURN, SETTLE = 3.0, 1.2  # seconds of a turn, and of its steps that do not count


def measure(recipe: str, seconds: float) -> dict[str, dict[str, float]]:
    """Milliseconds of a step, their median and mean, and the threads, in each column; all take turns in one process."""
    import torch

    from benchmarks.ranks.steps import OPTIONS
    from edgewise.apps import recipes
    from edgewise.apps.options import configure
    from edgewise.training.distributed import join
    from edgewise.training.loop import Trainer
    from edgewise.training.machine.threads import Waiting, worthwhile
    from edgewise.training.runs import begin
    from edgewise.training.seeds import repeatable

    config = configure(recipes.read(recipe), OPTIONS.get(recipe, []))
    trainer = Trainer(config, Path(tempfile.mkdtemp()), join("cpu"))
    begin(trainer.model, config)
    most, found = torch.get_num_threads(), {name: list[float]() for name in COLUMNS}
    chosen = {"one": 1, "all": most, "default": worthwhile(trainer.rehearse, most)}
    with repeatable(deterministic=True, threads=most):
        for name in [*COLUMNS] * max(1, round(seconds / TURN)):
            torch.set_num_threads(chosen[name])
            waiting, started, counted = Waiting(chosen[name]), time.perf_counter(), 0
            while counted < 2 or time.perf_counter() < started + TURN:
                trainer.step += 1
                before = time.perf_counter()
                trainer.update()
                step = time.perf_counter() - before
                if before > started + SETTLE:
                    found[name].append(1e3 * step)
                    counted += 1
                if name == "default":
                    waiting.look(step)
            waiting.close()
    return {
        name: {"median": statistics.median(took), "mean": statistics.fmean(took), "threads": chosen[name]}
        for name, took in found.items()
    }


@contextmanager
def loops(count: int) -> Iterator[None]:
    """Within, so many other processes compute without end."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, metavar="RECIPE")
    parser.add_argument("--seconds", type=float, default=9.0, help="of each figure (default: 9)")
    parser.add_argument("--one", metavar="RECIPE", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one:
        print(json.dumps(measure(args.one, args.seconds)))
        return 0
    environment = {name: text for name, text in os.environ.items() if name != "OMP_NUM_THREADS"}
    print(f"| recipe | beside | {' | '.join(COLUMNS.values())} | its threads | default / one |\n|{' --- |' * 7}")
    for recipe in args.recipes:
        for beside in (0, os.cpu_count() or 2):
            command = [sys.executable, "-m", "benchmarks.studies.busy", "--seconds", str(args.seconds), "--one", recipe]
            with loops(beside):
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
            rows = json.loads(done.stdout.splitlines()[-1])
            texts = [f"{rows[name]['median']:.2f} ({rows[name]['mean']:.2f})" for name in COLUMNS]
            what = f"{beside} busy loops" if beside else "nothing"
            ratio = rows["default"]["median"] / rows["one"]["median"]
            print(
                f"| {recipe} | {what} | {' | '.join(texts)} | {rows['default']['threads']} | {ratio:.2f} |", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
