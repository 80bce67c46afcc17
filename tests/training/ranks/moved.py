"""A run that is continued by another number of ranks: `moved.py RUN FOLDER SIZE FOLDER SIZE ...`.

Each world restores a copy of the run, trains for one step to measure what a rank holds, restores it once more, and
saves it: the files must be those of the run.
"""

import json
import shutil
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch

from edgewise.training import read_config
from edgewise.training.distributed import join
from edgewise.training.loop import Trainer
from edgewise.training.ranks import local
from forked import ended, imported_once, ranks


def held(trainer: Trainer) -> int:
    """Bytes of the weights, their gradients and the optimiser's memory that this rank has after a step."""
    trainer.optimizer.zero_grad = lambda: None  # type: ignore[method-assign,assignment]
    trainer.update()
    memory = [value for state in trainer.optimizer.state.values() for value in state.values()]
    tensors = [*trainer.parameters, *(p.grad for p in trainer.parameters if p.grad is not None), *memory]
    return sum(local(t).numel() * t.element_size() for t in tensors)


def restore(trainer: Trainer, opened: ExitStack) -> None:
    trainer.restore(trainer.world.once(lambda: trainer.open(opened, False)), False)


def main(run: Path, folder: Path) -> None:
    config = read_config(run)
    world = join("cpu", config.train.partition, config.train.shard)
    world.once(lambda: shutil.copytree(run, folder / "run") and None)
    found = {}
    for measuring in (True, False):
        trainer = Trainer(config, folder / "run", world)
        with ExitStack() as opened:
            restore(trainer, opened)
            if measuring:
                found["bytes"] = held(trainer)
            else:
                trainer.save()
    (folder / f"rank-{world.rank}.json").write_text(json.dumps(found))
    world.once(lambda: None)


if __name__ == "__main__":
    torch.set_num_threads(1)
    imported_once()
    run, *others = sys.argv[1:]
    worlds = zip(others[::2], others[1::2], strict=True)
    ended([child for folder, size in worlds for child in ranks(int(size), partial(main, Path(run), Path(folder)))])
