"""Batches of graphs, ours and PyTorch Geometric's: several small ones, or nodes of one with drawn neighbours."""

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


class GraphLoader(DataLoader):  # type: ignore[type-arg]
    """Some graphs at a time as one; or some nodes of one graph at a time, with neighbours drawn for them hop by hop.

    Equation    hop h draws min(num_neighbors[h], |N(i)|) edges of each node i that the hop before has added
    Symbols     data = graphs, or with `num_neighbors` one graph: each a `Data` of PyTorch Geometric, or a dict of a
                `graph` and tensors. num_neighbors = of each hop, -1: all; input_nodes = the nodes that are in a batch
                for themselves: indices, a mask or None for all; transform = what is done to a batch; loading = options
                of `torch.utils.data.DataLoader`: batch_size, shuffle, num_workers, ...
    Shapes      many graphs: a `Batch`, or a dict of their disjoint union, of tensors one after the other along their
                first axis, numbers as [B], and of `batch` [N], the number of each node's graph. One graph: a `Data` or
                dict with edges between the batch's own nodes, n_id [M] and e_id [E'] of the large graph's, the
                batch_size nodes first, and the rows of all tensors of nodes and edges (of a [2, E] of a `Data` whose
                name has `index` in it, the columns)
    Errors      ConfigError for what is no such graph, as a HeteroData, and for PyTorch Geometric's options that are not
                there; GraphError for input_nodes that the graph does not have
    Edge cases  a node's edges are drawn once, without replacement; parallel edges count as often as they are there.
                A node that a sampler gives several times to a batch has as many rows, each with draws of its own; edges
                from it come from the first. Of data on a GPU, rows and edges are there, the draws on the CPU
    Cost        time O(edges drawn) for each batch; memory of the graph, and 8 bytes for each node and worker
    Differs     from PyTorch Geometric's NeighborLoader: needs neither pyg-lib nor torch-sparse; `torch.manual_seed`
                decides other draws; a batch's `input_id` are its nodes, there places in input_nodes

    Example
        >>> from edgewise.graphs import complete
        >>> graphs = [{"graph": complete(n), "x": torch.ones(n, 3), "y": torch.tensor(n)} for n in (2, 3)]
        >>> (batch,) = GraphLoader(graphs, batch_size=2)
        >>> batch["graph"].num_receivers, list(batch["x"].shape), batch["y"].tolist(), batch["batch"].tolist()
        (5, [5, 3], [2, 3], [0, 0, 1, 1, 1])
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int] | None = None,
        input_nodes: Tensor | Sequence[int] | None = None,
        transform: Callable[[Any], Any] | None = None,
        **loading: Any,
    ) -> None:
        unknown = sorted(loading.keys() - LOADING)
        if unknown:
            raise ConfigError(f"GraphLoader has no option {unknown[0]}: there are {', '.join(sorted(LOADING))}")
        self.data, self.transform = data, transform
        self._place: Tensor | None = None
        if num_neighbors is None:
            if isinstance(data, dict) or hasattr(data, "is_node_attr") or input_nodes is not None:
                raise ConfigError("GraphLoader of one graph takes num_neighbors: how many are drawn in each hop")
            super().__init__(data, collate_fn=self.join, **loading)
            return
        if isinstance(num_neighbors, dict) or not hasattr(num_neighbors, "__iter__"):
            raise ConfigError(f"num_neighbors lists how many are drawn in each hop, as [10, 10], not {num_neighbors!r}")
        if isinstance(data, dict) and isinstance(data.get("graph"), Graph):
            self.graph, self.device = data["graph"].to("cpu"), data["graph"].device
        elif getattr(data, "edge_index", None) is not None and hasattr(data, "is_node_attr"):
            self.graph = Graph.from_edge_index(data.edge_index.cpu(), int(data.num_nodes))
            self.device = data.edge_index.device
        else:
            what = "a Data with an edge_index, or a dict with a graph"
            raise ConfigError(f"GraphLoader takes {what}, not {type(data).__name__}")
        self.num_neighbors, self.num_nodes = list(num_neighbors), self.graph.num_receivers
        super().__init__(_indices(input_nodes, self.num_nodes), collate_fn=self.sample, **loading)  # type: ignore[arg-type]

    def join(self, graphs: list[Any]) -> Any:
        """The batch of some graphs."""
        if isinstance(graphs[0], dict):
            whole = Graph.batch([one["graph"] for one in graphs])
            batch = {name: _joined([one[name] for one in graphs]) for name in graphs[0] if name != "graph"}
            sizes = torch.tensor([one["graph"].num_receivers for one in graphs], device=whole.device)
            batch |= {"graph": whole, "batch": torch.arange(len(graphs), device=whole.device).repeat_interleave(sizes)}
        else:
            from torch_geometric.loader.dataloader import Collater

            batch = Collater(self.data)(graphs)
        return batch if self.transform is None else self.transform(batch)

    def sample(self, nodes: Any) -> Any:
        """The batch of some nodes."""
        seeds = torch.as_tensor(nodes, dtype=torch.int64)
        checks.in_range(seeds, self.num_nodes, "seed", "node", f"the graph has {self.num_nodes} nodes")
        n_id, index, edges, added = self._drawn(seeds)
        drawn: dict[str, Any] = {"n_id": n_id, "input_id": seeds, "batch_size": len(seeds)}
        drawn["num_sampled_nodes"], drawn["num_sampled_edges"] = map(list, zip(*added, strict=True))
        batch = self._part(n_id, index, edges, drawn)
        return batch if self.transform is None else self.transform(batch)

    def _part(self, n_id: Tensor, index: Tensor, edges: Tensor, drawn: dict[str, Any]) -> Any:
        """Nodes and edges [2, E'] with their rows in the large graph, of edges in its own order."""
        if isinstance(self.data, dict):
            graph = Graph.from_edge_index(index, len(n_id))
            edges = graph.sort_edges(edges)
            taken = drawn | {"graph": graph.to(self.device), "e_id": edges}
            places = {self.graph.num_edges: edges} | {self.num_nodes: n_id}  # nodes where both are as many
            for name, value in self.data.items():
                chosen = places.get(len(value)) if isinstance(value, Tensor) and value.dim() else None
                taken.setdefault(name, value if chosen is None else value[chosen.to(value.device)])
            return taken
        e_id = edges if self.graph._order is None else self.graph._order[edges]
        part: Any = copy.copy(self.data)
        for name, value in self.data.to_dict().items():
            if name != "edge_index" and isinstance(value, Tensor | numpy.ndarray):
                rows = e_id if self.data.is_edge_attr(name) else n_id if self.data.is_node_attr(name) else None
                if rows is not None:
                    part[name] = _taken(value, rows, self.data.__cat_dim__(name, value))
        part.edge_index, part.num_nodes, part.e_id = index.to(self.device), len(n_id), e_id
        for name, value in drawn.items():
            part[name] = value
        return part

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
        return known, torch.cat(pairs, 1), torch.cat(edges), added


def _joined(values: list[Any]) -> Any:
    if not isinstance(values[0], Tensor):
        return values
    return torch.cat(values) if values[0].dim() else torch.stack(values)


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
