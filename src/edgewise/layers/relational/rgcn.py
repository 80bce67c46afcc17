"""Relational graph convolution: edges of several kinds, each with a linear map of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph, Partition
from edgewise.kernels import aggregate, collect
from edgewise.kernels.call import check_graph
from edgewise.layers.graph.sides import Nodes, Sides, both_sides
from edgewise.layers.plain.examples import Example, small_example
from edgewise.layers.plain.linear import Linear


class RGCN(nn.Module):
    """Relational graph convolution: the mean of the senders of each relation, through a matrix of that relation.

    Equation    x_i' = W_0 x_i + b + Σ_r 1/c_ir Σ_{j ∈ N_r(i)} W_r x_j,  c_ir = |N_r(i)|
                with bases: W_r = Σ_b a_rb V_b
                with weights e_ijr of the relations of an edge: Σ_j e_ijr W_r x_j / c_ir,  c_ir = Σ_j e_ijr
    Symbols     own = W_0, b; maps = V, or W where bases = 0; mix = a
    Shapes      x [*, J, inputs], or a pair (x_receivers, x_senders), and in the graph's edge order the relation of each
                edge, e [E] int64, or weights e [*, E, relations], of which one-hot ones are the same function
                -> [*, I, outputs]; of a single relation no e is needed
    Errors      ShapeError where x or e does not fit, or for a number that is no relation
    Edge cases  without edges of a relation its term is 0; an isolated node: W_0 x_i + b
    Cost        relations as numbers: time O(P inputs outputs + E outputs), P <= E the pairs of a sender and a relation;
                as weights, for B = bases, or relations where bases = 0: O(J inputs B outputs + E B outputs)
    Differs     none; weights of relations are an addition
    Reference   Schlichtkrull et al., "Modeling relational data with graph convolutional networks", 2018, (2), (3)

    Example
        >>> graph = Graph.from_edge_index([[0, 1, 2], [2, 2, 2]], num_nodes=3)
        >>> layer = RGCN(1, 1, relations=2)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> layer(graph, torch.tensor([[2.0], [4.0], [10.0]]), torch.tensor([0, 0, 1])).tolist()  # 10 + 1 + 3 + 10
        [[3.0], [5.0], [24.0]]
    """

    def __init__(self, inputs: int, outputs: int, relations: int = 1, bases: int = 0) -> None:
        super().__init__()
        if relations < 1 or not 0 <= bases <= relations:
            raise ConfigError(f"relations={relations} must be at least 1, and bases={bases} from 0 to as many")
        self.relations, self.outputs = relations, outputs
        self.own = Linear(inputs, outputs)
        self.maps = Linear(inputs, (bases or relations) * outputs, bias=False)
        self.mix = nn.Parameter(torch.empty(relations, bases)) if bases else None
        if self.mix is not None:
            nn.init.xavier_uniform_(self.mix)

    def forward(self, graph: Graph, x: Sides, e: Tensor | None = None) -> Tensor:
        e = self._checked(graph, e)
        own, _ = both_sides(graph, x, self.own)
        x_j, numbers = x[1] if isinstance(x, tuple) else x, _are_known(e)
        if numbers and not isinstance(graph, Partition) and (isinstance(x_j, Tensor) or self.mix is None):
            return own + self._of_pairs(graph, x_j, e)
        _, Vx = both_sides(graph, x, self.maps)
        heads = Vx.unflatten(-1, (-1, self.outputs))
        return own + aggregate(graph, heads, self._weights(graph, e, heads.dtype)).sum(-2)

    def _checked(self, graph: Graph, e: Tensor | None) -> Tensor:
        check_graph(graph)
        if e is None:
            if self.relations > 1:
                raise ShapeError(f"this layer has {self.relations} relations: hand over that of each edge, e [E]")
            return torch.ones(graph.num_edges, 1, dtype=self.maps.weight.dtype, device=graph.device)
        if e.is_floating_point():
            if e.shape[-2:] != (graph.num_edges, self.relations):
                expected = f"[*, {graph.num_edges}, {self.relations}]"
                raise ShapeError(f"weights of relations are {list(e.shape)}; expected {expected}")
        elif e.dtype != torch.int64 or e.shape != (graph.num_edges,):
            what = f"{list(e.shape)} of {str(e.dtype).removeprefix('torch.')}"
            raise ShapeError(f"relations of edges are {what}; expected [{graph.num_edges}] of int64, or weights")
        elif (
            _are_known(e)
            and e.device.type == "cpu"
            and len(e)
            and not 0 <= int(e.min()) <= int(e.max()) < self.relations
        ):
            raise ShapeError(f"relations are 0 to {self.relations - 1}, not {int(e.min())} to {int(e.max())}")
        return e

    def _weights(self, graph: Graph, e: Tensor, dtype: torch.dtype) -> Tensor:
        """Σ_r e_ijr a_rb / c_ir, or e_ijr / c_ir without bases."""
        if _are_known(e) and self.mix is not None:
            return (self.mix.index_select(0, e) * _shares(graph, e, self.relations, self.mix.dtype)[:, None]).to(dtype)
        e = e.to(dtype) if e.is_floating_point() else functional.one_hot(e, self.relations).to(dtype)
        c = collect(graph, e).index_select(-2, graph.receivers)
        share = torch.where(c == 0, torch.zeros_like(e), e / torch.where(c == 0, torch.ones_like(c), c))
        return share if self.mix is None else share @ self.mix.to(dtype)

    def _of_pairs(self, graph: Graph, x_j: Nodes, e: Tensor) -> Tensor:
        """Each sender through the matrices of those relations alone that its edges have."""
        pairs, place = (e * graph.num_senders + graph.senders).unique(return_inverse=True)
        relation, rows = pairs // max(1, graph.num_senders), pairs % max(1, graph.num_senders)
        if isinstance(x_j, Tensor):
            counts = torch.bincount(relation, minlength=self.relations).tolist()
            parts = x_j.index_select(-2, rows).split(counts, -2)
            V = self.maps.weight.unflatten(0, (-1, self.outputs))
            W = V if self.mix is None else torch.tensordot(self.mix, V, 1)
            Wx = torch.cat([functional.linear(part, W_r) for part, W_r in zip(parts, W, strict=True)], -2)
        else:
            Wx = self.maps(x_j).unflatten(-1, (self.relations, self.outputs))[rows, relation]
        reads = Graph.from_edge_index(torch.stack([place, graph.receivers]), len(pairs), graph.num_receivers)
        return aggregate(reads, Wx, reads.sort_edges(_shares(graph, e, self.relations, Wx.dtype)))

    @staticmethod
    def example() -> Example:
        return small_example(RGCN(3, 4))


def _are_known(e: Tensor) -> bool:
    """Whether e are numbers of relations whose values may be asked for, as a program for other edges may not."""
    return not e.is_floating_point() and not torch.compiler.is_compiling()


def _shares(graph: Graph, relation: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """1 / c_ir for each edge [E]."""
    pair = graph.receivers * count + relation
    return torch.bincount(pair, minlength=1).to(dtype).reciprocal()[pair]
