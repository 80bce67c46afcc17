"""LightGCN: embeddings that are averaged over neighbours, without weights or activations in between."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from edgewise.configuration import Natural, Positive, Settings
from edgewise.graphs import Graph
from edgewise.kernels import aggregate
from edgewise.layers import Linear, SparseFeatures
from edgewise.layers.graph.gcn import renormalised
from edgewise.models.signature import Features, Signature, accepted


@dataclass(frozen=True)
class LightGCNSettings(Settings):
    """What a LightGCN can be.

    Args:
        depth: How many times embeddings are averaged over neighbours; 0: matrix factorisation.
        scale: Deviation of the embeddings that training begins with.
    """

    depth: Natural = 3
    scale: Positive = 0.1


class LightGCN(nn.Module):
    """Embeddings of users and items, averaged over the graph of who chose what.

    Equation    z = 1/(L+1) Σ_{l=0..L} E^(l),  E^(l+1) = D^-½ A D^-½ E^(l),  E^(0) = x W                 (7)-(8)
    Symbols     embed = W, whose rows are the embeddings where x is one-hot; depth = L
    Shapes      x [N, inputs], mostly sparse and one-hot -> [N, outputs]
    Edge cases  a node without edges: x W / (L + 1)
    Cost        O(N inputs outputs), or O(N outputs) one-hot, and O(L E outputs)
    Reference   He et al., "LightGCN: simplifying and powering graph convolution network for recommendation", 2020

    Example
        >>> import torch
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> model = LightGCN(LightGCNSettings(depth=1), Features(inputs=2, outputs=1))
        >>> _ = model.embed.weight.data.copy_(torch.tensor([[2.0, 4.0]]))
        >>> model(pair, torch.eye(2)).flatten().tolist()  # the mean of 2 and 4
        [3.0, 3.0]
    """

    def __init__(self, settings: LightGCNSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features, whole_graph=False)
        self.embed = Linear(signature.inputs, signature.outputs, bias=False)
        nn.init.normal_(self.embed.weight, std=settings.scale)

    def forward(self, graph: Graph, x: Tensor | SparseFeatures) -> Tensor:
        E = total = self.embed(x)
        adjacency, weight = renormalised(graph, E.dtype, paired=True)
        for _ in range(self.settings.depth):
            E = aggregate(adjacency, E, weight)
            total = total + E
        return total / (self.settings.depth + 1)
