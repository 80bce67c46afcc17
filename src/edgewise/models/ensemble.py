"""Several networks in place of one: each learns as if alone, and together they are better than their best."""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from edgewise.configuration import Choice, Count, OneOf, Settings
from edgewise.graphs import Graph
from edgewise.models.graph.consistency import NETWORKS, Consistent, ConsistentSettings, network_of
from edgewise.models.graph.network import GraphNetworkModel, GraphNetworkSettings
from edgewise.models.signature import OfMembers, Signature

MEMBERS = NETWORKS | {
    "graph-network": (GraphNetworkSettings, GraphNetworkModel),
    "consistent": (ConsistentSettings, Consistent),
}


@dataclass(frozen=True)
class EnsembleSettings(Settings):
    """What an ensemble can be.

    Args:
        network: The network of every member.
        members: Number of networks, each from weights of its own.
    """

    network: Annotated[Choice | str, OneOf(MEMBERS)] = "gnn"
    members: Count = 5


class Ensemble(nn.Module):
    """Several networks side by side that read the same batches, each from weights of its own; the output is their mean.

    Equation    f = 1/K Σ_k f_k: of classes softmax f ∝ (Π_k softmax f_k)^(1/K), a logarithmic opinion pool;
                in training the loss is 1/K Σ_k loss(f_k), not loss(f): each member learns as if alone
    Symbols     members[k] = f_k, one of MEMBERS; settings.members = K
    Shapes      those of the network; in training mode `OfMembers`
    Cost        K times that of the network, in time and in weights
    Differs     there the probabilities of classes are averaged, here their logarithms
    Reference   Lakshminarayanan, Pritzel & Blundell, "Simple and scalable predictive uncertainty estimation using deep
                ensembles", 2017; of classes, Heskes, "Selecting weighting factors in logarithmic opinion pools", 1998

    Example
        >>> from edgewise.models import Features
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> model = Ensemble(EnsembleSettings(members=3), Features(3, 7))
        >>> len(model(pair, torch.ones(2, 3)).members), model.eval()(pair, torch.ones(2, 3)).shape
        (3, torch.Size([2, 7]))
    """

    def __init__(self, settings: EnsembleSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, signature
        self.members = nn.ModuleList(network_of(settings.network, MEMBERS, signature) for _ in range(settings.members))

    def forward(self, graph: Graph, *inputs: Any) -> Tensor | OfMembers:
        outputs = tuple(member(graph, *inputs) for member in self.members)
        return OfMembers(outputs) if self.training else torch.stack(outputs).mean(0)
