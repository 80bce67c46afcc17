"""Factorised attention: each group of heads attends to a part of the graph, and together they reach all of it."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from edgewise.errors import ConfigError
from edgewise.graphs import Graph, causal
from edgewise.graphs.derived import cached
from edgewise.graphs.patterns import strided_parts
from edgewise.graphs.rule import Blocks
from edgewise.layers.attention.attention import PositionalAttention
from edgewise.layers.attention.positions import Rotary, batch_of
from edgewise.layers.plain.layer import Example
from edgewise.layers.plain.running import uncompiled

Parts = Callable[[int], tuple[Graph, ...]]


class FactorisedAttention(PositionalAttention):
    """Multi-head attention in which each group of heads attends within a pattern of its own.

    Equation    HA_h = softmax_{j ∈ N(i) ∩ A^(m)(i)}(q_i·k_j / √C) v_j,  m = ⌊h p / H⌋, the group of head h
    Symbols     parts(n) = A^(1), ..., A^(p), patterns by rule, for instance partial(strided_parts, stride=8) or
                partial(fixed_parts, stride=8); otherwise as MultiHeadAttention
    Shapes      x [*, I, width] (, senders [*, J, width]) -> [*, I, width]
    Edge cases  a head without senders adds nothing
    Cost        that of MultiHeadAttention with E / p edges for each group; with stride √n, O(n √n) edges altogether
    Differs     the paper's other ways: alternate the patterns from block to block, or give every head their union,
                which is the graph `strided` or `fixed` under plain MultiHeadAttention
    Reference   Child, Gray, Radford & Sutskever, "Generating long sequences with sparse transformers", 2019, §4.3

    Example
        >>> layer = FactorisedAttention(2, 2, partial(strided_parts, stride=2), bias=False)
        >>> layer.projection.weight.data = torch.cat([torch.zeros(4, 2), torch.ones(2, 2)])  # q·k = 0, v = x_1 + x_2
        >>> layer.output.weight.data = torch.eye(2)
        >>> layer(causal(3), torch.tensor([[1.0, 0.0], [2.0, 0.0], [5.0, 0.0]]))[2]  # (2 + 5) / 2 and (1 + 5) / 2
        tensor([3.5000, 3.0000], grad_fn=<SelectBackward0>)
    """

    def __init__(
        self,
        width: int,
        heads: int,
        parts: Parts,
        *,
        rotary: Rotary | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, rotary=rotary, bias=bias, dropout=dropout)
        groups = len(parts(1))
        if any(part.rule is None for part in parts(1)) or groups < 1 or heads % groups:
            raise ConfigError(f"{heads} heads need a number of patterns by rule that divides them, not {groups}")
        self.parts = parts

    def average(self, graph: Graph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        graphs = within(graph, self.parts)
        groups = zip(graphs, *(x.chunk(len(graphs), -2) for x in (q, k, v)), strict=True)
        return torch.cat([super(FactorisedAttention, self).average(*group) for group in groups], -2)

    @staticmethod
    def example() -> Example:
        return FactorisedAttention(4, 2, partial(strided_parts, stride=2), dropout=0.5), causal(5), (torch.randn(5, 4),)


@uncompiled  # the compiler cannot guard on a key that holds a function
@cached
def within(graph: Graph, parts: Parts) -> tuple[Graph, ...]:
    """The graph within each pattern, at the positions where its nodes stand. Cached.

    Example
        >>> near, far = within(causal(4), partial(strided_parts, stride=2))
        >>> near.num_edges, far.num_edges
        (7, 6)
    """
    sizes = batch_of(graph).sizes.tolist() if len(graph.sizes) > 1 else []
    if sizes:  # every member of a batch starts at 0
        laid = [Graph.batch(members) for members in zip(*map(parts, sizes), strict=True)]
        if graph._batch is not None:
            laid = [part.rows(graph.offset, graph.offset + graph.num_receivers) for part in laid]
    else:
        patterns = parts(max(graph.offset + graph.num_receivers, graph.num_senders))
        nodes = (graph.num_receivers, graph.num_senders, graph.offset)
        laid = [Graph(pattern.rule, *nodes) for pattern in patterns if pattern.rule is not None]
    laid = [part.to(graph.device) for part in laid]
    if isinstance(graph.rule, Blocks) and graph.rule.senders == tuple(batch_of(graph).sizes.tolist()):
        return tuple(laid)  # a batch of complete graphs, which holds whatever stays inside its members
    return tuple(graph.intersection(part) for part in laid)
