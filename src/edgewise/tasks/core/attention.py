"""What a trained model attends to: its last attention on a graph, as weights that can be drawn."""

import torch
from torch import Tensor, nn

from edgewise.graphs import Graph
from edgewise.kernels import Recorded, record
from edgewise.tasks.core.drawing import Array


@torch.no_grad()
def last_attention(model: nn.Module, graph: Graph, *x: object) -> tuple[Tensor, Recorded | None]:
    """A model's outputs, and its last call of `attend` among the graph's own nodes, if it makes any."""
    with record() as calls:
        outputs = model(graph, *x)
    size = graph.num_receivers, graph.num_senders
    own = [call for call in calls if (call.graph.num_receivers, call.graph.num_senders) == size]
    return outputs, own[-1] if own else None


def matrices(graph: Graph, weights: Tensor) -> Array:
    """Weights [*, E] in the graph's edge order as matrices [*, I, J]; parallel edges add up.

    Example
        >>> graph = Graph.from_edge_index([[1, 0, 0], [0, 1, 1]], num_nodes=2)
        >>> matrices(graph, torch.tensor([1.0, 0.25, 0.75])).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    matrix = weights.new_zeros(*weights.shape[:-1], graph.num_receivers * graph.num_senders)
    cells = (graph.receivers * graph.num_senders + graph.senders).expand(weights.shape)
    matrix.scatter_add_(-1, cells, weights)
    return matrix.unflatten(-1, (graph.num_receivers, graph.num_senders)).double().numpy()
