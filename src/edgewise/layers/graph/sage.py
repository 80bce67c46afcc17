"""GraphSAGE: a node's own features beside those of its neighbours, or among them, which are combined in three ways."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from edgewise.configuration import Count
from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.tracing import is_transformed
from edgewise.kernels import aggregate
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear, SparseFeatures, check_features, unit
from edgewise.layers.plain.sides import (
    EdgeWeights,
    Sides,
    at_receivers,
    both_sides,
    check_sides,
    dense,
    mean_of_senders,
    weights_with_loops,
)


class SAGEMean(Layer):
    """GraphSAGE with the mean of the neighbours.

    Equation    x_N(i) = 1/|N(i)| Σ_{j ∈ N(i)} x_j          (5.9)
                x_i'   = W [x_i ‖ x_N(i)] + b               (Alg. 4, line 4, before its ReLU)
                with normalize, x_i' / ‖x_i'‖₂
    Symbols     W.weight = [W_own ; W_neighbors]: the halves of W, stacked, so that x is read once; edge_weight [E] =
                w_ij, at least 0: x_N(i) = Σ_j w_ij x_j / Σ_j w_ij
    Shapes      x [*, J, inputs] -> [*, I, outputs]; x may be SparseFeatures, or a pair (x_receivers [*, I, inputs],
                x_senders). A sampled graph has fewer receivers than senders: they are the first (`sample_neighbors`)
    Edge cases  an isolated node has x_N(i) = 0; the neighbours' mean includes i only where the graph has the self-loop
    Cost        time O(N inputs outputs + E outputs): the mean and the linear map commute, so the map comes first; or
                O(I inputs outputs + E inputs) where that is less, as on a sampled hop: few receivers, many senders
    Differs     ReLU of Alg. 4 is the model's, and what follows it (line 6), x_i' / ‖x_i'‖₂, its `norm: unit`;
                `normalize` comes before any activation, as in PyTorch Geometric. (5.8) is `SAGEUnion`
    Reference   Hamilton, Ying & Leskovec, 2017; Baggag & Saad, §5.3

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = SAGEMean(1, 1)
        >>> layer.W.weight.data = torch.tensor([[1.0], [10.0]])
        >>> layer(pair, torch.tensor([[1.0], [2.0]])).tolist()  # 1·1 + 10·2, 1·2 + 10·1
        [[21.0], [12.0]]
    """

    def __init__(self, inputs: Count, outputs: Count, normalize: bool = False) -> None:
        super().__init__()
        self.W = Linear(inputs, 2 * outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.normalize = normalize

    def forward(self, graph: Graph, x: Sides, edge_weight: EdgeWeights = None) -> Tensor:
        if self._mean_first(graph, x):
            x_i, x_j = both_sides(graph, x, dense)
            W_own, W_neighbors = self.W.weight.chunk(2)
            x_N = mean_of_senders(graph, x_j, edge_weight)
            y = functional.linear(x_i, W_own, self.bias) + functional.linear(x_N, W_neighbors)
        else:
            Wx_i, Wx_j = both_sides(graph, x, self.W)
            own, neighbors = Wx_j.chunk(2, -1)
            own = own if Wx_i is Wx_j else Wx_i.chunk(2, -1)[0]  # cut once, its gradient is written once
            y = own + mean_of_senders(graph, neighbors, edge_weight) + self.bias
        return unit(y) if self.normalize else y

    def _mean_first(self, graph: Graph, x: Sides) -> bool:
        """Whether that takes fewer multiplications and additions, on dense features of the right width."""
        check_sides(graph, x)
        outputs, inputs = self.W.weight.shape
        sides = x if isinstance(x, tuple) else (x,)
        if graph.is_square or not all(isinstance(side, Tensor) and side.shape[-1] == inputs for side in sides):
            return False
        before, after = graph.num_senders * inputs * outputs, graph.num_receivers * inputs * outputs
        edges = graph.num_edges
        return after + edges * inputs < before + edges * outputs // 2

    @staticmethod
    def example() -> Example:
        return small_example(SAGEMean(3, 4, normalize=True))


class SAGEUnion(Layer):
    """GraphSAGE with a node among its neighbours: one linear map of what is combined from all of them.

    Equation    x_i' = W ⊕_{j ∈ N(i) ∪ {i}} x_j + b         (5.8), before its ReLU; ⊕ is the mean, (5.9), or the maximum
    Symbols     linear.weight = W; bias = b; reduce = ⊕, "mean" or "max", channel by channel; edge_weight [E] = w_ij, at
                least 0, of a self-loop 1: a mean by weights
    Errors      ShapeError for weights of a maximum
    Shapes      x [*, J, inputs] -> [*, I, outputs]; x may be SparseFeatures, which become dense for the maximum, or a
                pair (x_receivers, x_senders [*, J, inputs]), of which the receivers' is not read
    Edge cases  an isolated node: W x_i + b; existing self-loops are not doubled, and a pair has none
    Cost        time O(N inputs outputs + E min(inputs, outputs)), for the maximum O(N inputs outputs + E inputs)
    Differs     σ of (5.8) is left to the model; b is absent from it. The LSTM, which (5.9) names too, is `SAGELSTM`'s
    Reference   Hamilton, Ying & Leskovec, 2017, (2), where it is the convolutional form; Baggag & Saad, §5.3

    Example
        >>> pair = Graph.from_edge_index([[0], [1]], num_nodes=2)
        >>> layer = SAGEUnion(1, 1)
        >>> layer.linear.weight.data.fill_(1.0)
        tensor([[1.]])
        >>> layer(pair, torch.tensor([[2.0], [4.0]])).tolist()  # 2, (2 + 4)/2
        [[2.0], [3.0]]
    """

    def __init__(self, inputs: Count, outputs: Count, reduce: Literal["mean", "max"] = "mean") -> None:
        super().__init__()
        self.linear = Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.reduce = reduce
        self.narrows = outputs <= inputs

    def forward(self, graph: Graph, x: Sides, edge_weight: EdgeWeights = None) -> Tensor:
        graph, weight = weights_with_loops(graph, x, edge_weight)
        x = x[1] if isinstance(x, tuple) else x
        if self.reduce == "max":
            if weight is not None:
                raise ShapeError("a maximum has no weights of edges: choose reduce='mean'")
            return self.linear(aggregate(graph, dense(x), reduce="max")) + self.bias
        if self.narrows or isinstance(x, SparseFeatures):
            return mean_of_senders(graph, self.linear(x), weight) + self.bias
        return self.linear(mean_of_senders(graph, dense(x), weight)) + self.bias

    @staticmethod
    def example() -> Example:
        return small_example(SAGEUnion(3, 4, "max"))


class SAGE(Layer):
    """GraphSAGE: a linear map of the node's own features beside one of what a network combines from its neighbours."""

    def __init__(self, inputs: Count, outputs: Count, hidden: Count | None = None, normalize: bool = False) -> None:
        super().__init__()
        hidden = inputs if hidden is None else hidden
        self.draw_weights(inputs, hidden)
        self.own = Linear(inputs, outputs)
        self.neighbors = nn.Linear(hidden, outputs, bias=False)
        self.normalize = normalize

    def draw_weights(self, inputs: int, hidden: int) -> None:
        raise NotImplementedError

    def combine(self, graph: Graph, x: Tensor | SparseFeatures) -> Tensor:
        """x_N, [*, I, hidden]."""
        raise NotImplementedError

    def forward(self, graph: Graph, x: Sides) -> Tensor:
        check_sides(graph, x)
        x_i, x_j = x if isinstance(x, tuple) else (x, x)
        own = self.own(x_i) if isinstance(x, tuple) else at_receivers(graph, self.own(x_i))
        y: Tensor = own + self.neighbors(self.combine(graph, x_j))
        return unit(y) if self.normalize else y


class SAGEPool(SAGE):
    """GraphSAGE with the maximum over the neighbours of a one-layer perceptron.

    Equation    x_N(i) = max_{j ∈ N(i)} ReLU(W_pool x_j + b_pool), channel by channel
                x_i'   = W_own x_i + W_neighbors x_N(i) + b (Alg. 4, line 4), with normalize x_i' / ‖x_i'‖₂
    Symbols     pool = W_pool, b_pool; own = W_own, b; neighbors = W_neighbors; hidden = width of x_N(i), default inputs
    Shapes      x [*, J, inputs] -> [*, I, outputs]; x may be SparseFeatures, or a pair (x_receivers [*, I, inputs],
                x_senders). A sampled graph has fewer receivers than senders: they are the first (`sample_neighbors`)
    Cost        time O(N inputs hidden + E hidden)
    Differs     Alg. 4 has ReLU before it divides by ‖x_i'‖₂: see SAGEMean
    Reference   Hamilton, Ying & Leskovec, 2017, (3); Baggag & Saad, §5.3

    Example
        >>> star = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
        >>> layer = SAGEPool(1, 1)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> layer(star, torch.tensor([[1.0], [2.0], [3.0]])).tolist()  # 1 + 1 + max(3, 4), 2 + 1 + 0, 3 + 1 + 0
        [[6.0], [3.0], [4.0]]
    """

    def draw_weights(self, inputs: int, hidden: int) -> None:
        self.pool = Linear(inputs, hidden)

    def combine(self, graph: Graph, x: Tensor | SparseFeatures) -> Tensor:
        return aggregate(graph, self.pool(x).relu(), reduce="max")

    @staticmethod
    def example() -> Example:
        return small_example(SAGEPool(3, 4))


class SAGELSTM(SAGE):
    """GraphSAGE with a recurrent network that reads the neighbours one after the other.

    Equation    x_N(i) = the last state of LSTM(x_j1, x_j2, ...),  j1 < j2 < ... the senders of i
                x_i'   = W_own x_i + W_neighbors x_N(i) + b (Alg. 4, line 4), with normalize x_i' / ‖x_i'‖₂
    Symbols     lstm = LSTM with `hidden` channels (default: inputs); own = W_own, b; neighbors = W_neighbors
    Shapes      x [*, J, inputs] -> [*, I, outputs], as for SAGEMean; SparseFeatures become dense for the LSTM
    Edge cases  not permutation-equivariant, by design: the order of the senders counts
    Cost        time O(E (inputs + hidden) hidden), as many steps as the largest degree; memory O(E (inputs + hidden))
    Differs     the paper reads the neighbours in random order, here in the graph's, so that results repeat. PyTorch
                Geometric pads to the largest degree and reads the padding; here every row stops at its last sender
    Reference   Hamilton, Ying & Leskovec, 2017, §3.3; Hochreiter & Schmidhuber, 1997; Baggag & Saad, §5.3

    Example
        >>> star = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
        >>> SAGELSTM(1, 4)(star, torch.ones(3, 1)).shape
        torch.Size([3, 4])
    """

    equivariant: ClassVar[bool] = False

    def draw_weights(self, inputs: int, hidden: int) -> None:
        self.lstm = nn.LSTM(inputs, hidden)

    def combine(self, graph: Graph, x: Tensor | SparseFeatures) -> Tensor:
        """The last state of every receiver, [*, I, hidden]: the members of * are more sequences, side by side."""
        x = dense(x)
        check_features(x, self.lstm.all_weights[0][0])
        edges, together, rows = reading_order(graph)
        batch = x.shape[:-2].numel()
        y = x.new_zeros(batch, graph.num_receivers, self.lstm.hidden_size)
        if len(rows) == 0 or batch == 0:
            return y.view(*x.shape[:-2], *y.shape[1:])
        x_j = x.reshape(batch, *x.shape[-2:])[:, graph.senders[edges]].transpose(0, 1).flatten(0, 1)  # [E * batch, C]
        if is_transformed():
            state = self.stepwise(x_j, (together * batch).tolist())
        else:
            state = self.lstm(PackedSequence(x_j, together * batch))[1][0][0]
        y = y.index_copy(1, rows, state.view(len(rows), batch, -1).transpose(0, 1))
        return y.view(*x.shape[:-2], *y.shape[1:])

    def stepwise(self, x_j: Tensor, together: list[int]) -> Tensor:
        """The last states, step by step: PyTorch's packed sequences have no rules for `torch.func`.

        Equation    c_t = σ(f) c_t-1 + σ(i) tanh(g),  h_t = σ(o) tanh(c_t),  [i f g o] = W_x x_t + b_x + W_h h_t-1 + b_h
        """
        of_x, of_h, b_x, b_h = self.lstm.all_weights[0]
        h = c = x_j.new_zeros(together[0], self.lstm.hidden_size)
        for x_t in x_j.split(together):
            n = len(x_t)
            gates = functional.linear(x_t, of_x, b_x) + functional.linear(h[:n], of_h, b_h)
            i, f, g, o = gates.chunk(4, -1)
            c_t = f.sigmoid() * c[:n] + i.sigmoid() * g.tanh()
            h, c = torch.cat([o.sigmoid() * c_t.tanh(), h[n:]]), torch.cat([c_t, c[n:]])
        return h

    @staticmethod
    def example() -> Example:
        return small_example(SAGELSTM(3, 4, hidden=2))


@cached
def reading_order(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """How to read all rows of a graph side by side: first every first sender, then every second one, and so on.

    Returns     edges [E] in that order; how many rows still have a sender at each step [largest degree] (on the CPU, as
                PackedSequence wants it); the rows that have any sender, the longest first

    Example
        >>> star = Graph.from_edge_index([[0, 1, 2], [1, 0, 0]], num_nodes=3)
        >>> [part.tolist() for part in reading_order(star)]  # row 0 has edges 0 and 1, row 1 has edge 2
        [[0, 2, 1], [2, 1], [0, 1]]
    """
    degrees = graph.in_degrees()
    rows = degrees.argsort(descending=True, stable=True)[: int((degrees > 0).sum())]
    rank = torch.empty_like(degrees).index_copy(0, rows, torch.arange(len(rows), device=rows.device))
    step = torch.arange(graph.num_edges, device=rows.device) - graph.offsets[graph.receivers]
    edges = (step * max(len(rows), 1) + rank[graph.receivers]).argsort()
    return edges, step.bincount().cpu(), rows
