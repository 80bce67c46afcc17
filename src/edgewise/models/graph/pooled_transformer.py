"""The pooled graph transformer: graph layers, min-cut pooling to a few clusters, a transformer among those."""

from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from edgewise import layers
from edgewise.configuration import Choice, Count, Natural, NonNegative, OneOf, Settings, Share, chosen
from edgewise.errors import ExplanationError, ShapeError
from edgewise.graphs import Graph
from edgewise.kernels import aggregate
from edgewise.models.graph.gnn import CONNECTIONS, GNN, GRAPH_NORMS, GNNSettings
from edgewise.models.graph.graph_layers import GRAPH_LAYERS
from edgewise.models.parts import Readout
from edgewise.models.signature import Features, Penalised, Signature, Tokens, accepted, check_readout, evaluating

PATCHES = 512  # of a graph that are taken away, one after the other
TOGETHER = 1 << 14  # nodes that are evaluated at once


@dataclass(frozen=True)
class MinCutSettings(Settings):
    """How nodes are pooled.

    Args:
        clusters: Nodes that are left of each graph.
        penalty: How much the two losses of pooling weigh beside the task's.
        linked: Whether the links between clusters, A_pool, multiply the scores of the attention among them.
    """

    clusters: Count = 8
    penalty: NonNegative = 1.0
    linked: bool = False


@dataclass(frozen=True)
class PooledTransformerSettings(Settings):
    """What a pooled graph transformer can be.

    Args:
        layer: The graph layers before pooling.
        width: Channels of every node.
        depth: Number of graph layers.
        pooling: The min-cut pooling.
        blocks: Transformer blocks after pooling.
        heads: Attention heads, which share the width.
        connection: What is around the graph layers.
        norm: The normalisation between the graph layers.
        dropout: Probability for the inputs of graph layers, and for what each block adds.
        readout: What reads the clusters.
    """

    layer: Annotated[Choice | str, OneOf(GRAPH_LAYERS)] = "gcn"
    width: Count = 64
    depth: Count = 2
    pooling: MinCutSettings = field(default_factory=MinCutSettings)
    blocks: Natural = 1
    heads: Count = 4
    connection: Annotated[str, OneOf(CONNECTIONS)] = "none"
    norm: Annotated[str, OneOf(GRAPH_NORMS)] = "none"
    dropout: Share = 0.0
    readout: Readout = "mean"


class PooledTransformer(nn.Module):
    """Graph layers, min-cut pooling, a transformer among the clusters, a readout.

    Equation    H = GNN(G, X),  S = softmax(H W_S + b_S),  X_0 = LN(Sᵀ H)
                X_l = GT_l(X_{l-1}) among the clusters of each graph,  output = readout(LN(X_L)) W + b
                linked: the scores of GT_l are (A_pool + I)_st q_s·k_t / √d, A_pool of `min_cut_pool`    (5.18)
                training: the task's loss + λ mean(L_cut + L_orthogonality)
    Symbols     gnn = GNN; assign = W_S, b_S; blocks[l] = GT_{l+1}, `PreNormBlock`; head = W, b; penalty = λ
    Shapes      x [*, N, inputs] -> [*, G, outputs]; in training mode `Penalised`, with the losses of pooling
    Edge cases  blocks = 0: the readout reads the clusters as they are
    Cost        that of the graph layers and of `min_cut_pool`, and O(G blocks K (K + width) width)
    Differs     Sᵀ sums the nodes of a cluster, whose number LN takes out. The source's transformer has a token of its
                own for the class, here a readout; like there, attention is among all clusters, and A_pool plays no part
                in it unless `linked` is true
    Reference   Zheng et al., "A graph-transformer for whole slide image classification", 2022; Baggag & Saad, §5.6

    Example
        >>> settings = PooledTransformerSettings(width=8, pooling=MinCutSettings(clusters=2))
        >>> model = PooledTransformer(settings, Features(3, 7, whole_graph=True))
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> model.eval()(pair, torch.ones(2, 3)).shape
        torch.Size([1, 7])
    """

    def __init__(self, settings: PooledTransformerSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features, Tokens, whole_graph=True)
        check_readout(settings.readout, signature)
        width, inside = settings.width, replace(signature, outputs=settings.width, whole_graph=False)
        names = ("layer", "width", "depth", "connection", "norm", "dropout")
        self.gnn = GNN(GNNSettings(**{name: getattr(settings, name) for name in names}), inside)
        self.assign = layers.ClusterAssignment(width, settings.pooling.clusters)
        self.blocks = nn.ModuleList(_block(settings) for _ in range(settings.blocks))
        self.norm_1, self.norm_2 = layers.NORMS["layer"](width), layers.NORMS["layer"](width)
        self.readout = chosen("readout", settings.readout, layers.READOUTS)(width)
        self.head = nn.Linear(width, signature.outputs)

    def forward(self, graph: Graph, x: Tensor) -> Tensor | Penalised:
        pooled, _ = self.pool(graph, self.gnn(graph, x))
        outputs = self.read_out(pooled)
        if not self.training:
            return outputs
        return Penalised(outputs, self.settings.pooling.penalty * (pooled.cut + pooled.orthogonality).mean())

    def pool(self, graph: Graph, h: Tensor) -> tuple[layers.Pooled, Tensor]:
        """The clusters of each graph, and to how large a part each node belongs to each: [*, N, K]."""
        s = self.assign(graph, h)
        return layers.min_cut_pool(graph, h, s), s

    def read_out(self, pooled: layers.Pooled) -> Tensor:
        """What follows from the clusters: [*, G, outputs]."""
        z, e = self.norm_1(pooled.x), None
        if self.settings.pooling.linked:
            clusters = self.settings.pooling.clusters
            own = torch.eye(clusters, dtype=z.dtype, device=z.device).flatten()  # A_pool has zeros there
            e = (pooled.weight.unflatten(-1, (-1, clusters**2)) + own).flatten(-2).unsqueeze(-1)
        for block in self.blocks:
            z = block(pooled.graph, z, e=e)
        return self.head(self.readout(pooled.graph, self.norm_2(z)))

    @torch.no_grad()
    def clusters(self, graph: Graph, x: Tensor) -> Tensor:
        """To how large a part each node belongs to each cluster: [*, N, K]."""
        return self.assign(graph, self.gnn(graph, x))

    @torch.no_grad()
    def relevance(self, graph: Graph, x: Tensor, output: int) -> Tensor:
        """How much each node contributes to an output: by how much it falls where the node and its neighbours have
        features of 0.

        Equation    r_i = F_o(X) - F_o(X without patch i);  F_o = log p_o / (1 - p_o) of classes, otherwise y_o
        Symbols     patch i = the nodes nearest to a centre, and those that receive from them; every node is a centre,
                    of more than 512 that many are, and the nodes of a patch have one r
        Shapes      x [N, inputs] -> [N], of the output `output` of the node's own graph
        Errors      ExplanationError for an output that the model has not, or a model of tokens; ShapeError for integers
        Edge cases  members of a batch are separate: each node's r_i is of its own graph's output
        Cost        512 evaluations at most, as many at once as have 2^14 nodes together
        Differs     GraphCAM follows attention and gradients layer by layer. A single node is no patch: its neighbours
                    show most of what it shows. 0 is the mean of the training nodes where features are scaled so
        Reference   Zeiler & Fergus, "Visualizing and understanding convolutional networks", 2014, §4.2;
                    Zheng et al., 2022, §III-D

        Example
            >>> model = PooledTransformer(PooledTransformerSettings(width=8), Features(3, 2, whole_graph=True))
            >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
            >>> model.relevance(pair, torch.ones(2, 3), output=1).shape
            torch.Size([2])
        """
        outputs = self.signature.outputs
        if isinstance(self.signature, Tokens):
            raise ExplanationError("relevance is of features that become 0, and tokens are no numbers")
        if not x.is_floating_point():
            raise ShapeError(f"x must hold real numbers, not {str(x.dtype).removeprefix('torch.')}")
        if output not in range(outputs):
            raise ExplanationError(f"output must be from 0 to {outputs - 1}, not {output}: the model has {outputs}")
        others = [other for other in range(outputs) if other != output and self.signature.classes]

        def value(x: Tensor) -> Tensor:
            y = self(graph, x)
            return y[..., output] - (y[..., others].logsumexp(-1) if others else 0)

        patch, falls = _patches(graph), list[Tensor]()
        with evaluating(self):
            whole = value(x)
            for some in patch.unique().split(max(1, TOGETHER // max(1, len(x)))):
                inside = (patch[:, None] == some).to(x.dtype)
                covered = (inside + aggregate(graph, inside)).T > 0
                falls.append(whole - value(x.masked_fill(covered.unsqueeze(-1), 0)))
        member = torch.arange(len(graph.sizes), device=x.device).repeat_interleave(graph.sizes)
        return torch.cat(falls)[patch, member]


def _patches(graph: Graph) -> Tensor:
    """The number of each node's patch [N]: its nearest centre by edges; the last one is what no centre reaches."""
    n = graph.num_receivers
    count = min(n, PATCHES)
    number = torch.arange(count, device=graph.device)
    patch = torch.full((n,), count, device=graph.device).index_copy(0, number * n // max(count, 1), number)
    while True:
        near = patch.scatter_reduce(0, graph.receivers, patch[graph.senders], "amin")
        grown = torch.where(patch < count, patch, near)
        if torch.equal(grown, patch):
            return patch
        patch = grown


def _block(settings: PooledTransformerSettings) -> nn.Module:
    kind = layers.WeightedAttention if settings.pooling.linked else layers.MultiHeadAttention
    attention = kind(settings.width, settings.heads)
    feed_forward = layers.FeedForward(settings.width, 2 * settings.width)
    return layers.PreNormBlock(settings.width, attention, feed_forward, dropout=settings.dropout)
