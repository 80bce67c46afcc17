"""The planner's constants: measured in time, kept, read again, and not trusted when they make no sense."""

import json
import time

import pytest

from edgewise.kernels import calibration, planner


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "FOLDER", tmp_path / "machines")
    monkeypatch.setattr(planner, "MACHINES", dict(planner.ASSUMED))
    monkeypatch.setattr(calibration, "MACHINES", planner.MACHINES)
    return tmp_path / "machines"


def test_speeds_are_measured_kept_and_remembered(folder):
    calibration.remember()
    assert planner.MACHINES == planner.ASSUMED  # nothing was measured yet
    start = time.perf_counter()
    measured = calibration.calibrate()
    assert time.perf_counter() - start < 30  # 3 s on a machine that does nothing else
    assert planner.MACHINES["cpu"] == measured != planner.ASSUMED["cpu"]
    assert len(list(folder.iterdir())) == 1  # and no half-written file beside it
    planner.MACHINES.update(planner.ASSUMED)
    calibration.remember()
    assert planner.MACHINES["cpu"] == measured


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"flops": "fast"}', "not json"])
def test_a_file_that_makes_no_sense_is_passed_over(folder, text):
    folder.mkdir()
    calibration._path().write_text(text, encoding="utf-8")
    calibration.remember()
    assert planner.MACHINES == planner.ASSUMED


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_that_cannot_be_is_passed_over(folder, value):
    folder.mkdir()
    names = calibration.asdict(planner.ASSUMED["cpu"])
    calibration._path().write_text(json.dumps(names | {"edges": value}), encoding="utf-8")
    calibration.remember()
    assert planner.MACHINES == planner.ASSUMED
