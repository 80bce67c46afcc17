"""`edgewise doctor`: what is installed and what runs here, on one page, for a report of something that fails."""

import os
import platform
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from edgewise import __version__
from edgewise.apps.console import columns
from edgewise.files import cache_path
from edgewise.kernels import BACKENDS
from edgewise.kernels.backend import Backend
from edgewise.kernels.backends.cuda import selfcheck
from edgewise.kernels.planning import machines
from edgewise.native import REMEDY, WHY_NOT, library

PACKAGES = (  # PyTorch beside, those of pyproject.toml that a user may have installed
    "networkx", "numpy", "polars", "PyYAML", "safetensors", "scikit-learn", "scipy", "tqdm", "triton",
    "torch_geometric", "rdkit", "ase", "tokenizers", "sacrebleu", "huggingface_hub", "transformers", "e3nn", "openmm",
    "pymetis", "openslide-python", "openslide-bin", "onnx", "onnxscript", "onnxruntime", "fastapi",
    "uvicorn", "optuna", "tensorboard", "numba",
)  # fmt: skip
# Of the environment these alone are shown: others may hold secrets.
VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "CUDA_VISIBLE_DEVICES",
    "TRITON_INTERPRET", "EDGEWISE_DATA", "XDG_CACHE_HOME",
)  # fmt: skip
ATTACH = """to report something that fails, attach
  this page (`edgewise doctor`, or `edgewise --json doctor`);
  the command or the shortest program that fails, and all that it prints;
  of a run: its config.yaml and metrics.jsonl, from the run folder."""

Section = dict[str, str]


def doctor() -> dict[str, Any]:
    """Print the page; the sections are returned by name."""
    sections = {
        "versions": _versions(),
        "threads": _threads(),
        "kernels": _kernels(),
        "backends": {name: _state(backend) for name, backend in BACKENDS.items()},
        "gpu": dict(_gpu()),
        "folders": _folders(),
    }
    for title, lines in sections.items():
        print(f"{title}\n{columns([{'name': name, 'value': text} for name, text in lines.items()])}")
    print(ATTACH)
    return sections


def _versions() -> Section:
    packages = {name: _version(name) for name in PACKAGES}
    present = ", ".join(f"{name} {number}" for name, number in packages.items() if number)
    return {
        "edgewise": __version__,
        "python": f"{platform.python_version()} on {platform.platform()}",
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}",
        "beside": present,
        "not installed": ", ".join(name for name, number in packages.items() if not number) or "nothing that is used",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _threads() -> Section:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    given = [f"{name}={_path(os.environ[name])}" for name in VARIABLES if name in os.environ]
    return {
        "of PyTorch": f"{torch.get_num_threads()}, on {usable} of {os.cpu_count()} cores",
        "environment": ", ".join(given) or "none of the variables that matter is set",
    }


def _kernels() -> Section:
    if library is None:
        return {"native": f"none: {WHY_NOT}; {REMEDY}"}
    built = ", ".join(library.built_for())
    file = machines.file_of("cpu")
    measured = f"measured on {_date(file)}" if file.exists() else "assumed: `edgewise plan --calibrate` measures them"
    return {"instruction set": f"{library.instruction_set()}, of those built: {built}", "speeds": measured}


def _state(backend: Backend) -> str:
    """Whether it runs here, or why not."""
    if backend.need is not None and not backend.need.present():
        return f"does not run: {backend.need.missing}"
    places = backend.devices if backend.devices is not None else ("cpu", "cuda")
    if not places:
        return "runs, by name only"
    if "cpu" in places:
        return "runs"
    if not torch.cuda.is_available():
        return "does not run: PyTorch sees no NVIDIA GPU"
    if backend.name not in selfcheck.CHECKED:
        return "runs"
    verdicts = selfcheck.known(torch.cuda.current_device())
    failed = [failed for entry, failed in verdicts.items() if failed and entry.startswith(f"{backend.name}, ")]
    if failed:
        return f"refused for some calls: it failed its self-check ({failed[0]})"
    return "runs; each kind of call is checked when it first does"


def _gpu() -> Iterator[tuple[str, str]]:
    if not torch.cuda.is_available():
        yield "found", "none"
        return
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        yield f"cuda:{index}", f"{card.name}, sm{card.major}{card.minor}, {card.total_memory / 2**30:.0f} GiB"
        for name, failed in selfcheck.known(index).items():
            yield f"  {name}", failed or "passed its self-check"
    file = machines.file_of("cuda")
    yield "speeds", f"measured on {_date(file)}" if file.exists() else "assumed"


def _folders() -> Section:
    data = os.environ.get("EDGEWISE_DATA")
    return {
        "data": _folder(Path(data).expanduser()) if data else "EDGEWISE_DATA is not set: the cache's is used",
        "cache": _folder(cache_path()),
        "runs": _folder(Path("runs").absolute()),
    }


def _folder(path: Path) -> str:
    """Where it is, and whether it is there and can be written; missing, whether it can be made."""
    above = next((one for one in (path, *path.parents) if os.path.exists(one)), path)  # noqa: PTH110 - see files.py
    writable = above.is_dir() and os.access(above, os.W_OK)
    state = (
        ("writable" if writable else "read-only") if above == path else "to be made" if writable else "cannot be made"
    )
    return f"{_path(str(path))} ({state})"


def _path(text: str) -> str:
    """A path without the name of the user whose home it lies in."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises where there is none
    return "~" + text.removeprefix(home) if len(home) > 1 and text.startswith(home) else text


def _date(file: Path) -> str:
    return datetime.fromtimestamp(file.stat().st_mtime).astimezone().strftime("%Y-%m-%d")
