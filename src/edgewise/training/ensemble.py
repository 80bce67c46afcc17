"""Several runs on the same data as one: it answers their mean, with its deviation, wherever a run's folder is read."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from edgewise.data.splits import Split
from edgewise.errors import CheckpointError, ConfigError
from edgewise.files import make_folder, path_of, read_json, reading, write_file
from edgewise.tasks.core.measures import measures
from edgewise.tasks.core.task import Task
from edgewise.tasks.own.several import Several, SeveralTargets
from edgewise.training.calibration import calibrate, fitted, kept, recorded
from edgewise.training.integrity import ENSEMBLE
from edgewise.training.journal import digest
from edgewise.training.runs import LoadedRun, Moved, examined, load_run, read_metrics

MOST = 100  # members


class Members(nn.Module):
    """Trained models of the same targets as one.

    Equation    of classes log 1/K Σ_k softmax f_k, of numbers 1/K Σ_k f_k; after these the deviations, over the K
                members, of softmax f_k and of f_k
    Shapes      the outputs [*, O] of each -> [*, 2 O]
    Reference   Lakshminarayanan, Pritzel & Blundell, "Simple and scalable predictive uncertainty estimation using deep
                ensembles", 2017
    """

    def __init__(self, members: Sequence[nn.Module], several: Several) -> None:
        super().__init__()
        self.members, self.several = nn.ModuleList(members), several

    def forward(self, *inputs: Any) -> Tensor:
        outputs = torch.stack([member(*inputs) for member in self.members])
        means, deviations = [], []
        for target, o in zip(self.several.targets, self.several.split(outputs), strict=True):
            is_class = target.kind == "class"
            means.append(o.log_softmax(-1).logsumexp(0) - log(len(o)) if is_class else o.mean(0))
            deviations.append((o.softmax(-1) if is_class else o).std(0))
        return torch.cat([*means, *deviations], -1)


def joinable(task: Task) -> bool:
    """Whether runs on a task can be one: it has classes or quantities of one's own."""
    return isinstance(task, SeveralTargets)


def load_any(
    run: Path | str,
    weights: Literal["best", "last"] = "best",
    device: str = "auto",
    accept: bool = False,
    folder: Moved | None = None,
    **given: Any,
) -> LoadedRun:
    """A run as `load_run` has it, or the runs of an ensemble as one."""
    place = path_of(run, "run", CheckpointError)
    if not (place / ENSEMBLE).is_file():
        return load_run(place, weights, device, accept, folder, **given)
    loaded = together(members_of(place), weights, device, accept, folder)
    with reading(place / ENSEMBLE, "an ensemble of runs"):
        calibrate(loaded.model, loaded.task, kept(record_of(place)))
    return loaded


def record_of(run: Path | str) -> dict[str, Any]:
    """The last record of a run, or what an ensemble's file says; nothing of a run that has recorded nothing."""
    place = path_of(run, "run", CheckpointError)
    if (place / ENSEMBLE).is_file():
        found: dict[str, Any] = read_json(place / ENSEMBLE, "an ensemble of runs")
        return found
    return next(reversed(read_metrics(place)), {})


def together(
    runs: Sequence[Path],
    weights: Literal["best", "last"] = "best",
    device: str = "auto",
    accept: bool = False,
    folder: Moved | None = None,
) -> LoadedRun:
    """Runs on the same data as one, each with its own temperature: the data are read once.

    Errors      CheckpointError for runs that were not trained on the same examples, with the same parts and scales;
                ConfigError for a task without classes or quantities of one's own
    """
    first = load_run(runs[0], weights, device, accept, folder)
    task = first.task
    if not isinstance(task, SeveralTargets):
        raise ConfigError(f"{task.name} has no classes or quantities of your own data, whose mean an ensemble answers")
    for name in task.kept:
        known = [digest(run / name).hexdigest() if (run / name).is_file() else "" for run in runs]
        if other := next((run for run, one in zip(runs, known, strict=True) if one != known[0]), None):
            what = f"{other}: its {name} is not that of {runs[0]}"
            raise CheckpointError(f"{what}: the runs of an ensemble are trained on the same data, cut alike")
    task.read_by(())
    models = [first.model, *(load_run(run, weights, device, accept, shared=task).model for run in runs[1:])]
    return replace(first, model=Members(models, task.several).eval())


def join_runs(runs: Sequence[Path | str], place: Path | str) -> dict[str, Any]:
    """Make an ensemble of runs on the same data: a folder that `predict`, `evaluate`, `serve` and `edgewise.load` take.

    The validation part calibrates it as it does a run. Its file, ensemble.json, names the runs by their places from the
    folder, and has the scores and measures of the test part.

    Errors      those of `together`; ConfigError for a folder that holds an ensemble
    """
    members, folder = [Path(run) for run in runs], Path(place)
    if (folder / ENSEMBLE).exists():
        raise ConfigError(f"{folder} already holds an ensemble: name another folder")
    loaded = together(members)
    model, task, config = loaded.model, loaded.task, loaded.config
    assert isinstance(task, SeveralTargets)
    device = next(model.parameters()).device
    part: Split = "test" if task.has_test else "valid"
    read = partial(examined, model, task, size=config.evaluation_batch, pattern=loaded.pattern, on=device, whole=True)
    valid = read(split="valid")[1]
    calibrate(model, task, fitted(valid, config.evaluation))
    scores, answers = read(split=part)
    names = [os.path.relpath(run.absolute(), folder.absolute()) for run in members]
    made = {"members": names, "metric": task.metric, part: scores, "measures": measures(answers)}
    made |= {"calibration": recorded(task, max(map(len, valid), default=0), answers)}
    make_folder(folder)
    write_file(folder / ENSEMBLE, json.dumps(made, indent=1, ensure_ascii=False).encode())
    return made


def members_of(place: Path) -> list[Path]:
    """The runs that the file of an ensemble names, by their places from its folder."""
    content = read_json(place / ENSEMBLE, "an ensemble of runs")
    with reading(place / ENSEMBLE, "an ensemble of runs"):
        names = [str(name) for name in content["members"]]
    if not 2 <= len(names) <= MOST:
        raise CheckpointError(f"{place / ENSEMBLE} names {len(names)} runs: an ensemble has from 2 to {MOST}")
    return [place / name for name in names]
