"""Checkpoints: safetensors and JSON, whole or absent, with a hash of every byte; nothing in them is ever executed.

    checkpoints/step-00000100/model.safetensors       the weights after step 100
                              best.safetensors        the weights of the best evaluation so far
                              optimizer.safetensors   what the optimiser remembers of each weight
                              state.json              the step, the scores, and the sha256 of all of it

A checkpoint is written into a hidden folder, flushed to the disk and renamed: a crash leaves the ones before untouched.
"""

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from edgewise.errors import CheckpointError

PARTS = ("model", "best", "optimizer")
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose every byte has been compared with its hash."""

    path: Path
    state: dict[str, Any]

    def tensors(self, part: str) -> dict[str, Tensor]:
        """The tensors of "model", "best" or "optimizer", by name."""
        try:
            return load_file(self.path / f"{part}.safetensors")
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"cannot read {part}.safetensors of {self.path}: {error}") from error


def save_checkpoint(folder: Path, state: dict[str, Any], parts: Mapping[str, Tensors], keep: int) -> Path:
    """Write the checkpoint of `state["step"]`, then remove all but the newest `keep`; a failure leaves none half."""
    target = folder / f"step-{state['step']:08d}"
    writing = folder / f".writing-{target.name}"
    try:
        folder.mkdir(exist_ok=True)
        _remove(writing)
        writing.mkdir()
        names = {f"{part}.safetensors": part for part in PARTS}
        hashes = {name: _write(writing / name, _serialised(parts[part])) for name, part in names.items()}
        hashes["state"] = _hash_of(state)
        _write(writing / "state.json", json.dumps({"state": state, "sha256": hashes}, indent=1).encode())
        flush_folder(writing)
        _remove(target)
        writing.rename(target)
        flush_folder(folder)
        for old in checkpoints(folder)[keep:]:
            _remove(old)
    except OSError as error:
        shutil.rmtree(writing, ignore_errors=True)
        raise CheckpointError(f"cannot write the checkpoint {target}: {error.strerror or error}") from error
    return target


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, the newest first, whether or not they are intact."""
    matches = ((re.fullmatch(r"step-(\d{8,})", path.name), path) for path in folder.glob("step-*"))
    steps = {int(match[1]): path for match, path in matches if match}
    return [steps[step] for step in sorted(steps, reverse=True)]


def newest(folder: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """The newest intact checkpoint, reporting the damaged ones that it passes over; None where there never was one.

    Errors: where there are checkpoints and none is intact, a `CheckpointError`.
    """
    paths = checkpoints(folder)
    for path in paths:
        try:
            return verified(path)
        except CheckpointError as error:
            report(f"{error}; using the one before")
    if paths:
        raise CheckpointError(f"none of the {len(paths)} checkpoints in {folder} is intact: train in a new run folder")
    return None


def verified(path: Path) -> Checkpoint:
    """Read a checkpoint's state and compare the hash of everything in it."""
    try:
        content = json.loads((path / "state.json").read_bytes())
        state, hashes = content["state"], content["sha256"]
        if _hash_of(state) != hashes["state"]:
            raise CheckpointError(f"the checkpoint {path} is damaged (state.json)")
        for part in PARTS:
            with (path / f"{part}.safetensors").open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != hashes[f"{part}.safetensors"]:
                    raise CheckpointError(f"the checkpoint {path} is damaged ({part}.safetensors)")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"the checkpoint {path} is damaged ({type(error).__name__}: {error})") from error
    return Checkpoint(path, state)


def clean(folder: Path, resumed: Checkpoint | None) -> None:
    """Remove what a crash left half-written or half-removed, and the damaged checkpoints after the one resumed."""
    for path in folder.glob(".*-step-*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in checkpoints(folder):
        if resumed is None or path == resumed.path:
            break
        _remove(path)


def saved_state(model: nn.Module) -> dict[str, Tensor]:
    """What a checkpoint holds of a model: all of its state but the frozen weights, which come from elsewhere."""
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return {name: value for name, value in model.state_dict().items() if name not in frozen}


def load_weights(model: nn.Module, tensors: Tensors, source: Path) -> None:
    """Load weights by name; a name or a shape that does not fit is a `CheckpointError` that says which."""
    expected = saved_state(model)
    for name in sorted(expected.keys() | tensors.keys()):
        has, wants = (str(list(side[name].shape)) if name in side else "absent" for side in (tensors, expected))
        if has != wants:
            misfit = f"weight {name!r} is {has} in the checkpoint and {wants} in the model"
            raise CheckpointError(f"{source} was made for another model: {misfit}")
    model.load_state_dict(model.state_dict() | dict(tensors))


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    writing = path.with_name(f".writing-{path.name}")
    try:
        _write(writing, content)
        writing.replace(path)
    finally:
        writing.unlink(missing_ok=True)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure. Windows opens no folders."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _serialised(tensors: Tensors) -> bytes:
    # Copies, because safetensors refuses weights that share memory, as tied ones do.
    return save({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()})


def _write(path: Path, content: bytes) -> str:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


def _remove(path: Path) -> None:
    """Remove a folder; it loses its name first, so that a crash in between leaves no half of a checkpoint."""
    if path.exists():
        removing = path.with_name(f".removing-{path.name.removeprefix('.writing-')}")
        shutil.rmtree(removing, ignore_errors=True)
        path.rename(removing)
        shutil.rmtree(removing)


def _hash_of(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
