"""The planner's speeds: measured, saved, loaded, and not trusted where they make no sense."""

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch

from edgewise import Graph, causal, complete, plan
from edgewise.errors import ConfigError
from edgewise.kernels import BACKENDS
from edgewise.kernels.backend import Cost, Probe, random_graph
from edgewise.kernels.backends.torch import dense, segment
from edgewise.kernels.planning import machines
from pretend import Card


@pytest.fixture
def folder(cache, monkeypatch):
    monkeypatch.setattr(machines, "MACHINES", dict(machines.ASSUMED))
    monkeypatch.setattr(machines, "_loaded", set())
    return cache / "machines"


def test_speeds_are_measured_saved_and_loaded(folder):
    machines.load()
    assert machines.MACHINES == machines.ASSUMED  # nothing was measured yet
    measured = machines.calibrate()["cpu"]
    assert machines.MACHINES["cpu"] == measured != machines.ASSUMED["cpu"]
    assert len(list(folder.iterdir())) == 1  # and no half-written file beside it
    machines.MACHINES.update(machines.ASSUMED)
    machines.load()
    assert machines.MACHINES["cpu"] == measured


@pytest.mark.processes
def test_a_later_process_plans_by_the_speeds_that_were_saved(folder):
    machines.save("cpu", {"cpu": replace(machines.ASSUMED["cpu"], flops=12345.0)})
    code = f"""import torch
torch.set_num_threads({torch.get_num_threads()})
from edgewise.kernels.planning import machines
print(machines.MACHINES["cpu"].flops)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == 12345.0


SPEEDS = asdict(machines.ASSUMED["cpu"])


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"cpu": {"flops": "fast"}}', "not json"),
        *(json.dumps({"cpu": SPEEDS | {"edges": value}}) for value in (0.0, -1.0, float("nan"), float("inf"))),
    ],
)
def test_a_file_that_makes_no_sense_is_passed_over(folder, text):
    folder.mkdir(parents=True)
    machines.file_of("cpu").write_text(text, encoding="utf-8")
    machines.load()
    assert machines.MACHINES == machines.ASSUMED


@pytest.fixture
def card(folder, monkeypatch):
    """A card whose operations take the CPU's time, with two kernels of its own."""

    def kernel(name, **graphs):
        def cost(call):
            numbers = call.graph.num_edges * call.v.shape[-1]
            return Cost(edges=numbers, tiles=numbers, rows=4 * numbers, held=4 * call.v.numel(), launches=3)

        probes = tuple(Probe("cuda", speed, graph.to) for speed, graph in graphs.items())
        monkeypatch.setitem(BACKENDS, name, replace(segment.BACKEND, name=name, cost=cost, probes=probes))

    kernel("walk", edges=random_graph(20, 200, torch.device("cpu")), rows=random_graph(200, 800, torch.device("cpu")))
    kernel("tile", tiles=Graph.batch([complete(8)] * 4))
    small = replace(dense.BACKEND, probes=(Probe("cuda", "flops", lambda device: complete(64).to(device), 2, 8),))
    monkeypatch.setitem(BACKENDS, "dense", small)
    monkeypatch.setitem(machines.COPIED, "cuda", 1 << 12)
    monkeypatch.setitem(machines.GATHERED, "cuda", (50, 500))
    monkeypatch.setattr(machines.Bench, "_seconds", lambda self, work, times=1: machines._by_clock(work))
    names = {"is_available": True, "current_device": 0, "get_device_name": "Card", "get_device_capability": (9, 0)}
    for name, value in names.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    return folder


def test_a_card_is_measured_in_full_and_half_precision_beside_the_cpu(card):
    with Card():
        state = torch.get_rng_state()
        measured = machines.calibrate("cuda")
        assert torch.equal(torch.get_rng_state(), state)  # a user's random numbers stay what they would have been
    assert list(measured) == ["cuda", "cuda half"]
    for kind, machine in measured.items():
        assert machines.MACHINES[kind] == machine
        same = {name for name, value in asdict(machine).items() if value == getattr(machines.ASSUMED[kind], name)}
        assert same == {"cache", "reused", "steps", "overlap"} | ({"rows"} & same)
    assert machines.MACHINES["cpu"] == machines.ASSUMED["cpu"]
    machines.MACHINES.update(machines.ASSUMED)
    with Card():
        plan(complete(4).to("cuda"))  # the first plan for a card takes what was saved
    assert {kind: machines.MACHINES[kind] for kind in measured} == measured


def test_a_card_has_other_speeds_in_half_precision(card):
    machines.MACHINES["cuda half"] = replace(machines.ASSUMED["cuda half"], flops=1.0)
    with Card():
        graph = causal(64).to("cuda")
        slow, quick = (plan(graph, dtype=dtype).candidates for dtype in (torch.bfloat16, torch.float32))
    seconds = [next(one.seconds for one in found if one.backend == "dense") for found in (slow, quick)]
    assert seconds[0] > 1 > seconds[1] > 0


def test_a_device_that_is_not_there_is_refused(folder):
    with pytest.raises(ConfigError, match="no device 'tpu'"):
        machines.calibrate("tpu")
    assert not folder.exists()
