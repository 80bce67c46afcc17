"""PyTorch Geometric under torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.contenders.sparse import pyg
from benchmarks.inputs import Inputs

refuses = pyg.refuses


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """The whole propagation as one graph, shapes fixed."""
    return pyg.ready(inputs, lambda module: torch.compile(module, fullgraph=True, dynamic=False))
