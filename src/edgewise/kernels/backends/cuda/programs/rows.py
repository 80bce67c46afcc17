"""What the programs of a kernel on edges work on: rows of about equal length side by side, long ones in chunks."""

import torch
from torch import Tensor

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
