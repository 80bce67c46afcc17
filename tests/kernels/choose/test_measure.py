"""The planner's constants: measured in time, kept, read again, and not trusted when they make no sense."""

import json
import time
from dataclasses import replace
from unittest import mock

import pytest
import torch

from edgewise import causal, complete, plan
from edgewise.errors import ConfigError
from edgewise.kernels.backends.torch import dense, segment
from edgewise.kernels.choose import dispatch, planner
from edgewise.kernels.choose import measure as calibration
from pretend import Card


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "FOLDER", tmp_path / "machines")
    monkeypatch.setattr(planner, "MACHINES", dict(planner.ASSUMED))
    for reader in (calibration, dispatch):
        monkeypatch.setattr(reader, "MACHINES", planner.MACHINES)
    monkeypatch.setattr(calibration, "_recalled", set())
    return tmp_path / "machines"


def test_speeds_are_measured_kept_and_remembered(folder):
    calibration.remember()
    assert planner.MACHINES == planner.ASSUMED  # nothing was measured yet
    start = time.perf_counter()
    measured = calibration.calibrate()["cpu"]
    assert time.perf_counter() - start < 30  # 3 s on a machine that does nothing else
    assert planner.MACHINES["cpu"] == measured != planner.ASSUMED["cpu"]
    assert len(list(folder.iterdir())) == 1  # and no half-written file beside it
    planner.MACHINES.update(planner.ASSUMED)
    calibration.remember()
    assert planner.MACHINES["cpu"] == measured


def test_a_disturbed_pass_is_made_up_for_by_the_next_ones(folder, monkeypatch):
    machine = planner.ASSUMED["cpu"]
    slow = replace(machine, edges=machine.edges / 8, launch=machine.launch * 8)
    passes = iter([slow, replace(machine, edges=machine.edges / 1.1), machine, slow])
    monkeypatch.setattr(calibration.Bench, "measured", lambda self, _: next(passes))
    assert calibration.calibrate()["cpu"] == machine
    assert next(passes) == slow  # the second and the third agreed


def test_passes_end_where_none_agrees(folder, monkeypatch):
    machine, count = planner.ASSUMED["cpu"], []

    def measured(self, _):
        count.append(1)
        return replace(machine, flops=machine.flops * 2 ** len(count))

    monkeypatch.setattr(calibration.Bench, "measured", measured)
    assert calibration.calibrate()["cpu"].flops == machine.flops * 2**calibration.PASSES


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cpu": {"flops": "fast"}}', "not json"])
def test_a_file_that_makes_no_sense_is_passed_over(folder, text):
    folder.mkdir()
    calibration._path("cpu").write_text(text, encoding="utf-8")
    calibration.remember()
    assert planner.MACHINES == planner.ASSUMED


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_that_cannot_be_is_passed_over(folder, value):
    folder.mkdir()
    names = calibration.asdict(planner.ASSUMED["cpu"])
    calibration._path("cpu").write_text(json.dumps({"cpu": names | {"edges": value}}), encoding="utf-8")
    calibration.remember()
    assert planner.MACHINES == planner.ASSUMED


class Slow:
    """`segment` by another name, as if it were a kernel of the card's, at a cost that its kernels have."""

    refuses, run = staticmethod(segment.refuses), staticmethod(segment.run)

    @staticmethod
    def cost(call):
        numbers = call.graph.num_edges * call.v.shape[-1]
        return planner.Cost(edges=numbers, tiles=numbers, rows=4 * numbers, held=4 * call.v.numel(), launches=3)


@pytest.fixture
def card(folder, monkeypatch):
    """A card whose operations take the CPU's time."""
    probes = calibration.Probes((64, 2, 8), 1 << 12, 64, 50, 500, (20, 200), (200, 800), (4, 8), "triton", "ragged")
    monkeypatch.setitem(calibration.PROBES, "cuda", probes)
    monkeypatch.setattr(calibration, "_by_events", calibration._by_clock)
    names = {"is_available": True, "current_device": 0, "get_device_name": "Card", "get_device_capability": (9, 0)}
    for name, value in (names | {"synchronize": None}).items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    return folder


@pytest.mark.parametrize("kernels", [True, False])
def test_a_card_is_measured_in_full_and_half_precision_and_kept_beside_the_cpu(card, kernels):
    backends = dispatch.BACKENDS | ({"triton": Slow, "ragged": Slow} if kernels else {})
    with Card(), mock.patch.dict(dispatch.BACKENDS, backends):
        state = torch.get_rng_state()
        measured = calibration.calibrate("cuda")
        assert torch.equal(torch.get_rng_state(), state)  # a user's random numbers stay what they would have been
    assert list(measured) == ["cuda", "cuda half"]
    for kind, machine in measured.items():
        assumed = planner.ASSUMED[kind]
        assert planner.MACHINES[kind] == machine
        for speed in ("flops", "bandwidth", "gather", "gather_fresh", "launch"):
            assert getattr(machine, speed) != getattr(assumed, speed)
        for speed in ("edges", "tiles", "rows_far"):
            assert (getattr(machine, speed) != getattr(assumed, speed)) == kernels
        assert (machine.cache, machine.reused) == (assumed.cache, assumed.reused)
    assert planner.MACHINES["cpu"] == planner.ASSUMED["cpu"]
    (kept,) = card.iterdir()
    assert kept.name.startswith("Card-sm90-") and "triton-" in kept.name
    planner.MACHINES.update(planner.ASSUMED)
    with Card():
        plan(complete(4).to("cuda"))  # the first plan for a card takes what was kept
    assert {kind: planner.MACHINES[kind] for kind in measured} == measured


def test_a_card_has_other_speeds_in_half_precision(card):
    fast = calibration.replace(planner.ASSUMED["cuda half"], flops=1.0)
    planner.MACHINES["cuda half"] = fast
    with Card():
        graph = causal(64).to("cuda")
        slow, quick = (plan(graph, dtype=dtype).candidates for dtype in (torch.bfloat16, torch.float32))
    seconds = [next(one.seconds for one in found if one.backend == "dense") for found in (slow, quick)]
    assert seconds[0] > 1 > seconds[1] > 0
    call = dispatch.Attend(graph, *torch.empty(3, 64, 1, 64, dtype=torch.float16, device="meta"), dense.Dot())
    assert dispatch.machine_of(call) == fast


def test_a_device_that_is_not_there_is_refused(folder):
    for device in ["tpu"] + ([] if torch.cuda.is_available() else ["cuda"]):
        with pytest.raises(ConfigError, match=f"no device '{device}'"):
            calibration.calibrate(device)
    assert not folder.exists()
