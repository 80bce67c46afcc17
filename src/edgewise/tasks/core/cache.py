"""Data that takes time to prepare, cached as tensors for later processes."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress

import safetensors
import safetensors.torch
from torch import Tensor

from edgewise.errors import DataError
from edgewise.files import cache_path, reading, whole

Tensors = dict[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]


def digest(key: object) -> str:
    """A name for all that decides what is prepared.

    Example
        >>> digest(("nbody", 5))
        '7f549435eb10bbe4'
    """
    return hashlib.sha256(repr(key).encode()).hexdigest()[:16]


def cached(folder: str, key: object, make: Callable[[], Tensors], shapes: Shapes | None = None) -> Tensors:
    """The tensors that `make` prepares, read from the cache where an earlier process has written them.

    Symbols     folder = the task's own, in the cache; key = all that decides the tensors, of which `repr` is taken;
                shapes = those of some of the tensors, by name
    Edge cases  a file that is damaged, or holds other shapes, is replaced; a cache that cannot be written costs
                time only
    """
    path = cache_path(folder, f"{digest(key)}.safetensors")
    with suppress(DataError), reading(path, "cached tensors"):
        tensors: Tensors = safetensors.torch.load_file(path)
        if all(name in tensors and tensors[name].shape == shape for name, shape in (shapes or {}).items()):
            return tensors
    tensors = {name: tensor.contiguous() for name, tensor in make().items()}
    with suppress(OSError, safetensors.SafetensorError), whole(path) as part:
        safetensors.torch.save_file(tensors, part)
    return tensors
