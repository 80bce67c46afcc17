"""The speeds of this machine and its GPU: assumed, or measured and saved for later processes."""

import json
import math
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from edgewise.errors import ConfigError
from edgewise.files import cache_path, whole
from edgewise.kernels.backend import Backend, Cost, Probe
from edgewise.kernels.backends import BACKENDS
from edgewise.kernels.call import Attend
from edgewise.kernels.scores import Dot

DTYPES = {"cpu": (torch.float32,), "cuda": (torch.float32, torch.bfloat16)}  # one set of speeds for each


@dataclass(frozen=True, slots=True)
class Machine:
    """Speeds that turn a `Cost` into seconds: each per second, but launch, which is the seconds of one.

    Symbols     the names of `Cost`; temporaries beyond `reused` bytes are fresh memory every time, and gathering
                through them runs at `gather_fresh`; rows in the cache, which holds `cache` bytes, run at `rows`,
                others at `rows_far`. On a GPU the cache is the L2, and temporaries beyond it go to its memory;
                overlap = the share of the shorter of launching and computing that hides behind the longer
    """

    flops: float
    tiles: float
    edges: float
    bandwidth: float
    gather: float
    gather_fresh: float
    rows: float
    rows_far: float
    launch: float
    reused: float = 32e6  # bytes: the largest block that glibc's malloc reuses
    cache: float = 24e6  # bytes; assumed
    steps: float = 1e6  # of one program
    overlap: float = 0.0

    def seconds(self, cost: Cost) -> float:
        """Predicted time of a forward pass."""
        far = max(0.0, 1 - self.cache / cost.held) if cost.held else 0.0  # the share of rows that are not in the cache
        work = (
            cost.flops / self.flops
            + cost.tiles / self.tiles
            + cost.edges / self.edges
            + cost.bytes / self.bandwidth
            + cost.gathered / (self.gather if cost.largest <= self.reused else self.gather_fresh)
            + cost.rows * ((1 - far) / self.rows + far / self.rows_far)
        )
        work, asked = max(work, cost.steps / self.steps), cost.launches * self.launch
        return work + asked - self.overlap * min(work, asked)


# Until `edgewise plan --calibrate` measures a machine, a CPU is taken for the one on which the constants of costs were
# fitted, and these speeds with them (see `kernels/backend.py`); a GPU for an H200, at nine tenths of the 4.8 TB/s and a
# part of the peaks that NVIDIA publishes: assumed. It computes while its host asks for more, and a short call takes as
# long as to ask for it: launches are those of an H100's host, and those of each backend were counted by its clock. A
# GPU has other speeds in half precision.
ASSUMED = {
    "cpu": Machine(
        flops=1.25e11, tiles=2e11, edges=7.4e10, bandwidth=3.3e10, gather=5e10, gather_fresh=5e9, rows=1e12,
        rows_far=2.5e10, launch=1.35e-5,
    ),
    "cuda": Machine(
        flops=3e13, tiles=6e13, edges=1.5e13, bandwidth=4.3e12, gather=4e12, gather_fresh=2.5e12, rows=6e12,
        rows_far=3e12, launch=2.5e-5, reused=32e6, cache=40e6, overlap=1.0,
    ),
    "cuda half": Machine(
        flops=4e14, tiles=2e14, edges=1.5e13, bandwidth=4.3e12, gather=4e12, gather_fresh=2.5e12, rows=6e12,
        rows_far=3e12, launch=2.5e-5, reused=32e6, cache=40e6, overlap=1.0,
    ),
}  # fmt: skip
MACHINES = dict(ASSUMED)  # by kind; `calibrate` puts what it measured in their place


def kind_of(device: torch.device, dtype: torch.dtype) -> str:
    """Which of MACHINES computes in a dtype on a device; any other device counts as a CPU.

    Example
        >>> kind_of(torch.device("cuda"), torch.bfloat16), kind_of(torch.device("cpu"), torch.bfloat16)
        ('cuda half', 'cpu')
    """
    if device.type != "cuda":
        return "cpu"
    return "cuda half" if dtype.itemsize < 4 else "cuda"


def speeds(device: torch.device, dtype: torch.dtype) -> Machine:
    """Those of a device in a dtype."""
    kind = kind_of(device, dtype)
    if kind != "cpu":
        _load_once("cuda")
    return MACHINES[kind]


def save(device: str, measured: dict[str, Machine]) -> None:
    """Use measured speeds from now on, and in later processes on the same machine."""
    MACHINES.update(measured)
    content = {kind: asdict(machine) for kind, machine in measured.items()}
    with suppress(OSError), whole(file_of(device)) as part:  # what cannot be cached is measured again
        part.write_text(json.dumps(content), encoding="utf-8")


def load(device: str = "cpu") -> None:
    """Use the speeds that were saved for this device (with as many threads), if any; else those assumed."""
    kinds = [kind_of(torch.device(device), dtype) for dtype in DTYPES[device]]
    try:
        content = json.loads(file_of(device).read_text(encoding="utf-8"))
        saved = {kind: {name: float(content[kind][name]) for name in asdict(MACHINES[kind])} for kind in kinds}
    except (OSError, ValueError, TypeError, KeyError):
        return  # never measured, or by another version
    for kind, values in saved.items():
        if all(math.isfinite(value) and (value > 0 or name == "overlap") for name, value in values.items()):
            MACHINES[kind] = Machine(**values)


_loaded: set[str] = set()


def _load_once(device: str) -> None:
    """`load`, when a process first plans for a GPU: reading its name any earlier would start it."""
    if device not in _loaded and torch.cuda.is_available():
        _loaded.add(device)
        load(device)


_load_once._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile runs it while it traces


def file_of(device: str) -> Path:
    """Where speeds are saved, for each processor, number of threads and PyTorch; for each GPU, PyTorch and Triton."""
    if device == "cpu":
        name = _plain(f"{platform.machine()} {_processor()} {torch.__version__}")
        return cache_path("machines", f"{name}-{torch.get_num_threads()}.json")
    capability = "".join(map(str, torch.cuda.get_device_capability()))
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "none"
    name = f"{torch.cuda.get_device_name()} sm{capability} {torch.__version__} triton {triton}"
    return cache_path("machines", f"{_plain(name)}.json")


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


# What backends probe, in the order in which one speed needs another. A tenth of the time of the probe of `edges` counts
# as the traffic of its rows, which the cache holds; assumed.
SPEEDS = {"launch": 1.0, "flops": 1.0, "tiles": 1.0, "edges": 1.1, "rows": 1.0}
BARE = 5  # how many bare operations on one number take as long as one of a call, with autograd around it; assumed
COPIED = {"cpu": 1 << 24, "cuda": 1 << 27}  # numbers: enough to fill a device, and copied in moments
GATHERED = {"cpu": (20_000, 200_000), "cuda": (50_000, 4_000_000)}  # rows, of 64 numbers: few and many
# What the probes read on two threads of the AMD EPYC (Zen 4) to which constants were fitted last. They run a few calls
# forward, alone and near their best, and whole steps are slower, each backend's by a factor of its own: the speeds that
# go with the constants are those assumed, by how much faster than this machine another reads.
READINGS = {
    "flops": 2.05e11, "tiles": 2.42e11, "edges": 1.11e11, "bandwidth": 4.1e10, "gather": 1e11, "rows_far": 3e10,
    "launch": 1.31e-5,
}  # fmt: skip


def calibrate(device: str = "cpu") -> dict[str, Machine]:
    """Measure the speeds of the CPU at the current number of threads, or of the GPU; use and save them.

    Errors      ConfigError where there is no such device
    Edge cases  a speed of kernels that are not there stays what is assumed
    Cost        a second on a CPU; on a GPU under 5 s besides compiling kernels that were never used; writes one small
                file, which later processes on the same machine read
    """
    if device not in DTYPES or (device == "cuda" and not torch.cuda.is_available()):
        raise ConfigError(f"there is no device {device!r} to measure here; known are {', '.join(DTYPES)}")
    place, measured = torch.device(device), {}
    with torch.no_grad(), torch.random.fork_rng([torch.cuda.current_device()] if device == "cuda" else []):
        torch.manual_seed(0)
        for dtype in DTYPES[device]:
            kind, bench = kind_of(place, dtype), Bench(place, dtype)
            passes = [asdict(bench.measured(MACHINES[kind])) for _ in range(2 if device == "cpu" else 1)]
            # One pass alone may have been disturbed throughout by what else the CPU does.
            best = {name: (min if name == "launch" else max)(one[name] for one in passes) for name in passes[0]}
            measured[kind] = beside_readings(Machine(**best)) if device == "cpu" else Machine(**best)
    save(device, measured)
    return measured


def beside_readings(found: Machine) -> Machine:
    """The speeds assumed of a CPU, by how much faster it reads; fresh memory, which the heap decides, as traffic."""
    assumed = asdict(ASSUMED["cpu"])
    factors = {name: getattr(found, name) / reading for name, reading in READINGS.items()}
    factors["gather_fresh"] = factors["bandwidth"]
    return Machine(**assumed | {name: assumed[name] * factor for name, factor in factors.items()})


@dataclass(frozen=True)
class Bench:
    """The measurements of one device in one dtype."""

    device: torch.device
    dtype: torch.dtype

    def measured(self, machine: Machine) -> Machine:
        """The machine with every speed that can be measured here: PyTorch's, then those that the backends probe."""
        kind = self.device.type
        block = torch.zeros(COPIED[kind], device=self.device)
        other, rows = torch.zeros_like(block), torch.randn(4096, 64, device=self.device)
        few, many = (torch.randint(len(rows), (count,), device=self.device) for count in GATHERED[kind])
        machine = replace(
            machine,
            bandwidth=2 * 4 * len(block) / self._seconds(lambda: other.copy_(block)),
            gather=2 * 4 * 64 * len(few) / self._seconds(lambda: rows.index_select(0, few)),
            gather_fresh=2 * 4 * 64 * len(many) / self._seconds(lambda: rows.index_select(0, many)),
        )
        if kind == "cpu":
            one = torch.zeros(1)
            machine = replace(machine, launch=self._seconds(lambda: [one.add(1) for _ in range(100)]) / 100 * BARE)
        probes = [(backend, probe) for backend in BACKENDS.values() for probe in backend.probes]
        for speed in SPEEDS:
            for backend, probe in probes:
                if probe.speed == speed and probe.device == kind:
                    machine = self._probed(machine, backend, probe)
        return machine

    def _probed(self, machine: Machine, backend: Backend, probe: Probe) -> Machine:
        """The machine with the speed that a probe measures, where its backend runs."""
        graph = probe.graph(self.device)
        q, k, v = torch.randn(
            3, graph.num_senders, probe.heads, probe.channels, device=self.device, dtype=self.dtype
        ).unbind()
        call = Attend(graph, q, k, v, Dot())
        if backend.cost is None or backend.refusal(call) is not None:
            return machine
        cost = backend.cost(call)
        if probe.speed == "launch":  # of many calls that have nothing to compute, so that launching them takes the time
            return replace(machine, launch=self._seconds(lambda: backend.run(call), 100) / cost.launches)
        seconds = self._seconds(lambda: backend.run(call))
        if probe.speed == "rows":
            # What a large graph takes beyond its arithmetic is the traffic of rows that no cache holds.
            beyond = max(seconds / 50, seconds - cost.edges / machine.edges)
            far = cost.rows * max(0.1, 1 - machine.cache / cost.held)
            return replace(machine, rows=max(machine.rows, 2 * far / beyond), rows_far=far / beyond)
        # A GPU computes while its host launches.
        launches = cost.launches * machine.launch if self.device.type == "cpu" else 0.0
        operations = SPEEDS[probe.speed] * max(1, getattr(cost, probe.speed))
        return replace(machine, **{probe.speed: operations / max(seconds - launches, seconds / 4)})

    def _seconds(self, work: Callable[[], object], times: int = 7) -> float:
        """The fastest of a few runs after a first one; on a GPU what each of them takes, one right after the other."""
        work()
        if self.device.type == "cpu":
            return min(map(_by_clock, [work] * times))
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            work()
        stop.record()
        torch.cuda.synchronize()
        return start.elapsed_time(stop) / 1e3 / times


def _by_clock(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


load()
