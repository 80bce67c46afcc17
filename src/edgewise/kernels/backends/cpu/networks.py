"""A network on every edge, and sums of what it makes: on a CPU nothing between its linear maps is ever written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.kernels.backends.cpu import edges as native
from edgewise.kernels.choose import dispatch
from edgewise.kernels.operator.operator import DTYPES
from edgewise.kernels.operator.products import SUM, Product
from edgewise.kernels.operator.second_derivatives import creates_graph, gradients
from edgewise.kernels.verbs import aggregate, collect
from edgewise.native import library, threads

MOST = 8  # linear maps of one call that the native kernel has room for

Activation = Callable[[Tensor], Tensor]
Map = tuple[Tensor | None, Tensor | None]  # weight [outputs, inputs] and bias [outputs]


def shifted_softplus(z: Tensor) -> Tensor:
    """ssp(z) = log(e^z + 1) - log 2, which is 0 at 0 and has all derivatives, as forces need."""
    return functional.softplus(z) - log(2)


def gaussians(length: Tensor, count: int, reach: float = 1.0) -> Tensor:
    """A length as `count` bells, whose centres are spread evenly from 0 to `reach`: far beyond it, all are 0.

    Equation    exp(-(G - 1)² (d - k L / (G - 1))² / 2 L²) for k = 0, ..., G - 1
    Symbols     length = d, count = G > 1, reach = L
    Shapes      length [*, 1] -> [*, count]

    Example
        >>> gaussians(torch.tensor([0.5]), 3)  # exp(-1/2) = 0.6065
        tensor([0.6065, 1.0000, 0.6065])
    """
    centres = torch.linspace(0, reach, count, dtype=length.dtype, device=length.device)
    # Where a bell is next to nothing it is exp(-80): exponentials that underflow take ten times as long.
    return torch.exp((-0.5 * ((count - 1) / reach * (length - centres)).square()).clamp(min=-80))


ACTIVATIONS: dict[Activation, int] = {functional.relu: 0, functional.silu: 1, shifted_softplus: 2}  # the kernel's


def edge_network(
    graph: Graph,
    maps: Iterable[nn.Module],
    activation: Activation,
    receivers: Tensor | None = None,
    senders: Tensor | None = None,
    edges: tuple[nn.Module, Tensor] | None = None,
    scale: Tensor | None = None,
    collected: int = 0,
    reach: float | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """Run an MLP on every edge and sum one of its hidden layers by receiver.

    Equation    z_0 = a_i + b_j + W_0 e_ij + c_0;  u_l = σ(z_{l-1}),  z_l = W_l u_l + c_l for l = 1..L
                y_i = Σ_{j ∈ N(i)} u_k,  r_ij = s_ij z_L
    Symbols     maps = W_l, c_l; activation = σ; receivers, senders = a, b; edges = (W_0 with c_0, e); scale = s;
                collected = k, from 1 to L + 1, or 0 for no sum; with a reach e is a distance, and W_0 reads its
                `gaussians`
    Shapes      a [*, I, H], b [*, J, H], e [*, E, G] or [*, E, 1], s [*, E, 1] in the graph's edge order
                -> y [*, I, width of u_k] or None; r [*, E, width of z_L], or None where k = L + 1
    Errors      ShapeError where a tensor does not fit, or there is no such layer to collect
    Edge cases  a node that nothing arrives at gives y = 0
    Cost        time O(E Σ products of widths). On a CPU, in float32 or float64 without a batch, for ReLU, SiLU and the
                shifted softplus, and unless `use_backend` asks for another backend than "native": memory of what is
                given and returned, and of z_0's gradient in the backward pass, which computes the activations anew.
                Otherwise, and for second derivatives: memory O(E Σ widths)
    Differs     of many bells that kernel reads the sixteen nearest to a distance (float64: twenty): the others are at
                most 2e-14 (2e-22) and would add less than rounding does

    Example
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> double = nn.Linear(1, 1, bias=False)
        >>> _ = double.weight.data.fill_(2.0)
        >>> x = torch.tensor([[1.0], [10.0], [100.0]])
        >>> y, r = edge_network(graph, [double], functional.relu, x, x, collected=1)
        >>> y.flatten().tolist(), r.flatten().tolist()
        ([0.0, 0.0, 211.0], [202.0, 220.0])
    """
    first, e_ij = (None, None) if edges is None else edges
    layers = [_parameters(linear) for linear in (first, *maps)]
    call = _Network(graph, activation, collected, reach, len(layers))
    inputs = [receivers, senders, e_ij, scale, *(part for layer in layers for part in layer)]
    call.check(inputs)
    if not call.runs_natively(inputs):
        return call.plainly(inputs)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs):
        found: tuple[Tensor | None, Tensor | None] = _Differentiable.apply(call, *inputs)  # type: ignore[no-untyped-call]
        return found
    return call.natively(inputs)


def aggregate_both_ways(graph: Graph, x: Tensor, weight: Tensor) -> Tensor:
    """Sum along every edge in both of its directions, which share their weights.

    Equation    y_i = Σ_{j ∈ N(i)} w_ij ∘ x_j + Σ_{j: i ∈ N(j)} w_ji ∘ x_j
    Shapes      x [*, N, C], weight [*, E, C] -> [*, N, C]
    Cost        O(E C) time; on a CPU without a batch memory of the result, otherwise a copy of the weights

    Example
        >>> graph = Graph.from_edge_index([[0], [1]], num_nodes=2)
        >>> aggregate_both_ways(graph, torch.tensor([[1.0], [10.0]]), torch.tensor([[3.0]])).flatten().tolist()
        [30.0, 3.0]
    """
    if _is_native(graph, (x, weight)):
        y: Tensor = _BothWays.apply(graph, x.contiguous(), weight.contiguous())  # type: ignore[no-untyped-call]
        return y
    return _both_ways(graph, x, weight)


def _both_ways(graph: Graph, x: Tensor, weight: Tensor) -> Tensor:
    transpose, order = graph.transpose()
    there = aggregate(graph, x.unsqueeze(-1), weight)
    back = aggregate(transpose, x.unsqueeze(-1), weight.index_select(-2, order))
    return (there + back).squeeze(-1)


class _BothWays(torch.autograd.Function):
    """One product on the graph of both directions, which is its own transpose; and a gradient for each pair."""

    @staticmethod
    def forward(ctx: Any, graph: Graph, x: Tensor, weight: Tensor) -> Tensor:
        ctx.graph = graph
        ctx.save_for_backward(x, weight)
        return _BothWays.product(graph, x, weight)

    @staticmethod
    def product(graph: Graph, x: Tensor, weight: Tensor) -> Tensor:
        y = native.product(Product(x.reshape(1, *x.shape, 1), weight.unsqueeze(0), _doubled(graph), (), SUM))
        return y.reshape(x.shape)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        graph, (x, weight), wanted = ctx.graph, ctx.saved_tensors, ctx.needs_input_grad
        if creates_graph(dy, x, weight):
            return None, *gradients(lambda x, weight: _both_ways(graph, x, weight), [x, weight], [dy])
        dy = dy.contiguous()
        dx = _BothWays.product(graph, dy, weight) if wanted[1] else None
        return None, dx, native.pair_gradient(graph, dy, x) if wanted[2] else None


@cached
def _doubled(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """The graph of both directions as the kernels read it: offsets, senders, and the number of each one's pair."""
    numbers = torch.arange(graph.num_edges, device=graph.device).repeat(2)
    ends = torch.cat([graph.receivers, graph.senders]), torch.cat([graph.senders, graph.receivers])
    order = ends[0].argsort(stable=True)
    counts = torch.bincount(ends[0], minlength=graph.num_receivers)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return offsets, ends[1][order].to(torch.int32), numbers[order].to(torch.int32)


def _is_native(graph: Graph, tensors: Sequence[Tensor | None]) -> bool:
    """Whether the C++ kernels take such tensors: on the CPU, of one of two dtypes, without a batch, now."""
    if library is None or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if dispatch.forced_backend() not in (None, "native"):
        return False
    given = [t for t in tensors if t is not None]
    if any(t.ndim > 2 or t.device.type != "cpu" or t.dtype != given[0].dtype for t in given):
        return False
    if given[0].dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled("cpu"):
        return False
    return max(graph.num_edges, graph.num_senders, graph.num_receivers) <= native.MOST


class _Network:
    """One call, without its tensors."""

    def __init__(self, graph: Graph, activation: Activation, collected: int, reach: float | None, layers: int) -> None:
        self.graph, self.activation, self.collected, self.reach = graph, activation, collected, reach
        self.layers = layers
        self.has_result = collected < layers

    def check(self, inputs: Sequence[Tensor | None]) -> None:
        """Errors by name, before anything is computed."""
        graph = self.graph
        if not 0 <= self.collected <= self.layers:
            raise ShapeError(f"collected={self.collected}: the network has hidden layers 1 to {self.layers}")
        widths = {t.shape[-1] for t in inputs[:2] if t is not None}
        widths |= set() if inputs[4] is None else {inputs[4].shape[0]}
        if len(widths) != 1:
            raise ShapeError(f"what reaches the first activation must have one width, not {sorted(widths) or 'none'}")
        rows = (graph.num_receivers, graph.num_senders, graph.num_edges, graph.num_edges)
        for name, t, count in zip(("receivers", "senders", "edges", "scale"), inputs, rows, strict=False):
            if t is not None and (t.ndim < 2 or t.shape[-2] != count):
                raise ShapeError(f"{name} of the network are {list(t.shape)}, but must be [*, {count}, C]")

    def runs_natively(self, inputs: Sequence[Tensor | None]) -> bool:
        """Whether the C++ kernel takes the call."""
        return self.activation in ACTIVATIONS and self.layers <= MOST and _is_native(self.graph, inputs)

    def plainly(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor | None, Tensor | None]:
        """All edges together, by differentiable operations."""
        graph, (a, b, e_ij, scale, weight, bias, *maps) = self.graph, inputs
        parts = [] if a is None else [a.index_select(-2, graph.receivers)]
        parts += [] if b is None else [b.index_select(-2, graph.senders)]
        if e_ij is not None and weight is not None:
            read = e_ij if self.reach is None else gaussians(e_ij, weight.shape[1], self.reach)
            parts.append(functional.linear(read, weight, bias))
        z, y = sum(parts[1:], parts[0]), None
        for layer in range(1, self.layers + 1):
            u = self.activation(z)
            if layer == self.collected:
                y = collect(graph, u)
            if layer < self.layers:
                weight, bias = maps[2 * layer - 2 : 2 * layer]
                assert weight is not None
                z = functional.linear(u, weight, bias)
        return y, None if not self.has_result else z if scale is None else z * scale

    def arguments(self, inputs: Sequence[Tensor | None]) -> Any:
        """The call as the kernel reads it; every tensor contiguous."""
        a, b, e_ij, scale, *maps = inputs
        call = library.Network()  # type: ignore[union-attr]
        call.threads, call.activation, call.collected = threads(), ACTIVATIONS[self.activation], self.collected
        call.reach = self.reach or 0.0
        call.maps, call.graph = self.layers - 1, native.adjacency(*native.structure_of(self.graph))
        for number, (weight, bias) in enumerate(zip(maps[::2], maps[1::2], strict=True)):
            outputs, width = (_width(a, b), 0) if weight is None else weight.shape
            call.set_map(number, width, outputs, _at(weight), _at(bias))
        call.set_inputs(_at(a), _at(b), _at(e_ij), _at(scale))
        return call

    def natively(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor | None, Tensor | None]:
        """The results, without a gradient."""
        given = [None if t is None else t.contiguous() for t in inputs]
        call, some = self.arguments(given), next(t for t in given if t is not None)
        widths = [_width(*given[:2]) if weight is None else weight.shape[0] for weight in given[4::2]]
        y = some.new_empty(self.graph.num_receivers, widths[self.collected - 1]) if self.collected else None
        r = some.new_empty(self.graph.num_edges, widths[-1]) if self.has_result else None
        call.set_results(_at(y), _at(r))
        library.network(DTYPES[some.dtype], call)  # type: ignore[union-attr]
        return y, r

    def gradients(
        self, inputs: Sequence[Tensor | None], wanted: Sequence[bool], dy: Tensor | None, dr: Tensor | None
    ) -> list[Tensor | None]:
        """Gradients to the wanted inputs."""
        given = [None if t is None else t.contiguous() for t in inputs]
        call, some = self.arguments(given), next(t for t in given if t is not None)
        found = [torch.zeros_like(t) if t is not None and want else None for t, want in zip(given, wanted, strict=True)]
        a, b, e_ij, scale, *maps = found
        dz = None if b is None else some.new_empty(self.graph.num_edges, b.shape[-1])
        dy, dr = (None if t is None else t.contiguous() for t in (dy, dr))
        call.set_gradients(_at(dy), _at(dr), _at(a), _at(dz), _at(e_ij), _at(scale) if dr is not None else 0)
        for number, (weight, bias) in enumerate(zip(maps[::2], maps[1::2], strict=True)):
            call.set_map_gradient(number, _at(weight), _at(bias))
        library.network_gradient(DTYPES[some.dtype], call)  # type: ignore[union-attr]
        if dz is not None:
            offsets, _, edge, _ = native.reverse_of(self.graph)
            none = edge.new_empty(0)
            found[1] = native.product(Product(dz.reshape(1, -1, 1, dz.shape[-1]), None, (offsets, edge, none), (), SUM))
            found[1] = found[1].reshape(-1, dz.shape[-1])  # type: ignore[union-attr]
        return found


class _Differentiable(torch.autograd.Function):
    """The native kernel with its gradient; the gradient's own gradient by differentiable operations."""

    @staticmethod
    def forward(ctx: Any, call: _Network, *inputs: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        ctx.call = call
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)
        return call.natively(inputs)

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, dr: Tensor | None) -> tuple[Tensor | None, ...]:
        call, inputs, wanted = ctx.call, ctx.saved_tensors, ctx.needs_input_grad[1:]
        if dy is None and dr is None:
            return (None,) * len(ctx.needs_input_grad)
        if creates_graph(dy, dr, *inputs):
            return None, *gradients(lambda *inputs: call.plainly(inputs), inputs, [dy, dr])
        return None, *call.gradients(inputs, wanted, dy, dr)


def _parameters(linear: nn.Module | None) -> Map:
    if linear is None:
        return None, None
    assert isinstance(linear, nn.Linear)
    return linear.weight, linear.bias


def _at(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def _width(*given: Tensor | None) -> int:
    return next(t.shape[-1] for t in given if t is not None)
