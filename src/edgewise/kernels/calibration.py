"""Measure what the planner assumes of this machine, once, and keep it for later processes."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType

import torch

from edgewise.graphs import Graph, patterns
from edgewise.kernels import dense, native, tiled
from edgewise.kernels.call import Attend
from edgewise.kernels.planner import MACHINES, Cost, Machine
from edgewise.kernels.scores import Dot
from edgewise.native import library

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgewise" / "machines"


def calibrate() -> Machine:
    """Measure this machine's speeds at the current number of threads, use them from now on, and keep them.

    Cost        under 3 s; writes one small file, which later processes on the same machine read
    """
    assumed = MACHINES["cpu"]
    with torch.no_grad():
        measured = _with_kernels(_of_pytorch(assumed))
    MACHINES["cpu"] = measured
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(asdict(measured), indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    return measured


def remember() -> None:
    """Take the speeds that `calibrate` kept, if it ran on this machine with as many threads; else those assumed."""
    try:
        kept = json.loads(_path().read_text(encoding="utf-8"))
        values = {name: float(kept[name]) for name in asdict(MACHINES["cpu"])}
    except (OSError, ValueError, TypeError, KeyError):
        return  # never measured, or by another version
    if all(math.isfinite(value) and value > 0 for value in values.values()):
        MACHINES["cpu"] = Machine(**values)


def _path() -> Path:
    """One file for each processor, number of threads and PyTorch."""
    model = "".join(c if c.isalnum() else "-" for c in f"{platform.machine()} {_processor()} {torch.__version__}")
    return FOLDER / f"{model}-{torch.get_num_threads()}.json"


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            lines = file.read(1500).splitlines()  # the first processor's
    except OSError:
        return platform.processor()
    kind = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return " ".join(kind.get(name, "") for name in ("model name", "cpu family", "model"))


def _of_pytorch(machine: Machine) -> Machine:
    one, block, other = torch.zeros(1), torch.zeros(1 << 24), torch.zeros(1 << 24)
    launch = (
        _seconds(lambda: [one.add(1) for _ in range(100)]) / 100 * 5
    )  # an operation of a call has autograd around it
    bandwidth = 2 * 4 * block.numel() / _seconds(lambda: other.copy_(block))
    rows = torch.randn(4096, 64)
    few, many = torch.randint(4096, (20_000,)), torch.randint(4096, (200_000,))
    return replace(
        machine,
        launch=launch,
        bandwidth=bandwidth,
        gather=2 * 4 * 64 * few.shape[0] / _seconds(lambda: rows.index_select(0, few)),
        gather_fresh=2 * 4 * 64 * many.shape[0] / _seconds(lambda: rows.index_select(0, many)),
        flops=_rate(patterns.complete(512), dense, lambda cost: cost.flops, launch),
    )


def _with_kernels(machine: Machine) -> Machine:
    if library is None:
        return machine
    machine = replace(
        machine,
        tiles=_rate(patterns.complete(512), tiled, lambda cost: cost.tiles, machine.launch),
        edges=1.1 * _rate(_random(1000, 60_000), native, lambda cost: cost.edges, machine.launch),
    )
    # What a large graph takes beyond its arithmetic is the traffic of rows that no cache holds.
    call = _call(_random(50_000, 500_000))
    cost = native.cost(call)
    beyond = max(1e-4, _seconds(lambda: native.run(call), 3) - cost.edges / machine.edges)
    far = cost.rows * max(0.1, 1 - machine.cache / cost.held)
    return replace(machine, rows=max(machine.rows, 2 * far / beyond), rows_far=far / beyond)


def _random(nodes: int, edges: int) -> Graph:
    generator = torch.Generator().manual_seed(0)
    return Graph.from_edge_index(torch.randint(nodes, (2, edges), generator=generator), nodes)


def _call(graph: Graph) -> Attend:
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, graph.num_senders, 4, 32, generator=generator)
    return Attend(graph, q, k, v, Dot())


def _rate(graph: Graph, backend: ModuleType, count: Callable[[Cost], int], launch: float) -> float:
    """Operations a second of one backend's attention."""
    call = _call(graph)
    seconds = _seconds(lambda: backend.run(call))
    cost = backend.cost(call)
    return count(cost) / max(seconds - cost.launches * launch, seconds / 4)


def _seconds(work: Callable[[], object], times: int = 7) -> float:
    """The fastest of a few runs after a first one."""
    work()
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)
