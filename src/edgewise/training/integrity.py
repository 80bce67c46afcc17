"""What a checkpoint knows of the files beside it: an altered configuration or a spoilt history is named and refused."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import CheckpointError
from edgewise.graphs import Graph
from edgewise.graphs.forms import compact_edges
from edgewise.graphs.layout import as_array
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.tasks.core.task import Task
from edgewise.training.checkpoint import checkpoints, read_state
from edgewise.training.journal import METRICS, digest, say
from edgewise.training.seeds import mix
from edgewise.training.settings import OWN, RunConfig, StartSettings

CONFIG, ENSEMBLE = "config.yaml", "ensemble.json"
MOST = 1 << 20  # examples of a split that are compared
ACCEPT, ANEW = "go on with it as it is by --accept", "train anew in another folder"


def file_hashes(run: Path, names: Iterable[str]) -> dict[str, str]:
    """The sha256 of the configuration and of other files that decide a run, by name; a run that was begun before its
    task kept a file lacks it."""
    there = (name for name in names if (run / name).exists())
    try:
        return {name: digest(run / name).hexdigest() for name in (CONFIG, *there)}
    except OSError as error:
        raise CheckpointError(f"cannot read {error.filename}: {error.strerror}") from error


def split_of(task: Task, config: RunConfig) -> dict[str, Any]:
    """What a checkpoint records of a task's data: how many examples each split has, and which they are; of data that
    were given to `fit` also the hash of some of them.

    Edge cases  nothing more of a task that keeps its own split in the run; of more than `MOST` examples, as many evenly
                spread; of splits that are no numbers how many they are
    """
    recorded: dict[str, Any] = {"data": _hash_of_data(task, config)} if config.task.name == OWN else {}
    if task.changes is not None:
        return recorded
    recorded["epoch"] = task.epoch_size
    for split, examples in task.splits.items():
        recorded[split] = {"count": len(examples)}
        if isinstance(examples, Tensor):
            some = examples[:: 1 + len(examples) // MOST].long().contiguous()
            recorded[split]["sha256"] = hashlib.sha256(some.numpy().tobytes()).hexdigest()
    return recorded


def _hash_of_data(task: Task, config: RunConfig) -> str:
    """The sha256 of what the first step of training and the first batch of validation read: of one graph all of it.

    Edge cases  what lies on disk is not read
    """
    size, drawn = config.train.batch, torch.Generator().manual_seed(mix(config.train.seed, 1))
    batches = task.train_batch(size, drawn, config.graph), *islice(task.batches("valid", size, config.graph), 1)
    parts = [part for batch in batches for part in (*batch.inputs, batch.target)]
    tensors = (part for part in parts if isinstance(part, Tensor | SparseFeatures))
    graphs = (part for part in parts if isinstance(part, Graph) and not part.is_mapped)
    return hash_of_parts([*tensors, *graphs])


def check_split(
    run: Path, task: Task, config: RunConfig, recorded: dict[str, Any] | None, accept: bool = False
) -> None:
    """Compare a task's data with what a checkpoint recorded of them.

    Errors      CheckpointError: other examples would be trained and tested on; with `accept` only a line says so
    """
    now = {"data": None} | split_of(task, config)
    recorded = {"data": now["data"]} | recorded if recorded else now  # older runs of `fit` lack it
    if recorded == now:
        return

    def counted(one: dict[str, Any]) -> str:
        sizes = [f"{part['count']:,} {name}" for name, part in one.items() if isinstance(part, dict)]
        return ", ".join(sizes) or f"{one['epoch']:,} to train on"

    what = f"{run}: its data have changed since it was trained"
    if recorded | {"data": now["data"]} == now:
        raise CheckpointError(f"{what}: their graph, features or targets. Bring these back, or {ANEW}")
    what = f"{what}: {counted(recorded)} then, {counted(now)} now"
    otherwise = ANEW if config.task.name == OWN else "go on with these by --accept"
    _refuse(what, f", drawn anew: bring them back, or {otherwise}", accept)


def _refuse(what: str, advice: str, accept: bool) -> None:
    """An error of what has changed, or where that is accepted a line that says so."""
    if not accept:
        raise CheckpointError(f"{what}{advice}")
    say(f"{what}; accepted")


def hash_of(graph: Graph) -> str:
    """The sha256 of a graph: of its sizes and its rule, or of its edges where it has none that is data."""
    rule = graph.rule if is_dataclass(graph.rule) else None  # else it has no text that is its own
    sha256 = hashlib.sha256(f"{graph.num_receivers} {graph.num_senders} {graph.offset} {rule}".encode())
    for part in compact_edges(graph) if rule is None else ():
        sha256.update(as_array(part.cpu().contiguous()).data)
    return sha256.hexdigest()


def hash_of_parts(parts: Iterable[Tensor | SparseFeatures | Graph]) -> str:
    """The sha256 of tensors and graphs."""
    sha256 = hashlib.sha256()
    for part in parts:
        if isinstance(part, SparseFeatures):
            sha256.update(hash_of_parts([part.graph, part.weight]).encode())
        elif isinstance(part, Graph):
            sha256.update(hash_of(part).encode())
        else:
            sha256.update(f"{part.dtype} {tuple(part.shape)}".encode())
            plain = part.detach().cpu().resolve_conj().resolve_neg().contiguous()
            sha256.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return sha256.hexdigest()


def frozen_of(model: nn.Module, start: StartSettings, whole: bool = False) -> str | None:
    """The sha256 of the frozen weights that low-rank additions are added to, which no checkpoint holds with them; where
    checkpoints hold the `whole` model, that of the frozen weights' names."""
    if not (start.rank or whole):
        return None
    sha256 = hashlib.sha256()
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            sha256.update(name.encode())
            if not whole:
                sha256.update(as_array(weight.detach().cpu().contiguous().flatten()).tobytes())
    return sha256.hexdigest()


def check_frozen(run: Path, start: StartSettings, now: str | None, recorded: str | None, accept: bool = False) -> None:
    """Compare those weights, as `frozen_of` has them, with what a checkpoint recorded.

    Errors      CheckpointError: the run that they come from has changed, with `accept` only a line says so; or, in a
                model of one's own, other weights are frozen
    """
    if not (now and recorded) or now == recorded:
        return
    if not start.rank:
        what = f"{run} was begun with other weights frozen"
        raise CheckpointError(f"{what}: freeze those, or train anew in another folder")
    what = f"{run}: the weights of {start.run or start.hub}, to which it adds, have changed since it was trained"
    _refuse(what, ": bring them back, or go on with these by --accept", accept)


def check(run: Path, accept: bool = False, otherwise: str = ACCEPT) -> None:
    """Compare a run's files with what its newest readable checkpoint recorded of them.

    Symbols     otherwise = what else there is to do than to restore them
    Errors      CheckpointError: a file was altered or removed, or has lost its end; with `accept` only a line says so
    Edge cases  what the history gained after the checkpoint is not compared; a run without checkpoints passes
    """
    for path in checkpoints(run / "checkpoints"):
        try:
            state, _ = read_state(path)
        except CheckpointError:
            continue  # whoever loads its weights reports that it is damaged
        if changes := list(_changes(run, state)):
            _refuse(f"{' and '.join(changes)} since {path.name} was saved", f": restore it, or {otherwise}", accept)
        return


def _changes(run: Path, state: dict[str, Any]) -> Iterator[str]:
    history = state["metrics"]
    recorded = [(name, sha256, None) for name, sha256 in state["files"].items()]
    for name, sha256, length in [*recorded, (METRICS, history["sha256"], history["bytes"])]:
        path = run / name
        try:
            if length is not None and (size := path.stat().st_size) < length:
                yield f"{path} has lost its end ({size:,} of {length:,} bytes are left)"
            elif digest(path, length).hexdigest() != sha256:
                yield f"{path} was altered"
        except FileNotFoundError:
            yield f"{path} was removed"
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
