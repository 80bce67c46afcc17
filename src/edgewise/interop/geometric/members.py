"""The rows of a batch of stored graphs, and that batch as a graph: the edges of all graphs are sorted once."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import per_tensor
from edgewise.graphs.tracing import untransformed
from edgewise.native import library


class Run(NamedTuple):
    """Rows of some graphs, which lie one after the other in a batch.

    Symbols     chosen, bounds = graph g has rows bounds[g] to bounds[g + 1] of all; starts [G + 1] = where each begins
    """

    chosen: Tensor
    bounds: Tensor
    starts: Tensor
    total: int

    @classmethod
    def of(cls, chosen: Tensor, bounds: Tensor) -> Run:
        """The rows of some graphs, by their numbers."""
        starts = chosen.new_empty(len(chosen) + 1)
        run = cls(chosen, bounds, starts, 0)
        return run._replace(total=library.run_starts(run.places(), starts.data_ptr()))

    def places(self) -> Any:
        """The same as the kernels read it, for as long as this lives."""
        return library.Chosen(len(self.chosen), self.chosen.data_ptr(), self.bounds.data_ptr())

    def copied(self, values: Tensor, dim: int) -> Tensor:
        """These rows of values, whose dimension `dim` has the rows of all graphs."""
        out, (values, *extent) = self._room(values, dim), _readable(values, dim)
        places = values.data_ptr(), out.data_ptr()
        library.copy_runs(self.places(), values.element_size(), *extent, *places)
        return out

    def renumbered(
        self, values: Tensor, to: Tensor, first: Tensor | None = None, dim: int = 0, more: int = 0
    ) -> Tensor:
        """The same of numbers that count from first[g] on, or from 0, for graph g, and from to[n] on in the batch.

        Symbols     more = rows beyond these that there is room for
        """
        out, (values, *extent) = self._room(values, dim, more), _readable(values, dim)
        places = values.data_ptr(), out.data_ptr(), 0 if first is None else first.data_ptr(), to.data_ptr()
        library.renumber_runs(self.places(), values.element_size(), *extent, *places)
        return out

    def numbers(self) -> Tensor:
        """For each row the number of its graph among the chosen ones."""
        out = self.chosen.new_empty(self.total)
        library.number_runs(self.places(), out.data_ptr())
        return out

    def _room(self, values: Tensor, dim: int, more: int = 0) -> Tensor:
        shape = list(values.shape)
        shape[dim] = self.total + more
        return values.new_empty(shape)


def _readable(values: Tensor, dim: int) -> tuple[Tensor, int, int, int, int]:
    """Values whose rows lie together each; how many slabs of rows, how far apart these and rows are, how long rows are.

    Cost        some columns of a matrix are read where they lie; what lies in another order is copied first
    """
    dim %= values.dim()
    shape, strides = values.shape, values.stride()
    row = shape[dim + 1 :].numel()
    if dim > 1 or not (values.is_contiguous() or (dim == 0 and values.dim() == 2 and strides[1] == 1)):
        values = values.contiguous()
        strides = values.stride()
    return values, shape[:dim].numel(), shape[dim] * row, strides[dim], row


class Members(NamedTuple):
    """The graphs of a batch, whose edges are columns of all graphs' edge_index [2, E]."""

    edge_index: Tensor
    nodes: Run
    edges: Run

    def graph(self) -> Graph | None:
        """The batch as one graph; None where some graph has an edge to a node that it does not have."""
        whole = _whole(self.edge_index, self.nodes.bounds, self.edges.bounds)
        if whole is None or whole._order is None:
            return None
        edges, count, learning = self.edges, self.nodes.total, torch.is_grad_enabled()
        with untransformed(()):
            forms = self._forms(whole) | {"_order": edges.renumbered(whole._order, edges.starts, edges.bounds)}
            if learning:
                reverse, by_sender = whole.transpose()
                by_sender = edges.renumbered(by_sender, edges.starts, edges.bounds)
                order = forms["_order"].index_select(0, by_sender)
                forms["_transposed"] = Graph._of(count, count, **self._forms(reverse), _order=order), by_sender
            return Graph._of(count, count, **forms)

    def _forms(self, whole: Graph) -> dict[str, Any]:
        nodes, edges = self.nodes, self.edges
        offsets = nodes.renumbered(whole.offsets, edges.starts, edges.bounds, more=1)
        offsets[-1] = edges.total
        return {"offsets": offsets, "senders": edges.renumbered(whole.senders, nodes.starts, nodes.bounds)}


@per_tensor
def _whole(edge_index: Tensor, nodes: Tensor, edges: Tensor) -> Graph | None:
    """All graphs as one."""
    sizes, starts = (torch.repeat_interleave(t, edges.diff()) for t in (nodes.diff(), nodes[:-1]))
    if bool(((edge_index < 0) | (edge_index >= sizes)).any()):
        return None
    return Graph.from_edge_index(edge_index + starts, int(nodes[-1]))


@per_tensor
def members_of(edge_index: Tensor) -> Members | None:
    """The graphs that the edge_index of a batch is made of, where a converted loader has made it."""
    return None
