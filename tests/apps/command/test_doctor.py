"""`edgewise doctor` says what runs here and why something does not, and shows nothing that is nobody's business."""

import json
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import torch

from edgewise import native
from edgewise.apps.command import doctor
from edgewise.apps.command.main import main
from edgewise.kernels import BACKENDS
from edgewise.kernels.backends.cuda import programs, selfcheck


def page(capsys, *arguments):
    assert main(["doctor", *arguments]) == 0
    return capsys.readouterr().out


def test_one_page_names_versions_backends_threads_kernels_and_folders(capsys, cache):
    text = page(capsys)
    for said in ("edgewise  ", "python", torch.__version__, "instruction set", "assumed: `edgewise plan --calibrate`"):
        assert said in text
    assert all(name in text for name in BACKENDS) and f"{torch.get_num_threads()}, on" in text
    assert "config.yaml and metrics.jsonl" in text and len(text.splitlines()) < 60, "one page"


def test_the_packages_are_those_that_a_user_may_install():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    users = [needs for name, needs in extras.items() if name not in ("build", "test", "lint", "docs")]
    wanted = chain(project["dependencies"], *users)
    named = {re.match(r"[\w.-]+", need)[0] for need in wanted} - {"edgewise", "torch"}
    assert {*doctor.PACKAGES} == named | {"transformers"}


def test_json_holds_the_same_sections(capsys):
    summary = json.loads(page(capsys, "--json").splitlines()[-1])
    assert summary.keys() == {"versions", "threads", "kernels", "backends", "gpu", "folders"}
    assert summary["backends"].keys() == BACKENDS.keys()


def test_secrets_of_the_environment_and_the_users_name_are_not_shown(capsys, monkeypatch, tmp_path):
    home = tmp_path / "jane-doe"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("EDGEWISE_DATA", str(home / "data"))
    monkeypatch.setenv("HF_TOKEN", "hf_sesame")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    text = page(capsys)
    assert "sesame" not in text and "HF_TOKEN" not in text and "jane-doe" not in text
    assert "OMP_NUM_THREADS=3" in text and "EDGEWISE_DATA=~/data" in text and "~/data (to be made)" in text


def test_without_kernels_it_says_why_and_what_helps(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "library", None)
    assert f"none: {native.NOT_BUILT[0]}; {native.NOT_BUILT[1]}" in page(capsys)


def test_folders_that_cannot_be_written_or_made_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    assert doctor._folder(tmp_path).endswith("(read-only)")
    assert doctor._folder(tmp_path / "new").endswith("(cannot be made)")


@pytest.fixture
def card(monkeypatch, cache):
    """A pretended card, on which `bitmap` fails its self-check."""
    of_card = type("Card", (), {"name": "Card 9000", "major": 9, "minor": 0, "total_memory": 80 * 2**30})
    failed = "attend, Dot, a hub in float32: the result is off by 1.0e+00"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: of_card)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *index: "Card 9000")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *index: (9, 0))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(programs, "identity", lambda index: "Card-9000")
    monkeypatch.setattr(programs, "INSTALLED", True)
    verdicts = {(0, "bitmap, attend, Dot, float32"): failed, (0, "triton, attend, Dot, float32"): ""}
    monkeypatch.setattr(selfcheck, "_verdicts", verdicts)


@pytest.mark.usefixtures("card")
def test_what_was_checked_on_a_card_and_what_failed_is_named(capsys):
    text = page(capsys)
    assert "Card 9000, sm90, 80 GiB" in text and "each kind of call is checked when it first does" in text
    assert "triton, attend, Dot, float32" in text and "passed its self-check" in text
    assert "refused for some calls: it failed its self-check (attend, Dot, a hub in float32" in text


def test_without_triton_a_card_has_the_backends_of_pytorch(capsys, monkeypatch):
    monkeypatch.setattr(programs, "INSTALLED", False)
    assert "does not run: Triton is not installed" in page(capsys)
