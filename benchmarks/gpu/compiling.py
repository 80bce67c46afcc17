"""Every Triton kernel compiled for a Hopper card where there is none: registers, spills and shared memory."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch

from edgewise import Dot, EdgeBias, Graph, aggregate, attend, complete, window
from edgewise.kernels.backends.cuda import programs as gpu

SIZES = ((4, 32), (8, 16), (8, 64))  # heads, channels


def compile_all() -> int:
    """Print a line for every variant of every kernel; 2 where nothing can be compiled."""
    if os.environ.get("TRITON_INTERPRET") == "1" or not gpu.INSTALLED:
        print("compiling needs Triton, and TRITON_INTERPRET unset")
        return 2
    from benchmarks.gpu import absent

    launches = absent.pretend()
    for what in run_all():
        for launch in absent.variants(launches):
            used = launch.resources()
            spilled = used["STACK"] + used["LOCAL"]
            warps = launch.compiled.metadata.num_warps
            line = f"{used['REG']:>3} registers, {spilled} bytes spilled, {launch.compiled.metadata.shared} shared"
            print(f"{what}  {launch.name:<16} {line}, {warps} warp{'s' if warps > 1 else ''}", flush=True)
        launches.clear()
    return 0


def run_all() -> Iterator[str]:
    """Forward and backward passes of every backend of Triton's, each named once it has run."""
    to_one = torch.stack([torch.arange(1200) % 200, torch.zeros(1200, dtype=torch.int64)])
    hub = torch.cat([torch.randint(200, (2, 3000)), to_one], 1)
    graph, batch = Graph.from_edge_index(hub, num_nodes=200), Graph.batch([complete(n) for n in (7, 30, 60)])
    near = window(200, 12)
    for dtype in (torch.bfloat16, torch.float32):
        for heads, channels in SIZES:
            what = f"{str(dtype).removeprefix('torch.'):<8} {heads} × {channels}"
            for backend, on, biased in (("triton", graph, True), ("bitmap", near, False), ("ragged", batch, True)):
                x = torch.zeros(on.num_receivers, heads, channels, dtype=dtype, requires_grad=True)
                bias = torch.zeros(on.num_edges, heads, requires_grad=True)
                attend(on, x, x, x, Dot() + EdgeBias(bias) if biased else Dot(), backend=backend).sum().backward()
                yield f"{what:<16} attend, {backend:<7}"
            for reduce in ("sum", "mean", "max"):
                x = torch.zeros(graph.num_senders, heads * channels, dtype=dtype, requires_grad=True)
                weight = torch.zeros(graph.num_edges, dtype=dtype, requires_grad=True)
                aggregate(graph, x, weight, reduce, backend="triton").sum().backward()
                yield f"{what:<16} aggregate, {reduce:<4}"
