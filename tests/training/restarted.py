"""A run in which a rank is killed once: `restarted.py FOLDER`, under `torchrun --max-restarts 1`."""

import os
import signal
import sys
from pathlib import Path

import torch

from edgewise.tasks import TASKS
from edgewise.training import train
from edgewise.training.distributed import restarted
from training.several import configs
from training.tiny import Poison, Tiny, register


class Dies(Tiny):
    """The second rank dies while it draws its seventeenth batch."""

    def train_batch(self, *arguments, **named):  # type: ignore[no-untyped-def]
        if self.drawn == 17 and os.environ["RANK"] == "1" and not restarted():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train_batch(*arguments, **named)


def mortal(poison: Poison = "none", at: int = 0, double: bool = False, metric: str = "accuracy") -> Dies:
    return Dies(poison, at, double, metric)


if __name__ == "__main__":
    torch.set_num_threads(1)
    register()
    TASKS["tiny"] = mortal
    train(configs(Path(sys.argv[1]))["dropped"], Path(sys.argv[1]) / "dropped")
