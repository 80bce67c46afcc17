"""What the ranks of one `torchrun` do, one scenario after the other: `several.py FOLDER`."""

import os
import sys
from pathlib import Path

import torch

from edgewise.errors import ConfigError, NonFiniteError
from edgewise.tasks import TASKS
from edgewise.training import (
    Choice,
    EvaluationSettings,
    MachineSettings,
    RunConfig,
    TrainSettings,
    resume,
    train,
)
from training.tiny import Tiny, configured, register


def configs() -> dict[str, RunConfig]:
    """The runs, by the name of their folder."""
    steady = {"model": {"dropout": 0.0}, "log_every": 1, "batch": 15, "clip": 0.5}  # 15 is cut into 8 and 7
    still = Choice("sgd", {"learning_rate": 1e-30})
    return {
        "curve": configured(**steady),
        "cut": configured(**steady, accumulate=2),
        "patient": configured({}, {"dropout": 0.0}, still, steps=500, evaluate_every=4, patience=3),
        "dropped": configured(steps=30, checkpoint_every=10),
        "sampled": on_graphs(Choice("planted", {"nodes": 600, "fanouts": (4, 3)}), "sage-mean", batch=50),
        "members": on_graphs(Choice("skip-links", {"copies": 5}), "gin", batch=15, readout="sum"),
        "poisoned": configured({"poison": "rank", "at": 13}, {"dropout": 0.0}, steps=30, batch=15),
    }


def on_graphs(task: Choice, layer: str, batch: int, **model: object) -> RunConfig:
    """A graph network without dropout, whose loss is on record at every step."""
    gnn = Choice("gnn", {"layer": layer, "width": 8, "depth": 2, "dropout": 0.0, **model})
    steps = TrainSettings(steps=8, batch=batch, log_every=1)
    evaluation = EvaluationSettings(every=4, batch=7)
    return RunConfig(task, gnn, train=steps, evaluation=evaluation, machine=MachineSettings(device="cpu", threads=1))


def interrupted(**_: object) -> Tiny:
    return Tiny("stop", 17, double=False, metric="accuracy")


def main(folder: Path) -> None:
    register()
    rank, config = os.environ["RANK"], configs()
    results = [train(config[name], folder / name) for name in ("curve", "cut", "patient", "dropped")]
    results += [train(config[name], folder / name) for name in ("sampled", "members")]
    healthy = TASKS["tiny"]
    TASKS["tiny"] = interrupted
    try:
        train(config["dropped"], folder / "resumed")
    except KeyboardInterrupt:
        TASKS["tiny"] = healthy
        results.append(resume(folder / "resumed"))
    (folder / f"results-{rank}").write_text("\n".join(f"{r.test} {r.valid} {r.steps} {r.best_step}" for r in results))
    try:
        train(config["poisoned"], folder / "poisoned")
    except NonFiniteError as error:
        (folder / f"poisoned-{rank}").write_text(str(error))
    try:
        train(config["curve"], folder / "curve")
    except ConfigError as error:
        (folder / f"refused-{rank}").write_text(str(error))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
