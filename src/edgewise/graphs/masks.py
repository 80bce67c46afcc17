"""Graphs from masks: FlexAttention's functions, dense ones, blocks of one, and documents that lie in one sequence."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.errors import GraphError
from edgewise.graphs import checks
from edgewise.graphs import forms as lowering
from edgewise.graphs.adjacency import Adjacency
from edgewise.graphs.rule import Blocks, Both, Causal, Complete, Intervals, Rule, Window, ascending
from edgewise.graphs.tracing import untransformed

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # (b, h, q_idx, kv_idx) -> bool

PAIRS = 1 << 24  # pairs of a mask that are held at once


class Masks(Adjacency):
    """Graphs whose receivers and senders are positions of sequences, as libraries of transformers describe them."""

    @classmethod
    def from_mask(
        cls,
        mask: MaskMod | Tensor | Any,
        num_receivers: int | None = None,
        num_senders: int | None = None,
        *,
        batch: int | None = None,
        head: int | None = None,
        block: int = 1,
    ) -> Self:
        """The graph of a mask: i listens to j where it is true.

        Symbols     mask = a function `mask_mod(b, h, q_idx, kv_idx)` or a `BlockMask` of FlexAttention, or bool [I, J];
                    batch, head = b, h; block: an entry, or a position of the function, is `block` receivers or senders
        Errors      GraphError for a mask that is not bool, of another shape, or that depends on b or h without `batch`
                    or `head`: a graph is the same for every head, and `Graph.batch` joins graphs of members
        Edge cases  where edges are the smaller form, as below two senders for each receiver on average, they are kept;
                    else complete, causal and window masks and those of documents become rules, and others ranges; the
                    last block may be smaller. The graph of a function is where the tensors are that it reads
        Cost        time O(I J / block²), once; memory of the graph, and of 16 M pairs at most

        >>> from edgewise.graphs import Graph, draw
        >>> Graph.from_mask(lambda b, h, q_idx, kv_idx: q_idx - kv_idx <= 1, 4)
        Graph(4 receivers, 4 senders, 13 edges)
        >>> Graph.from_mask(lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx <= 2), 5)
        Graph(5 receivers, 5 senders, Window(radius=2, dilation=1, sides='past'))
        >>> print(draw(Graph.from_mask(torch.tensor([[True, False], [True, True]]), 3, 3, block=2)))
        ##.
        ##.
        ###
        """
        block = checks.whole_number(block, "block", least=1)
        if not isinstance(mask, Tensor) and hasattr(mask, "mask_mod") and hasattr(mask, "seq_lengths"):
            lengths = mask.seq_lengths
            mask, num_receivers = mask.mask_mod, lengths[0] if num_receivers is None else num_receivers
            num_senders = lengths[1] if num_senders is None else num_senders
        if isinstance(mask, Tensor):
            if (batch, head) != (None, None):
                raise GraphError("batch and head are for a function of them: a mask that is a tensor is of all alike")
            given = [size * block for size in _checked(mask).shape]
            num_receivers = given[0] if num_receivers is None else num_receivers
            num_senders = given[1] if num_senders is None else num_senders
        elif not callable(mask):
            what = "mask_mod(b, h, q_idx, kv_idx), a BlockMask or a bool tensor [I, J]"
            raise GraphError(f"from_mask takes {what}, not {type(mask).__name__}")
        receivers = checks.whole_number(num_receivers, "num_receivers")
        senders = receivers if num_senders is None else checks.whole_number(num_senders, "num_senders")
        rows, columns = -(-receivers // block), -(-senders // block)
        with untransformed(mask):
            if isinstance(mask, Tensor):
                device, made = mask.device, _of_tensor(mask.cpu(), rows, columns)
            else:
                device, made = _device_of(mask), _of_function(mask, rows, columns, batch, head)
            runs = _runs(some.cpu() for some in made)
            return cls._of(receivers, senders, **_forms(runs, receivers, senders, block)).to(device)

    @classmethod
    def from_cu_seqlens(cls, cu_seqlens: Any, cu_seqlens_k: Any = None, *, causal: bool = False) -> Self:
        """Documents that lie one after the other in a sequence: each listens to itself alone.

        Symbols     cu_seqlens = 0 and where each document stops, ascending, as variable-length attention takes them;
                    cu_seqlens_k = those of the senders (None: the same); causal = only to the past of the document
        Errors      GraphError for bounds that do not start at 0 or fall, for unlike numbers of documents, or for
                    `causal` between unlike sides
        Edge cases  a document may be empty; `sizes` and `sender_sizes` are the documents', as those of a batch
        Cost        O(documents)

        >>> from edgewise.graphs import Graph, draw
        >>> print(draw(Graph.from_cu_seqlens([0, 2, 5], causal=True)))
        #....
        ##...
        ..#..
        ..##.
        ..###
        """
        receivers = _lengths(cu_seqlens, "cu_seqlens")
        senders = receivers if cu_seqlens_k is None else _lengths(cu_seqlens_k, "cu_seqlens_k")
        if len(receivers) != len(senders):
            raise GraphError(f"cu_seqlens has {len(receivers)} documents and cu_seqlens_k {len(senders)}")
        if causal and not torch.equal(receivers, senders):
            raise GraphError("causal documents have as many senders as receivers: leave cu_seqlens_k away")
        documents = Blocks(tuple(receivers.tolist()), tuple(senders.tolist()))
        forms: dict[str, Any] = {"rule": Both(documents, Causal()) if causal else documents, "sizes": receivers}
        if not torch.equal(receivers, senders):  # else they are the same nodes
            forms["sender_sizes"] = senders
        return cls._of(int(receivers.sum()), int(senders.sum()), device=receivers.device, **forms)


def _lengths(bounds: Any, name: str) -> Tensor:
    bounds = checks.index_tensor(bounds, name, axes=1)
    if len(bounds) == 0 or int(bounds[0]) != 0:
        raise GraphError(f"{name} must start with 0, and say then where each document stops, not {bounds.tolist()[:8]}")
    checks.never_fall(bounds, name)
    return bounds.diff()


def _checked(mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool or mask.ndim != 2:
        hint = ": a number that is added to the score is an EdgeBias" if mask.is_floating_point() else ""
        raise GraphError(f"a mask must be bool [I, J], not {mask.dtype} {list(mask.shape)}{hint}")
    return mask


def _of_tensor(mask: Tensor, rows: int, columns: int) -> Iterator[Tensor]:
    if mask.shape != (rows, columns):
        raise GraphError(f"the mask is {list(mask.shape)}, but must be [{rows}, {columns}]")
    return iter(mask.split(max(1, PAIRS // max(1, columns))))


def _of_function(mask: MaskMod, rows: int, columns: int, batch: int | None, head: int | None) -> Iterator[Tensor]:
    """Some rows of the mask at a time."""
    device = _device_of(mask)
    numbers = [0 if at is None else checks.whole_number(at, "batch or head") for at in (batch, head)]
    for name, at, place in (("batch", batch, 0), ("head", head, 1)):
        if at is None and rows and columns and _depends_on(mask, place, device):
            graphs = "Graph.batch joins them" if name == "batch" else "all heads of a call share one"
            raise GraphError(f"the mask depends on the {name}: give {name}=0, 1, ... for a graph of its own; {graphs}")
    along_senders = torch.vmap(mask, in_dims=(None, None, None, 0))
    over = torch.vmap(along_senders, in_dims=(None, None, 0, None))
    b, h = torch.tensor(numbers, device=device)
    step, j = max(1, PAIRS // max(1, columns)), torch.arange(columns, device=device)
    for first in range(0, rows if columns else 0, step):
        with _checked_result(mask):
            some = over(b, h, torch.arange(first, min(first + step, rows), device=device), j)
        yield _checked(some)


@contextmanager
def _checked_result(mask: MaskMod) -> Iterator[None]:
    """Names the mask where what it returns is not what a mask does."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, IndexError) as error:
        if isinstance(error, GraphError):
            raise
        right = "take (b, h, q_idx, kv_idx) and return one bool tensor, for positions within the graph"
        name = getattr(mask, "__name__", type(mask).__name__)
        raise GraphError(f"the mask {name} must {right}: {str(error).splitlines()[0]}") from error


def _device_of(mask: MaskMod) -> torch.device:
    """Where the tensors are that a mask's function reads."""
    return next((value.device for value in _tensors(mask, set())), torch.device("cpu"))


def _tensors(value: Any, seen: set[int]) -> Iterator[Tensor]:
    """Tensors of a function's closure, defaults and globals, and of the functions among these."""
    if isinstance(value, Tensor):
        yield value
    parts: tuple[Any, ...] = tuple(value) if isinstance(value, tuple | list) else ()
    if isinstance(value, partial):
        parts = (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, FunctionType) and id(value) not in seen:
        seen.add(id(value))
        known = [value.__globals__.get(name) for name in value.__code__.co_names]
        parts = (*(cell.cell_contents for cell in value.__closure__ or ()), *(value.__defaults__ or ()), *known)
    for part in parts:
        yield from _tensors(part, seen)


def _joined(value: Any) -> list[MaskMod]:
    return [part for part in value if callable(part)] if isinstance(value, tuple | list) else []


def _depends_on(mask: MaskMod, place: int, device: torch.device) -> bool:
    """Whether what the mask returns depends on one of its arguments.

    Edge cases  each of FlexAttention's joined masks by itself: together they begin with a tensor made of b
    """
    if getattr(mask, "__module__", "") == "torch.nn.attention.flex_attention":
        joined = [part for cell in getattr(mask, "__closure__", None) or () for part in _joined(cell.cell_contents)]
        if joined:
            return any(_depends_on(part, place, device) for part in joined)
    dims = tuple(0 if place == here else None for here in range(4))
    at = [torch.zeros(1 if place == here else (), dtype=torch.int64, device=device) for here in range(4)]
    try:
        torch.vmap(mask, in_dims=dims, out_dims=None)(*at)
    except ValueError as error:
        return "BatchedTensor" in str(error)
    except (TypeError, RuntimeError, IndexError):
        return False  # for the evaluation to report
    return False


Runs = tuple[Tensor, Tensor, Tensor]  # where each run of true entries starts and stops, and how many each row has


def _runs(chunks: Iterator[Tensor]) -> Runs:
    starts, stops, counts = [], [], []
    for mask in chunks:
        edge = functional.pad(mask, (1, 1)).diff(dim=1)  # of bools: where they change
        row, column = edge.nonzero(as_tuple=True)
        starts.append(column[::2])
        stops.append(column[1::2])
        counts.append(lowering.counts(row[::2], len(mask)))
    none = torch.zeros(0, dtype=torch.int64)
    return tuple(torch.cat(parts) if parts else none for parts in (starts, stops, counts))  # type: ignore[return-value]


def _forms(runs: Runs, receivers: int, senders: int, block: int) -> dict[str, Any]:
    """A rule, ranges or edges: the first that there is, and of the last two the smaller."""
    starts, stops, counts = runs
    if len(counts) == 0:  # without senders there are no rows
        counts = torch.zeros(-(-receivers // block), dtype=torch.int64)
    most, lengths = int(counts.max()) if len(counts) else 0, stops - starts
    if block == 1 and 2 * most * receivers > int(lengths.sum()):
        degrees = torch.zeros_like(counts).index_add(0, torch.repeat_interleave(counts), lengths)
        return {"offsets": lowering.offsets_of(degrees), "senders": lowering.senders_of(starts, stops)}
    both = lowering.in_rows(starts, stops, counts)
    ranges = ascending(*((x.repeat_interleave(block, 0)[:receivers] * block).clamp(max=senders) for x in both))
    rule = _rule_of(ranges, senders) if most == 1 else None
    return {"_ranges": ranges} if rule is None else {"rule": rule}


def _rule_of(ranges: Intervals, senders: int) -> Rule | None:
    """The rule with just these intervals, one for each receiver, where it is one of the common ones."""
    starts = ranges[0].flatten()
    i = torch.arange(len(starts))
    radius = int((i - starts).max())
    first = torch.ones_like(starts, dtype=torch.bool)
    first[1:] = starts.diff() != 0  # of a document
    receivers = first.nonzero().flatten().diff(append=torch.tensor([len(i)])).tolist()
    at = [*starts[first].tolist(), senders]
    documents = Blocks(tuple(receivers), tuple(b - a for a, b in itertools.pairwise(at)))
    rules = [Complete(), Causal(), Window(radius, sides="past"), Window(radius), documents, Both(documents, Causal())]
    for rule in rules if radius >= 0 and at[0] == 0 and at == sorted(at) else ():
        found = rule.intervals(i, senders)
        if all(torch.equal(a, b) for a, b in zip(found, ranges, strict=True)):
            return rule
    return None
