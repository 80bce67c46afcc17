"""A run as a file: its best weights with the preprocessing of its task."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from edgewise.deployment.exporting import Exported, export
from edgewise.deployment.files import beside
from edgewise.files import read_bytes, write_file
from edgewise.models.signature import TokenPairs
from edgewise.tasks.core.abilities import Alone, Preprocesses, StandsAlone
from edgewise.tasks.core.task import Pattern, Task
from edgewise.training.runs import Moved, load_run

MAX_BYTES = 1 << 28  # of a file that a task keeps beside its weights


def export_run(
    run: Path | str,
    to: str = "onnx",
    out: Path | str | None = None,
    accept: bool = False,
    cache: bool = False,
    native: bool = False,
    radius: float | None = None,
    folder: Moved | None = None,
) -> Exported:
    """`export` of a run's best weights, as its task says (images are read as pixels); beside it the task's own files.

    Symbols     out = the file (None: `place_of` the run); accept, folder as in `load`; cache, native, radius as in
                `export`
    Errors      those of `load` and of `export`
    """
    loaded = load_run(run, device="cpu", accept=accept, folder=folder)
    task = loaded.task
    out = place_of(run, to) if out is None else Path(out)
    alone = alone_of(task, loaded.model, loaded.pattern)
    about = task.preprocessing() if isinstance(task, Preprocesses) else {}
    given = alone.model, alone.call, to, out
    exported = export(*given, names=alone.names, preprocessing=about, cache=cache, native=native, radius=radius)
    for name in task.kept:
        if name not in task.private and (Path(run) / name).is_file():
            write_file(beside(out, name), read_bytes(Path(run) / name, MAX_BYTES))
    return exported


def alone_of(task: Task, model: nn.Module, pattern: Pattern) -> Alone:
    """A model without its task, with an example of its call: two graphs where it has an output for each, else one."""
    if isinstance(task, StandsAlone):
        return task.alone(model, pattern)
    graph, x, *others = next(iter(task.batches("valid", 2 if task.signature.whole_graph else 1, pattern))).inputs
    one = isinstance(x, Tensor) and task.signature.kind == TokenPairs.kind
    return Alone(model, (graph, x[None] if one else x, *others))


def place_of(run: Path | str, to: str) -> Path:
    """Where a run's file lies unless another place is given.

    >>> place_of("runs/cora", "aoti").name
    'model.aoti.pt2'
    """
    return Path(run) / ("model.aoti.pt2" if to == "aoti" else f"model.{to}")
