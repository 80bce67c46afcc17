"""Triton's kernels on a GPU, edge by edge: fused attention and sparse products that never hold E·H·C numbers.

Cost        time O(E·H·C), memory O(N·H·C + E·H), forward and backward; no atomics, the same bits every time
"""

from functools import partial

from torch import Tensor

from edgewise.kernels.backend import Attention, Backend, Cost, Messages, Probe, Sums, Takes, listing, random_graph
from edgewise.kernels.backends.cuda import attention as triton_attention
from edgewise.kernels.backends.cuda import products as triton_products
from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.backends.cuda import selfcheck
from edgewise.kernels.backends.torch import messages
from edgewise.kernels.call import Attend, Call, Collect
from edgewise.kernels.messages import Message
from edgewise.kernels.operator.attention import KINDS

MOST = 2**31 - 64  # nodes and edges are numbered in 32 bits, in which a program may count beyond its last edge
CALL = 18  # launches; by an H100's host
WIDEST = 1024  # channels of a head: a row must fit the registers of a program


def cost(call: Call) -> Cost:
    """Every edge reads the rows of its sender, once."""
    if isinstance(call, Collect) and isinstance(call.message, Message):
        return messages.cost(call, cost)
    if not isinstance(call, Attend):
        return triton_products.cost(call)
    batch, size = call.v.shape[:-3].numel() * call.heads, call.v.element_size()
    width = call.v.shape[-1] + (0 if call.q is None else call.q.shape[-1])
    return Cost(
        edges=2 * batch * call.graph.num_edges * width,
        rows=size * batch * call.graph.num_edges * width,
        held=size * batch * call.graph.num_senders * width,
        bytes=listing(call.graph) + size * batch * call.graph.num_receivers * width,
        launches=CALL,
    )


def run(call: Call) -> Tensor | tuple[Tensor, ...]:
    """Compute the call on the graph's edges."""
    if isinstance(call, Collect) and isinstance(call.message, Message):
        return messages.run(call, run)
    if not isinstance(call, Attend):
        return triton_products.run(call)
    return triton_attention.run(call.with_equal_heads())


BACKEND = Backend(
    name="triton",
    summary="Triton on a GPU, edge by edge: fused attention and sparse products on any graph",
    takes=Takes(
        dtypes=gpu.DTYPES,
        attend=Attention(scores=tuple(KINDS), vectors=True, most=WIDEST),
        aggregate=Sums(),
        collect=(Messages(), Messages(Message)),
        nodes=MOST,
        edges=MOST,
    ),
    devices=("cuda",),
    by_name=gpu.INTERPRETED_ON,
    need=gpu.TRITON,
    distrusted=partial(selfcheck.refusal, "triton"),
    cost=cost,
    run=run,
    probes=(
        Probe("cuda", "edges", lambda device: random_graph(10_000, 2_000_000, device)),
        Probe("cuda", "rows", lambda device: random_graph(400_000, 8_000_000, device)),
    ),
)
