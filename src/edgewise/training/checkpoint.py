"""Checkpoints: safetensors and JSON, whole or absent, with a hash of every byte; nothing in them is ever executed.

    checkpoints/step-00000100/model.safetensors       the weights after step 100
                              best.safetensors        the weights of the best evaluation so far
                              optimizer.safetensors   what the optimiser remembers of each weight
                              state.json              the step, the scores, and the sha256 of all of it

A checkpoint is written into a hidden folder, flushed to the disk and renamed: a crash, a full disk or a power cut
leaves the ones before untouched, and what is named step-... is on the disk whole.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from edgewise.errors import CheckpointError
from edgewise.files import flush, make_folder, write_file
from edgewise.training.journal import digest
from edgewise.training.ranks import read_rows

PARTS = ("model", "best", "optimizer")
WRITING = ".writing-"  # begins the name of one that is not whole yet
ASIDE = "damaged-"  # begins the name of a checkpoint that could not be read
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose every byte has been compared with its hash."""

    path: Path
    state: dict[str, Any]

    def tensors(self, part: str, other_of: Callable[[str], Tensor | None] | None = None) -> dict[str, Tensor]:
        """The tensors of "model", "best" or "optimizer", by name; where ranks share them out, this rank's rows, as it
        holds those of other ones."""
        try:
            if other_of is not None:
                return read_rows(self.path / f"{part}.safetensors", other_of)
            return load((self.path / f"{part}.safetensors").read_bytes())  # mapped, a bad sector would be a SIGBUS
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"cannot read {part}.safetensors of {self.path}: {error}") from error


def save_checkpoint(folder: Path, state: dict[str, Any], parts: Mapping[str, Tensors], keep: int) -> Path:
    """Write the checkpoint of `state["step"]`, then remove all but the newest `keep`; a failure leaves none half."""
    target = folder / f"step-{state['step']:08d}"
    writing = folder / f"{WRITING}{target.name}"
    try:
        make_folder(folder)
        _remove(writing)
        writing.mkdir()
        names = {f"{part}.safetensors": part for part in PARTS}
        hashes = {name: _write(writing / name, _serialised(parts[part])) for name, part in names.items()}
        _write(writing / "state.json", _sealed(state, hashes))
        flush(writing)
        _remove(target)
        writing.rename(target)
        flush(folder)
        passed = [path for step, path in _steps(folder, ASIDE) if step <= state["step"]]  # the run has been there again
        for old in [*checkpoints(folder)[keep:], *passed]:
            _remove(old)
    except OSError as error:
        shutil.rmtree(writing, ignore_errors=True)
        raise CheckpointError(f"cannot write the checkpoint {target}: {error.strerror or error}") from error
    return target


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, the newest first, whether or not they are intact."""
    return [path for _, path in sorted(_steps(folder), reverse=True)]


def _steps(folder: Path, prefix: str = "") -> list[tuple[int, Path]]:
    matches = ((re.fullmatch(rf"{prefix}step-(\d{{8,}})", path.name), path) for path in folder.glob(f"{prefix}step-*"))
    return [(int(match[1]), path) for match, path in matches if match]


def newest(folder: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """The newest intact checkpoint, reporting the damaged ones that it passes over; None where there never was one.

    Errors: where there are checkpoints and none is intact, a `CheckpointError`.
    """
    damaged = list[CheckpointError]()
    for path in checkpoints(folder):
        try:
            intact = verified(path)
        except CheckpointError as error:
            damaged.append(error)
        else:
            for one in damaged:
                report(f"{one}; using the one before")
            return intact
    if damaged:
        raise CheckpointError(f"no checkpoint in {folder} is intact: train in a new run folder; {damaged[0]}")
    return None


def verified(path: Path) -> Checkpoint:
    """Read a checkpoint's state and compare the hash of everything in it."""
    state, hashes = read_state(path)
    try:
        for part in PARTS:
            if digest(path / f"{part}.safetensors").hexdigest() != hashes[f"{part}.safetensors"]:
                raise CheckpointError(f"the checkpoint {path} is damaged ({part}.safetensors)")
    except (OSError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error
    return Checkpoint(path, state)


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """A checkpoint's state, compared with its hash, and the hashes of its tensors' files."""
    try:
        content = json.loads((path / "state.json").read_bytes())
        state, hashes = content["state"], content["sha256"]
        if _hash_of(state) != hashes["state"]:
            raise CheckpointError(f"the checkpoint {path} is damaged (state.json)")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, error) from error
    return state, hashes


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Replace the state of a checkpoint whose tensors stay."""
    try:
        _, hashes = read_state(path)
        write_file(path / "state.json", _sealed(state, hashes))
    except OSError as error:
        raise CheckpointError(f"cannot write the checkpoint {path}: {error.strerror or error}") from error


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"the checkpoint {path} is damaged ({type(error).__name__}: {error})")


def clean(folder: Path, resumed: Checkpoint | None) -> None:
    """Remove what a crash left half-written or half-removed, and set aside the checkpoints after the one resumed.

    They are renamed, not removed, until the run has reached their step again: the next reading may succeed.
    """
    try:
        for path in [*folder.glob(f"{WRITING}*"), *folder.glob(".removing-*")]:
            shutil.rmtree(path, ignore_errors=True)
        for path in checkpoints(folder):
            if resumed is None or path == resumed.path:
                break
            aside = path.with_name(f"{ASIDE}{path.name}")
            _remove(aside)
            path.rename(aside)
    except OSError as error:
        what = f"cannot set aside the damaged checkpoints of {folder}"
        raise CheckpointError(f"{what}: {error.strerror or error}") from error


def saved_state(model: nn.Module, whole: bool = False) -> dict[str, Tensor]:
    """What a checkpoint holds of a model: all of its state; without `whole` all but the frozen weights, which come from
    elsewhere or stay as they are."""
    frozen = {name for name, parameter in model.named_parameters() if not (whole or parameter.requires_grad)}
    return {name: value for name, value in model.state_dict().items() if name not in frozen}


def unbounded(model: nn.Module) -> set[str]:
    """The buffers of a model's state that are not finite, as a mask of -inf: to begin with, no sign of divergence."""
    weights = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    state = model.state_dict().items()
    return {name for name, value in state if name not in weights and not is_finite(value)}


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor are finite, of any type: PyTorch does not know it of all float8 ones.

    >>> is_finite(torch.ones(2).to(torch.float8_e4m3fn))
    True
    """
    short = tensor.is_floating_point() and tensor.dtype.itemsize == 1
    return bool(torch.isfinite(tensor.float() if short else tensor).all())


def load_weights(model: nn.Module, tensors: Tensors, source: Path, whole: bool = False) -> None:
    """Load what `saved_state` has, by name; a name, a shape or a dtype that does not fit is a `CheckpointError` naming
    it."""
    expected = saved_state(model, whole)
    for name in sorted(expected.keys() | tensors.keys()):
        has, wants = (str(list(side[name].shape)) if name in side else "absent" for side in (tensors, expected))
        if has == wants:
            has, wants = (str(side[name].dtype).removeprefix("torch.") for side in (tensors, expected))
        if has != wants:
            misfit = f"weight {name!r} is {has} in the checkpoint and {wants} in the model"
            raise CheckpointError(f"{source} was made for another model: {misfit}")
    model.load_state_dict(model.state_dict() | dict(tensors))


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
        removing = path.with_name(f".removing-{path.name.removeprefix(WRITING)}")
        shutil.rmtree(removing, ignore_errors=True)
        path.rename(removing)
        shutil.rmtree(removing)


def _sealed(state: dict[str, Any], hashes: dict[str, str]) -> bytes:
    """What state.json holds."""
    return json.dumps({"state": state, "sha256": hashes | {"state": _hash_of(state)}}, indent=1).encode()


def _hash_of(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
