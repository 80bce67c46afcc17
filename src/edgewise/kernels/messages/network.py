"""What all messages have in common; and messages made by a perceptron of both ends of an edge and of the edge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import reduce as folded
from itertools import chain, repeat
from math import inf, log
from numbers import Real
from typing import Any, ClassVar, Generic, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.checks import dense_tensor, real_number, same_device, shown, whole_number

Activation = Callable[[Tensor], Tensor]
FUNCTIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: functional.relu,
    nn.SiLU: functional.silu,
    nn.Sigmoid: functional.sigmoid,
}


def shifted_softplus(z: Tensor) -> Tensor:
    """ssp(z) = log(e^z + 1) - log 2, which is 0 at 0 and has all derivatives, as forces need."""
    return functional.softplus(z) - log(2)


def as_function(activation: Activation) -> Activation:
    """The function that a module of PyTorch's computes, which kernels know; anything else as it is.

    Edge cases  a module with hooks, or of a class of one's own, stays one

    Example
        >>> as_function(nn.ReLU()) is functional.relu
        True
    """
    if isinstance(activation, nn.Module) and not has_hooks(activation):
        return FUNCTIONS.get(type(activation), activation)
    return activation


def has_hooks(module: nn.Module) -> bool:
    """Whether calling a module calls more than its class's forward pass, now or in the backward pass."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooks) or "forward" in module.__dict__


def check_gaussians(count: int, reach: float, called: str = "count") -> tuple[int, float]:
    """Both as numbers; GraphError or ShapeError unless so many Gaussians can be spread evenly over so much."""
    count, reach = whole_number(count, called, least=2), real_number(reach, "reach")
    if not 0 < reach < inf:
        raise ShapeError(f"reach must be a finite length above 0, not {reach}")
    return count, reach


def gaussians(length: Tensor, count: int, reach: float = 1.0) -> Tensor:
    """A length as `count` Gaussians of it, whose centres are spread evenly from 0 to `reach`: far beyond, all are 0.

    Equation    exp(-(G - 1)² (d - k L / (G - 1))² / 2 L²) for k = 0, ..., G - 1
    Symbols     length = d, count = G > 1, reach = L
    Shapes      length [*, 1] -> [*, count], whole numbers as PyTorch's default dtype

    Example
        >>> gaussians(torch.tensor([0.5]), 3)  # exp(-1/2) = 0.6065
        tensor([0.6065, 1.0000, 0.6065])
    """
    count, reach = check_gaussians(count, reach)
    if dense_tensor(length, "length", "of distances [*, 1]").shape[-1:] != (1,):
        raise ShapeError(f"length must be distances [*, 1], not {list(length.shape)}")
    length = length if length.is_floating_point() else length.to(torch.get_default_dtype())
    centres = torch.linspace(0, reach, count, dtype=length.dtype, device=length.device)
    # Where a Gaussian is next to nothing it is exp(-80): exponentials that underflow take ten times as long.
    return torch.exp((-0.5 * ((count - 1) / reach * (length - centres)).square()).clamp(min=-80))


Result = TypeVar("Result", bound=Tensor | tuple[Tensor, ...])
Map = tuple[Tensor, Tensor | None]  # weight [outputs, inputs] and bias [outputs] of a linear map


class Message(Generic[Result]):
    """A message as data. `Result` is what `collect` returns for it: a tensor, or several.

    Symbols     several = whether there are several
    """

    several: ClassVar[bool] = False

    @property
    def network(self) -> Network[Any] | None:
        """The network that the message is, or has."""
        return None

    @property
    def channels(self) -> int:
        """How many numbers all results together have for an edge."""
        raise NotImplementedError

    def check(self, graph: Graph, reduce: str | None) -> None:
        """Raise ShapeError unless the record's tensors fit the graph and one another."""
        raise NotImplementedError

    def on_edges(self, graph: Graph) -> tuple[Tensor, ...]:
        """The equation: the messages [*, E, C] of each result, on all edges at once."""
        raise NotImplementedError

    def reductions(self, reduce: str | None) -> Iterable[str | None]:
        """How the messages of each result are combined, where `collect` is called with `reduce`."""
        return repeat(reduce)

    def tensors(self) -> list[Tensor | None]:
        """What the record holds."""
        raise NotImplementedError

    def lowered(self, dtype: torch.dtype) -> Self:
        """The record under autocast to that dtype: linear maps take it."""
        raise NotImplementedError

    def fetched(self, fetch: Callable[[Tensor, int], Tensor]) -> Self:
        """The record with what `fetch` makes of the senders' rows and of where these are in the shape, from its end."""
        raise NotImplementedError

    @property
    def dtypes(self) -> list[torch.dtype]:
        """Those of its tensors."""
        return list(dict.fromkeys(t.dtype for t in self.tensors() if t is not None))

    @property
    def dtype(self) -> torch.dtype:
        """What the messages are computed in: the widest."""
        return folded(torch.promote_types, self.dtypes)

    def signature(self) -> tuple[object, ...]:
        """What a choice of backend may depend on besides the graph."""
        return tuple([None if t is None else (t.shape, t.dtype) for t in self.tensors()])

    def __str__(self) -> str:
        name, network = type(self).__name__, self.network
        if network is None:
            return f"{name}, {self.channels} channels"
        of = "" if network is self else f", {self.channels} channels, weights by a network"
        activation = getattr(network.activation, "__name__", str(network.activation))
        return f"{name}{of} {' → '.join(map(str, network.widths))}, {activation}"


def check_rows(name: str, x: Tensor, count: int) -> None:
    """Raise ShapeError unless a tensor has a row for each of a graph's nodes or edges."""
    if not isinstance(x, Tensor):
        raise ShapeError(f"{name} must be a tensor [*, {count}, C], not {shown(x)}")
    if x.is_complex():
        raise ShapeError(f"{name} are complex, but must be real numbers: hand over x.real, x.imag or x.abs()")
    if x.ndim < 2 or x.shape[-2] != count:
        raise ShapeError(f"{name} are {list(x.shape)}, but must be [*, {count}, C]")


def check_batches(batches: Sequence[torch.Size]) -> None:
    """Raise ShapeError unless the leading batches of a message's tensors broadcast to one."""
    if not any(batches):
        return
    try:
        torch.broadcast_shapes(*batches)
    except RuntimeError:
        have = " and ".join([str(list(batch)) for batch in batches])
        raise ShapeError(f"the tensors of a message have the leading batches {have}, which do not broadcast") from None


def check_map(name: str, weight_and_bias: Map, reads: int, makes: int | None = None) -> int:
    """Raise ShapeError unless a linear map reads so many channels, and makes so many where that is known: how many."""
    right = f"a pair (weight [outputs, {reads}], bias [outputs] or None) of tensors"
    if not isinstance(weight_and_bias, Sequence) or len(weight_and_bias) != 2:
        raise ShapeError(f"{name} must be {right}, not {shown(weight_and_bias)}")
    weight, bias = weight_and_bias
    for part in (weight, bias):
        if not isinstance(part, Tensor) and (part is weight or part is not None):
            raise ShapeError(f"{name} must be {right}, but holds {shown(part)}")
    if weight.ndim != 2 or makes not in (None, weight.shape[0]):
        makes_so_many = "outputs" if makes is None else makes
        raise ShapeError(f"{name} is {list(weight.shape)}, but must be [{makes_so_many}, {reads}]")
    if weight.shape[1] != reads:
        raise ShapeError(f"{name} reads {weight.shape[1]} channels, but there are {reads}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"{name} has a bias {list(bias.shape)}, but must have one [{weight.shape[0]}]")
    return weight.shape[0]


def maps_of(linears: Iterable[nn.Module]) -> tuple[Map, ...]:
    """The weights and biases of linear modules, as records hold them."""
    return tuple((linear.weight, linear.bias) for linear in linears)  # type: ignore[misc]


def linear(x: Tensor, weight_and_bias: Map) -> Tensor:
    """A linear map in the dtype of its weight."""
    weight, bias = weight_and_bias
    return functional.linear(x.to(weight.dtype), weight, bias)


@dataclass(frozen=True, eq=False)
class EdgeInput:
    """What an edge itself adds before the first activation: a linear map of its features, or of its distance.

    Equation    W_0 e_ij + c_0; with a reach e_ij is a distance, and W_0 reads its `gaussians`
    Symbols     map = W_0, c_0; values = e
    Shapes      e [*, E, G], or [*, E, 1] with a reach
    """

    map: Map
    values: Tensor
    reach: float | None = None

    @property
    def features(self) -> Tensor:
        """What W_0 reads, [*, E, G]."""
        return self.values if self.reach is None else gaussians(self.values, self.map[0].shape[1], self.reach)

    def term(self) -> Tensor:
        """W_0 e_ij + c_0 [*, E, H]."""
        return linear(self.features, self.map)

    def check(self, name: str, graph: Graph, width: int) -> None:
        """Raise ShapeError unless every edge has features, of which the map makes so many numbers."""
        check_rows(name, self.values, graph.num_edges)
        graph.check_sorted(name, self.values)
        for part, t in ((name, self.values), (f"the map of {name}", self.map[0]), (f"the bias of {name}", self.map[1])):
            if t is not None:
                same_device(part, t, graph.device)
        reads = self.values.shape[-1]
        if self.reach is not None:
            if reads != 1:
                raise ShapeError(f"{name} are {list(self.values.shape)}, but with a reach they are distances [*, E, 1]")
            reads = self.map[0].shape[-1] if self.map[0].ndim else 0
            check_gaussians(reads, self.reach, "the number of Gaussians")
        check_map(f"the map of {name}", self.map, reads, width)

    def along(self, a: Tensor) -> EdgeInput:
        """a · (W_0 e_ij + c_0) of every head, for a [H, C]: the map of one number for each head."""
        weight, bias = self.map
        of_heads = None if bias is None else (bias.view(a.shape) * a).sum(-1)
        return EdgeInput(((weight.unflatten(0, a.shape) * a.unsqueeze(-1)).sum(1), of_heads), self.values, self.reach)


@dataclass(frozen=True, eq=False)
class Network(Message[Result]):
    """What `EdgeNetwork` and `EdgeReadout` share: a multilayer perceptron of both ends of an edge and of the edge."""

    maps: tuple[Map, ...]
    activation: Activation
    _: KW_ONLY
    receivers: Tensor | None = None
    senders: Tensor | None = None
    edges: EdgeInput | None = None
    scale: Tensor | None = None
    gate: Map | None = None
    dropout: float = 0.0
    activated: bool = False
    hidden: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "activation", as_function(self.activation))

    def check(self, graph: Graph, reduce: str | None) -> None:
        ends, own = (self.receivers, self.senders), self.edges
        rows = (graph.num_receivers, graph.num_senders, graph.num_edges)
        for name, t, count in zip(("receivers", "senders", "scale"), (*ends, self.scale), rows, strict=True):
            if t is not None:
                check_rows(f"{name} of the network", t, count)
        if own is not None and not isinstance(own, EdgeInput):
            raise ShapeError(f"edges of the network must be an EdgeInput(map, values), not {shown(own)}")
        if not callable(self.activation):
            raise ShapeError(f"the activation must be a function such as torch.relu, not {self.activation!r}")
        first = {t.shape[-1] for t in ends if t is not None} | (set() if own is None else set(own.map[0].shape[:1]))
        if len(first) != 1:
            raise ShapeError(f"what reaches the first activation must have one width, not {sorted(first) or 'none'}")
        width = first.pop()
        if own is not None:
            own.check("edges of the network", graph, width)
        for one in self.maps:
            width = check_map("a map of the network", one, width)
        most = len(self.maps) if self.several else 0  # the results of an `EdgeNetwork` are its last layer's alone
        if not 0 <= self.hidden <= most:
            raise ShapeError(f"hidden={self.hidden} must be one of 0 to {most}: `then` makes a network with a readout")
        if self.gate is not None:
            check_map("the gate of the network", self.gate, self.widths[self.hidden - 1], 1)
        if self.scale is not None and 1 != self.scale.shape[-1] != width != 1:
            raise ShapeError(f"the scale has {self.scale.shape[-1]} channels, and the network's result {width}")
        if not isinstance(self.dropout, Real) or not 0 <= self.dropout <= 1:
            raise ShapeError(f"dropout is a probability, not {self.dropout!r}")
        check_batches(self.batches)

    @property
    def network(self) -> Self:
        return self

    @property
    def widths(self) -> list[int]:
        """Those of z_0, z_1, ..., z_L."""
        first = self.receivers if self.receivers is not None else self.senders
        width = self.edges.map[0].shape[0] if first is None and self.edges is not None else first.shape[-1]  # type: ignore[union-attr]
        return [width, *[weight.shape[0] for weight, _ in self.maps]]

    @property
    def products(self) -> int:
        """Multiplications by weights, for one edge."""
        return sum(t.numel() for t in self.tensors()[4:] if t is not None and t.ndim > 1)

    @property
    def channels(self) -> int:
        last = self.widths[-1] if self.scale is None else max(self.widths[-1], self.scale.shape[-1])
        return last + (self.widths[self.hidden - 1] if self.hidden else 0)

    @property
    def batches(self) -> list[torch.Size]:
        """The leading batches of its tensors."""
        return [t.shape[:-2] for t in self.tensors()[:4] if t is not None]

    @property
    def batch(self) -> torch.Size:
        """The leading batch."""
        return torch.broadcast_shapes(*self.batches)

    def tensors(self) -> list[Tensor | None]:
        """a, b, e and s; then the weights and biases of all maps, that of the edge first and the gate last."""
        e_ij, first = (None, (None, None)) if self.edges is None else (self.edges.values, self.edges.map)
        return [self.receivers, self.senders, e_ij, self.scale, *first, *chain(*self.maps), *(self.gate or ())]

    def with_tensors(self, tensors: Sequence[Tensor | None]) -> Self:
        """The same network of other tensors, in the order of `tensors`."""
        a, b, e_ij, s_ij, *weights = tensors
        first, *maps = zip(weights[::2], weights[1::2], strict=True)
        gate = None if self.gate is None else maps.pop()
        edges = None if self.edges is None else EdgeInput(first, e_ij, self.edges.reach)  # type: ignore[arg-type]
        return replace(self, receivers=a, senders=b, scale=s_ij, edges=edges, gate=gate, maps=tuple(maps))  # type: ignore[arg-type]

    def without_tensors(self) -> Self:
        """What `with_tensors` fills: a record that holds no tensor."""
        none, record = (None, None), object.__new__(type(self))  # in 1 µs, where `replace` takes 13
        edges = None if self.edges is None else EdgeInput(none, None, self.edges.reach)  # type: ignore[arg-type]
        weights = {"edges": edges, "maps": (none,) * len(self.maps), "gate": None if self.gate is None else none}
        record.__dict__.update(self.__dict__, receivers=None, senders=None, scale=None, **weights)
        return record

    def lowered(self, dtype: torch.dtype) -> Self:
        given = self.tensors()
        weights = [t if t is None or t.dtype == torch.float64 else t.to(dtype) for t in given[4:]]
        return self.with_tensors([*given[:4], *weights])

    def fetched(self, fetch: Callable[[Tensor, int], Tensor]) -> Self:
        return self if self.senders is None else replace(self, senders=fetch(self.senders, -2))

    def on_edges(self, graph: Graph) -> tuple[Tensor, ...]:
        a, b, *others = self.tensors()
        a_i = None if a is None else a.index_select(-2, graph.receivers)
        b_j = None if b is None else b.index_select(-2, graph.senders)
        return self.with_tensors([a_i, b_j, *others]).results()

    def results(self) -> tuple[Tensor, ...]:
        """The equation, where a and b have a row for every edge."""
        parts = [part for part in (self.receivers, self.senders) if part is not None]
        parts += [] if self.edges is None else [self.edges.term()]
        z, hidden, last = sum(parts[1:], parts[0]), None, len(self.maps) + 1
        for layer in range(1, last + self.activated):
            u = self.activation(z)
            if not isinstance(u, Tensor) or u.shape != z.shape:
                raise ShapeError(f"the activation makes {shown(u)} of {list(z.shape)}, but must keep the shape")
            u = functional.dropout(u, self.dropout)
            if self.gate is not None and layer == (self.hidden or last):
                u = torch.sigmoid(linear(u, self.gate)) * u
            hidden = u if layer == self.hidden else hidden
            z = u if layer == last else linear(u, self.maps[layer - 1])
        z = z if self.scale is None else self.scale * z
        return (z,) if hidden is None else (hidden, z)

    def reductions(self, reduce: str | None) -> tuple[str | None, ...]:
        """Hidden messages are summed."""
        return ("sum", reduce) if self.hidden else (reduce,)

    def signature(self) -> tuple[object, ...]:
        options = (self.activation, self.gate is None, self.dropout > 0, self.activated, self.hidden)
        return (*options, *super().signature())


class EdgeNetwork(Network[Tensor]):
    """A network on every edge: a multilayer perceptron of [h_i ‖ h_j ‖ e_ij], its first map split between its ends.

    Equation    z_0 = a_i + b_j + W_0 e_ij + c_0;  u_l = σ(z_{l-1}),  z_l = W_l u_l + c_l for l = 1..L
                m_ij = s_ij ∘ z_L; activated: σ(z_L) for z_L; with a gate sigmoid(wᵀ u + b) u for u = σ(z_L)
    Symbols     maps = W_l, c_l (`maps_of` linear modules); activation = σ; receivers, senders = a, b, linear maps of
                the nodes; edges = W_0, c_0, e (`EdgeInput`); scale = s; gate = w, b; dropout = probability that a
                number of u_l is zeroed
    Shapes      a [*, I, H], b [*, J, H], e [*, E, G], s [*, E, 1] or [*, E, width of z_L], or any width where z_L has
                one; edges in the graph's own order
    Errors      ShapeError where a tensor does not fit
    Cost        time O(E Σ products of widths). `native`, in float32 or float64 without a batch, for ReLU, SiLU and the
                shifted softplus: memory of what is given and returned, and in the backward pass, which recomputes
                the activations, of z_0's gradient on several threads. Otherwise on a CPU, for one graph of some
                thousand edges or more: memory of a block of 8,192 edges, beside what is given and returned. Else, and
                for second derivatives: memory O(E Σ widths)
    Reference   Gilmer et al. 2017, eq. 1; Battaglia et al. 2018, §3.2

    Example
        >>> from edgewise import collect
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> x = torch.tensor([[1.0], [10.0], [100.0]])
        >>> double = (torch.tensor([[2.0]]), None)
        >>> m_ij = EdgeNetwork((double,), functional.relu, receivers=x, senders=x)  # 2 relu(x_i + x_j)
        >>> collect(graph, m_ij).flatten().tolist()
        [0.0, 0.0, 422.0]
    """

    def then(self, maps: Iterable[Map], scale: Tensor | None = None) -> EdgeReadout:
        """These messages, and what further linear maps make of each, with σ between them."""
        if not self.activated or self.scale is not None:
            raise ShapeError("only a network that ends with its activation, without a scale, has a readout")
        made = {"maps": (*self.maps, *maps), "scale": scale, "activated": False, "hidden": len(self.maps) + 1}
        return EdgeReadout(**vars(self) | made)


class EdgeReadout(Network[tuple[Tensor, Tensor]]):
    """Messages, and what a further network reads from each of them: two results of one pass over the edges.

    Equation    y_i = Σ_j m_ij,  z_i = ⊕_j s_ij ∘ φ(m_ij)
    Symbols     made by `EdgeNetwork.then(maps, scale)`: maps = those of φ; scale = s; ⊕ = the reduction
    Shapes      s [*, E, D] -> y [*, I, C], z [*, I, D]
    Cost        that of `EdgeNetwork`
    Reference   Satorras, Hoogeboom & Welling 2021, eqs. 4 and 5

    Example
        >>> from edgewise import collect
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> x = torch.tensor([[1.0], [10.0], [100.0]])
        >>> m_ij = EdgeNetwork((), functional.relu, senders=x, activated=True)
        >>> y, z = collect(graph, m_ij.then([(torch.tensor([[2.0]]), None)]), "mean")
        >>> y.flatten().tolist(), z.flatten().tolist()
        ([0.0, 0.0, 11.0], [0.0, 0.0, 11.0])
    """

    several = True
