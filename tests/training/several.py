"""What the ranks of one `torchrun` do, one scenario after the other: `several.py FOLDER`."""

import os
import sys
from pathlib import Path

import torch

from edgewise.errors import ConfigError, NonFiniteError
from edgewise.tasks import TASKS
from edgewise.training import OptimizerSettings, resume, train
from training.tiny import Tiny, configured, register

STEADY = {"model": {"dropout": 0.0}}
CURVE = configured(**STEADY, steps=40, log_every=1, batch=15, clip=0.5)  # 15 is cut into 8 and 7
CUT = configured(**STEADY, steps=40, log_every=1, batch=15, clip=0.5, accumulate=2)
PATIENT = configured(
    **STEADY, steps=500, evaluate_every=4, patience=3, optimizer=OptimizerSettings(name="sgd", learning_rate=1e-30)
)
DROPPED = configured(steps=30, checkpoint_every=10)
POISONED = configured({"poison": "rank", "at": 13}, {"dropout": 0.0}, steps=30, batch=15)


def interrupted() -> Tiny:
    return Tiny("stop", 17, double=False, metric="accuracy")


def main(folder: Path) -> None:
    register()
    rank = os.environ["RANK"]
    results = [train(config, folder / name) for name, config in [("curve", CURVE), ("cut", CUT), ("patient", PATIENT)]]
    results.append(train(DROPPED, folder / "dropped"))
    healthy = TASKS["tiny"]
    TASKS["tiny"] = interrupted
    try:
        train(DROPPED, folder / "resumed")
    except KeyboardInterrupt:
        TASKS["tiny"] = healthy
        results.append(resume(folder / "resumed"))
    (folder / f"results-{rank}").write_text("\n".join(f"{r.test} {r.valid} {r.steps} {r.best_step}" for r in results))
    try:
        train(POISONED, folder / "poisoned")
    except NonFiniteError as error:
        (folder / f"poisoned-{rank}").write_text(str(error))
    try:
        train(CURVE, folder / "curve")
    except ConfigError as error:
        (folder / f"refused-{rank}").write_text(str(error))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
