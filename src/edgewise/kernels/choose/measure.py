"""Measure what the planner assumes of this machine and of its GPU, once."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

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
PASSES, AGREED = 4, 1.25  # at most; and by what factor the two best may differ
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
            kind = machines.kind_of(place, dtype)
            bench = Bench(place, dtype)
            # A GPU times itself: what else the host does is not in it.
            measure = bench.settled if device == "cpu" else bench.measured
            found = measure(machines.MACHINES[kind])
            measured[kind] = beside_readings(found) if device == "cpu" else found
    machines.save(device, measured)
    return measured


def beside_readings(found: Machine) -> Machine:
    """The speeds assumed of a CPU, by how much faster it reads; fresh memory, which the heap decides, as traffic."""
    assumed = asdict(machines.ASSUMED["cpu"])
    factors = {name: getattr(found, name) / reading for name, reading in READINGS.items()}
    factors["gather_fresh"] = factors["bandwidth"]
    return Machine(**assumed | {name: assumed[name] * factor for name, factor in factors.items()})


@dataclass(frozen=True)
class Arrays:
    """What PyTorch's own speeds are measured on: large enough to fill a device, small enough to take moments.

    Symbols     copied = numbers; rows = of a table, few and many = how many of them are gathered
    """

    copied: int
    rows: int
    few: int
    many: int


ARRAYS = {"cpu": Arrays(1 << 24, 4096, 20_000, 200_000), "cuda": Arrays(1 << 27, 4096, 50_000, 4_000_000)}


@dataclass(frozen=True)
class Bench:
    """The measurements of one device in one dtype."""

    device: torch.device
    dtype: torch.dtype

    def settled(self, machine: Machine) -> Machine:
        """The best of every speed in passes, which end when two agree: one alone may have been disturbed throughout."""
        passes = [asdict(self.measured(machine))]
        while len(passes) < PASSES:
            passes.append(asdict(self.measured(machine)))
            ranked = {name: sorted((one[name] for one in passes), reverse=name != "launch") for name in passes[0]}
            two = [ranked[name][:2] for name in READINGS]
            if all(max(best, next_best) <= AGREED * min(best, next_best) for best, next_best in two):
                break
        return Machine(**{name: values[0] for name, values in ranked.items()})

    def measured(self, machine: Machine) -> Machine:
        """The machine with every speed that can be measured here: PyTorch's, then those that the backends probe."""
        machine = self._of_pytorch(machine)
        probes = [(backend, probe) for backend in BACKENDS.values() for probe in backend.probes]
        for speed in SPEEDS:
            for backend, probe in probes:
                if probe.speed == speed and probe.device == self.device.type:
                    machine = self._probed(machine, backend, probe)
        return machine

    def _of_pytorch(self, machine: Machine) -> Machine:
        arrays = ARRAYS[self.device.type]
        block = torch.zeros(arrays.copied, device=self.device)
        other = torch.zeros_like(block)
        rows = torch.randn(arrays.rows, 64, device=self.device)
        few, many = (torch.randint(arrays.rows, (count,), device=self.device) for count in (arrays.few, arrays.many))
        machine = replace(
            machine,
            bandwidth=2 * 4 * block.numel() / self._seconds(lambda: other.copy_(block)),
            gather=2 * 4 * 64 * few.shape[0] / self._seconds(lambda: rows.index_select(0, few)),
            gather_fresh=2 * 4 * 64 * many.shape[0] / self._seconds(lambda: rows.index_select(0, many)),
        )
        if self.device.type != "cpu":
            return machine
        one = torch.zeros(1)
        return replace(machine, launch=self._seconds(lambda: [one.add(1) for _ in range(100)]) / 100 * BARE)

    def _probed(self, machine: Machine, backend: Backend, probe: Probe) -> Machine:
        """The machine with the speed that a probe measures, where its backend runs."""
        call = self._call(probe)
        if backend.refusal(call) is not None:
            return machine
        cost = backend.cost(call)
        if probe.speed == "launch":
            return replace(machine, launch=self._waiting(lambda: backend.run(call)) / cost.launches)
        if probe.speed == "rows":
            # What a large graph takes beyond its arithmetic is the traffic of rows that no cache holds.
            seconds = self._seconds(lambda: backend.run(call), 3)
            beyond = max(seconds / 50, seconds - cost.edges / machine.edges)
            far = cost.rows * max(0.1, 1 - machine.cache / cost.held)
            return replace(machine, rows=max(machine.rows, 2 * far / beyond), rows_far=far / beyond)
        seconds = self._seconds(lambda: backend.run(call))
        # A GPU computes while its host launches.
        launches = cost.launches * machine.launch if self.device.type == "cpu" else 0.0
        operations = SPEEDS[probe.speed] * max(1, getattr(cost, probe.speed))
        return replace(machine, **{probe.speed: operations / max(seconds - launches, seconds / 4)})

    def _call(self, probe: Probe) -> Attend:
        graph = probe.graph(self.device)
        shape = 3, graph.num_senders, probe.heads, probe.channels
        q, k, v = torch.randn(shape, device=self.device, dtype=self.dtype)
        return Attend(graph, q, k, v, Dot())

    def _waiting(self, work: Callable[[], object]) -> float:
        """Seconds of one call of many that have nothing to compute, so that launching them takes the time."""
        work()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(100):
            work()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / 100

    def _seconds(self, work: Callable[[], object], times: int = 7) -> float:
        """The fastest of a few runs after a first one."""
        work()
        return min((_by_clock if self.device.type == "cpu" else _by_events)(work, times))


def _by_clock(work: Callable[[], object], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return taken


def _by_events(work: Callable[[], object], times: int) -> list[float]:
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) / 1e3 for before, after in pairwise(marks)]
