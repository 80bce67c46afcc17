"""The pooled graph transformer: graph layers, min-cut pooling to a few clusters, a transformer among those."""

from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from edgewise import layers
from edgewise.configuration import Choice, Count, Natural, NonNegative, OneOf, Settings, Share, chosen
from edgewise.errors import ExplanationError, ShapeError
from edgewise.graphs import Graph
from edgewise.models.graph.gnn import CONNECTIONS, GNN, GRAPH_NORMS, GNNSettings
from edgewise.models.graph.graph_layers import GRAPH_LAYERS
from edgewise.models.parts import Readout
from edgewise.models.signature import Features, Penalised, Signature, Tokens, accepted, check_readout, evaluating

STEPS = 16  # of integrated gradients


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

    def relevance(self, graph: Graph, x: Tensor, output: int) -> Tensor:
        """How much each node contributes to an output: integrated gradients from features of 0.

        Equation    r_i = Σ_c x_ic 1/n Σ_k ∂y_o((k - ½)/n X) / ∂x_ic,  k = 1 ... n = 16
        Shapes      x [N, inputs] -> [N], of the output `output` of the node's own graph
        Errors      ExplanationError for an output that the model has not, or a model of tokens; ShapeError for integers
        Edge cases  members of a batch are separate: each node's r_i is of its own graph's output;
                    a layer norm jumps next to 0, which n steps miss: Σ_i r_i need not be y_o(X) - y_o(0)
        Cost        n forward and backward passes
        Differs     GraphCAM follows attention and gradients layer by layer; this compares with nodes whose features
                    are 0, the mean of the training nodes where features are scaled so
        Reference   Sundararajan et al., "Axiomatic attribution for deep networks", 2017, (3);
                    Zheng et al., 2022, §III-D

        Example
            >>> model = PooledTransformer(PooledTransformerSettings(width=8), Features(3, 2, whole_graph=True))
            >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
            >>> model.relevance(pair, torch.ones(2, 3), output=1).shape
            torch.Size([2])
        """
        outputs = self.signature.outputs
        if isinstance(self.signature, Tokens):
            raise ExplanationError("relevance is gradient × input, and tokens are no numbers to differentiate by")
        if not x.is_floating_point():
            raise ShapeError(f"x must hold real numbers, not {str(x.dtype).removeprefix('torch.')}")
        if output not in range(outputs):
            raise ExplanationError(f"output must be from 0 to {outputs - 1}, not {output}: the model has {outputs}")
        if torch.is_inference_mode_enabled():  # whose tensors cannot be differentiated
            with torch.inference_mode(False):
                return self.relevance(graph, x.clone(), output)
        with evaluating(self), torch.enable_grad():
            total = torch.zeros_like(x)
            for part in range(STEPS):
                scaled = (x.detach() * ((part + 0.5) / STEPS)).requires_grad_()
                total += torch.autograd.grad(self(graph, scaled)[..., output].sum(), scaled)[0]
        return (x * total / STEPS).sum(-1).detach()


def _block(settings: PooledTransformerSettings) -> nn.Module:
    kind = layers.WeightedAttention if settings.pooling.linked else layers.MultiHeadAttention
    attention = kind(settings.width, settings.heads)
    feed_forward = layers.FeedForward(settings.width, 2 * settings.width)
    return layers.PreNormBlock(settings.width, attention, feed_forward, dropout=settings.dropout)
