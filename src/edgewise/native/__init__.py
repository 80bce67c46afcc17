"""The C++ kernels, where they were built: `library` is the compiled module, or None without it.

The module knows nothing of PyTorch: it takes addresses, strides and sizes, which the callers check. It is loaded after
torch, so that both share one OpenMP runtime and its threads.
"""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType

import torch


def _load() -> ModuleType | None:
    try:
        return importlib.import_module("edgewise.native._native")
    except ImportError:
        return None


library = _load()
_told = False


def say_if_missing() -> None:
    """Warn, once, that sparse graphs run on plain PyTorch because the kernels were not built."""
    global _told
    if library is None and not _told:
        _told = True
        warnings.warn(
            "edgewise was installed without its C++ kernels: sparse graphs run on plain PyTorch, several times slower; "
            "install a C++ compiler (GCC or Clang) and reinstall edgewise",
            RuntimeWarning,
            stacklevel=2,
        )


def threads() -> int:
    """How many threads a kernel may use: those of `torch.set_num_threads`."""
    return torch.get_num_threads()
