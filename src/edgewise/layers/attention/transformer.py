"""Transformer blocks: attention over a graph, then a feed-forward network, with residuals and normalisation."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, Share, chosen
from edgewise.errors import ShapeError
from edgewise.graphs import Graph, complete
from edgewise.kernels import dropout
from edgewise.layers.attention.attention import Cache, KeysAndValues, MultiHeadAttention
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear, check_alike, check_dense, check_width
from edgewise.layers.plain.mlp import ACTIVATIONS

Memory = Tensor | KeysAndValues  # an encoder's output, or the keys and values that a cross-attention makes of it


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation of every channel over all nodes of all graphs.

    Equation    y = (x - μ) / √(σ² + ε) ⊙ γ + β,  μ, σ² of each channel over all nodes (running ones in evaluation)
    Shapes      x [*, N, C] -> [*, N, C]
    Reference   Ioffe & Szegedy, 2015

    Example
        >>> BatchNorm(1)(torch.tensor([[1.0], [3.0]]))
        tensor([[-1.0000],
                [ 1.0000]], grad_fn=<ViewBackward0>)
    """

    def forward(self, x: Tensor) -> Tensor:
        check_normed(self, x)
        if x.ndim < 2:
            raise ShapeError(f"x is {list(x.shape)}, but must be [*, N, C]: a row for each node")
        rows = x.flatten(0, -2)
        if rows.shape[0] == 0:
            return x
        if rows.shape[0] == 1 and self.training:
            raise ShapeError("batch normalisation cannot train on a single node: it has no variance")
        return super().forward(rows).view(x.shape)


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer": nn.LayerNorm,  # (4.16)
    "fine-layer": lambda width: nn.LayerNorm(width, eps=1e-12),  # as BERT
    "rms": lambda width: nn.RMSNorm(width, eps=1e-6),  # as LLaMA and T5
    "coarse-rms": lambda width: nn.RMSNorm(width, eps=1e-5),  # as LLaMA 2 and 3
    "batch": BatchNorm,
    "none": lambda width: nn.Identity(),
}


class FeedForward(Layer):
    """The block's two-layer perceptron; called `feed_forward(x)`, node by node.

    Equation    MLP(Y) = σ(Y W_up + b_up) W_down + b_down    (4.13)
    Symbols     width = d_model; hidden = d_mlp; up, down = W_upᵀ, W_downᵀ; activation = σ
    Shapes      x [*, d_model] -> [*, d_model]
    Cost        O(n d_model d_mlp)
    Reference   Vaswani et al., 2017; Baggag & Saad, §4.2.3

    Example
        >>> ff = FeedForward(1, 2, activation="relu", bias=False)
        >>> ff.up.weight.data, ff.down.weight.data = torch.tensor([[1.0], [-1.0]]), torch.ones(1, 2)
        >>> ff(torch.tensor([[-3.0]])).tolist()  # max(0, -3) + max(0, 3)
        [[3.0]]
    """

    def __init__(self, width: Count, hidden: Count, activation: str = "gelu", bias: bool = True) -> None:
        super().__init__()
        self.up = Linear(width, hidden, bias)
        self.down = Linear(hidden, width, bias)
        self.activation = chosen("activation", activation, ACTIVATIONS)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class GatedFeedForward(Layer):
    """The gated feed-forward network SwiGLU, or another by its gate; called `feed_forward(x)`, node by node.

    Equation    (Swish(x W) ⊙ x V) W_2,  Swish(t) = t · sigmoid(t)
    Symbols     gate_and_value = [W ‖ V]ᵀ; down = W_2ᵀ; activation = in place of Swish: "gelu-tanh" gives GEGLU
    Shapes      x [*, width] -> [*, width]
    Cost        O(n width hidden), 3 products where FeedForward has 2: hidden = 8/3 width costs what 4 width does there
    Reference   Shazeer, 2020, (6)

    Example
        >>> ff = GatedFeedForward(1, 1, bias=False)
        >>> ff.gate_and_value.weight.data, ff.down.weight.data = torch.tensor([[1.0], [2.0]]), torch.ones(1, 1)
        >>> ff(torch.tensor([[1.0]]))  # sigmoid(1) * 1 * 2
        tensor([[1.4621]], grad_fn=<MmBackward0>)
    """

    def __init__(self, width: Count, hidden: Count, bias: bool = True, activation: str = "silu") -> None:
        super().__init__()
        self.activation = chosen("activation", activation, ACTIVATIONS)
        self.gate_and_value = Linear(width, 2 * hidden, bias)
        self.down = Linear(hidden, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.gate_and_value(x).chunk(2, -1)
        return self.down(self.activation(gate) * value)


def check_normed(norm: nn.Module, x: Tensor) -> None:
    """Raise ShapeError for features that a norm does not read; those of half the precision it does."""
    check_dense(x)
    weight = getattr(norm, "weight", None)
    if weight is not None:
        check_width(x, weight, "this norm")
    if weight is not None and x.dtype not in (torch.float16, torch.bfloat16):
        check_alike(x, weight)


def _normed(layer: Any, graph: Any, name: str, x: Any) -> None:
    check_normed(layer.norms[0] if hasattr(layer, "norms") else layer.norm_1, x)


Normed = Annotated[Tensor, _normed]  # what a block's first norm reads


class TransformerBlock(Layer):
    """Attention and a feed-forward network, each with a residual and a norm, whose place a subclass chooses.

    Symbols     dropout = the share that is dropped of what each stage adds, while training
    """

    unbiased: ClassVar[bool] = False

    def __init__(
        self, width: Count, attention: nn.Module, feed_forward: nn.Module, norm: str = "layer", dropout: Share = 0.0
    ) -> None:
        super().__init__()
        self.norm_1 = chosen("norm", norm, NORMS)(width)
        self.attention = attention
        self.norm_2 = chosen("norm", norm, NORMS)(width)
        self.feed_forward = feed_forward
        self.dropout = dropout

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)

    def _attended(self, graph: Graph, x: Tensor, cache: Cache | None, e: Tensor | None) -> Tensor:
        """ATT of x, with the features of edges where its attention reads some; what it adds is dropped in part."""
        y = self.attention(graph, x, cache=cache) if e is None else self.attention(graph, x, e, cache=cache)
        return self._drop(y)


class PreNormBlock(TransformerBlock):
    """Transformer block that normalises what each stage reads; the residual stream itself is never normalised.

    Equation    Y = X + ATT(LN(X))    (4.4)
                X' = Y + MLP(LN(Y))   (4.5)
    Symbols     attention = ATT, called attention(graph, x, cache=cache), with features of edges
                attention(graph, x, e, cache=cache); feed_forward = MLP; norm = LN's name in NORMS
    Shapes      x [*, N, width] (, e [*, E, C], which ATT reads and no stage changes) -> [*, N, width]
    Reference   Xiong et al., 2020; Baggag & Saad, (4.4)-(4.5), Table 2, Fig. 9

    Example
        >>> block = PreNormBlock(4, MultiHeadAttention(4, 2), FeedForward(4, 16))
        >>> block(complete(3), torch.randn(3, 4)).shape
        torch.Size([3, 4])
    """

    def forward(self, graph: Graph, x: Normed, cache: Cache | None = None, e: Tensor | None = None) -> Tensor:
        x = x + self._attended(graph, self.norm_1(x), cache, e)
        return x + self._drop(self.feed_forward(self.norm_2(x)))

    @staticmethod
    def example() -> Example:
        return small_example(PreNormBlock(4, MultiHeadAttention(4, 2), FeedForward(4, 8), dropout=0.5), 4)


class PostNormBlock(TransformerBlock):
    """Transformer block that normalises the sum after each stage, as the first transformer did.

    Equation    Y = LayerNorm(X + ATT(X)),  X' = LayerNorm(Y + MLP(Y))    (Table 2, left)
    Shapes      x [*, N, width] -> [*, N, width]
    Reference   Vaswani et al., 2017; Baggag & Saad, Table 2, Fig. 8

    Example
        >>> block = PostNormBlock(4, MultiHeadAttention(4, 2), FeedForward(4, 16))
        >>> block(complete(3), torch.randn(3, 4)).mean(-1).abs().max() < 1e-6  # every node leaves normalised
        tensor(True)
    """

    def forward(self, graph: Graph, x: Normed, cache: Cache | None = None, e: Tensor | None = None) -> Tensor:
        x = self.norm_1(x + self._attended(graph, x, cache, e))
        return self.norm_2(x + self._drop(self.feed_forward(x)))

    @staticmethod
    def example() -> Example:
        return small_example(PostNormBlock(4, MultiHeadAttention(4, 2), FeedForward(4, 8), dropout=0.5), 4)


class OneResidualBlock(TransformerBlock):
    """Transformer block that adds its input to the attention alone: the feed-forward network replaces what it reads.

    Equation    X' = MLP(LayerNorm(X + ATT(X)))    (9), (19)
    Shapes      as PreNormBlock
    Differs     no path leads around the MLPs: a stack is harder to train than one of `PreNormBlock`
    Reference   Joshi, "Transformers are graph neural networks", 2025, (9), (19)

    Example
        >>> block = OneResidualBlock(4, MultiHeadAttention(4, 2), FeedForward(4, 16))
        >>> for p in block.feed_forward.parameters(): _ = p.data.zero_()
        >>> block(complete(3), torch.randn(3, 4)).abs().max().item()  # nothing goes around the network
        0.0
    """

    def __init__(
        self, width: int, attention: nn.Module, feed_forward: nn.Module, norm: str = "layer", dropout: float = 0.0
    ) -> None:
        super().__init__(width, attention, feed_forward, norm, dropout)
        self.norm_2 = nn.Identity()

    def forward(self, graph: Graph, x: Normed, cache: Cache | None = None, e: Tensor | None = None) -> Tensor:
        x = self.norm_1(x + self._attended(graph, x, cache, e))
        return self._drop(self.feed_forward(self.norm_2(x)))

    @staticmethod
    def example() -> Example:
        return small_example(OneResidualBlock(4, MultiHeadAttention(4, 2), FeedForward(4, 8), dropout=0.5), 4)


class SandwichBlock(TransformerBlock):
    """Transformer block that normalises what each stage reads and what it adds.

    Equation    Y = X + LN(ATT(LN(X))),  X' = Y + LN(MLP(LN(Y))), four LN of their own
    Symbols     norm_1, norm_2 = those before the stages; norm_3, norm_4 = those after them; otherwise as PreNormBlock
    Shapes      as PreNormBlock
    Reference   Ding et al., "CogView", 2021, §2.4 (Sandwich-LN); Gemma Team, "Gemma 2", 2024

    Example
        >>> block = SandwichBlock(4, MultiHeadAttention(4, 2), FeedForward(4, 16))
        >>> for norm in (block.norm_3, block.norm_4): _ = norm.weight.data.zero_()
        >>> x = torch.randn(3, 4)
        >>> torch.equal(block(complete(3), x), x)  # the stages add nothing
        True
    """

    def __init__(
        self, width: int, attention: nn.Module, feed_forward: nn.Module, norm: str = "layer", dropout: float = 0.0
    ) -> None:
        super().__init__(width, attention, feed_forward, norm, dropout)
        self.norm_3, self.norm_4 = (chosen("norm", norm, NORMS)(width) for _ in range(2))

    def forward(self, graph: Graph, x: Normed, cache: Cache | None = None, e: Tensor | None = None) -> Tensor:
        x = x + self.norm_3(self._attended(graph, self.norm_1(x), cache, e))
        return x + self.norm_4(self._drop(self.feed_forward(self.norm_2(x))))

    @staticmethod
    def example() -> Example:
        return small_example(SandwichBlock(4, MultiHeadAttention(4, 2), FeedForward(4, 8), dropout=0.5), 4)


class PreNormDecoderBlock(TransformerBlock):
    """Decoder block that also attends to a memory, and normalises what each of its three stages reads.

    Equation    Y = X + ATT(LN(X)),  Z = Y + CROSS(LN(Y), M),  X' = Z + MLP(LN(Z))
    Symbols     memory = M, an encoder's output, or its `block.cross.keys_and_values(M)`; attention = ATT on `graph`;
                cross = CROSS on the graph `sources` from M to X; feed_forward, norm as in PreNormBlock
    Shapes      x [*, I, width], memory [*, J, width] -> [*, I, width];
                x [B, I, width], memory [J, width]: `sources` then has B I receivers, member by member
    Edge cases  sources None: the same graph
    Differs     the paper normalises after each stage: `PostNormDecoderBlock`
    Reference   Vaswani et al., 2017, §3.1; Xiong et al., 2020

    Example
        >>> block = PreNormDecoderBlock(4, MultiHeadAttention(4, 2), MultiHeadAttention(4, 2), FeedForward(4, 16))
        >>> block(complete(3), torch.randn(3, 4), torch.randn(5, 4), complete(3, 5)).shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        width: int,
        attention: nn.Module,
        cross: MultiHeadAttention,
        feed_forward: nn.Module,
        norm: str = "layer",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, attention, feed_forward, norm, dropout)
        self.cross = cross
        self.norm_3 = chosen("norm", norm, NORMS)(width)

    def forward(
        self, graph: Graph, x: Normed, memory: Memory, sources: Graph | None = None, cache: Cache | None = None
    ) -> Tensor:
        x = x + self._drop(self.attention(graph, self.norm_1(x), cache=cache))
        x = x + self._drop(cross_attention(self.cross, sources or graph, self.norm_2(x), memory))
        return x + self._drop(self.feed_forward(self.norm_3(x)))

    @staticmethod
    def example() -> Example:
        attention, cross = MultiHeadAttention(4, 2), MultiHeadAttention(4, 2)
        block = PreNormDecoderBlock(4, attention, cross, FeedForward(4, 8), dropout=0.5)
        return block, complete(5), (torch.randn(5, 4), torch.randn(5, 4))


class PostNormDecoderBlock(PreNormDecoderBlock):
    """Decoder block that also attends to a memory, and normalises the sum after each of its three stages.

    Equation    Y = LN(X + ATT(X)),  Z = LN(Y + CROSS(Y, M)),  X' = LN(Z + MLP(Z))
    Shapes      x [*, I, width], memory [*, J, width] -> [*, I, width]
    Reference   Vaswani et al., 2017, §3.1

    Example
        >>> block = PostNormDecoderBlock(4, MultiHeadAttention(4, 2), MultiHeadAttention(4, 2), FeedForward(4, 16))
        >>> y = block(complete(3), torch.randn(3, 4), torch.randn(5, 4), complete(3, 5))
        >>> y.mean(-1).abs().max() < 1e-6  # every node leaves normalised
        tensor(True)
    """

    def forward(
        self, graph: Graph, x: Normed, memory: Memory, sources: Graph | None = None, cache: Cache | None = None
    ) -> Tensor:
        x = self.norm_1(x + self._drop(self.attention(graph, x, cache=cache)))
        x = self.norm_2(x + self._drop(cross_attention(self.cross, sources or graph, x, memory)))
        return self.norm_3(x + self._drop(self.feed_forward(x)))

    @staticmethod
    def example() -> Example:
        attention, cross = MultiHeadAttention(4, 2), MultiHeadAttention(4, 2)
        block = PostNormDecoderBlock(4, attention, cross, FeedForward(4, 8), dropout=0.5)
        return block, complete(5), (torch.randn(5, 4), torch.randn(5, 4))


def cross_attention(cross: MultiHeadAttention, sources: Graph, x: Tensor, memory: Memory) -> Tensor:
    """Cross-attention from x to a memory; where one memory serves a batch of x, its members' rows are receivers."""
    if not isinstance(memory, tuple):
        memory = cross.keys_and_values(memory, cross.positions_of(sources, memory))
    leading = x.ndim - memory[0].ndim + 1
    return cross.cross(sources, x.flatten(0, leading) if leading > 0 else x, memory).view(x.shape)
