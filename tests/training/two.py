"""The smallest run of two ranks, which are forks of one process: `two.py FOLDER`."""

import sys
from functools import partial
from pathlib import Path

import torch

from edgewise.training import train
from forked import ended, ranks
from training.tiny import configured, register


def main(folder: Path) -> None:
    register()
    config = configured(model={"dropout": 0.0}, steps=6, batch=15, clip=0.5, log_every=1, threads=1)
    train(config, folder, progress=False)


if __name__ == "__main__":
    torch.set_num_threads(1)
    ended(list(ranks(2, partial(main, Path(sys.argv[1])))))
