"""What a checkpoint knows of the files beside it: an altered configuration or a spoilt history is named and refused."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from edgewise.errors import CheckpointError
from edgewise.training.checkpoint import checkpoints, read_state
from edgewise.training.journal import METRICS, digest, say

CONFIG = "config.yaml"


def file_hashes(run: Path, names: Iterable[str]) -> dict[str, str]:
    """The sha256 of the configuration and of other files that decide a run, by name."""
    try:
        return {name: digest(run / name).hexdigest() for name in (CONFIG, *names)}
    except OSError as error:
        raise CheckpointError(f"cannot read {error.filename}: {error.strerror}") from error


def check(run: Path, accept: bool = False) -> None:
    """Compare a run's files with what its newest readable checkpoint recorded of them.

    Errors      CheckpointError: a file was altered or removed, or has lost its end; with `accept` only a line says so
    Edge cases  what the history gained after the checkpoint is not compared; a run without checkpoints passes
    """
    for path in checkpoints(run / "checkpoints"):
        try:
            state, _ = read_state(path)
        except CheckpointError:
            continue  # whoever loads its weights reports that it is damaged
        if changes := list(_changes(run, state)):
            what = f"{' and '.join(changes)} since {path.name} was saved"
            if not accept:
                raise CheckpointError(f"{what}: restore it, or go on with it as it is by --accept")
            say(f"{what}; accepted")
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
