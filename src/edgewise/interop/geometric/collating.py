"""PyTorch Geometric's DataLoader over graphs in memory: each batch is gathered at once from where all are stored."""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Subset

from edgewise.interop.twin import is_plain

COUNTED = {"x", "feat", "pos", "batch", "node_type", "n_id", "tf"}  # whose rows PyTorch Geometric takes for nodes
OF_NODES = {"x", "pos", "adj", "adj_t", "edge_index", "face"}  # with any of these its batches get `batch` and `ptr`
READ = ("get", "len", "indices", "__getitem__")  # methods that decide what a data set's elements are


class Attribute(NamedTuple):
    """One attribute of all graphs: a tensor or texts, where its graphs begin, and along which dimension.

    Symbols     counts = whether its numbers are nodes', as those of an edge_index are
    """

    name: str
    values: Any
    bounds: Tensor
    dim: int
    counts: bool


class Stored:
    """The graphs of an `InMemoryDataset`, as they lie in memory.

    Symbols     nodes = how many each graph has; stated = whether a graph says so itself, by `num_nodes`
    """

    def __init__(self, dataset: Any, attributes: list[Attribute], nodes: Tensor, stated: bool) -> None:
        from torch_geometric.data import Batch, Data

        self.dataset, self.attributes, self.nodes, self.stated = dataset, attributes, nodes, stated
        self.empty = Batch(_base_cls=Data)
        self.known: dict[int, Any] = {}
        self.rows: list[_Rows] = []  # edge_index and edge_attr have the same
        self.which = [self._kind_of(one.bounds) for one in attributes]

    def _kind_of(self, bounds: Tensor) -> int:
        for number, known in enumerate(self.rows):
            if torch.equal(known.bounds, bounds):
                return number
        self.rows.append(_Rows(bounds))
        return len(self.rows) - 1

    def is_current(self) -> bool:
        """Whether the data set still holds the tensors that it held."""
        data, slices = self.dataset._data, self.dataset.slices
        return self.dataset.transform is None and all(
            data._store._mapping.get(one.name) is one.values and slices.get(one.name) is one.bounds
            for one in self.attributes
        )

    def holds(self, graphs: list[int]) -> bool:
        """Whether what the data set has cached of these graphs, as elements of their own, is what is stored."""
        cached = getattr(self.dataset, "_data_list", None)
        if cached is None:
            return True
        for graph in graphs:
            element = cached[graph]
            if element is not None and self.known.get(graph) is not element:
                if not self._is_part(element):
                    return False
                self.known[graph] = element
        return True

    def _is_part(self, element: Any) -> bool:
        held = element._store._mapping
        names = {one.name for one in self.attributes} | ({"num_nodes"} if self.stated else set())
        return held.keys() == names and all(
            isinstance(one.values, list)
            or held[one.name].untyped_storage().data_ptr() == one.values.untyped_storage().data_ptr()
            for one in self.attributes
        )

    def batch(self, graphs: list[int]) -> Any:
        """What `Batch.from_data_list` makes of these graphs."""
        chosen, count = torch.tensor(graphs), len(graphs)
        nodes = self.nodes.index_select(0, chosen)
        ptr, parts = _starts(nodes), [rows.of(chosen) for rows in self.rows]
        made = copy(self.empty)
        store, slices = made._store, dict[str, Tensor]()
        increments = dict[str, Tensor | None]()
        for one, which in zip(self.attributes, self.which, strict=True):
            part, name = parts[which], one.name
            slices[name], increments[name] = part.starts, None
            if isinstance(one.values, list):
                store[name] = [one.values[graph] for graph in graphs]
                continue
            value = one.values.index_select(one.dim, part.places)
            increments[name] = ptr[:-1] if one.counts else torch.zeros(count, dtype=torch.int64)
            if one.counts:
                value += torch.repeat_interleave(ptr[:-1], part.sizes, output_size=part.total).to(value.dtype)
            store[name] = value
        if self.stated:
            store._num_nodes = nodes.tolist()
            store.num_nodes = int(ptr[-1])
        store.batch = torch.repeat_interleave(torch.arange(count), nodes, output_size=int(ptr[-1]))
        store.ptr = ptr.clone()
        made._num_graphs, made._slice_dict, made._inc_dict = count, slices, increments
        return made


class _Part(NamedTuple):
    """The rows of some graphs: their places among those of all; how many each has, and its first; how many all have."""

    places: Tensor
    sizes: Tensor
    starts: Tensor
    total: int


class _Rows:
    """The rows of all graphs, of which graph g has those from bounds[g] to bounds[g + 1]."""

    def __init__(self, bounds: Tensor) -> None:
        self.bounds, self.sizes = bounds, bounds.diff()
        self.single = torch.equal(bounds, torch.arange(len(bounds)))

    def of(self, chosen: Tensor) -> _Part:
        """The rows of some graphs."""
        if self.single:
            return _Part(chosen, torch.ones_like(chosen), torch.arange(len(chosen) + 1), len(chosen))
        sizes = self.sizes.index_select(0, chosen)
        starts = _starts(sizes)
        total = int(starts[-1])
        shifts = self.bounds.index_select(0, chosen).sub_(starts[:-1])
        places = torch.repeat_interleave(shifts, sizes, output_size=total).add_(torch.arange(total))
        return _Part(places, sizes, starts, total)


def _starts(sizes: Tensor) -> Tensor:
    starts = sizes.new_zeros(len(sizes) + 1)
    torch.cumsum(sizes, 0, out=starts[1:])
    return starts


def stored(dataset: Any) -> Stored | str:
    """The graphs of a data set, or why its batches are not gathered here."""
    from torch_geometric.data import Data, InMemoryDataset

    kind: Any = type(dataset)
    if not isinstance(dataset, InMemoryDataset):
        return f"its data set is no InMemoryDataset but of type {kind.__name__}"
    own = [name for name in READ if getattr(kind, name) is not getattr(InMemoryDataset, name)]
    if own:
        return f"{kind.__name__} has a method {own[0]} of its own"
    if dataset.transform is not None:
        return "its data set has a transform"
    data, slices = dataset._data, dataset.slices
    if type(data) is not Data or not isinstance(slices, dict):
        return f"its data set holds one graph, or graphs of a class of their own ({type(data).__name__})"
    attributes = []
    for name, bounds in slices.items():
        if name in data._store:
            attribute = _attribute(name, data._store[name], bounds, data)
            if attribute is None:
                return f"its graphs have an attribute {name!r}, which is gathered in a way of its own"
            attributes.append(attribute)
    if not attributes or any(len(one.bounds) != len(attributes[0].bounds) for one in attributes):
        return "its graphs have no attributes"
    stated = data._store.__dict__.get("_num_nodes")
    nodes = _nodes(attributes, stated)
    if nodes is None or len(nodes) != len(attributes[0].bounds) - 1:
        return "no attribute of its graphs says how many nodes they have"
    return Stored(dataset, attributes, nodes, stated is not None)


def _attribute(name: str, values: Any, bounds: Any, data: Any) -> Attribute | None:
    """An attribute whose parts are put together row by row; None for any other."""
    if not is_plain(bounds) or bounds.dim() != 1 or bounds.dtype != torch.int64 or bounds.device.type != "cpu":
        return None
    if name == "ptr" or "batch" in name or "adj" in name:  # which PyTorch Geometric treats in ways of their own
        return None
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        return Attribute(name, values, bounds, 0, False)
    if not is_plain(values) or values.is_nested or values.device.type != "cpu" or values.requires_grad:
        return None
    dim, counts = data.__cat_dim__(name, values), "index" in name or name == "face"
    known = values.dim() > 0 and (not counts or values.dtype in (torch.int32, torch.int64))
    return Attribute(name, values, bounds, dim, counts) if known else None


def _nodes(attributes: list[Attribute], stated: Any) -> Tensor | None:
    """How many nodes each graph has, by the attribute that PyTorch Geometric would ask."""
    if stated is not None:
        whole = isinstance(stated, list) and all(type(count) is int for count in stated)
        return torch.tensor(stated, dtype=torch.int64) if whole else None
    tensors = [one for one in attributes if isinstance(one.values, Tensor)]
    first = [one for one in tensors if one.name in COUNTED] or [one for one in tensors if "node" in one.name]
    named = any(one.name in OF_NODES or "node" in one.name for one in attributes)
    return first[0].bounds.diff() if first and named else None


class Fetcher:
    """What a loader's iterator fetches its batches from, in place of PyTorch's own, to which it leaves the rest."""

    def __init__(self, stored: Stored, subsets: list[Any], own: Any) -> None:
        self.stored, self.subsets, self.own = stored, subsets, own

    def fetch(self, indices: list[int]) -> Any:
        """The batch of some elements of the loader's data set."""
        graphs: list[Any] = indices
        for subset in self.subsets:
            graphs = [subset[place] for place in graphs]
        everyone = self.stored.dataset.indices()
        graphs = [int(everyone[place]) for place in graphs]
        if len(graphs) < 2 or not self.stored.holds(graphs):  # of one graph PyTorch Geometric has floats for increments
            return self.own.fetch(indices)
        return self.stored.batch(graphs)


def _read(loader: Any) -> tuple[Stored | str, list[Any]]:
    """The graphs of a loader's data set, and which of them each subset of a subset has."""
    dataset, subsets = loader.dataset, []
    while type(dataset) is Subset:
        subsets.append(dataset.indices)
        dataset = dataset.dataset
    known = loader.__dict__.get("_stored")
    if not isinstance(known, Stored) or known.dataset is not dataset or not known.is_current():
        known = stored(dataset)
        loader.__dict__["_stored"] = known
    return known, subsets


def refusal(loader: Any) -> str | None:
    """Why the batches of a PyTorch Geometric DataLoader are put together as before."""
    from torch_geometric.loader.dataloader import Collater

    collate = loader.collate_fn
    if loader.num_workers:
        return f"it has {loader.num_workers} workers"
    if type(collate) is not Collater or collate.follow_batch or collate.exclude_keys:
        return "it has follow_batch or exclude_keys"
    if not loader._auto_collation:
        return "its sampler draws whole batches"
    found = _read(loader)[0]
    return found if isinstance(found, str) else None


def is_loader(thing: Any) -> bool:
    """Whether this is PyTorch Geometric's DataLoader, or one that was converted."""
    kind = getattr(type(thing), "twin_of", type(thing))
    return kind.__name__ == "DataLoader" and kind.__module__.partition(".")[0] == "torch_geometric"


@cache
def loader_class(kind: Any) -> Any:
    """The class of loaders that gather their batches: a subclass, of the same name."""

    def iterator(self: Any) -> Any:
        made = kind._get_iterator(self)
        if refusal(self) is None:
            stored, subsets = _read(self)
            assert isinstance(stored, Stored)
            made._dataset_fetcher = Fetcher(stored, subsets, made._dataset_fetcher)
        return made

    def reduced(self: Any, protocol: Any) -> Any:
        return _made, (kind,), {name: value for name, value in self.__dict__.items() if name != "_stored"}

    members = {"_get_iterator": iterator, "__reduce_ex__": reduced, "__module__": __name__, "twin_of": kind}
    return type(kind.__name__, (kind,), members)


def _made(kind: Any) -> Any:
    made = loader_class(kind)
    return made.__new__(made)
