"""Checks of what callers hand over, made once when a graph is built. Each error names the place and the bound."""

import operator
from typing import Any

import numpy
import torch
from torch import Tensor

from edgewise.errors import DataError, GraphError, ShapeError, a_kind
from edgewise.graphs.rule import Intervals, ascending
from edgewise.graphs.tracing import plain

MOST = (1 << 63) - 1  # of the numbers that a tensor of int64 holds


def whole_number(value: Any, name: str, least: int = 0) -> int:
    """`value` as an int of at least `least`; a symbol of a size that an exporter traces stays one."""
    if isinstance(value, torch.SymInt):
        return value  # type: ignore[return-value]
    try:
        number = operator.index(value)
    except (TypeError, RuntimeError):
        raise GraphError(f"{name} must be a whole number, not {value!r}") from None
    if isinstance(value, bool):
        raise GraphError(f"{name} must be a whole number, not {value!r}")
    if number < least:
        raise GraphError(f"{name} must be at least {least}, not {number}")
    if number > MOST:
        raise GraphError(f"{name} must be at most 2⁶³ - 1, not {number}")
    return number


def index_tensor(value: Any, name: str, axes: int) -> Tensor:
    """`value` (tensor, array or nested list of integers) as an int64 tensor with so many axes."""
    value, given = plain(value), isinstance(value, Tensor)
    if not given and numpy.ma.is_masked(value):
        raise GraphError(f"{name} is an array with masked entries, which are no integers: leave them out")
    try:
        tensor: Tensor = value.detach() if given else torch.from_numpy(_native(numpy.array(value)))
    except (TypeError, ValueError, RuntimeError):  # ragged, or not numbers
        what = "a ragged or non-numeric list" if isinstance(value, list | tuple) else type(value).__name__
        what = f"an array of {value.dtype}" if isinstance(value, numpy.ndarray) else what
        raise GraphError(f"{name} must be a tensor or nested list of integers, not {what}") from None
    if tensor.layout != torch.strided:
        raise GraphError(f"{name} must be a dense tensor, not {tensor.layout}")
    if tensor.device.type == "meta":
        raise GraphError(f"{name} is on meta, where no tensor holds numbers: give one on a real device")
    if tensor.dtype != torch.int64:
        listed_nothing = not given and tensor.numel() == 0  # PyTorch reads an empty list as float
        if not listed_nothing and (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool):
            raise GraphError(f"{name} must hold integers (int64), not {str(tensor.dtype).removeprefix('torch.')}")
        tensor = tensor.to(torch.int64)
    if tensor.dim() != axes:
        raise GraphError(f"{name} must have {axes} {'axis' if axes == 1 else 'axes'}, not shape {list(tensor.shape)}")
    return tensor


def _native(array: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """The same numbers in this machine's order of bytes."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def in_range(index: Tensor, bound: int, item: str, role: str, owner: str) -> None:
    """Every entry satisfies 0 <= index[e] < bound; the first that does not is named."""
    if index.numel() == 0:
        return
    least, most = index.aminmax()
    if int(least) < 0 or int(most) >= bound:
        e = int(((index < 0) | (index >= bound)).nonzero()[0])
        raise GraphError(f"{item} {e}: {role} {int(index[e])} is out of range: {owner}")


def edge_index(value: Any) -> tuple[Tensor, Tensor]:
    """The rows of [2, E], senders and receivers."""
    index = index_tensor(value, "edge_index", axes=2)
    if index.shape[0] != 2:
        hint = " (this one looks like [E, 2]: transpose it)" if index.shape[1] == 2 else ""
        raise GraphError(f"edge_index must have shape [2, E], not {list(index.shape)}{hint}")
    senders, receivers = index.unbind()
    return senders, receivers


def ends(receivers: Tensor, senders: Tensor, shape: tuple[int, int]) -> None:
    """The receivers and the senders of edges are in range of those of a graph."""
    roles = ("nodes", "nodes") if shape[0] == shape[1] else ("receivers", "senders")
    in_range(senders, shape[1], "edge", "sender", f"the graph has {shape[1]} {roles[1]}")
    in_range(receivers, shape[0], "edge", "receiver", f"the graph has {shape[0]} {roles[0]}")


def csr(offsets: Any, senders: Any, num_senders: int) -> tuple[Tensor, Tensor]:
    """Row offsets that start at 0, never fall and end at E; senders in range."""
    offsets, senders = index_tensor(offsets, "offsets", axes=1), index_tensor(senders, "senders", axes=1)
    _one_device(offsets=offsets, senders=senders)
    if offsets.shape[0] == 0:
        raise GraphError("offsets must have I + 1 entries, so at least one: the leading 0")
    if int(offsets[0]) != 0:
        raise GraphError(f"offsets must start with 0, not {int(offsets[0])}")
    never_fall(offsets, "offsets")
    if int(offsets[-1]) != senders.shape[0]:
        raise GraphError(f"offsets must end at the number of edges, {senders.shape[0]}, not at {int(offsets[-1])}")
    in_range(senders, num_senders, "edge", "sender", f"the graph has {num_senders} senders")
    return offsets, senders


def falls(bounds: Tensor) -> Tensor:
    """bool [N - 1]: the next bound is less. Compared, since a difference of two int64 may wrap around."""
    return bounds[1:] < bounds[:-1]


def never_fall(bounds: Tensor, name: str) -> None:
    """Raise GraphError for bounds of which one is less than that before it."""
    found = falls(bounds).nonzero()
    if len(found):
        i = int(found[0])
        raise GraphError(f"{name} must never fall: {name}[{i + 1}] = {int(bounds[i + 1])} < {int(bounds[i])}")


def stored(graph: Any, start: int = 0, stop: int | None = None) -> None:
    """The edges of a store, or of some of its rows, lead nowhere but to its nodes, which kernels do not check.

    Cost        O(E) of these rows, on the disk
    """
    offsets, senders = graph._compact
    rows = offsets[start:] if stop is None else offsets[start : stop + 1]
    first, last = int(rows[0]), int(rows[-1])
    right = 0 <= first <= last <= len(senders) and not bool(falls(rows).any())
    right = right and (stop is not None or last - first == len(senders))
    if right and last > first:
        least, most = senders[first:last].aminmax()
        right = int(least) >= 0 and int(most) < graph.num_senders
    if not right:
        raise damaged(graph)


def degrees(graph: Any) -> Tensor:
    """How many edges each receiver has by its offsets [I]; those of a store, which nothing has checked, may fall."""
    if graph.is_mapped and bool(falls(graph.offsets).any()):
        raise damaged(graph)
    return torch.diff(graph.offsets)


def damaged(graph: Any) -> DataError:
    """The error of a store whose edges are out of range."""
    where = vars(graph).get("_store", "this graph")
    return DataError(
        f"{where}: a row's offsets or senders are out of range; `edgewise store check` says what is damaged"
    )


def ranges(starts: Any, stops: Any, num_senders: int) -> Intervals:
    """Intervals [I, R] inside 0 .. J; in each row, those that are not empty are ascending and disjoint."""
    starts, stops = index_tensor(starts, "starts", axes=2), index_tensor(stops, "stops", axes=2)
    _one_device(starts=starts, stops=stops)
    if starts.shape != stops.shape:
        shapes = f"{list(starts.shape)} and {list(stops.shape)}"
        raise GraphError(f"starts and stops must have one shape [I, R], not {shapes}")
    neat_starts, neat_stops = ascending(starts, stops)
    overlap = torch.zeros_like(starts, dtype=torch.bool)
    overlap[:, 1:] = neat_starts[:, 1:] < neat_stops[:, :-1]
    for wrong, why in (
        ((starts < 0) | (stops > num_senders), f"is out of range: the graph has {num_senders} senders"),
        (stops < starts, "stops before it starts"),
        (overlap, "starts before the range in front of it stops: ranges of a receiver are ascending and disjoint"),
    ):
        if bool(wrong.any()):
            i, r = wrong.nonzero()[0].tolist()
            raise GraphError(f"receiver {i}, range {r}: [{int(starts[i, r])}, {int(stops[i, r])}) {why}")
    return neat_starts.contiguous(), neat_stops.contiguous()


def shown(value: Any) -> str:
    """What an error calls something that was handed over: the shape of a tensor, the type of anything else."""
    return str(list(value.shape)) if isinstance(value, Tensor) else a_kind(value)


def graph_first(graph: Any, *others: Any) -> None:
    """Raise GraphError for something else in the place of a graph, and say how to make one of it."""
    if hasattr(graph, "num_receivers"):
        return
    what = f"the first argument must be a Graph, not {type(graph).__name__}"
    if any(hasattr(other, "num_receivers") for other in others):
        raise GraphError(f"{what}: the graph comes first, then the tensors")
    if isinstance(graph, Tensor):
        what = f"{what} {list(graph.shape)}"
        if graph.dtype == torch.bool:
            raise GraphError(f"{what}: Graph.from_mask(mask) makes one of a mask")
        raise GraphError(f"{what}: Graph.from_edge_index(edge_index, num_nodes) makes one of an edge_index [2, E]")
    if hasattr(graph, "edge_index"):
        raise GraphError(f"{what}: Graph.from_pyg(data) makes one of it")
    raise GraphError(f"{what}: a pattern of edgewise.PATTERNS makes one, or Graph.from_edge_index")


def check_generator(generator: Any) -> None:
    """Raise GraphError for what is no generator of random numbers, such as a seed."""
    if not isinstance(generator, torch.Generator | None):
        made = f": torch.Generator().manual_seed({generator}) makes one" if isinstance(generator, int) else ""
        raise GraphError(f"generator must be a torch.Generator or None, not {shown(generator)}{made}")


def device_of(value: Any) -> torch.device:
    """A device as its tensors name it, cuda:0 for cuda; GraphError for none, or for one that is not here."""
    try:
        return torch.empty(0, device=value).device
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise GraphError(f"a graph moves to a device, such as 'cpu' or 'cuda:0', not to {value!r}: {why}") from None


def real_number(value: Any, name: str) -> float:
    """`value` as a float; GraphError for what is no number, such as a text of one."""
    try:
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # a tensor of several numbers, or 2¹⁰⁰⁰⁰
        raise GraphError(f"{name} must be a number, not {shown(value)}") from None


def dense_tensor(value: Any, name: str, wanted: str) -> Tensor:
    """A dense tensor of real numbers; GraphError for anything else."""
    if not isinstance(value, Tensor):
        raise GraphError(f"{name} must be a tensor {wanted}, not {type(value).__name__}")
    if value.layout != torch.strided:
        raise GraphError(f"{name} must be a dense tensor, not {value.layout}")
    if value.is_complex():
        raise GraphError(f"{name} must hold real numbers, not {str(value.dtype).removeprefix('torch.')}")
    return value


def numbers_of(value: Any, name: str, graph: Any, each: str = "edge") -> Tensor:
    """One real number for each edge, or for each sender, of a graph, where that lies."""
    count = graph.num_edges if each == "edge" else graph.num_senders
    numbers = dense_tensor(value, name, f"with a number for each {each}")
    if numbers.shape != (count,):
        raise ShapeError(f"{name} must have shape [{count}], one for each {each}, not {list(numbers.shape)}")
    if numbers.device != graph.device:
        raise GraphError(f"{name} is on {numbers.device}, but the graph on {graph.device}: move one of them")
    return numbers.detach()


def several(value: Any, what: str) -> list[Any]:
    """Some things in a row; GraphError for what has none."""
    try:
        return list(value)
    except TypeError:
        raise GraphError(f"{what}, not {shown(value)}") from None


def same_device(name: str, x: Tensor, device: torch.device) -> None:
    """A tensor lies where the graph does, densely: a kernel that reads another device's memory would crash."""
    if x.layout != torch.strided:
        raise ShapeError(f"{name} is sparse ({x.layout}), but must be dense: {name}.to_dense()")
    if x.device != device:
        if x.device.type == "meta":
            raise ShapeError(f"{name} is on meta, where no tensor holds numbers, and the graph on {device}")
        raise ShapeError(
            f"{name} is on {x.device} and the graph on {device}: graph.to({str(x.device)!r}) moves the graph"
        )


def node_list(value: Any, num_nodes: int) -> Tensor:
    """Distinct nodes, from indices or from a bool mask [N]."""
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        if value.shape != (num_nodes,):
            raise GraphError(f"a mask of nodes must have shape [{num_nodes}], not {list(value.shape)}")
        return value.nonzero().flatten()
    nodes = index_tensor(value, "nodes", axes=1)
    in_range(nodes, num_nodes, "entry", "node", f"the graph has {num_nodes} nodes")
    often = torch.bincount(nodes, minlength=num_nodes) > 1
    if bool(often.any()):
        raise GraphError(f"node {int(often.nonzero()[0])} is listed more than once: nodes must be distinct")
    return nodes


def _one_device(**tensors: Tensor) -> None:
    devices = {name: tensor.device for name, tensor in tensors.items()}
    if len(set(devices.values())) > 1:
        places = " and ".join(f"{name} on {device}" for name, device in devices.items())
        raise GraphError(f"all tensors of a graph must be on one device: {places}")
