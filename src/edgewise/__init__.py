"""Edgewise: one attention, any graph.

A transformer is a graph network on the complete graph; a graph network is a transformer whose attention is restricted
to a graph. The names below load on first use, so `import edgewise` costs nothing and `edgewise --help` needs no torch.

    >>> import edgewise
    >>> edgewise.causal(3).dense_mask().int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
"""

import os
import re
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# A thread that waits for others spins for 0.1 ms (measured on an AMD EPYC) and sleeps then. By default it spins for
# 10 ms, in which those that it waits for may not get a core. OpenMP reads this once, when PyTorch loads it.
if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
    os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "3000"}

if TYPE_CHECKING:
    from edgewise.apps.calls import evaluate as evaluate
    from edgewise.apps.calls import serve as serve
    from edgewise.apps.calls import train as train
    from edgewise.apps.calls import tune as tune
    from edgewise.deployment import export as export
    from edgewise.deployment import load as load
    from edgewise.errors import BackendRefusal as BackendRefusal
    from edgewise.errors import CheckpointError as CheckpointError
    from edgewise.errors import ConfigError as ConfigError
    from edgewise.errors import DataError as DataError
    from edgewise.errors import EdgewiseError as EdgewiseError
    from edgewise.errors import ExplanationError as ExplanationError
    from edgewise.errors import ExportError as ExportError
    from edgewise.errors import GraphError as GraphError
    from edgewise.errors import NonFiniteError as NonFiniteError
    from edgewise.errors import ShapeError as ShapeError
    from edgewise.explanations import EXPLANATIONS as EXPLANATIONS
    from edgewise.explanations import Explanation as Explanation
    from edgewise.explanations import explain as explain
    from edgewise.explanations import fidelity as fidelity
    from edgewise.graphs import PATTERNS as PATTERNS
    from edgewise.graphs import Graph as Graph
    from edgewise.graphs import Sample as Sample
    from edgewise.graphs import bipartite as bipartite
    from edgewise.graphs import blocks as blocks
    from edgewise.graphs import causal as causal
    from edgewise.graphs import complete as complete
    from edgewise.graphs import disc as disc
    from edgewise.graphs import draw as draw
    from edgewise.graphs import fixed as fixed
    from edgewise.graphs import grid as grid
    from edgewise.graphs import k_nearest as k_nearest
    from edgewise.graphs import radius_graph as radius_graph
    from edgewise.graphs import sample_neighbors as sample_neighbors
    from edgewise.graphs import strided as strided
    from edgewise.graphs import window as window
    from edgewise.interop import convert as convert
    from edgewise.kernels import BACKENDS as BACKENDS
    from edgewise.kernels import Additive as Additive
    from edgewise.kernels import Dot as Dot
    from edgewise.kernels import EdgeBias as EdgeBias
    from edgewise.kernels import EdgeInput as EdgeInput
    from edgewise.kernels import EdgeNetwork as EdgeNetwork
    from edgewise.kernels import EdgeVectors as EdgeVectors
    from edgewise.kernels import Filter as Filter
    from edgewise.kernels import GatedAdditive as GatedAdditive
    from edgewise.kernels import Gaussian as Gaussian
    from edgewise.kernels import Kernel as Kernel
    from edgewise.kernels import RelativeBias as RelativeBias
    from edgewise.kernels import SenderBias as SenderBias
    from edgewise.kernels import TensorProduct as TensorProduct
    from edgewise.kernels import Uniform as Uniform
    from edgewise.kernels import aggregate as aggregate
    from edgewise.kernels import attend as attend
    from edgewise.kernels import collect as collect
    from edgewise.kernels import draw_attention as draw_attention
    from edgewise.kernels import ends as ends
    from edgewise.kernels import plan as plan
    from edgewise.kernels import plans as plans
    from edgewise.kernels import record as record
    from edgewise.kernels import record_messages as record_messages
    from edgewise.kernels import use_backend as use_backend
    from edgewise.layers import LAYERS as LAYERS
    from edgewise.models import MODELS as MODELS
    from edgewise.tasks import TASKS as TASKS
    from edgewise.training import fit as fit


@cache
def _homes() -> dict[str, str]:
    """Where each public name is defined, read off the imports above, which are its one entry."""
    from inspect import getsource

    lines = re.findall(
        r"^    from (edgewise[\w.]*) import (\w+) as \2$", getsource(sys.modules[__name__]), re.MULTILINE
    )
    return {name: home for home, name in lines}


def __getattr__(name: str) -> Any:
    if name == "__all__":  # what `from edgewise import *` reads
        return sorted(_homes())
    home = None if name.startswith("_") else _homes().get(name)
    if home is None:
        raise AttributeError(f"module 'edgewise' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({"__version__", *_homes(), *(name for name in globals() if name.startswith("__"))})
