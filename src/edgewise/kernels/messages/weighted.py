"""Messages that are the sender's value with a weight for each channel, which a network may make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar, Self

import torch
from torch import Tensor

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.checks import same_device, shown
from edgewise.graphs.derived import cached
from edgewise.kernels.messages.network import EdgeNetwork, Message, Result, check_batches, check_rows


@dataclass(frozen=True, eq=False)
class Weighted(Message[Result]):
    """What `Filter` and `TensorProduct` share: the sender's value, and a weight that may be a network's."""

    weight: Tensor | EdgeNetwork
    senders: Tensor
    node_axis: ClassVar[int] = -2

    def check_weight(self, graph: Graph, widths: Sequence[int]) -> None:
        """Raise ShapeError unless the weight has a row for each edge, of one of these widths, and batches broadcast."""
        if isinstance(self.weight, EdgeNetwork):
            self.weight.check(graph, None)
        else:
            check_rows("the weights of messages", self.weight, graph.num_edges)
        if self.width not in widths:
            raise ShapeError(f"the weights of messages have {self.width} channels, but must have {widths[-1]}")
        check_batches(self.batches)

    @property
    def width(self) -> int:
        """That of the weight."""
        return self.weight.widths[-1] if isinstance(self.weight, EdgeNetwork) else self.weight.shape[-1]

    @property
    def network(self) -> EdgeNetwork | None:
        return self.weight if isinstance(self.weight, EdgeNetwork) else None

    @property
    def batches(self) -> list[torch.Size]:
        """The leading batches of its tensors."""
        of_weight = self.weight.batch if isinstance(self.weight, EdgeNetwork) else self.weight.shape[:-2]
        return [of_weight, self.senders.shape[: self.node_axis]]

    @property
    def batch(self) -> torch.Size:
        """The leading batch."""
        return torch.broadcast_shapes(*self.batches)

    def weights(self, graph: Graph) -> Tensor:
        """The weight of every edge."""
        return self.weight.on_edges(graph)[0] if isinstance(self.weight, EdgeNetwork) else self.weight

    def tensors(self) -> list[Tensor | None]:
        return [self.senders, *(self.weight.tensors() if isinstance(self.weight, EdgeNetwork) else [self.weight])]

    def lowered(self, dtype: torch.dtype) -> Self:
        return replace(self, weight=self.weight.lowered(dtype)) if isinstance(self.weight, EdgeNetwork) else self

    def fetched(self, fetch: Callable[[Tensor, int], Tensor]) -> Self:
        weight = self.weight.fetched(fetch) if isinstance(self.weight, EdgeNetwork) else self.weight
        return replace(self, weight=weight, senders=fetch(self.senders, self.node_axis))

    def signature(self) -> tuple[object, ...]:
        return (*(self.network.signature() if self.network else ()), *super().signature())


@dataclass(frozen=True, eq=False)
class Filter(Weighted[Tensor]):
    """A weight for every channel of the sender's value: a continuous filter, where it is a network of the distance.

    Equation    m_ij = w_ij ∘ x_j;  both ways: y_i = Σ_{j ∈ N(i)} w_ij ∘ x_j + Σ_{j: i ∈ N(j)} w_ji ∘ x_j;
                normalised: y_i = Σ_j w_ij ∘ x_j / (Σ_j w_ij + ε)
    Symbols     weight = w, a tensor or an `EdgeNetwork`; senders = x; both_ways = whether a weight serves both
                directions of its edge; normalised = ε > 0, None: no division
    Shapes      w [*, E, C] or [*, E, 1], x [*, J, C] -> [*, I, C]
    Errors      ShapeError where they do not fit, or for another reduction than the sum of both ways
    Cost        that of `aggregate`, and of the network; both ways share the network's work. Where the weight is an
                activation of linear maps of both ends and the edge alone (a gate), `native` never writes it down
    Reference   Schütt et al. 2017, eq. 2; normalised gates: Dwivedi et al. 2020, (48)

    Example
        >>> from edgewise import collect
        >>> graph = Graph.from_edge_index([[0], [1]], num_nodes=2)
        >>> message = Filter(torch.tensor([[3.0]]), torch.tensor([[1.0], [10.0]]), both_ways=True)
        >>> collect(graph, message).flatten().tolist()
        [30.0, 3.0]
    """

    both_ways: bool = False
    normalised: float | None = None

    def check(self, graph: Graph, reduce: str | None) -> None:
        check_rows("the senders of a filter", self.senders, graph.num_senders)
        self.check_weight(graph, (1, self.senders.shape[-1]))
        if self.both_ways and (reduce != "sum" or graph.num_senders != graph.num_receivers):
            raise ShapeError("a filter of both directions is summed, on a graph whose receivers are its senders")
        if self.normalised is not None and (reduce not in ("sum", None) or self.both_ways):
            raise ShapeError(f"a normalised filter is summed, in one direction: reduce={reduce!r}")
        if self.normalised is not None and not 0 < self.normalised < inf:  # 0 is NaN at a node without neighbours
            raise ShapeError(f"normalised must be a finite number above 0, not {self.normalised}")

    @property
    def channels(self) -> int:
        return self.senders.shape[-1]

    def on_edges(self, graph: Graph) -> tuple[Tensor]:
        """The equation of one direction."""
        weight = self.weights(graph)
        m_ij = weight * self.senders.index_select(-2, graph.senders)
        if self.normalised is None:
            return (m_ij,)
        shape = (*weight.shape[:-2], graph.num_receivers, weight.shape[-1])
        total = weight.new_zeros(shape).index_add(-2, graph.receivers, weight) + self.normalised
        return (m_ij / total.index_select(-2, graph.receivers),)

    def signature(self) -> tuple[object, ...]:
        return (self.both_ways, self.normalised is None, *super().signature())

    def directions(self, graph: Graph, weight: Tensor) -> tuple[tuple[Graph, Filter], ...]:
        """Both directions one by one, given the weights: each a graph with its filter."""
        transpose, order = graph.transpose()
        back = Filter(weight.index_select(-2, order), self.senders)
        return (graph, Filter(weight, self.senders)), (transpose, back)


@dataclass(frozen=True, eq=False)
class TensorProduct(Weighted[tuple[Tensor, ...]]):
    """The sender's features of several types, multiplied by spherical harmonics of where it is, path by path.

    Equation    m_ij^(lkJ) = R^(lkJ)_ij ∘ Σ_m C^(kJl)_m Y_Jm(x_ij) h_j^k, for each path (k, J) into a type l
    Symbols     weight = R, a tensor or an `EdgeNetwork`; senders = h, rows k² to (k + 1)² - 1 of type k; harmonics = Y,
                of which Y_0 is 1; paths = ((k, J), the types l that k becomes by J), in the order of the weight's
                channels; coefficients = C for each (k, J), a matrix from the products of Y_J and h^k, path by path, to
                the rows of all its l, of J = 0 the identity
    Shapes      R [*, E, P C] for P paths, h [*, J, (L + 1)², C], Y [*, E, (most + 1)²], C [Σ (2l + 1), (2J + 1) P
                (2k + 1)] -> for each type l [*, I, (2l + 1) P_l C], the paths in their order
    Errors      ShapeError where a tensor or a path does not fit, or for another reduction than the sum
    Cost        on the edges: O(E C Σ_l (2l + 1) P_l (L + 1)²) time and O(E C Σ_l (2l + 1) P_l) memory. Summed, the
                coefficients meet nodes and not edges: Σ_m C_m Σ_j Y_Jm(x_ij) (R ∘ h_j^k), `aggregate` with harmonics
                as weights; `native`, in float32 or float64, has nothing for each edge but R and Y, and in the
                backward pass O(I C Σ (2J + 1) (2k + 1)) memory, over all paths
    Reference   Thomas et al., "Tensor field networks", 2018, §4
    """

    harmonics: Tensor
    paths: tuple[tuple[tuple[int, int], tuple[int, ...]], ...]
    coefficients: tuple[Tensor, ...]

    several: ClassVar[bool] = True
    node_axis: ClassVar[int] = -3

    def check(self, graph: Graph, reduce: str | None) -> None:
        if reduce not in ("sum", None):
            raise ShapeError(f"messages of a tensor product are summed: reduce={reduce!r}")
        self._check_paths()
        rows, h = (self.types + 1) ** 2, self.senders
        if not isinstance(h, Tensor) or h.ndim < 3 or h.shape[-3:-1] != (graph.num_senders, rows):
            wanted = f"[*, {graph.num_senders}, {rows}, C]"
            raise ShapeError(f"h is {shown(h)}, but must be {wanted} for types up to {self.types}")
        check_rows("the harmonics of a tensor product", self.harmonics, graph.num_edges)
        most = max(J for (_, J), _ in self.paths)
        if self.harmonics.shape[-1] < (most + 1) ** 2:
            found = f"have {self.harmonics.shape[-1]} channels"
            raise ShapeError(
                f"the harmonics of a tensor product {found}, but must have {(most + 1) ** 2} for J = {most}"
            )
        if len(self.coefficients) != len(self.paths):
            raise ShapeError(f"a tensor product has {len(self.coefficients)} coefficients for {len(self.paths)} paths")
        for ((k, J), outs), C in zip(self.paths, self.coefficients, strict=True):
            right = [sum(2 * out + 1 for out in outs), (2 * J + 1) * len(outs) * (2 * k + 1)]
            if not isinstance(C, Tensor) or list(C.shape) != right:
                raise ShapeError(f"the coefficients of path {(k, J)} are {shown(C)}, but must be {right}")
            same_device(f"the coefficients of path {(k, J)}", C, graph.device)
        self.check_weight(graph, [sum(len(outs) for _, outs in self.paths) * h.shape[-1]])

    def _check_paths(self) -> None:
        """Raise ShapeError unless every path couples types that go together, and some path leads to each type."""
        right = "paths are ((k, J), (l, ...)), types l from |k - J| to k + J that k becomes by J, as ((1, 1), (0, 1))"
        if not isinstance(self.paths, tuple | list) or not self.paths:
            raise ShapeError(f"a tensor product needs paths, not {self.paths!r}: {right}")
        for path in self.paths:
            try:
                (k, J), outs = path
                fits = min(k, J) >= 0 and all(abs(k - J) <= out <= k + J for out in outs)
                fits = fits and len(set(outs)) == len(outs) > 0 and all(type(n) is int for n in (k, J, *outs))
            except (TypeError, ValueError):
                fits = False
            if not fits:
                raise ShapeError(f"a tensor product has the path {path!r}: {right}")
        reached, types = {out for _, outs in self.paths for out in outs}, self.types
        if reached != set(range(types + 1)):
            what = f"lead to the types {sorted(reached)}, but must lead to each from 0 to the largest k, {types}"
            raise ShapeError(f"the paths of a tensor product {what}")

    @property
    def types(self) -> int:
        """The largest type."""
        return max(k for (k, _), _ in self.paths)

    @property
    def channels(self) -> int:
        return self.senders.shape[-1] * sum(2 * out + 1 for _, outs in self.paths for out in outs)

    def on_edges(self, graph: Graph) -> tuple[Tensor, ...]:
        def spread(J: int, z_ij: Tensor) -> Tensor:
            return self.harmonics[..., J * J : (J + 1) ** 2].unsqueeze(-1) * z_ij.unsqueeze(-2)

        return self.coupled(graph, self.weights(graph), spread)

    def coupled(
        self,
        graph: Graph,
        R_ij: Tensor,
        spread: Callable[[int, Tensor], Tensor],
        alone: Callable[[int, Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, ...]:
        """The products of every type.

        Symbols     spread(J, z [*, E, D]) = Y_J ⊗ z [*, E, 2J + 1, D], or its sum at the nodes; alone(k, R [*, E, C]) =
                    R ∘ h^k [*, E, 2k + 1, C], or its sum, for J = 0: Y_0 is 1, and the type stays
        """
        parts: list[list[Tensor]] = [[] for _ in range(self.types + 1)]
        groups = R_ij.unflatten(-1, (-1, self.senders.shape[-1])).split([len(outs) for _, outs in self.paths], -2)
        # The senders after the weights: backward, theirs is freed before the gradient to the weights is put together.
        h_j = self.senders.index_select(-3, graph.senders).split([2 * k + 1 for k in range(self.types + 1)], -2)
        for ((k, J), outs), R, C in zip(self.paths, groups, self.coefficients, strict=True):
            if J == 0 and alone is not None:
                parts[k].append(alone(k, R.squeeze(-2)))
                continue
            z_ij = (R.unsqueeze(-2) * h_j[k].unsqueeze(-3)).flatten(-3)  # [*, E, P (2k + 1) C]
            A = spread(J, z_ij).unflatten(-1, (len(outs) * (2 * k + 1), -1)).flatten(-3, -2)
            for out, part in zip(outs, (C.to(A.dtype) @ A).split([2 * out + 1 for out in outs], -2), strict=True):
                parts[out].append(part)
        return tuple(torch.stack(part, -2).flatten(-3) for part in parts)

    @property
    def batches(self) -> list[torch.Size]:
        return [*super().batches, self.harmonics.shape[:-2]]

    def tensors(self) -> list[Tensor | None]:
        return [*super().tensors(), self.harmonics]


@cached
def edges_as_senders(graph: Graph, times: int = 1) -> Graph:
    """The graph in which each receiver listens to its own edges, so that a verb reads features of edges as senders'.

    Symbols     times = how often each receiver is there, one after the other
    Example
        >>> graph = edges_as_senders(Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2), 2)
        >>> graph.receivers.tolist(), graph.senders.tolist()
        ([0, 1, 2, 3], [0, 0, 1, 1])
    """
    offsets = graph.offsets.repeat_interleave(times)[:, None]
    return Graph.from_ranges(offsets[:-times], offsets[times:], graph.num_edges)
