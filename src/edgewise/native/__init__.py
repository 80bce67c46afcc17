"""The C++ kernels, where they were built: `library` is the compiled module, or None without it.

The module knows nothing of PyTorch: it takes addresses, strides and sizes, which the callers check. It is loaded after
torch, so that both share one OpenMP runtime and its threads.
"""

import importlib
import os
import warnings
from typing import Any

import torch

# Why there are none, and what helps.
NOT_BUILT = (
    "edgewise was installed without its C++ kernels",
    "install a C++ compiler (GCC or Clang) and reinstall edgewise",
)


def _load() -> tuple[Any, tuple[str, str]]:
    try:
        return importlib.import_module("edgewise.native._native"), NOT_BUILT
    except ModuleNotFoundError:
        return None, NOT_BUILT
    except ImportError as error:
        return None, (f"edgewise cannot load its C++ kernels ({error})", "reinstall edgewise on this machine")


library: Any  # who calls it has asked whether it is there
library, (WHY_NOT, REMEDY) = _load()
_told = False


def say_if_missing() -> None:
    """Warn, once, that sparse graphs run on plain PyTorch: the kernels were not built, or for another machine."""
    global _told
    if library is None and not _told:
        _told = True
        slower = "sparse graphs run on plain PyTorch, several times slower"
        warnings.warn(f"{WHY_NOT}: {slower}; {REMEDY}", RuntimeWarning, stacklevel=2)


# Multiplications, 0.2 ms on an AMD EPYC, below which a second thread is not worth its start: beside other programs
# threads wait for one another, for 4 ms and more.
WORTH = 1 << 20


def threads(work: int = WORTH) -> int:
    """How many threads a kernel may use: those of `torch.set_num_threads`, or one for few multiplications."""
    return torch.get_num_threads() if work >= WORTH else 1


_forked = False


def usable_threads(wanted: int) -> int:
    """As many, or one in a forked process: OpenMP's threads do not survive a fork, and waiting for them never ends."""
    return 1 if _forked else wanted


def _after_fork() -> None:
    global _forked
    _forked = True
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
