"""Kills a random rank of two that share the weights, at random moments: `killed.py FOLDER KILLS`.

After each kill both ranks are started again, as `torchrun --max-restarts` does. The last line of output is how many of
the kills hit; the run `FOLDER/killed` must end as `FOLDER/whole`.
"""

import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

import torch

from edgewise.training import finished, resume, train
from forked import ranks
from training.tiny import configured, register

CONFIG = partial(configured, steps=120, evaluate_every=3, checkpoint_every=4, log_every=1, batch=32, shard=True)


def attempt(run: Path) -> None:
    register()
    if (run / "config.yaml").exists():
        resume(run, progress=False)
    else:
        train(CONFIG(), run, progress=False)


def main(folder: Path, kills: int) -> None:
    started = time.perf_counter()
    assert not any(os.waitpid(child, 0)[1] for child in ranks(2, partial(attempt, folder / "whole")))
    whole, hits = time.perf_counter() - started, 0
    while finished(folder / "killed") is None:
        both = ranks(2, partial(attempt, folder / "killed"))
        victim = random.choice(both)
        if hits < kills:
            time.sleep(random.uniform(0, 2 * whole / kills) + 0.3)
            os.kill(victim, signal.SIGKILL)
        ends = {child: os.waitpid(child, 0)[1] for child in both}
        hits += os.WIFSIGNALED(ends[victim])
    print(hits)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]))
