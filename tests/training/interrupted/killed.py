"""Trains the tiny task in processes that are killed at random moments: `killed.py FOLDER KILLS FRESH`.

Each attempt is a fork of this process, which has imported PyTorch already, or a fresh interpreter. Where a run ends
before all kills are spent the next one begins. The last line of output says how many kills hit and how many runs ended.
"""

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import torch

from edgewise.training import finished, resume, train
from training.tiny import configured, register

# Half of the time goes into evaluations and checkpoints, so that many kills fall into them.
STEPS = 160
CONFIG = partial(configured, steps=STEPS, evaluate_every=3, checkpoint_every=4, log_every=1, batch=32)


def attempt(run: Path) -> None:
    """Begin a run, or go on with it, as a user would."""
    register()
    if (run / "config.yaml").exists():
        resume(run, progress=False)
    else:
        train(CONFIG(), run, progress=False)


def begin(run: Path, fresh: bool) -> int:
    """A process that makes an attempt; its number."""
    if fresh:
        return subprocess.Popen([sys.executable, __file__, str(run)]).pid
    child = os.fork()
    if child == 0:
        attempt(run)
        os._exit(0)
    return child


def timed(run: Path, fresh: bool) -> float:
    """How long an undisturbed run takes."""
    started = time.perf_counter()
    _, status = os.waitpid(begin(run, fresh), 0)
    assert status == 0
    return time.perf_counter() - started


def main(folder: Path, kills: int, fresh: bool) -> None:
    whole = timed(folder / "whole", fresh)
    start = timed(folder / "whole", fresh)  # it is finished: all this takes is starting
    hits, runs = 0, 0
    while hits < kills or not finished(folder / f"killed-{runs}"):
        run = folder / f"killed-{runs}"
        child = begin(run, fresh)
        if hits < kills:
            time.sleep(0.8 * start * fresh + random.uniform(0, 1.5 * (whole - start) / kills))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status)
        assert killed or status == 0, "an attempt failed"
        hits += killed
        runs += not killed and hits < kills
    print(hits, runs + 1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) == 2:
        attempt(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "fresh")
