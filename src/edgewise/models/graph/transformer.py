"""The graph transformer: encodings of where a node is, blocks of attention over the graph or beyond it, a readout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor, nn

from edgewise import layers
from edgewise.configuration import Choice, Count, Natural, OneOf, Positive, Settings, Share, chosen
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.models.parts import BLOCKS, OneResidual, PostNorm, PreNorm, Readout, features_of_edges
from edgewise.models.signature import Features, Signature, accepted, check_readout


@dataclass(frozen=True)
class GraphTransformerSettings(Settings):
    """What a graph transformer can be.

    Args:
        attention: "neighbors" is over the graph's edges and the node itself, "gps" message passing and attention among
            all nodes side by side, "graphormer" among all nodes by the paths between them; these three read the
            features of edges, and "weighted", over edges, their weights.
        encoding: How a node knows where it is.
        width: Channels of every node.
        depth: Number of blocks.
        heads: Attention heads, which share the width.
        block: Where a block normalises: what each stage reads ("pre-norm") or what it leaves ("post-norm", as "gps"
            always does); "one-residual" has a residual and a norm around the attention alone.
        dropout: Probability for the inputs, attention weights and what each stage adds.
        readout: "none", or a readout where the task wants one output per graph.
    """

    attention: Annotated[Choice | str, OneOf(ATTENTIONS)] = "neighbors"
    encoding: Annotated[Choice | str, OneOf(ENCODINGS)] = "none"
    width: Count = 64
    depth: Natural = 2
    heads: Count = 4
    block: Annotated[Choice | str, OneOf(BLOCKS, without=("bias",))] = "post-norm"
    dropout: Share = 0.0
    readout: Readout = "none"


def _of_size(encoding: Callable[[int, int], nn.Module]) -> Callable[..., nn.Module]:
    def build(width: int, /, *, size: Count = 8) -> nn.Module:
        """An encoding of that many numbers.

        Args:
            size: Eigenvectors, steps of the walk or of diffusion, nodes of the largest clique or largest degree.
        """
        return encoding(width, size)

    return build


ENCODINGS: dict[str, Callable[..., nn.Module | None]] = {
    "none": lambda width, /: None,
    "diffusion": _of_size(lambda width, steps: layers.DiffusionEncoding(steps)),
    "laplacian": _of_size(layers.LaplacianEncoding),
    "sign-invariant": _of_size(layers.SignInvariantEncoding),
    "eigenspace": _of_size(layers.EigenspaceEncoding),
    "random-walk": _of_size(layers.RandomWalkEncoding),
    "cliques": _of_size(layers.CliqueEncoding),
    "centrality": _of_size(layers.CentralityEncoding),
}


class Site(NamedTuple):
    """What an attention is built from, whichever its kind; edges = the width of their features, 0: they have none."""

    width: int
    heads: int
    dropout: float
    edges: int


def _graphormer(at: Site, /, *, most: Count = 8) -> nn.Module:
    """Attention among all nodes, with a bias for the length of the shortest path, and one for its edges' features.

    Args:
        most: The longest path that has a bias of its own.
    """
    return layers.GraphormerAttention(at.width, at.heads, most, at.edges, dropout=at.dropout)


def _kernel(
    at: Site, /, *, kernel: Literal["diffusion", "random-walk"] = "diffusion", beta: Positive = 1.0, steps: Count = 3
) -> nn.Module:
    """Attention among all nodes, each weighted by a kernel on the graph (GraphiT).

    Args:
        kernel: "diffusion", exp(-β L), or "random-walk", (I - β L)^p.
        beta: How far the kernel reaches, β; of a random walk at most 1.
        steps: Steps p of the random walk, at least 1.
    """
    return layers.KernelAttention(at.width, at.heads, kernel, beta, steps, at.dropout)


ATTENTIONS: dict[str, Callable[..., nn.Module]] = {
    "neighbors": lambda at, /: layers.GraphAttention(at.width, at.heads, dropout=at.dropout),
    "weighted": lambda at, /: layers.WeightedAttention(at.width, at.heads, dropout=at.dropout),
    "graphormer": _graphormer,
    "kernel": _kernel,
    "hadamard": lambda at, /: layers.HadamardAttention(at.width, at.heads, dropout=at.dropout),
    "gps": lambda at, /: layers.MultiHeadAttention(at.width, at.heads, dropout=at.dropout),
}
EDGE_ATTENTIONS = ("neighbors", "gps", "graphormer", "weighted")
EMBEDDED = ("neighbors", "gps")  # of which edges have as many channels as nodes
LOOPED = ("neighbors", "weighted")  # in which every node attends to itself


class GraphTransformer(nn.Module):
    """A stack of transformer blocks on a graph, whose nodes say by an encoding where they are.

    Equation    X_0 = encode(graph, X W_0 + b_0);  X_l = GT_l(X_{l-1})    (5.14)-(5.16), Table 3
                on nodes: output = X_L W + b;  on graphs: output = readout(X_L) W + b
                with edge features, E_0 = e W_e + b_e and (X_l, E_l) = GT_l(X_{l-1}, E_{l-1});  "graphormer" and
                "weighted" read e as it is:  X_l = GT_l(X_{l-1}, e)
    Symbols     embed = W_0, b_0; blocks[l] = GT_{l+1}: one of BLOCKS around one of ATTENTIONS, or `GPS` with GIN for
                its messages; head = W, b. With edge features, which edge = W_e, b_e embeds: `EdgeTransformerBlock`,
                or `GPS` with GINE; loop = E_0 of a self-loop that "neighbors" adds
    Shapes      x [*, N, inputs] or SparseFeatures (, e [E, signature.edges] in the graph's edge order, or e [E] int64,
                the kind of each edge, which becomes one-hot) -> [*, N, outputs], with a readout [*, G, outputs]
    Edge cases  "neighbors" and "weighted" add self-loops where missing, as (5.18) does, the latter with a weight of 1
    Cost        O(L (N width² + E width)) time for "neighbors"; the others O(L (N width² + Σ n² width))
    Reference   Dwivedi & Bresson, 2021; Ying et al., 2021; Mialon et al., 2021; Rampášek et al., 2022; Baggag & Saad

    Example
        >>> import torch
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> settings = GraphTransformerSettings("gps", "random-walk", width=8, readout="mean")
        >>> GraphTransformer(settings, Features(3, 7, whole_graph=True))(pair, torch.ones(2, 3)).shape
        torch.Size([1, 7])
    """

    def __init__(self, settings: GraphTransformerSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features, knows=("edges",))
        edges, self.attention = self.signature.edges, Choice.of(settings.attention).name
        check_readout(settings.readout, signature)
        block = chosen("block", settings.block, BLOCKS)()
        _check_attention(self.attention, block, edges)
        self.embed = layers.Linear(signature.inputs, settings.width)
        self.encoding = chosen("encoding", settings.encoding, ENCODINGS)(settings.width)
        self.edge = layers.Linear(edges, settings.width) if edges and self.attention in EMBEDDED else None
        has_loop = edges and self.attention == "neighbors"
        self.loop = nn.Parameter(torch.zeros(settings.width)) if has_loop else None
        self.blocks = nn.ModuleList(_block(settings, block, edges) for _ in range(settings.depth))
        self.norm = chosen("norm", block.last, layers.NORMS)(settings.width)
        self.readout = (
            layers.READOUTS[settings.readout](settings.width) if settings.readout in layers.READOUTS else None
        )
        self.head = nn.Linear(settings.width, signature.outputs)

    def forward(self, graph: Graph, x: Tensor | layers.SparseFeatures, e: Tensor | None = None) -> Tensor:
        e = features_of_edges(graph, e, self.signature.edges, x)
        h: Tensor = self.embed(layers.dropout(x, self.settings.dropout, self.training))
        if self.encoding is not None:
            h = self.encoding(graph, h)
        h = self.norm(self._through_blocks(graph, h, e))
        return self.head(h if self.readout is None else self.readout(graph, h))

    def _through_blocks(self, graph: Graph, h: Tensor, e: Tensor | None) -> Tensor:
        if (e is None) != (self.signature.edges == 0):
            raise ShapeError(f"this model reads {'some' if self.signature.edges else 'no'} edge features")
        if e is None:
            graph = graph.add_self_loops() if self.attention in LOOPED else graph
            for block in self.blocks:
                h = block(graph, h)
            return h
        of_edges: Tensor = e if self.edge is None else self.edge(e)
        if self.attention in LOOPED:
            if of_edges.ndim != 2:
                wanted = f"[{graph.num_edges}, {self.signature.edges}]"
                raise ShapeError(f"features of edges are {list(e.shape)}, but must be {wanted}")
            graph, missing = looped(graph)
            loop = of_edges.new_ones(1) if self.loop is None else self.loop
            of_edges = graph.sort_edges(torch.cat([of_edges, loop.expand(missing, -1)]))
        for block in self.blocks:
            h, of_edges = (
                block(graph, h, of_edges) if self.loop is not None else (block(graph, h, e=of_edges), of_edges)
            )
        return h


@cached
def looped(graph: Graph) -> tuple[Graph, int]:
    """`graph.add_self_loops()` that knows its edges' order: those of the graph, then the loops that were missing."""
    alone = torch.ones(graph.num_senders, dtype=torch.bool, device=graph.device)
    alone[graph.senders[graph.senders == graph.receivers]] = False
    loops = alone.nonzero().flatten().expand(2, -1)
    edges = torch.cat([graph.edge_index(), loops], 1)
    return Graph.from_edge_index(edges, graph.num_senders), loops.shape[1]


def _check_attention(attention: str, block: PreNorm, edges: int) -> None:
    if edges and attention not in EDGE_ATTENTIONS:
        readers = ", ".join(EDGE_ATTENTIONS)
        what = f"the attention {attention!r} reads no edge features, which this task has: {readers} do"
        raise ConfigError(f"{what}; of one's own tables --task.ignore leaves them out")
    if attention == "weighted" and edges > 1:
        raise ConfigError(f"attention='weighted' reads one weight of each edge, and this task has {edges}")
    if attention == "gps" and not isinstance(block, PostNorm):
        raise ConfigError("attention='gps' normalises what each stage leaves: its block is 'post-norm'")
    if edges and attention == "neighbors" and isinstance(block, OneResidual):
        raise ConfigError("the block 'one-residual' has no feed-forward network for edges: choose another attention")


def _block(settings: GraphTransformerSettings, block: PreNorm, edges: int) -> nn.Module:
    width, attention_name = settings.width, Choice.of(settings.attention).name
    if edges and attention_name == "neighbors":
        order: Literal["pre", "post"] = "post" if isinstance(block, PostNorm) else "pre"
        return layers.EdgeTransformerBlock(width, settings.heads, block.norm, order, settings.dropout)
    site = Site(width, settings.heads, settings.dropout, edges)
    attention = chosen("attention", settings.attention, ATTENTIONS)(site)
    feed_forward = layers.FeedForward(width, 2 * width, "relu")
    if attention_name == "gps":
        mlp = layers.MLP([width, width, width])
        messages = layers.GINE(mlp, edges=width) if edges else layers.GIN(mlp)
        return layers.GPS(width, messages, attention, feed_forward, block.norm, settings.dropout)
    return block.encoder(width, attention, feed_forward, block.norm, settings.dropout)
