"""Networks on edges in C++: nothing between their linear maps is ever written down."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.kernels.backend import Cost, Networks
from edgewise.kernels.backends.cpu import edges as native
from edgewise.kernels.backends.cpu.messages import activations, coupling
from edgewise.kernels.backends.cpu.messages.activations import ACTIVATIONS
from edgewise.kernels.backends.torch import messages
from edgewise.kernels.call import Call, Collect
from edgewise.kernels.messages import EdgeNetwork, Filter, Network, TensorProduct
from edgewise.kernels.operator.operator import DTYPES, by_operations, gradients, in_own_dtypes
from edgewise.native import library, threads

SCALE = 3  # where a network's tensors have its scale
MOST = 8  # linear maps of one call that the kernel has room for, the edge's own among them
# What part of each product counts; operations for each number of a layer, for an edge and for each weight; launches,
# and more for each map. All fitted
PRODUCT, ACTIVATION, EDGE, WEIGHT, CALL, MAP = 0.33, 19, 800, 300, 4.3, 1.6

MOST_COPIES = 1 << 26  # edges of all copies of a graph together
# A batch is taken of tensor products alone: others may be differentiated twice, as forces are, which runs them twice.
TAKEN = Networks(tuple(ACTIVATIONS), MOST, (torch.float32, torch.float64), False, False, False, False)
TAKEN_OF_PRODUCTS = replace(TAKEN, batched=True)

Run = Callable[[Call], Any]
Results = tuple[Tensor, ...]


def cost(graph: Graph, network: Network[Any]) -> Cost:
    """Products in tiles of edges; activations one by one; rows of senders; what is given and returned for each edge."""
    copies, size, widths = network.batch.numel(), network.dtype.itemsize, network.widths
    edges = copies * graph.num_edges
    read = sum(t.shape[-1] for t in network.tensors()[2:4] if t is not None)
    return Cost(
        tiles=int(2 * PRODUCT * edges * network.products),
        edges=edges * (ACTIVATION * sum(widths) + EDGE) + WEIGHT * network.products,
        rows=0 if network.senders is None else size * edges * widths[0],
        held=0 if network.senders is None else size * copies * graph.num_senders * widths[0],
        bytes=size * edges * (read + widths[-1]),
        launches=CALL + MAP * len(network.maps),
    )


def cost_of(call: Collect, own: Callable[[Call], Cost]) -> Cost:
    """That of a record; `own` predicts an `Aggregate` or a `Collect` of tensors."""
    graph, message = call.graph, call.message
    if isinstance(message, TensorProduct) and (plan := _plan_of(call)) is not None:
        network = Cost() if message.network is None else cost(graph, message.network)
        return network + coupling.cost(graph, message, plan)
    return messages.cost(call, own, cost)


def run(call: Collect, own: Run) -> Tensor | Results:
    """A record; `own` runs an `Aggregate` or a `Collect` of tensors or of a network."""
    graph, message, reduce = call.graph, call.message, call.reduce
    if isinstance(message, EdgeNetwork | Filter) and (network := _activation(message, reduce)) is not None:
        return _by_activations(graph, network, message, reduce)
    if isinstance(message, TensorProduct) and (plan := _plan_of(call)) is not None:
        if message.batch:
            return _in_copies(graph, message, reduce, own)
        weight = message.weight
        weight = weight if isinstance(weight, Tensor) else own(Collect(graph, weight, None))
        return coupling.coupled(graph, replace(message, weight=weight), plan, own)
    if not isinstance(message, Network) or not _has_copies(graph, message.batch):
        return messages.run(call, own)
    if message.batch:
        return _in_copies(graph, message, reduce, own)
    scale, tensors = message.scale, message.tensors()
    summed = message.activated and scale is None and reduce == "sum"  # by the kernel, as hidden messages are
    scaled = scale is None or (scale.shape[-1] == 1 and not message.activated)
    tensors[SCALE] = scale if scaled else None
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        *hidden, m_ij = _Differentiable.apply(graph, message, summed, own, *tensors)  # type: ignore[no-untyped-call]
    else:
        *hidden, m_ij = _results(graph, message, summed, tensors)
    if not summed:
        m_ij = message.activation(m_ij) if message.activated else m_ij
        m_ij = m_ij if scaled or scale is None else scale * m_ij
        m_ij = m_ij if reduce is None else own(Collect(graph, m_ij, reduce))
    return (*hidden, m_ij) if message.several else m_ij


def _plan_of(call: Collect) -> coupling.Plan | None:
    message = call.message
    assert isinstance(message, TensorProduct)
    return coupling.plan_of(message) if call.reduce == "sum" and _has_copies(call.graph, message.batch) else None


def _in_copies(graph: Graph, message: TensorProduct | Network[Any], reduce: str | None, own: Run) -> Tensor | Results:
    """A batch on one graph, as one on a graph of as many copies of it."""
    batch = message.batch

    def flat(t: Tensor, axis: int = -2) -> Tensor:
        return t.expand(*batch, *t.shape[axis:]).reshape(-1, *t.shape[axis:][1:])

    if isinstance(message, TensorProduct):
        weight = message.weight
        weight = weight if isinstance(weight, Tensor) else own(Collect(graph, weight, None))
        h, Y = flat(message.senders, message.node_axis), flat(message.harmonics)
        message = replace(message, weight=flat(weight), senders=h, harmonics=Y)
    else:
        given = message.tensors()
        message = message.with_tensors([*(None if t is None else flat(t) for t in given[:4]), *given[4:]])
    results = run(Collect(_copies(graph, batch.numel()), message, reduce), own)
    if isinstance(results, Tensor):
        return results.unflatten(0, (*batch, -1))
    return tuple(y.unflatten(0, (*batch, -1)) for y in results)


def _has_copies(graph: Graph, batch: torch.Size) -> bool:
    """Whether a batch may be run on copies of its graph; so may a call without one."""
    return not batch or (graph.offset == 0 and batch.numel() > 0 and batch.numel() * graph.num_edges <= MOST_COPIES)


def _copies(graph: Graph, count: int) -> Graph:
    kept = _kept_copies(graph)
    if count not in kept:
        while len(kept) >= 4:  # sizes of a batch: a training step's, an evaluation's, the last of each
            del kept[next(iter(kept))]
        kept[count] = Graph.batch([graph] * count)
    return kept[count]


@cached
def _kept_copies(graph: Graph) -> dict[int, Graph]:
    return {}


def _activation(message: EdgeNetwork | Filter, reduce: str | None) -> EdgeNetwork | None:
    """The network of messages that the kernel of activations makes and sums: those of a_i + b_j + W e_ij."""
    one_way = isinstance(message, EdgeNetwork) or not message.both_ways
    network = message.network if one_way and reduce in ("sum", "mean") else None
    if (
        network is None
        or network.batch
        or network.maps
        or not network.activated
        or network.scale is not None
        or network.senders is None
    ):
        return None
    far = network.edges is not None and (network.edges.reach is not None or not network.edges.values.shape[-1])
    wide = isinstance(message, Filter) and (message.senders.ndim > 2 or message.width != message.senders.shape[-1])
    return None if far or wide or len(message.dtypes) > 1 else network


def _by_activations(graph: Graph, network: EdgeNetwork, message: EdgeNetwork | Filter, reduce: str | None) -> Tensor:
    a, b, e, _, weight, shift = network.tensors()[:6]
    x = message.senders if isinstance(message, Filter) else None
    assert b is not None
    if a is None and shift is not None:
        a = shift.unsqueeze(0)
    elif shift is not None:
        b = b + shift
    total = _activated(graph, (a, b, e, weight, x), ACTIVATIONS[network.activation])
    sums = total.reshape(total.shape[0], graph.num_receivers, -1)
    if isinstance(message, Filter) and message.normalised is not None:
        total, y = sums.unbind()
        y = y / (total + message.normalised)
    else:
        y = sums[-1] if x is not None else sums.squeeze(0)
    return y / graph.in_degrees().clamp(min=1).to(y.dtype).unsqueeze(-1) if reduce == "mean" else y


def _activated(graph: Graph, leaves: Sequence[Tensor | None], kind: int) -> Tensor:
    """The sums of activations of a [I or 1, C], b, e, the weight and x."""
    a, b, e, weight, x = leaves
    assert b is not None
    learns = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in leaves)
    reverse = native.reverse_of(graph) if learns else ()
    a, x = (None if t is None else t[None, :, None] for t in (a, x))
    e = None if e is None else e.unsqueeze(0)
    own = activations.Activations(a, b[None, :, None], e, weight, native.structure_of(graph), reverse, x, kind)
    return activations.activations(own)[0]


def _arguments(
    graph: Graph,
    message: Network[Any],
    summed: bool,
    given: Sequence[Tensor | None],
    totals: Sequence[Tensor | None] = (),
) -> tuple[Any, list[int]]:
    """The call as the kernel reads it, with contiguous tensors, without results; and the widths of all layers."""
    a, b, e_ij, s_ij, *weights = given
    learnt = totals[4:] or [None] * len(weights)
    call = library.Network()
    call.threads, call.activation = threads(), ACTIVATIONS[message.activation]
    call.collected = _collected(message, summed)
    call.reach = 0.0 if message.edges is None else message.edges.reach or 0.0
    call.maps, call.graph = len(message.maps), native.adjacency(*native.structure_of(graph))
    widths = []
    pairs = zip(weights[::2], weights[1::2], learnt[::2], learnt[1::2], strict=True)
    for number, (weight, bias, dweight, dbias) in enumerate(pairs):
        outputs, width = (next(t.shape[-1] for t in (a, b) if t is not None), 0) if weight is None else weight.shape
        call.set_map(number, width, outputs, *map(_at, (weight, bias, dweight, dbias)))
        widths.append(outputs)
    call.a, call.b, call.x, call.s = _at(a), _at(b), _at(e_ij), _at(s_ij)
    return call, widths


def _collected(message: Network[Any], summed: bool) -> int:
    """The number of the layer that is summed, 0 for none."""
    return len(message.maps) + 1 if summed else message.hidden


def _results(graph: Graph, message: Network[Any], summed: bool, tensors: Sequence[Tensor | None]) -> Results:
    """Σ_j u_k of a hidden layer that is a result; then Σ_j σ(z_L) where that is summed, else s_ij z_L."""
    given = [None if t is None else t.contiguous() for t in tensors]
    (call, widths), some = _arguments(graph, message, summed, given), next(t for t in given if t is not None)
    collected = _collected(message, summed)
    y = some.new_empty(graph.num_receivers, widths[collected - 1]) if collected else None
    r = None if summed else some.new_empty(graph.num_edges, widths[-1])
    call.y, call.r = _at(y), _at(r)
    library.network(DTYPES[some.dtype], call)
    return tuple(t for t in (y, r) if t is not None)


def _gradients(
    graph: Graph,
    message: Network[Any],
    summed: bool,
    tensors: Sequence[Tensor | None],
    wanted: Sequence[bool],
    d: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Gradients to the wanted tensors."""
    given = [None if t is None else t.contiguous() for t in tensors]
    totals = [torch.zeros_like(t) if t is not None and want else None for t, want in zip(given, wanted, strict=True)]
    (call, _), some = _arguments(graph, message, summed, given, totals), next(t for t in given if t is not None)
    a, b, e_ij, s_ij = totals[:4]
    dy, dr = d if len(d) == 2 else (d[0], None) if summed else (None, d[0])
    dy, dr = (None if t is None else t.contiguous() for t in (dy, dr))
    call.dy, call.dr = _at(dy), _at(dr)
    call.da, call.db, call.dx, call.ds = _at(a), _at(b), _at(e_ij), 0 if dr is None else _at(s_ij)
    if b is not None:
        call.transpose = native.adjacency(*native.product_reverse_of(graph))
    library.network_gradient(DTYPES[some.dtype], call)
    return totals


class _Differentiable(torch.autograd.Function):
    """The kernel with its gradient; the gradient's own gradient by differentiable operations."""

    @staticmethod
    def forward(
        ctx: Any, graph: Graph, message: Network[Any], summed: bool, own: Run, *tensors: Tensor | None
    ) -> Results:
        ctx.call = graph, message.without_tensors(), summed, own
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return _results(graph, message, summed, tensors)

    @staticmethod
    @in_own_dtypes
    def backward(ctx: Any, *d: Tensor | None) -> tuple[Tensor | None, ...]:
        (graph, message, summed, own), tensors, wanted = ctx.call, ctx.saved_tensors, ctx.needs_input_grad[4:]
        if all(t is None for t in d):
            return (None,) * len(ctx.needs_input_grad)
        if not by_operations(*d, *tensors):
            return None, None, None, None, *_gradients(graph, message, summed, tensors, wanted, d)

        def composed(*fresh: Tensor | None) -> Results:
            core = replace(message, activated=summed).with_tensors(fresh)
            return messages.at_once(graph, core, ("sum",) if summed else core.reductions(None), own)

        return None, None, None, None, *gradients(composed, tensors, d)


def _at(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()
