"""Tensor field networks, and their attention: messages are features of several types, which turn as space does."""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from edgewise.configuration import Count, Natural
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.kernels import Dot, attend, collect, edges_as_senders
from edgewise.layers.geometric.spherical import Basis, Coupling, RadialWeights, TypedLinear, by_type
from edgewise.layers.plain.layer import Example, Layer, example_graph
from edgewise.layers.plain.linear import Wide

VECTORS = Coupling()  # numbers and vectors, by all paths between them


Typed = Annotated[Tensor, Wide("channels")]  # features of several types


class TFN(Layer):
    """Tensor field convolution: a message is the sender's features, turned by harmonics of where it comes from.

    Equation    m_ij^(lkJ) = R^(lkJ)(|x_ij|, a_ij) ∘ Q^(lk)_J(x_ij) h_j^k
                h_i'^l = W^l h_i^l + U^l ‖_(k,J) Σ_{j ∈ N(i)} m_ij^(lkJ)
                Q^(lk)_J = sqrt(2l + 1) Σ_m C^(kJl)_m Y_Jm(x_ij / |x_ij|), for |k - l| <= J <= k + l
    Symbols     h^l = features of type l, rows l² to (l + 1)² - 1 of h; radial = R, a network of the distance; own = W,
                whose type 0 has a bias; mixed = U; a_ij = what is known of an edge; coupling = the types and the paths
                (k, J); C = Clebsch-Gordan coefficients
    Shapes      h [*, N, (L + 1)², channels], x [*, N, 3] or the `Basis` made of it, a_ij [*, E, edges], cell [3]
                -> [*, N, (L + 1)², channels]
    Errors      EdgewiseError where e3nn is not installed
    Edge cases  a node without senders: W h_i; a node on the same spot, itself too, counts through J = 0 alone.
                Rotations turn type l by D^l; reflections change the sign of odd types where the coupling is not chiral
    Cost        time O(E C Σ_l (2l + 1) P_l (L + 1)²) and the radial network's O(E hidden P C), memory as
                `TensorProduct`: on a CPU O(E P C), for P = Σ P_l paths, P_l of them into type l
    Differs     the paper's filters are Gaussians of the distance, then an MLP; here the MLP reads the distance itself
                and a_ij. With a periodic cell, x_ij is between nearest images. No nonlinearity: see `Gate`
    Reference   Thomas et al., "Tensor field networks", 2018, §4; Weiler et al., 2018

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer, h, x = TFN(1, hidden=4), torch.ones(2, 4, 1), torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
        >>> h[:, 1:] = 0  # numbers only, from which vectors arise along the line between the two
        >>> y = layer(pair, h, x)[0, 1:, 0]
        >>> torch.allclose(y / y[0], x[1])
        True
    """

    def __init__(self, channels: Count, hidden: Count = 32, edges: Natural = 0, coupling: Coupling = VECTORS) -> None:
        super().__init__()
        each = [channels] * (coupling.types + 1)
        self.channels, self.coupling = channels, coupling
        self.radial = RadialWeights(channels, hidden, edges, sum(coupling.paths))
        self.own = TypedLinear(each, each, bias=True)
        self.mixed = TypedLinear([count * channels for count in coupling.paths], each)

    def forward(
        self, graph: Graph, h: Typed, x: Tensor | Basis, a_ij: Tensor | None = None, cell: Tensor | None = None
    ) -> Tensor:
        basis = self.coupling.basis(graph, x, cell)
        results = collect(graph, basis.message(h, self.radial(basis, a_ij)))
        m = [m_l.unflatten(-1, (2 * out + 1, -1)) for out, m_l in enumerate(results)]
        return torch.cat([own + mixed for own, mixed in zip(self.own(by_type(h)), self.mixed(m), strict=True)], -2)

    @staticmethod
    def example() -> Example:
        return TFN(2, 4), example_graph(), (torch.randn(5, 4, 2), torch.randn(5, 3))


class SE3Attention(Layer):
    """Attention of the SE(3)-Transformer: keys and values are tensor field messages, and so its weights do not turn.

    Equation    k_ij^(lkJ) = R_K^(lkJ)(|x_ij|, a_ij) ∘ Q^(lk)_J(x_ij) h_j^k, v_ij with R_V    (8), (9), (11)
                q_i^l = W_Q^l h_i^l
                y_i = Σ_{j ∈ N(i)} softmax_j(q_i·k_ij / √D) v_ij, head by head                (10)
                h_i'^l = W^l h_i^l + W_O^l y_i^l
    Symbols     key_weights, value_weights = R_K, R_V; query, own, output = W_Q, W (type 0 with a bias), W_O; Q and the
                rest as in `TFN`; D = numbers of a head, of all types, rows and paths
    Shapes      as `TFN`
    Cost        that of `TFN` twice, and O(E C Σ_l (2l + 1) P_l) for `attend` over the edges
    Differs     the paper's radial networks give a matrix for each path and edge, here its diagonal: W_Q and W_O mix the
                channels; its W is softmax's own (attentive self-interaction). No nonlinearity: see `Gate`
    Reference   Fuchs et al., "SE(3)-Transformers", 2020, §3.2

    Example
        >>> alone = Graph.from_edge_index([[0], [0]], num_nodes=1)
        >>> SE3Attention(4, heads=2, coupling=Coupling(2))(alone, torch.randn(1, 9, 4), torch.zeros(1, 3)).shape
        torch.Size([1, 9, 4])
    """

    def __init__(
        self, channels: Count, heads: Count, hidden: Count = 32, edges: Natural = 0, coupling: Coupling = VECTORS
    ) -> None:
        super().__init__()
        if channels % heads:
            raise ConfigError(f"{heads} heads do not divide {channels} channels")
        each, messages = [channels] * (coupling.types + 1), [count * channels for count in coupling.paths]
        self.channels, self.coupling, self.heads = channels, coupling, heads
        self.key_weights = RadialWeights(channels, hidden, edges, sum(coupling.paths))
        self.value_weights = RadialWeights(channels, hidden, edges, sum(coupling.paths))
        self.query = TypedLinear(each, messages)
        self.output = TypedLinear(messages, each)
        self.own = TypedLinear(each, each, bias=True)

    def forward(
        self, graph: Graph, h: Typed, x: Tensor | Basis, a_ij: Tensor | None = None, cell: Tensor | None = None
    ) -> Tensor:
        basis = self.coupling.basis(graph, x, cell)
        coupled = basis.couple(graph, h)
        k = self.by_head(self.weighted(collect(graph, self.key_weights(basis, a_ij), None), coupled))
        v = self.by_head(self.weighted(collect(graph, self.value_weights(basis, a_ij), None), coupled))
        q = self.by_head([q_l.unflatten(-1, (-1, h.shape[-1])) for q_l in self.query(by_type(h))])
        y = self.by_path(attend(edges_as_senders(graph), q, k, v, Dot()))
        return torch.cat([own + part for own, part in zip(self.own(by_type(h)), self.output(y), strict=True)], -2)

    def weighted(self, R: Tensor, coupled: Sequence[Tensor]) -> list[Tensor]:
        """R ∘ Q h_j of every type, for R [*, E, P C] path by path."""
        by_type = R.unflatten(-1, (-1, coupled[0].shape[-1])).split(self.coupling.paths, -2)
        return [R_l.unsqueeze(-3) * m_l for R_l, m_l in zip(by_type, coupled, strict=True)]

    def by_head(self, parts: Sequence[Tensor]) -> Tensor:
        """[*, E, 2l + 1, P_l, H c] of every type -> [*, E, H, D]: what one head compares and averages."""
        split = [p.flatten(-3, -2).unflatten(-1, (self.heads, -1)).transpose(-3, -2) for p in parts]
        return torch.cat(split, -2).flatten(-2)  # the one copy

    def by_path(self, y: Tensor) -> list[Tensor]:
        """[*, N, H, D] -> [*, N, 2l + 1, P_l H c] of every type."""
        rows = [(2 * out + 1) * count for out, count in enumerate(self.coupling.paths)]
        parts = y.unflatten(-1, (sum(rows), -1)).transpose(-3, -2).flatten(-2).split(rows, -2)  # each of P_l paths
        return [p.unflatten(-2, (-1, count)).flatten(-2) for p, count in zip(parts, self.coupling.paths, strict=True)]

    @staticmethod
    def example() -> Example:
        return SE3Attention(2, 2, 4), example_graph(), (torch.randn(5, 4, 2), torch.randn(5, 3))
