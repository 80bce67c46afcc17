"""Native operators in an exported program: attention on edges and sums of neighbours by the C++ kernels.

In Python they are there once Edgewise is imported; for other processes `write_library` compiles them.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from edgewise import native
from edgewise.deployment.graph import TracedGraph
from edgewise.errors import ExportError
from edgewise.files import whole
from edgewise.kernels.backends import cpu
from edgewise.kernels.backends.cpu.edges import EdgesAttention
from edgewise.kernels.backends.torch import portable
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import Message
from edgewise.kernels.operator.attention import KINDS, attention_of
from edgewise.kernels.operator.layout import flat, rows_contiguous, unflat, wide
from edgewise.kernels.operator.operator import DTYPES
from edgewise.kernels.operator.products import REDUCTIONS
from edgewise.kernels.scores import Additive, Dot

OPERATORS, KERNELS = "libedgewise_operators.so", "libedgewise_kernels.so"  # the second beside edgewise.native's module


def check_native() -> None:
    """ExportError where the kernels were not built."""
    if native.library is None:
        raise ExportError(f"there are no native operators: {native.WHY_NOT}; {native.REMEDY}")


def run(call: Call) -> Tensor | tuple[Tensor, ...]:
    """Compute the call by the kernels on edges, or, where they cannot, by standard operators."""
    if not isinstance(call.graph, TracedGraph) or call.graph.rule is not None or call.dtype not in DTYPES:
        return portable.run(call)
    if isinstance(call, Attend):
        return _attend(call) if _takes(call) else portable.run(call)
    if isinstance(call, Collect) and isinstance(call.message, Message):
        return portable.run(call)
    return _sum(call)


BACKEND = replace(
    portable.BACKEND, name="exported", summary="The kernels on edges, and standard operators of PyTorch", run=run
)


def _takes(call: Attend) -> bool:
    score = call.score
    plain = type(score) in KINDS and not (isinstance(score, Dot) and score.cap is not None)
    return plain and score.vectors is None and not call.return_weights and not call.dropout


def _structure_of(graph: TracedGraph, numbered: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Offsets, senders, and, if numbered, the place of each edge in the caller's order; once in a program."""

    def build() -> tuple[Tensor, Tensor, Tensor]:
        ends = graph.senders, graph.receivers
        return torch.ops.edgewise.edges_by_receiver(*ends, graph.num_receivers, graph.num_senders, numbered)

    return graph.memo((f"{__name__}._structure_of", numbered), build)


def _attend(call: Attend) -> Tensor:
    graph, call, score = call.graph, call.with_equal_heads(), call.score
    assert isinstance(graph, TracedGraph)
    if isinstance(score, Additive):
        q, k, score = score.as_sums(*call.ends())
        call = replace(call, q=q, k=k, score=score)
    offsets, index, order = _structure_of(graph, numbered=bool(call.score.biases))
    own = attention_of(call, EdgesAttention, (offsets, index))
    own.k = None if own.k is own.v else own.k
    own.v = rows_contiguous(own.v)
    if own.q is not None:
        own.q, own.k = rows_contiguous(own.q), None if own.k is None else rows_contiguous(own.k)
    if own.a is not None:
        own.a = own.a.to(wide(own.v.dtype)).contiguous()
    if own.bias is not None:
        bias = own.bias.to(wide(own.v.dtype)).index_select(1, order)
        own.bias = bias.expand(*bias.shape[:-1], call.heads).contiguous()
    read = own.q, own.k, own.v, own.a, own.bias
    return unflat(torch.ops.edgewise.attend_by_receiver(*read, offsets, index, own.score, own.scale, own.slope), call)


def _sum(call: Aggregate | Collect) -> Tensor:
    graph = call.graph
    assert isinstance(graph, TracedGraph)
    weight, edge = None, None
    numbered = isinstance(call, Collect) or call.weight is not None
    offsets, index, order = _structure_of(graph, numbered)
    if isinstance(call, Collect):  # the rows are those of edges
        x, axes, index = call.m_ij, 2, order
    else:
        x, weight, axes = call.x, call.weight, -call.node_axis
    if weight is not None and weight.ndim == 1:
        weight, edge = weight.reshape(1, -1, 1), order
    elif weight is not None:
        lead, edge = torch.broadcast_shapes(weight.shape[:-2], x.shape[:-3]), order
        x, weight = x.expand(*lead, *x.shape[-3:]), flat(weight.expand(*lead, *weight.shape[-2:]), 2)
    weight = None if weight is None else weight.to(x.dtype).contiguous()
    rows = flat(x, axes)
    rows = rows_contiguous(rows.unsqueeze(2) if axes == 2 else rows)
    reduce = REDUCTIONS[call.reduce or "sum"]
    y = torch.ops.edgewise.sum_by_receiver(rows, weight, offsets, index, edge, reduce)
    return y.reshape(*x.shape[:-axes], y.shape[1], *x.shape[1 - axes :])


def write_library(folder: Path) -> None:
    """The operators for processes that have no Edgewise, and the kernels that they call: two libraries in `folder`.

    Errors      ExportError where the kernels are no library of their own, or where there is no C++ compiler
    Cost        some seconds of the compiler
    """
    from torch._inductor.cpp_builder import get_cpp_compiler

    check_native()
    home, headers = Path(native.__file__).parent, Path(cpu.__file__).parent / "cpp"
    built = Path(str(native.library.__file__)).with_name(KERNELS)
    if not built.is_file():
        raise ExportError(f"there is no {KERNELS} beside {native.library.__file__}: reinstall edgewise (Linux only)")
    torch_home = Path(str(torch.__file__)).parent
    includes = [torch_home / "include", torch_home / "include" / "torch" / "csrc" / "api" / "include", home, headers]
    with whole(folder / KERNELS) as unfinished:
        shutil.copyfile(built, unfinished)
    with whole(folder / OPERATORS) as unfinished:
        command = [get_cpp_compiler(), "-std=c++20", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-s"]
        command += [f"-I{include}" for include in includes] + [str(home / "operators.cpp"), "-o", str(unfinished)]
        command += [str(built), f"-L{torch_home / 'lib'}", "-ltorch_cpu", "-lc10", "-Wl,-rpath,$ORIGIN"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the compiler
        if made.returncode:
            raise ExportError(f"the native operators could not be compiled: {made.stderr.strip()[:300]}")
