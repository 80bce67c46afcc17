"""Measure what the planner assumes of this machine and of its GPU, once, and keep it for later processes."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from edgewise.errors import ConfigError
from edgewise.graphs import Graph, complete
from edgewise.kernels.backends.torch import dense, segment
from edgewise.kernels.call import Attend
from edgewise.kernels.choose.planner import MACHINES, Cost, Machine, kind_of
from edgewise.kernels.scores import Dot

if TYPE_CHECKING:
    from edgewise.kernels.choose.dispatch import Backend

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgewise" / "machines"
PASSES, AGREED = 4, 1.25  # at most; and by what factor the two best may differ
DTYPES = {"cpu": (torch.float32,), "cuda": (torch.float32, torch.bfloat16)}  # one set of speeds for each


@dataclass(frozen=True)
class Probes:
    """What a device's speeds are measured on: large enough to fill it, small enough to take moments.

    Symbols     complete = nodes, heads and channels of attention by PyTorch; copied = numbers; rows = of a table, few
                and many = how many of them are gathered; near, far = nodes and edges of graphs whose rows are in the
                cache, and are not; blocks = number and size of complete graphs; edges, tiles = the backends whose
                speeds are meant
    """

    complete: tuple[int, int, int]
    copied: int
    rows: int
    few: int
    many: int
    near: tuple[int, int]
    far: tuple[int, int]
    blocks: tuple[int, int]
    edges: str
    tiles: str


PROBES = {
    "cpu": Probes(
        (512, 4, 32), 1 << 24, 4096, 20_000, 200_000, (1000, 60_000), (50_000, 500_000), (1, 512), "native", "tiled",
    ),
    "cuda": Probes(
        (8192, 8, 64), 1 << 27, 4096, 50_000, 4_000_000, (10_000, 2_000_000), (400_000, 8_000_000), (2048, 64),
        "triton", "ragged",
    ),
}  # fmt: skip


def calibrate(device: str = "cpu") -> dict[str, Machine]:
    """Measure the speeds of the CPU at the current number of threads, or of the GPU; use them from now on; keep them.

    Errors      ConfigError where there is no such device
    Edge cases  a speed of kernels that are not there stays what is assumed
    Cost        two passes of half a second each on a CPU, and up to two more where they disagree; one on a GPU, under
                5 s besides compiling kernels that were never used; writes one small file, which later processes on
                the same machine read
    """
    if device not in DTYPES or (device == "cuda" and not torch.cuda.is_available()):
        raise ConfigError(f"there is no device {device!r} to measure here; known are {', '.join(DTYPES)}")
    place, measured = torch.device(device), {}
    with torch.no_grad(), torch.random.fork_rng([torch.cuda.current_device()] if device == "cuda" else []):
        torch.manual_seed(0)
        for dtype in DTYPES[device]:
            kind = kind_of(place, dtype)
            bench = Bench(place, dtype, PROBES[device])
            # A GPU times itself: what else the host does is not in it.
            measure = bench.settled if device == "cpu" else bench.measured
            measured[kind] = measure(MACHINES[kind])
    MACHINES.update(measured)
    path = _path(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    content = {kind: asdict(machine) for kind, machine in measured.items()}
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    return measured


def remember(device: str = "cpu") -> None:
    """Take the speeds that `calibrate` kept, if it ran on this device (with as many threads); else those assumed."""
    kinds = [kind_of(torch.device(device), dtype) for dtype in DTYPES[device]]
    try:
        kept = json.loads(_path(device).read_text(encoding="utf-8"))
        found = {kind: {name: float(kept[kind][name]) for name in asdict(MACHINES[kind])} for kind in kinds}
    except (OSError, ValueError, TypeError, KeyError):
        return  # never measured, or by another version
    for kind, values in found.items():
        if all(math.isfinite(value) and value > 0 for value in values.values()):
            MACHINES[kind] = Machine(**values)


_recalled: set[str] = set()


def recall(device: str) -> None:
    """`remember`, when a process first plans for a GPU: asking for its name any earlier would start it."""
    if device not in _recalled and torch.cuda.is_available():
        _recalled.add(device)
        remember(device)


recall._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile runs it while it traces


def _path(device: str) -> Path:
    """One file for each processor, number of threads and PyTorch; for each GPU, PyTorch and Triton."""
    if device == "cpu":
        name = _plain(f"{platform.machine()} {_processor()} {torch.__version__}")
        return FOLDER / f"{name}-{torch.get_num_threads()}.json"
    capability = "".join(map(str, torch.cuda.get_device_capability()))
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "none"
    name = f"{torch.cuda.get_device_name()} sm{capability} {torch.__version__} triton {triton}"
    return FOLDER / f"{_plain(name)}.json"


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text)


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            lines = file.read(1500).splitlines()  # the first processor's
    except OSError:
        return platform.processor()
    kind = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return " ".join(kind.get(name, "") for name in ("model name", "cpu family", "model"))


@dataclass(frozen=True)
class Bench:
    """The measurements of one device in one dtype."""

    device: torch.device
    dtype: torch.dtype
    probes: Probes

    def settled(self, machine: Machine) -> Machine:
        """The best of every speed in passes, which end when two agree: one alone may have been disturbed throughout."""
        passes = [asdict(self.measured(machine))]
        while len(passes) < PASSES:
            passes.append(asdict(self.measured(machine)))
            ranked = {name: sorted((one[name] for one in passes), reverse=name != "launch") for name in passes[0]}
            if all(max(best, next_best) <= AGREED * min(best, next_best) for best, next_best, *_ in ranked.values()):
                break
        return Machine(**{name: values[0] for name, values in ranked.items()})

    def measured(self, machine: Machine) -> Machine:
        """The machine with every speed that can be measured here."""
        return self._with_kernels(self._of_pytorch(machine))

    def _of_pytorch(self, machine: Machine) -> Machine:
        probes, launch = self.probes, self._launch()
        block = torch.zeros(probes.copied, device=self.device)
        other = torch.zeros_like(block)
        bandwidth = 2 * 4 * block.numel() / self._seconds(lambda: other.copy_(block))
        rows = torch.randn(probes.rows, 64, device=self.device)
        few, many = (torch.randint(probes.rows, (count,), device=self.device) for count in (probes.few, probes.many))
        n, heads, channels = probes.complete
        return replace(
            machine,
            launch=launch,
            bandwidth=bandwidth,
            gather=2 * 4 * 64 * few.shape[0] / self._seconds(lambda: rows.index_select(0, few)),
            gather_fresh=2 * 4 * 64 * many.shape[0] / self._seconds(lambda: rows.index_select(0, many)),
            flops=self._rate(self._call(complete(n), heads, channels), dense, lambda cost: cost.flops, launch),
        )

    def _launch(self) -> float:
        """Seconds of one operation of a call."""
        if self.device.type == "cpu":
            one = torch.zeros(1)
            # An operation of a call has autograd around it.
            return self._seconds(lambda: [one.add(1) for _ in range(100)]) / 100 * 5
        call = self._call(complete(8), 1, 16)  # nothing to compute: what takes time is to ask for it
        segment.run(call)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(100):
            segment.run(call)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / 100 / segment.cost(call).launches

    def _with_kernels(self, machine: Machine) -> Machine:
        """The speeds of this library's kernels, where they run."""
        count, size = self.probes.blocks
        tiled = self._call(Graph.batch([complete(size)] * count) if count > 1 else complete(size))
        if (tiles := _runs(self.probes.tiles, tiled)) is not None:
            machine = replace(machine, tiles=self._rate(tiled, tiles, lambda cost: cost.tiles, machine.launch))
        near = self._call(self._random(*self.probes.near))
        if (edges := _runs(self.probes.edges, near)) is None:
            return machine
        machine = replace(machine, edges=1.1 * self._rate(near, edges, lambda cost: cost.edges, machine.launch))
        # What a large graph takes beyond its arithmetic is the traffic of rows that no cache holds.
        call = self._call(self._random(*self.probes.far))
        cost, seconds = edges.cost(call), self._seconds(lambda: edges.run(call), 3)
        beyond = max(seconds / 50, seconds - cost.edges / machine.edges)
        far = cost.rows * max(0.1, 1 - machine.cache / cost.held)
        return replace(machine, rows=max(machine.rows, 2 * far / beyond), rows_far=far / beyond)

    def _random(self, nodes: int, edges: int) -> Graph:
        return Graph.from_edge_index(torch.randint(nodes, (2, edges), device=self.device), nodes)

    def _call(self, graph: Graph, heads: int = 4, channels: int = 32) -> Attend:
        q, k, v = torch.randn(3, graph.num_senders, heads, channels, device=self.device, dtype=self.dtype)
        return Attend(graph.to(self.device), q, k, v, Dot())

    def _rate(self, call: Attend, backend: Backend, count: Callable[[Cost], int], launch: float) -> float:
        """Operations a second of one backend's attention."""
        seconds, cost = self._seconds(lambda: backend.run(call)), backend.cost(call)
        asked = cost.launches * launch if self.device.type == "cpu" else 0.0  # a GPU computes while it is asked
        return max(1, count(cost)) / max(seconds - asked, seconds / 4)

    def _seconds(self, work: Callable[[], object], times: int = 7) -> float:
        """The fastest of a few runs after a first one."""
        work()
        return min((_by_clock if self.device.type == "cpu" else _by_events)(work, times))


def _runs(name: str, call: Attend) -> Backend | None:
    """The backend of that name, where there is one and it can run the call."""
    from edgewise.kernels.choose.dispatch import BACKENDS  # which reads what was measured, and so imports this file

    backend = BACKENDS.get(name)
    return None if backend is None or backend.refuses(call) is not None else backend


def _by_clock(work: Callable[[], object], times: int) -> list[float]:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return found


def _by_events(work: Callable[[], object], times: int) -> list[float]:
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) / 1e3 for before, after in pairwise(marks)]
