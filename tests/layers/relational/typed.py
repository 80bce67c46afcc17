"""A small random graph whose edges are of several kinds."""

import torch

RELATIONS, NODES, EDGES = 5, 12, 70


def drawn(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """edge_index, the relation of each edge as given, and features."""
    draw = torch.Generator().manual_seed(seed)
    index = torch.randint(NODES, (2, EDGES), generator=draw)
    kinds = torch.randint(RELATIONS, (EDGES,), generator=draw)
    return index, kinds, torch.randn(NODES, 3, generator=draw, dtype=torch.float64)
