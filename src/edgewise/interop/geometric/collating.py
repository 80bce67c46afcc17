"""PyTorch Geometric's DataLoader over graphs in memory: each batch is gathered at once from where all are stored."""

from __future__ import annotations

from copy import copy
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.utils.data import Subset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from edgewise.interop.geometric.members import Members, Run, members_of
from edgewise.interop.twin import is_plain, origin
from edgewise.native import library

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
        self.stamps = list(map(_stamp, attributes))
        self.bounds: list[Tensor] = []  # edge_index and edge_attr have the same
        self.which = [self._kind_of(one.bounds) for one in attributes]
        self.of_nodes = self._kind_of(torch.nn.functional.pad(nodes.cumsum(0), (1, 0)))

    def _kind_of(self, bounds: Tensor) -> int:
        for number, known in enumerate(self.bounds):
            if torch.equal(known, bounds):
                return number
        self.bounds.append(bounds.contiguous())
        return len(self.bounds) - 1

    def is_current(self) -> bool:
        """Whether the data set still holds the tensors that it held."""
        data, slices = self.dataset._data, self.dataset.slices
        held = all(
            data._store._mapping.get(one.name) is one.values and slices.get(one.name) is one.bounds
            for one in self.attributes
        )
        return held and self.dataset.transform is None and self.stamps == list(map(_stamp, self.attributes))

    def holds(self, graphs: list[int]) -> bool:
        """Whether what the data set has cached of these graphs, as elements of their own, is what is stored."""
        cached = getattr(self.dataset, "_data_list", None)
        if min(graphs) < 0 or max(graphs) >= len(self.nodes):
            return False
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
        runs = [Run.of(chosen, bounds) for bounds in self.bounds]
        nodes, none = runs[self.of_nodes], torch.zeros(count, dtype=torch.int64)
        ptr = nodes.starts
        made = copy(self.empty)
        store, slices = made._store, dict[str, Tensor]()
        increments = dict[str, Tensor | None]()
        for one, which in zip(self.attributes, self.which, strict=True):
            run, name = runs[which], one.name
            slices[name], increments[name] = run.starts, None
            if isinstance(one.values, list):
                store[name] = [one.values[graph] for graph in graphs]
                continue
            increments[name] = ptr[:-1] if one.counts else none
            if one.counts:
                store[name] = value = run.renumbered(one.values, ptr, dim=one.dim)
                if name == "edge_index" and value.dtype == torch.int64:
                    members_of.put(Members(one.values, nodes, run), value)
            else:
                store[name] = run.copied(one.values, one.dim)
        if self.stated:
            store._num_nodes = ptr.diff().tolist()
            store.num_nodes = nodes.total
        store.batch, store.ptr = nodes.numbers(), ptr.clone()
        made._num_graphs, made._slice_dict, made._inc_dict = count, slices, increments
        return made


def _stamp(one: Attribute) -> tuple[int, Any]:
    """What changes where the bounds were written, or the values are fewer now."""
    return one.bounds._version, len(one.values) if isinstance(one.values, list) else one.values.shape


def stored(dataset: Any) -> Stored | str:
    """The graphs of a data set, or why its batches are not gathered here."""
    from torch_geometric.data import Data, InMemoryDataset

    if library is None:
        return "edgewise was installed without its C++ kernels"
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
    if values.dim() == 0 or (counts and values.dtype not in (torch.int32, torch.int64)):
        return None
    if not len(bounds) or bounds[0] < 0 or bounds[-1] > values.shape[dim] or bool((bounds.diff() < 0).any()):
        return None
    return Attribute(name, values, bounds, dim, counts)


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
    """What a loader's batches are fetched from, in place of PyTorch's own fetcher, to which it leaves the rest."""

    def __init__(self, stored: Stored, subsets: list[Any], loader: Any) -> None:
        self.stored, self.subsets = stored, subsets
        self.own = _MapDatasetFetcher(loader.dataset, True, loader.collate_fn, loader.drop_last)

    def fetch(self, indices: list[int]) -> Any:
        """The batch of some elements of the loader's data set."""
        graphs: list[Any] = indices
        for subset in self.subsets:
            graphs = [subset[place] for place in graphs]
        if len(graphs) > 1:
            graphs = list(map(int, itemgetter(*graphs)(self.stored.dataset.indices())))
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
    found = _gathered(loader)[0]
    return found if isinstance(found, str) else None


def _gathered(loader: Any) -> tuple[Stored | str, list[Any]]:
    """The graphs of a loader's data set and its subsets, or why its batches are put together as before."""
    from torch_geometric.loader.dataloader import Collater

    collate = loader.collate_fn
    if loader.num_workers:
        return f"it has {loader.num_workers} workers", []
    if type(collate) is not Collater or collate.follow_batch or collate.exclude_keys:
        return "it has follow_batch or exclude_keys", []
    return _read(loader) if loader._auto_collation else ("its sampler draws whole batches", [])


def is_loader(thing: Any) -> bool:
    """Whether this is PyTorch Geometric's DataLoader, or one that was converted."""
    return origin(getattr(type(thing), "twin_of", type(thing))) == ("torch_geometric", "DataLoader")


@cache
def loader_class(kind: Any) -> Any:
    """The class of loaders that gather their batches: a subclass, of the same name."""

    def iterator(self: Any) -> Any:
        stored, subsets = _gathered(self)
        if isinstance(stored, str):
            return kind._get_iterator(self)
        fetcher = Fetcher(stored, subsets, self)
        if self.pin_memory or profiler._is_profiler_enabled:
            made = kind._get_iterator(self)
            made._dataset_fetcher = fetcher
            return made
        batches = iter(self._index_sampler)
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)  # PyTorch draws a seed for its workers
        return map(fetcher.fetch, batches)

    def reduced(self: Any, protocol: Any) -> Any:
        return _made, (kind,), {name: value for name, value in self.__dict__.items() if name != "_stored"}

    members = {"_get_iterator": iterator, "__reduce_ex__": reduced, "__module__": __name__, "twin_of": kind}
    return type(kind.__name__, (kind,), members)


def _made(kind: Any) -> Any:
    made = loader_class(kind)
    return made.__new__(made)
