"""Measure what the planner assumes of this machine and of its GPU, once."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import torch

from edgewise.errors import ConfigError
from edgewise.kernels.backend import Backend, Probe
from edgewise.kernels.backends import BACKENDS
from edgewise.kernels.call import Attend
from edgewise.kernels.choose import machines
from edgewise.kernels.choose.machines import DTYPES, Machine
from edgewise.kernels.scores import Dot

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
            kind, bench = machines.kind_of(place, dtype), Bench(place, dtype)
            passes = [asdict(bench.measured(machines.MACHINES[kind])) for _ in range(2 if device == "cpu" else 1)]
            # One pass alone may have been disturbed throughout by what else the CPU does.
            best = {name: (min if name == "launch" else max)(one[name] for one in passes) for name in passes[0]}
            measured[kind] = beside_readings(Machine(**best)) if device == "cpu" else Machine(**best)
    machines.save(device, measured)
    return measured


def beside_readings(found: Machine) -> Machine:
    """The speeds assumed of a CPU, by how much faster it reads; fresh memory, which the heap decides, as traffic."""
    assumed = asdict(machines.ASSUMED["cpu"])
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
