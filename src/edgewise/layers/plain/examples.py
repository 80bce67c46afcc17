"""What the `example()` of a layer returns, and the graph that most of them run on."""

import torch
from torch import Tensor, nn

from edgewise.graphs import Graph

Example = tuple[nn.Module, Graph, tuple[Tensor, ...]]  # layer(graph, *inputs)


def example_graph() -> Graph:
    """Five nodes: a triangle in both directions, a self-loop and an isolated node.

    Example
        >>> example_graph().in_degrees().tolist()
        [2, 2, 2, 1, 0]
    """
    return Graph.from_edge_index([[0, 1, 1, 2, 2, 0, 3], [1, 0, 2, 1, 0, 2, 3]], num_nodes=5)


def small_example(layer: nn.Module, channels: int = 3) -> Example:
    """A layer of node features alone, on that graph."""
    return layer, example_graph(), (torch.randn(5, channels),)
