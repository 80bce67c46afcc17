"""Batches of a large graph, as PyTorch Geometric's NeighborLoader gives them, drawn by our own sampler."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from edgewise.errors import ConfigError
from edgewise.graphs import Graph, checks, sample_neighbors

LOADING = frozenset(inspect.signature(DataLoader.__init__).parameters) - {"self", "dataset", "collate_fn"}


class NeighborLoader(DataLoader):  # type: ignore[type-arg]
    """Some nodes at a time, each batch with the neighbours that are drawn for them, hop by hop.

    Equation    hop h draws min(num_neighbors[h], |N(i)|) edges of each node i that the hop before has added
    Symbols     data = a PyTorch Geometric `Data`; num_neighbors = of each hop, -1: all; input_nodes = the nodes that
                are in a batch for themselves: indices, a mask or None for all; transform = what is done to a batch;
                loading = options of `torch.utils.data.DataLoader`: batch_size, shuffle, num_workers, ...
    Shapes      a batch is a `Data` with edge_index [2, E'] of its own numbers, n_id [M] and e_id [E'] of the large
                graph's, the batch_size nodes first, and the rows of all tensors and arrays of nodes and edges that
                `data` has; of a [2, E] whose name has `index` in it, the columns
    Errors      ConfigError for a HeteroData, and for PyTorch Geometric's options that are not there; GraphError for
                input_nodes that the graph does not have
    Edge cases  a node's edges are drawn once, without replacement; parallel edges count as often as they are there.
                A node that a sampler gives several times to a batch has as many rows, each with draws of its own; edges
                from it come from the first. Of data on a GPU, rows and edge_index are there, the draws on the CPU
    Cost        time O(edges drawn) for each batch; memory of the graph, and 8 bytes for each node and worker
    Differs     needs neither pyg-lib nor torch-sparse; `torch.manual_seed` decides other draws than there. A batch's
                `input_id` are its nodes; there they are places in input_nodes, where these are indices
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int],
        input_nodes: Tensor | Sequence[int] | None = None,
        transform: Callable[[Any], Any] | None = None,
        **loading: Any,
    ) -> None:
        if getattr(data, "edge_index", None) is None or not hasattr(data, "is_node_attr"):
            raise ConfigError(f"NeighborLoader takes a Data with an edge_index, not {type(data).__name__}")
        unknown = sorted(loading.keys() - LOADING)
        if unknown:
            raise ConfigError(f"NeighborLoader has no option {unknown[0]}: there are {', '.join(sorted(LOADING))}")
        self.data, self.transform = data, transform
        if isinstance(num_neighbors, dict) or not hasattr(num_neighbors, "__iter__"):
            raise ConfigError(f"num_neighbors lists how many are drawn in each hop, as [10, 10], not {num_neighbors!r}")
        self.num_neighbors, self.num_nodes = list(num_neighbors), int(data.num_nodes)
        self.graph = Graph.from_edge_index(data.edge_index.cpu(), self.num_nodes)
        self._place: Tensor | None = None
        super().__init__(_indices(input_nodes, self.num_nodes), collate_fn=self.sample, **loading)  # type: ignore[arg-type]

    def sample(self, nodes: Any) -> Any:
        """The batch of some nodes."""
        seeds = torch.as_tensor(nodes, dtype=torch.int64)
        checks.in_range(seeds, self.num_nodes, "seed", "node", f"the graph has {self.num_nodes} nodes")
        n_id, index, e_id, added = self._drawn(seeds)
        batch = copy.copy(self.data)
        for name, value in self.data.to_dict().items():
            if name != "edge_index" and isinstance(value, Tensor | numpy.ndarray):
                rows = e_id if self.data.is_edge_attr(name) else n_id if self.data.is_node_attr(name) else None
                if rows is not None:
                    batch[name] = _taken(value, rows, self.data.__cat_dim__(name, value))
        batch.edge_index, batch.num_nodes = index.to(self.data.edge_index.device), len(n_id)
        batch.n_id, batch.e_id, batch.input_id, batch.batch_size = n_id, e_id, seeds, len(seeds)
        batch.num_sampled_nodes, batch.num_sampled_edges = map(list, zip(*added, strict=True))
        return batch if self.transform is None else self.transform(batch)

    def _drawn(self, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor, list[tuple[int, int]]]:
        """Nodes, their edges among themselves and in the large graph, and how many of both each hop has added."""
        place, self._place = self._place, None  # it comes back when no node has a place in it
        if place is None:
            place = torch.full((self.num_nodes,), -1)
        known, added, pairs, edges = seeds, [(len(seeds), 0)], [seeds.new_zeros(2, 0)], [seeds[:0]]
        parts = _apart(seeds)
        for rows in reversed(parts):
            place[seeds[rows]] = rows
        for fanout in self.num_neighbors:
            first, count = len(known), 0
            for rows in parts:
                hop = sample_neighbors(self.graph, known[rows], [fanout])
                (graph,) = hop.graphs
                fresh = hop.nodes[place[hop.nodes] < 0]
                place[fresh] = torch.arange(len(known), len(known) + len(fresh))
                known = torch.cat([known, fresh])
                pairs.append(torch.stack([place[hop.nodes][graph.senders], rows[graph.receivers]]))
                edges.append(hop.edges[0])
                count += graph.num_edges
            parts = [torch.arange(first, len(known))]
            added.append((len(known) - first, count))
        place[known] = -1
        self._place = place
        order, chosen = self.graph._order, torch.cat(edges)
        return known, torch.cat(pairs, 1), chosen if order is None else order[chosen], added


def _taken(values: Any, rows: Tensor, dim: int) -> Tensor:
    if isinstance(values, Tensor):
        return values.index_select(dim, rows.to(values.device))
    return torch.from_numpy(numpy.take(values, rows.numpy(), axis=dim))


def _apart(seeds: Tensor) -> list[Tensor]:
    """The places of seeds, in parts in which none repeats: those where a node is for the first time come first."""
    _, node, counts = seeds.unique(return_inverse=True, return_counts=True)
    order = node.argsort(stable=True)
    time = torch.arange(len(seeds)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    return [order[time == number].sort().values for number in range(max(counts.tolist(), default=1))]


def _indices(nodes: Tensor | Sequence[int] | None, count: int) -> Sequence[int]:
    if nodes is None:
        return range(count)
    nodes = torch.as_tensor(nodes) if isinstance(nodes, numpy.ndarray) else nodes
    if isinstance(nodes, Tensor) and nodes.dtype == torch.bool:
        return checks.node_list(nodes, count).tolist()
    chosen = checks.index_tensor(nodes, "input_nodes", axes=1)
    checks.in_range(chosen, count, "input_nodes, place", "node", f"the graph has {count} nodes")
    return chosen.tolist()
