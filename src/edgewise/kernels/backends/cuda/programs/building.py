"""How a graph's rows are dealt out to programs: by length, long ones cut and merged in a fixed order.

Everything here is PyTorch on the graph's own device, built once per graph. Rows are numbered in 32 bits.
"""

import torch
from torch import Tensor

from edgewise.graphs.forms import receivers_of

CHUNK = 512  # edges of a row that one program takes; a longer row is cut


def schedule(offsets: Tensor, chunk: int | None = None) -> list[Tensor]:
    """[whole, cut, whole of the merge, cut of the merge, ...], each int32 [W, 3] of (row, first edge, end).

    Rows of at most `chunk` edges (CHUNK unless given) are whole; others are cut into pieces of equal length, and piece
    p of `cut` makes partial result p. A merge is the same on those partial results: its rows are the rows that were
    cut, its "edges" their pieces. Rows stand by length, the longest first, so that those which share a program are
    alike: in buckets of powers of two, and inside a bucket in their own order, so that neighbours stay neighbours.
    There is no merge where nothing is cut; and nothing at all, [], where the rows' own order is as good.

    Cost        O(I + E / chunk) memory; one synchronisation with the device, for the sizes
    """
    chunk = chunk or CHUNK
    rows = offsets.shape[0] - 1
    if rows == 0:
        return []
    degrees = offsets.diff()
    bounds = torch.tensor([1 << power for power in range(chunk.bit_length())], device=offsets.device)
    bucket = torch.bucketize(degrees, bounds, right=True)
    long = degrees > chunk
    pieces = torch.where(long, (degrees + chunk - 1).div(chunk, rounding_mode="floor"), 0)
    least, most, cuts, total = torch.stack([bucket.min(), bucket.max(), long.sum(), pieces.sum()]).tolist()
    if least == most and not cuts:
        return []
    order = torch.sort(torch.where(long, -1, bucket), descending=True, stable=True).indices
    whole, split = order[: rows - cuts], order[rows - cuts :]
    listed = [_items(whole, offsets[whole], offsets[whole + 1]), _items(split[:0], split[:0], split[:0])]
    if not cuts:
        return listed
    first = torch.nn.functional.pad(pieces[split].cumsum(0), (1, 0))  # partial results of each row that was cut
    owner = torch.repeat_interleave(pieces[split], output_size=total)
    number = torch.arange(total, device=offsets.device) - first[owner]
    row, length, count = split[owner], degrees[split][owner], pieces[split][owner]
    start = offsets[row] + number * length // count
    listed[1] = _items(row, start, offsets[row] + (number + 1) * length // count)
    merge = schedule(first, chunk)
    if not merge:
        merge = [in_order(first), listed[1][:0]]
    for items in merge:
        items[:, 0] = split[items[:, 0].long()]
    return listed + merge


def in_order(offsets: Tensor) -> Tensor:
    """Every row whole, in the rows' own order: int32 [I, 3]."""
    return _items(torch.arange(offsets.shape[0] - 1, device=offsets.device), offsets[:-1], offsets[1:])


def _items(row: Tensor, start: Tensor, stop: Tensor) -> Tensor:
    return torch.stack([row, start, stop], 1).to(torch.int32)


WINDOW = 16  # receivers that share what they gather: the rows of the smallest tile of a tensor core


def windows(offsets: Tensor, index: Tensor, columns: int) -> list[Tensor]:
    """[starts [W + 1] int64, column [U] int32, bits [U] int32, *schedule(starts)]: the edges, 16 rows at a time.

    Window w has the columns starts[w], ..., starts[w + 1] - 1, which are all that its rows have edges to, ascending,
    each once; bit r of a column says whether the window's row r has that edge.

    Symbols     offsets, index = a CSR without parallel edges; columns = how many there are
    Cost        O(E log E) on the device, O(E) memory, two synchronisations for the sizes
    """
    rows = offsets.shape[0] - 1
    row = receivers_of(offsets, index.shape[0])
    pair = torch.div(row, WINDOW, rounding_mode="floor") * columns + index
    ordered, order = torch.sort(pair)
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    place, bit = fresh.cumsum(0) - 1, 1 << (row[order] % WINDOW)
    ordered = ordered[fresh]
    bits = torch.zeros_like(ordered).index_add_(0, place, bit)  # whole numbers: any order of adding gives the same
    first = torch.arange(-(-rows // WINDOW) + 1, device=offsets.device) * columns
    starts = torch.searchsorted(ordered, first)
    return [starts, (ordered % columns).to(torch.int32), bits.to(torch.int32), *schedule(starts)]


FEWEST, MOST = 128, 512  # edges of a chunk
PROGRAMS = 4096  # that many chunks keep a card busy: small graphs have shorter ones
SLOTS = 4  # rows that take as many steps of so many edges are neighbours


def chunk_size(edges: int) -> int:
    """The most edges that one program walks along, in a graph of so many.

    >>> chunk_size(1000), chunk_size(10**6), chunk_size(10**9)
    (128, 256, 512)
    """
    return min(MOST, max(FEWEST, 1 << (edges // PROGRAMS).bit_length()))


def work(offsets: Tensor, edges: int) -> tuple[Tensor, Tensor]:
    """The rows of a graph as items, and those that were cut into chunks.

    Shapes      offsets [I + 1] -> items [3, n]: row, first edge and last edge (exclusive) of each; the chunks come
                first, those of a row one after another, then whole rows, those with the most edges first.
                hubs [3, m]: row, first and last chunk (exclusive) of each row that was cut
    Cost        O(I log I) once for a graph, on its device

    Example
        >>> items, hubs = work(torch.tensor([0, 2, 2, 302, 309]), 309)
        >>> items.tolist()  # row 2 has 300 edges
        [[2, 2, 2, 3, 0, 1], [2, 102, 202, 302, 0, 2], [102, 202, 302, 309, 2, 2]]
        >>> hubs.tolist()
        [[2], [0], [3]]
    """
    degree, size = offsets.diff(), chunk_size(edges)
    hubs = (degree > size).nonzero().flatten()
    pieces = (degree[hubs] + size - 1).div(size, rounding_mode="floor")
    ends = pieces.cumsum(0)
    rows = hubs.repeat_interleave(pieces)
    step = (degree[hubs] + pieces - 1).div(pieces, rounding_mode="floor").repeat_interleave(pieces)
    number = torch.arange(rows.shape[0], device=rows.device) - (ends - pieces).repeat_interleave(pieces)
    first = offsets[rows] + number * step
    chunks = torch.stack([rows, first, torch.minimum(first + step, offsets[rows + 1])])
    whole = (degree <= size).nonzero().flatten()
    steps = (degree[whole] + SLOTS - 1).div(SLOTS, rounding_mode="floor")
    whole = whole[steps.argsort(descending=True, stable=True)]
    items = torch.cat([chunks, torch.stack([whole, offsets[whole], offsets[whole + 1]])], 1)
    return items.to(torch.int32), torch.stack([hubs, ends - pieces, ends]).to(torch.int32)
