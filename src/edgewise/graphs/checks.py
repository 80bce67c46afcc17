"""Checks of what callers hand over, made once when a graph is built. Each error names the place and the bound."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.rule import ascending

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def whole_number(value: Any, name: str, least: int = 0) -> int:
    """`value` as an int of at least `least`."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise GraphError(f"{name} must be a whole number, not {value!r}")
    if number < least:
        raise GraphError(f"{name} must be at least {least}, not {number}")
    return number


def index_tensor(value: Any, name: str, dims: int) -> Tensor:
    """`value` (tensor, array or nested list of integers) as an int64 tensor with `dims` axes."""
    given = isinstance(value, Tensor)
    try:
        tensor: Tensor = value if given else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphError(f"{name} must be a tensor or nested list of integers: {error}") from None
    if tensor.numel() == 0 and not given:
        tensor = tensor.to(torch.int64)  # PyTorch reads an empty list as float
    if tensor.dtype not in INTEGERS:
        raise GraphError(f"{name} must hold integers (int64), not {str(tensor.dtype).removeprefix('torch.')}")
    if tensor.layout != torch.strided:
        raise GraphError(f"{name} must be a dense tensor, not {tensor.layout}")
    if tensor.dim() != dims:
        raise GraphError(f"{name} must have {dims} {'axis' if dims == 1 else 'axes'}, not shape {list(tensor.shape)}")
    return tensor.detach().to(torch.int64)


def in_range(index: Tensor, bound: int, item: str, role: str, owner: str) -> None:
    """Every entry e of `index` satisfies 0 <= index[e] < bound; the first that does not is named."""
    wrong = (index < 0) | (index >= bound)
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise GraphError(f"{item} {at}: {role} {int(index[at])} is out of range: {owner}")


def edge_index(value: Any, num_receivers: int, num_senders: int, square: bool) -> Tensor:
    """[2, E] with row 0 in range of the senders and row 1 in range of the receivers."""
    index = index_tensor(value, "edge_index", dims=2)
    if index.shape[0] != 2:
        hint = " (this one is [E, 2]: transpose it)" if index.shape[1] == 2 else ""
        raise GraphError(f"edge_index must have shape [2, E], not {list(index.shape)}{hint}")
    noun = ("nodes", "nodes") if square else ("senders", "receivers")
    in_range(index[0], num_senders, "edge", "sender", f"the graph has {num_senders} {noun[0]}")
    in_range(index[1], num_receivers, "edge", "receiver", f"the graph has {num_receivers} {noun[1]}")
    return index


def csr(offsets: Any, senders: Any, num_senders: int) -> tuple[Tensor, Tensor]:
    """Row offsets that start at 0, never fall and end at E; senders in range."""
    offsets, senders = index_tensor(offsets, "offsets", dims=1), index_tensor(senders, "senders", dims=1)
    if offsets.device != senders.device:
        raise GraphError(f"offsets are on {offsets.device} and senders on {senders.device}: put both on one device")
    if offsets.shape[0] == 0 or int(offsets[0]) != 0:
        raise GraphError("offsets must have I + 1 entries, the first of them 0")
    falls = (offsets.diff() < 0).nonzero()
    if len(falls):
        i = int(falls[0])
        raise GraphError(f"offsets must never fall: offsets[{i + 1}] = {int(offsets[i + 1])} < {int(offsets[i])}")
    if int(offsets[-1]) != senders.shape[0]:
        raise GraphError(f"offsets end at {int(offsets[-1])}, but there are {senders.shape[0]} senders")
    in_range(senders, num_senders, "edge", "sender", f"the graph has {num_senders} senders")
    return offsets, senders


def ranges(starts: Any, stops: Any, num_senders: int) -> tuple[Tensor, Tensor]:
    """Intervals [I, R] inside 0 .. num_senders; in each row those that are not empty are ascending and disjoint."""
    starts, stops = index_tensor(starts, "starts", dims=2), index_tensor(stops, "stops", dims=2)
    if starts.shape != stops.shape:
        raise GraphError(f"starts and stops must have one shape [I, R], not {list(starts.shape)} and {list(stops.shape)}")
    if starts.device != stops.device:
        raise GraphError(f"starts are on {starts.device} and stops on {stops.device}: put both on one device")
    tidy_starts, tidy_stops = ascending(starts, stops)
    overlap = torch.zeros_like(starts, dtype=torch.bool)
    overlap[:, 1:] = tidy_starts[:, 1:] < tidy_stops[:, :-1]
    for wrong, why in (
        ((starts < 0) | (stops > num_senders), f"is out of range: the graph has {num_senders} senders"),
        (stops < starts, "stops before it starts"),
        (overlap, "must start after the ranges before it: ranges of a receiver are ascending and disjoint"),
    ):
        if wrong.any():
            i, r = wrong.nonzero()[0].tolist()
            raise GraphError(f"receiver {i}: range {r} [{int(starts[i, r])}, {int(stops[i, r])}) {why}")
    return tidy_starts, tidy_stops


def node_list(value: Any, num_nodes: int) -> Tensor:
    """Distinct nodes, as indices or as a bool mask [N]."""
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        if value.shape != (num_nodes,):
            raise GraphError(f"a mask of nodes must have shape [{num_nodes}], not {list(value.shape)}")
        return value.nonzero().flatten()
    nodes = index_tensor(value, "nodes", dims=1)
    in_range(nodes, num_nodes, "entry", "node", f"the graph has {num_nodes} nodes")
    often = torch.bincount(nodes, minlength=num_nodes) > 1
    if often.any():
        raise GraphError(f"node {int(often.nonzero()[0])} is listed more than once: nodes must be distinct")
    return nodes
