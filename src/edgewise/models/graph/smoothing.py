"""Over-smoothing over depth: how much neighbours still differ after each layer of a model."""

from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.layers import SparseFeatures, dirichlet_energy
from edgewise.models.capabilities import evaluating
from edgewise.models.graph.gnn import GNN
from edgewise.models.graph.transformer import GraphTransformer


@torch.no_grad()
def energy_by_depth(model: GNN | GraphTransformer, graph: Graph, x: Tensor | SparseFeatures) -> list[float]:
    """The relative Dirichlet energy of the nodes after each hidden layer, the first one first: 0 is smoothed away.

    Equation    E(X^(l)) / ‖X^(l)‖² (`dirichlet_energy`), l = 1..L: what the next layer reads, so that normalisation,
                activation and connection are done
    Symbols     L = depth - 1 for a GNN on nodes, whose last layer is the output, else depth
    Cost        one forward pass, in evaluation mode, and O(E width) for each layer

    Example
        >>> from edgewise.models import Features, GNNSettings
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> model = GNN(GNNSettings("gcn", depth=3), Features(3, 7))
        >>> [round(abs(e), 4) for e in energy_by_depth(model, pair, torch.randn(2, 3))]  # both nodes aggregate the same
        [0.0, 0.0]
    """
    energies: list[float] = []

    def measure(h: Any) -> None:
        energies.append(float(dirichlet_energy(graph, h, relative=True)))

    if isinstance(model, GNN):  # what a layer gives is normalised and connected before the next one reads it
        readers = [*model.hidden[1:], model.output] if len(model.hidden) else []
        handles = [module.register_forward_pre_hook(lambda layer, read: measure(read[1])) for module in readers]
    else:
        handles = [block.register_forward_hook(lambda layer, read, h: measure(h)) for block in model.blocks]
    try:
        with evaluating(model):
            model(graph, x)
    finally:
        for handle in handles:
            handle.remove()
    return energies
