"""The planner's constants: measured in time, saved, loaded, and not trusted where they make no sense."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from unittest import mock

import pytest
import torch

from edgewise import Graph, causal, complete, plan
from edgewise.errors import ConfigError
from edgewise.kernels import BACKENDS
from edgewise.kernels.backend import Cost, Probe, random_graph
from edgewise.kernels.backends.torch import dense, segment
from edgewise.kernels.choose import machines, measure
from pretend import Card


@pytest.fixture
def folder(cache, monkeypatch):
    monkeypatch.setattr(machines, "MACHINES", dict(machines.ASSUMED))
    monkeypatch.setattr(machines, "_loaded", set())
    return cache / "machines"


def test_speeds_are_measured_saved_and_loaded(folder):
    machines.load()
    assert machines.MACHINES == machines.ASSUMED  # nothing was measured yet
    start = time.perf_counter()
    measured = measure.calibrate()["cpu"]
    assert time.perf_counter() - start < 30  # 3 s on a machine that does nothing else
    assert machines.MACHINES["cpu"] == measured != machines.ASSUMED["cpu"]
    assert len(list(folder.iterdir())) == 1  # and no half-written file beside it
    machines.MACHINES.update(machines.ASSUMED)
    machines.load()
    assert machines.MACHINES["cpu"] == measured


FRESH = """
import torch
torch.set_num_threads({threads})
from edgewise.kernels.choose import machines
print(machines.MACHINES["cpu"].flops)
"""


def test_a_later_process_plans_by_the_speeds_that_were_saved(folder):
    machines.save("cpu", {"cpu": replace(machines.ASSUMED["cpu"], flops=12345.0)})
    command = [sys.executable, "-c", FRESH.format(threads=torch.get_num_threads())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) == 12345.0


def test_a_disturbed_pass_is_made_up_for_by_the_next_ones(folder, monkeypatch):
    machine = machines.ASSUMED["cpu"]
    slow = replace(machine, edges=machine.edges / 8, launch=machine.launch * 8)
    passes = iter([slow, replace(machine, edges=machine.edges / 1.1), machine, slow])
    monkeypatch.setattr(measure.Bench, "measured", lambda self, _: next(passes))
    assert measure.calibrate()["cpu"] == measure.beside_readings(machine)
    assert next(passes) == slow  # the second and the third agreed


def test_passes_end_where_none_agrees(folder, monkeypatch):
    machine, count = machines.ASSUMED["cpu"], []

    def measured(self, _):
        count.append(1)
        return replace(machine, flops=machine.flops * 2 ** len(count))

    monkeypatch.setattr(measure.Bench, "measured", measured)
    fastest = replace(machine, flops=machine.flops * 2**measure.PASSES)
    assert measure.calibrate()["cpu"] == measure.beside_readings(fastest)


def test_speeds_are_those_assumed_by_how_much_faster_a_machine_reads():
    assumed = machines.ASSUMED["cpu"]
    read = replace(assumed, **measure.READINGS)
    assert asdict(measure.beside_readings(read)) == pytest.approx(asdict(assumed))
    twice = measure.beside_readings(replace(read, bandwidth=2 * read.bandwidth, gather_fresh=1.0))
    assert twice.bandwidth == pytest.approx(2 * assumed.bandwidth)
    assert twice.gather_fresh == pytest.approx(2 * assumed.gather_fresh)  # which no probe reads alike twice


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cpu": {"flops": "fast"}}', "not json"])
def test_a_file_that_makes_no_sense_is_passed_over(folder, text):
    folder.mkdir(parents=True)
    machines.file_of("cpu").write_text(text, encoding="utf-8")
    machines.load()
    assert machines.MACHINES == machines.ASSUMED


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_that_cannot_be_is_passed_over(folder, value):
    folder.mkdir(parents=True)
    names = machines.asdict(machines.ASSUMED["cpu"])
    machines.file_of("cpu").write_text(json.dumps({"cpu": names | {"edges": value}}), encoding="utf-8")
    machines.load()
    assert machines.MACHINES == machines.ASSUMED


def kernel(name, **graphs):
    """`segment` by another name, as if it were a kernel of the card's, at a cost that its kernels have."""

    def cost(call):
        numbers = call.graph.num_edges * call.v.shape[-1]
        return Cost(edges=numbers, tiles=numbers, rows=4 * numbers, held=4 * call.v.numel(), launches=3)

    probes = tuple(
        Probe("cuda", speed, lambda device, graph=graph: graph.to(device)) for speed, graph in graphs.items()
    )
    return replace(segment.BACKEND, name=name, cost=cost, probes=probes)


@pytest.fixture
def card(folder, monkeypatch):
    """A card whose operations take the CPU's time."""
    monkeypatch.setitem(measure.ARRAYS, "cuda", measure.Arrays(1 << 12, 64, 50, 500))
    small = replace(dense.BACKEND, probes=(Probe("cuda", "flops", lambda device: complete(64).to(device), 2, 8),))
    monkeypatch.setitem(BACKENDS, "dense", small)
    monkeypatch.setattr(measure, "_by_events", measure._by_clock)
    names = {"is_available": True, "current_device": 0, "get_device_name": "Card", "get_device_capability": (9, 0)}
    for name, value in (names | {"synchronize": None}).items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    return folder


@pytest.mark.parametrize("kernels", [True, False])
def test_a_card_is_measured_in_full_and_half_precision_and_kept_beside_the_cpu(card, kernels):
    cpu = torch.device("cpu")
    near, far = random_graph(20, 200, cpu), random_graph(200, 800, cpu)
    quick = {"walk": kernel("walk", edges=near, rows=far), "tile": kernel("tile", tiles=Graph.batch([complete(8)] * 4))}
    with Card(), mock.patch.dict(BACKENDS, quick if kernels else {}):
        state = torch.get_rng_state()
        measured = measure.calibrate("cuda")
        assert torch.equal(torch.get_rng_state(), state)  # a user's random numbers stay what they would have been
    assert list(measured) == ["cuda", "cuda half"]
    for kind, machine in measured.items():
        assumed = machines.ASSUMED[kind]
        assert machines.MACHINES[kind] == machine
        for speed in ("flops", "bandwidth", "gather", "gather_fresh", "launch"):
            assert getattr(machine, speed) != getattr(assumed, speed)
        for speed in ("edges", "tiles", "rows_far"):
            assert (getattr(machine, speed) != getattr(assumed, speed)) == kernels
        assert (machine.cache, machine.reused) == (assumed.cache, assumed.reused)
    assert machines.MACHINES["cpu"] == machines.ASSUMED["cpu"]
    (kept,) = card.iterdir()
    assert kept.name.startswith("Card-sm90-") and "triton-" in kept.name
    machines.MACHINES.update(machines.ASSUMED)
    with Card():
        plan(complete(4).to("cuda"))  # the first plan for a card takes what was kept
    assert {kind: machines.MACHINES[kind] for kind in measured} == measured


def test_a_card_has_other_speeds_in_half_precision(card):
    fast = replace(machines.ASSUMED["cuda half"], flops=1.0)
    machines.MACHINES["cuda half"] = fast
    with Card():
        graph = causal(64).to("cuda")
        slow, quick = (plan(graph, dtype=dtype).candidates for dtype in (torch.bfloat16, torch.float32))
    seconds = [next(one.seconds for one in found if one.backend == "dense") for found in (slow, quick)]
    assert seconds[0] > 1 > seconds[1] > 0
    assert machines.speeds(graph.device, torch.float16) == fast


def test_a_device_that_is_not_there_is_refused(folder):
    for device in ["tpu"] + ([] if torch.cuda.is_available() else ["cuda"]):
        with pytest.raises(ConfigError, match=f"no device '{device}'"):
            measure.calibrate(device)
    assert not folder.exists()


@pytest.mark.parametrize("seconds", [1.0, 1e-3])
def test_speeds_are_what_is_done_over_the_time_it_takes(seconds, monkeypatch):
    monkeypatch.setattr(measure.Bench, "_seconds", lambda self, work, times=7: seconds)
    for dtype in (torch.float32, torch.bfloat16):
        found = measure.Bench(torch.device("cpu"), dtype).measured(machines.ASSUMED["cpu"])
        assert found.bandwidth * seconds == 2 * 4 * 2**24  # read and written
        assert (found.gather * seconds, found.gather_fresh * seconds) == (512 * 20_000, 512 * 200_000)
        assert found.launch == seconds / 100 * measure.BARE


def test_a_call_that_waits_for_its_launch_is_timed_a_hundred_times_over(monkeypatch):
    done, waits = [], []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(len(done)))
    monkeypatch.setattr(time, "perf_counter", lambda: 2.0 * len(done))
    bench = measure.Bench(torch.device("cpu"), torch.float32)
    assert bench._waiting(lambda: done.append(1)) == 2.0
    assert waits == [1, 101]  # after a first call, and at the end
    done.clear()
    assert bench._seconds(lambda: done.append(1), 3) == 2.0 and len(done) == 4
