"""The Triton kernels, one file for each family. Nothing imports those files before a call runs on a GPU.

With TRITON_INTERPRET=1 in the environment Triton's interpreter runs the same kernels on the CPU, slowly: for tests.
"""

import hashlib
import importlib.util
import json
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from edgewise.errors import installing
from edgewise.files import cache_path, whole
from edgewise.kernels.backend import Need

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
INSTALLED = importlib.util.find_spec("triton") is not None
INTERPRETED_ON = ("cpu",) if INTERPRETED else ()  # where Triton's interpreter runs a backend that is named
TRITON = Need(lambda: INSTALLED, f"Triton is not installed: {installing('gpu')}")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # those that the kernels compute in


@cache
def identity(device: int) -> str:
    """What compiled kernels depend on, as a file's name: the card, its driver, PyTorch, Triton and these sources."""
    capability = "".join(map(str, torch.cuda.get_device_capability(device)))
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "none"
    card = f"{torch.cuda.get_device_name(device)} sm{capability} driver {_driver()}"
    text = f"{card} torch {torch.__version__} triton {triton} {_sources()}"
    return "".join(c if c.isalnum() else "-" for c in text)


def _driver() -> str:
    """NVIDIA's version of it on Linux, elsewhere that of the CUDA that it runs."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split("\n")[0].split()
        return next(word for word in words if word[0].isdigit() and "." in word)
    except (OSError, StopIteration, UnicodeDecodeError):
        return str(getattr(torch._C, "_cuda_getDriverVersion", lambda: "unknown")())


@cache
def _sources() -> str:
    """A hash of the kernels and of what launches them."""
    content = hashlib.sha256()
    for path in sorted(Path(__file__).parent.parent.rglob("*.py")):
        content.update(path.read_bytes())
    return content.hexdigest()[:12]


def remembered(what: str, device: int) -> dict[str, Any]:
    """What earlier processes found on a card, or nothing where the file has another form."""
    try:
        found = json.loads(_file(what, device).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def remember(what: str, device: int, entry: str, found: Any) -> None:
    """Add to that; what cannot be written down is found again."""
    with suppress(OSError), whole(_file(what, device)) as part:
        part.write_text(json.dumps(remembered(what, device) | {entry: found}, indent=1) + "\n", encoding="utf-8")


def _file(what: str, device: int) -> Path:
    return cache_path(what, f"{identity(device)}.json")
