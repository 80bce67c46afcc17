"""Modules of PyTorch Geometric's form, forward(x, edge_index, ...), called as models are here: model(graph, x)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.graphs.checks import shown
from edgewise.graphs.derived import cached
from edgewise.layers.plain.linear import SparseFeatures

OF_EDGES = ("edge_attr", "edge_weight")


class OnEdgeIndex(nn.Module):
    """A module that is called module(x, edge_index, ...), as a model that is called model(graph, x, e).

    Symbols     its forward's other parameters get by name: edge_attr or edge_weight = e, batch = the number of each
                node's graph; edges are in the graph's order
    Errors      ConfigError for another parameter without a default, and for features of edges that none reads
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        takes = dict(list(inspect.signature(module.forward).parameters.items())[2:])
        self.reads = [name for name in takes if name in (*OF_EDGES, "batch")]
        wanted = [name for name, one in takes.items() if one.default is one.empty and one.kind not in (2, 4)]
        if others := [name for name in wanted if name not in self.reads]:
            known = "x, edge_index, edge_attr, edge_weight and batch"
            raise ConfigError(f"{self._name}.forward takes {others[0]!r}: of a graph it can be given {known}")

    @property
    def _name(self) -> str:
        return type(self.module).__name__

    def forward(self, graph: Graph, x: Any, e: Tensor | None = None) -> Any:
        if not isinstance(graph, Graph):
            raise ConfigError(f"{self._name} reads an edge_index, and this task has {shown(graph)}")
        given: dict[str, Any] = {name: e for name in self.reads if name in OF_EDGES}
        if e is not None and not given:
            what = "reads no features of edges, and this task has some"
            raise ConfigError(f"{self._name} {what}: let its forward take edge_attr, or leave the features out")
        if e is not None and "edge_weight" in given and e.dim() == 2 and e.shape[1] == 1:
            given["edge_weight"] = e[:, 0]
        if "batch" in self.reads:
            given["batch"] = _members(graph)
        return self.module(x.to_dense() if isinstance(x, SparseFeatures) else x, _edges(graph), **given)


@cached
def _edges(graph: Graph) -> Tensor:
    """The edge_index, the same tensor each time: what follows from it is computed once."""
    return graph.edge_index()


@cached
def _members(graph: Graph) -> Tensor:
    return torch.repeat_interleave(graph.sizes)


def on_graphs(model: nn.Module, reads: Sequence[str] = ("graph", "x"), where: str = "") -> nn.Module:
    """The model, called model(graph, x): one whose forward takes an edge_index second gets it.

    Symbols     reads = what it is called with; where = by what, for an error
    Errors      ConfigError for a scripted module, which takes no Graph, and one that takes others; and as `OnEdgeIndex`
    """
    if isinstance(model, torch.jit.ScriptModule):
        name = getattr(model, "original_name", type(model).__name__)
        raise ConfigError(f"{name} is scripted, and takes tensors alone: give the module that was scripted")
    takes, name = inspect.signature(model.forward), type(model).__name__
    if [*takes.parameters][1:2] == ["edge_index"]:
        return OnEdgeIndex(model)
    try:
        takes.bind(*reads)
    except TypeError as error:
        what = f"{name} is called model({', '.join(reads)}){where}, and its forward takes {takes}: {error}"
        raise ConfigError(f"{what}; or let it take (x, edge_index), as modules of PyTorch Geometric do") from None
    return model
