"""scaled_dot_product_attention on a batch of complete graphs, grouped by size: no padding, one call for each size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.inputs import Attention, Inputs
from edgewise.graphs.rule import Blocks


def refuses(inputs: Inputs) -> str | None:
    """Takes batches of complete graphs."""
    return None if isinstance(inputs, Attention) and isinstance(inputs.graph.rule, Blocks) else "takes complete graphs"


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """The order of the nodes by size is found once; a step gathers, attends size by size and puts back."""
    assert isinstance(inputs, Attention)
    sizes = inputs.graph.sizes
    by_size = torch.argsort(sizes, stable=True)
    starts = sizes.cumsum(0) - sizes
    order = torch.cat([torch.arange(int(starts[g]), int(starts[g] + sizes[g])) for g in by_size])
    back = torch.argsort(order)
    lengths, counts = (t.tolist() for t in sizes.unique(return_counts=True))
    pieces = [length * count for length, count in zip(lengths, counts, strict=True)]

    def run() -> Tensor:
        ends = [x.index_select(0, order).split(pieces) for x in (inputs.q, inputs.k, inputs.v)]
        found = []
        for length, count, q, k, v in zip(lengths, counts, *ends, strict=True):
            groups = [x.view(count, length, *x.shape[1:]).transpose(1, 2) for x in (q, k, v)]
            found.append(scaled_dot_product_attention(*groups).transpose(1, 2).flatten(0, 1))
        return torch.cat(found).index_select(0, back)

    return run
