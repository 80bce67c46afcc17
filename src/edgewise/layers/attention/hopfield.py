"""Hopfield networks: memories that a state falls back into. With continuous states one step of recall is `attend`.

The networks store given patterns; the layers learn the patterns, the queries, or both.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, Positive, Real
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph, complete
from edgewise.graphs.checks import shown
from edgewise.graphs.derived import cached
from edgewise.kernels import Dot, aggregate, attend
from edgewise.kernels.scores import Score
from edgewise.layers.attention.attention import MultiHeadAttention
from edgewise.layers.plain.layer import Example, Layer, checked
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.sides import SparseRows


class BinaryHopfield:
    """A network of units ±1, which stores patterns [P, N] and updates one unit after the other.

    It computes in float32, or in float64 where the patterns are of that; states may be of any signed type.
    """

    def __init__(self, patterns: Tensor) -> None:
        self.patterns = patterns.to(torch.promote_types(patterns.dtype, torch.float32))
        if patterns.ndim != 2 or not bool((self.patterns.abs() == 1).all()):
            raise ShapeError(f"binary patterns are [P, N] of +1 and -1, not {list(patterns.shape)} of other numbers")

    def signs(self, state: Tensor) -> Iterator[Tensor]:
        """The new sign of one unit after the other in each state, [B]; 0 leaves it as it is. Each is written into the
        state before the next is read."""
        raise NotImplementedError

    def recall(self, state: Tensor, sweeps: int = 20) -> Tensor:
        """Update the units in turn until a whole sweep changes none, or for so many sweeps."""
        _check_states(state, self.patterns)
        given, state = state.dtype, state.to(self.patterns.dtype, copy=True)
        with _exactly(state):
            for _ in range(sweeps):
                before = state.clone()
                for unit, sign in enumerate(self.signs(state)):
                    state[:, unit] = torch.where(sign == 0, state[:, unit], sign)
                if torch.equal(state, before):
                    break
        return state.to(given)


def _check_states(state: Tensor, patterns: Tensor) -> None:
    if not isinstance(state, Tensor) or state.ndim != 2 or state.shape[1] != patterns.shape[1]:
        wanted = f"[B, {patterns.shape[1]}], a number for each unit of a pattern"
        raise ShapeError(f"states must be {wanted}, not {shown(state)}")


def _exactly(x: Tensor) -> torch.autocast:
    """Without autocast, in whose numbers sums of many units are rounded."""
    return torch.autocast(x.device.type, enabled=False)


class ClassicalHopfield(BinaryHopfield):
    """The classical network of ±1: units connected by fixed, Hebbian weights.

    Equation    W = Σ_p x_p x_pᵀ without its diagonal,  ξ_l ← sgn((W ξ)_l − b_l), one unit l after the other,
                E = −½ ξᵀ W ξ + ξᵀ b, which no update raises
    Symbols     patterns = x_1..x_P; threshold = b; graph, weight = W as a graph on the units
    Shapes      patterns [P, N]; energy(state [B, N]) -> [B]; recall(state [B, N]) -> [B, N]
    Edge cases  a unit whose field is 0 stays as it is. About 0.14 N random patterns can be stored
    Cost        O(N²) for one sweep over the units of each state; O(P N²) time and O(N² + P N) memory to store
    Differs     Hopfield's units are 0 and 1, updated at random; here ±1, in turn. W with its diagonal would hold states
                that are no patterns; all units at once may end in a cycle of two states
    Reference   Hopfield, "Neural networks and physical systems with emergent collective computational abilities", 1982

    Example
        >>> network = ClassicalHopfield(torch.tensor([[1.0, 1.0, -1.0, -1.0]]))
        >>> network.recall(torch.tensor([[1.0, -1.0, -1.0, -1.0]])).tolist()
        [[1.0, 1.0, -1.0, -1.0]]
    """

    def __init__(self, patterns: Tensor, threshold: float | Tensor = 0.0) -> None:
        super().__init__(patterns)
        x = self.patterns
        self.units = x.shape[1]
        self.graph = complete(self.units).remove_self_loops().to(x.device)
        with _exactly(x):
            self.weight = (x.T @ x)[self.graph.receivers, self.graph.senders]
        self.threshold = torch.as_tensor(threshold, dtype=x.dtype).expand(self.units).to(x.device)

    def field(self, state: Tensor, start: int, stop: int) -> Tensor:
        """W ξ − b at units start, ..., stop − 1: [stop − start, B]."""
        weight, b = self.weight.view(self.units, -1)[start:stop].flatten(), self.threshold[start:stop, None]
        return aggregate(self.graph.rows(start, stop), state.T.to(weight.dtype), weight) - b

    def energy(self, state: Tensor) -> Tensor:
        """E of each state."""
        _check_states(state, self.patterns)
        Wx = self.field(state, 0, self.units).T + self.threshold
        return -(state * Wx).sum(-1) / 2 + (state * self.threshold).sum(-1)

    def signs(self, state: Tensor) -> Iterator[Tensor]:
        for unit in range(self.units):
            yield self.field(state, unit, unit + 1)[0].sign()


class DenseHopfield(BinaryHopfield):
    """The modern network of ±1, whose energy grows so steeply around a pattern that exponentially many fit.

    Equation    E = −Σ_p exp(x_pᵀ ξ),  ξ_l ← sgn(E(ξ with ξ_l = −1) − E(ξ with ξ_l = +1)), one unit after the other
    Symbols     patterns = x_1..x_P
    Shapes      patterns [P, N]; energy(state [B, N]) -> [B], log(−E); recall(state [B, N]) -> [B, N]
    Edge cases  a unit for which both signs are equal stays as it is, as all do where there are no patterns
    Cost        O(P N) for one sweep over the units of each state
    Reference   Demircigil et al., "On a model of associative memory with huge storage capacity", 2017

    Example
        >>> network = DenseHopfield(torch.tensor([[1.0, 1.0, 1.0], [-1.0, 1.0, -1.0]]))
        >>> network.recall(torch.tensor([[-1.0, -1.0, -1.0]])).tolist()
        [[-1.0, 1.0, -1.0]]
    """

    def energy(self, state: Tensor) -> Tensor:
        """log(−E) of each state: no update lowers it."""
        _check_states(state, self.patterns)
        with _exactly(state):
            return (state.to(self.patterns.dtype) @ self.patterns.T).logsumexp(-1)

    def signs(self, state: Tensor) -> Iterator[Tensor]:
        overlap = state @ self.patterns.T  # x_pᵀ ξ
        for unit, own in enumerate(self.patterns.T):
            others = overlap - state[:, unit, None] * own
            plus, minus = (others + own).logsumexp(-1), (others - own).logsumexp(-1)
            yield (plus > minus).to(plus) - (plus < minus).to(plus)
            overlap = others + state[:, unit, None] * own


class ContinuousHopfield:
    """The modern network of real vectors: a step of recall is one step of attention.

    Equation    E = −β⁻¹ log Σ_p exp(β x_pᵀ ξ) + ½ ξᵀ ξ,  ξ ← Σ_p softmax_p(β x_pᵀ ξ) x_p
    Symbols     patterns = x_1..x_P; beta = β
    Shapes      patterns [P, C]; energy(state [B, C]) -> [B]; recall(state [B, C]) -> [B, C]
    Edge cases  a small β leads to a mean of all patterns, a large one to the nearest
    Cost        O(P C) for a step of each state
    Reference   Ramsauer et al., "Hopfield networks is all you need", 2021, (3)

    Example
        >>> network = ContinuousHopfield(torch.eye(2), beta=100.0)
        >>> network.recall(torch.tensor([[0.6, 0.4]])).round(decimals=3).tolist()
        [[1.0, 0.0]]
    """

    @checked
    def __init__(self, patterns: Tensor, beta: Positive) -> None:
        self.patterns = patterns
        self.beta = beta

    def energy(self, state: Tensor) -> Tensor:
        """E of each state."""
        _check_states(state, self.patterns)
        nearness = (self.beta * state @ self.patterns.T).logsumexp(-1) / self.beta
        return state.square().sum(-1) / 2 - nearness

    def recall(self, state: Tensor, steps: int = 20, tolerance: float = 1e-6) -> Tensor:
        """Take steps until none moves a state by more than `tolerance`, or so many."""
        _check_states(state, self.patterns)
        graph = complete(len(state), len(self.patterns)).to(state.device)
        stored = self.patterns.unsqueeze(1)
        return retrieve(graph, state.unsqueeze(1), stored, self.beta, steps, tolerance).squeeze(1)


def retrieve(
    graph: Graph, state: Tensor, stored: Tensor, beta: float, steps: int, tolerance: float | None = None
) -> Tensor:
    """Iterate attention: every state moves to the mean of the stored patterns that it resembles.

    Equation    ξ_i ← Σ_{j ∈ N(i)} softmax_j(β ξ_i·x_j) x_j
    Symbols     state = ξ, stored = x, beta = β; tolerance = stop once no number changes by more (None: take all steps)
    Shapes      state [*, I, H, C], stored [*, J, G, C] -> [*, I, H, C]
    Edge cases  steps = 0 returns the state; a receiver without senders goes to 0
    Cost        steps times that of `attend`
    Reference   Ramsauer et al., 2021, (3)

    Example
        >>> x = torch.tensor([[1.0], [-1.0]]).view(2, 1, 1)
        >>> retrieve(complete(1, 2), torch.full((1, 1, 1), 0.5), x, beta=2.0, steps=1).item()  # tanh(2 · 0.5)
        0.76159...
    """
    for _ in range(steps):
        before, state = state, attend(graph, state, stored, stored, Dot(scale=beta))
        if tolerance is not None and bool(((state - before).abs() <= tolerance).all()):
            break
    return state


class HopfieldAttention(MultiHeadAttention):
    """Attention that first lets each query fall into what it resembles: `attend` iterated.

    Equation    q ← Σ_{j ∈ N(i)} softmax_j(β q_i·k_j) k_j, steps − 1 times;  y_i = Σ_{j ∈ N(i)} softmax_j(β q_i·k_j) v_j
    Symbols     beta = β (None: 1 / √C); otherwise as MultiHeadAttention
    Shapes      x [*, I, width] (, senders [*, J, width]) -> [*, I, width]
    Edge cases  steps = 1 and beta = None is MultiHeadAttention
    Cost        steps times the attention of MultiHeadAttention
    Differs     the number of steps is fixed; the paper stops each head at its fixed point
    Reference   Ramsauer et al., "Hopfield networks is all you need", 2021, (9)

    Example
        >>> layer = HopfieldAttention(2, 1, steps=30, beta=9.0, bias=False)
        >>> layer.projection.weight.data, layer.output.weight.data = torch.eye(2).repeat(3, 1), torch.eye(2)
        >>> layer(complete(2), torch.tensor([[1.0, 0.0], [0.0, 1.0]])).round(decimals=2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        width: int,
        heads: int,
        steps: Count = 3,
        beta: Real | None = None,
        *,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, bias=bias, dropout=dropout)
        self.steps = steps
        self.beta = self.channels**-0.5 if beta is None else beta

    def score(self, graph: Graph, q: Tensor, k: Tensor) -> Score:
        return Dot(scale=self.beta)

    def average(self, graph: Graph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().average(graph, retrieve(graph, q, k, self.beta, self.steps - 1), k, v)

    @staticmethod
    def example() -> Example:
        graph = Graph.from_edge_index([[0, 1, 2, 0], [1, 2, 0, 2]], num_nodes=4)
        return HopfieldAttention(4, 2, dropout=0.5), graph, (torch.randn(4, 4),)


class HopfieldPooling(Layer):
    """One vector for each graph: the values of the nodes that resemble a learned query.

    Equation    ξ ← Σ_{i ∈ V_g} softmax_i(β ξ·k_i) k_i, steps − 1 times from ξ = q
                z_g = W_O Σ_{i ∈ V_g} softmax_i(β ξ·k_i) v_i
    Symbols     query [H, C] = q, learned; k, v = x W_K, x W_V in `projection`; output = W_O; beta = β (None: 1 / √C)
    Shapes      x [*, N, width] -> [*, G, width] for a batch of G graphs; one graph is a batch of one
    Edge cases  a graph without nodes gives the output bias
    Cost        O(N width²) and O(steps N width)
    Reference   Ramsauer et al., "Hopfield networks is all you need", 2021, §3

    Example
        >>> pooling = HopfieldPooling(1, beta=50.0)
        >>> pooling.query.data, pooling.projection.weight.data = torch.ones(1, 1), torch.ones(2, 1)
        >>> pooling.output.weight.data = torch.ones(1, 1)
        >>> pooling(complete(3), torch.tensor([[1.0], [3.0], [2.0]])).tolist()  # the query 1 is nearest to the largest
        [[3.0]]
    """

    def __init__(self, width: Count, heads: Count = 1, steps: Count = 1, beta: Real | None = None) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"{heads} heads do not divide a width of {width}")
        self.query = nn.Parameter(torch.empty(heads, width // heads))
        self.projection = Linear(width, 2 * width)
        self.output = nn.Linear(width, width)
        self.steps = steps
        self.beta = (width // heads) ** -0.5 if beta is None else beta
        nn.init.normal_(self.query)
        for linear in (self.projection, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, graph: Graph, x: SparseRows) -> Tensor:
        nodes = graph.membership()
        k, v = self.projection(x).unflatten(-1, (2, *self.query.shape)).unbind(-3)
        q = self.query.to(k.dtype).expand(*x.shape[:-2], nodes.num_receivers, *self.query.shape)
        q = retrieve(nodes, q, k, self.beta, self.steps - 1)
        return self.output(attend(nodes, q, k, v, Dot(scale=self.beta)).flatten(-2))

    @staticmethod
    def example() -> Example:
        return HopfieldPooling(4, 2, steps=2), Graph.batch([complete(3), complete(2)]), (torch.randn(5, 4),)


class HopfieldLookup(Layer):
    """Every node looks up a memory whose keys and values are learned.

    Equation    z_i = Σ_m softmax_m(β q_i·k_m) v_m,  q = x W_Q, after steps − 1 steps of retrieval among the k
    Symbols     keys, values [memories, H, C] = k, v; query = W_Qᵀ; beta = β (None: 1 / √C)
    Shapes      x [*, N, width] -> [*, N, width]
    Edge cases  the graph's edges do not matter: nodes attend to the memory, not to one another
    Cost        O(N width²) and O(steps N memories width)
    Reference   Ramsauer et al., "Hopfield networks is all you need", 2021, §3

    Example
        >>> lookup = HopfieldLookup(1, memories=2, beta=50.0)
        >>> lookup.query.weight.data = torch.ones(1, 1)
        >>> lookup.keys.data = torch.tensor([[[1.0]], [[-1.0]]])
        >>> lookup.values.data = torch.tensor([[[7.0]], [[8.0]]])
        >>> lookup(complete(2), torch.tensor([[0.5], [-2.0]])).tolist()
        [[7.0], [8.0]]
    """

    def __init__(
        self, width: Count, heads: Count = 1, memories: Count = 16, steps: Count = 1, beta: Real | None = None
    ) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"{heads} heads do not divide a width of {width}")
        channels = width // heads
        self.query = Linear(width, width, bias=False)
        self.keys = nn.Parameter(torch.randn(memories, heads, channels) * channels**-0.5)
        self.values = nn.Parameter(torch.randn(memories, heads, channels) * channels**-0.5)
        self.steps = steps
        self.beta = channels**-0.5 if beta is None else beta

    def forward(self, graph: Graph, x: SparseRows) -> Tensor:
        memories, heads, channels = self.keys.shape
        lookup = _lookup(graph, memories)
        q = self.query(x).unflatten(-1, (heads, channels))
        k, v = (memory.to(q.dtype).expand(*x.shape[:-2], -1, -1, -1) for memory in (self.keys, self.values))
        q = retrieve(lookup, q, k, self.beta, self.steps - 1)
        return attend(lookup, q, k, v, Dot(scale=self.beta)).flatten(-2)

    @staticmethod
    def example() -> Example:
        return HopfieldLookup(4, 2, memories=3, steps=2), complete(5), (torch.randn(5, 4),)


@cached
def _lookup(graph: Graph, memories: int) -> Graph:
    """The graph in which every node attends to every memory."""
    return complete(graph.num_receivers, memories).to(graph.device)
