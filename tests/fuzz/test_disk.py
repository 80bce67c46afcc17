"""Every write, flush and renaming fails once, in every way: what was promised is there, and the run goes on."""

import os
import shutil
from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch

from edgewise.errors import EdgewiseError
from edgewise.files import cached, write_file
from edgewise.training import distributed, finished, resume, train
from edgewise.training.checkpoint import checkpoints, clean, newest, save_checkpoint
from fuzz.disk import FAULTS, Disk, Killed
from training.conftest import tiny_tables  # noqa: F401
from training.tiny import configured, same_run

# Shares of the names and of the contents that reach the disk of what was not flushed before a power cut.
CUTS = [(0, 0), (1, 0), (0, 1), (1, 1), (0.5, 0.5), (0.5, 0.5), (0.8, 0.2)]
CONFIG = partial(configured, steps=8, evaluate_every=2, checkpoint_every=2, log_every=1, keep=1)


def tensors(step):
    return {
        part: {"w": torch.full((300,), float(step)), "n": torch.tensor(step)} for part in ("model", "best", "optimizer")
    }


def save(folder, step, keep=1):
    return save_checkpoint(folder, {"step": step}, tensors(step), keep)


def intact(folder):
    """The step of the newest checkpoint, which is whole; 0 where there is none."""
    found = newest(folder, lambda damage: pytest.fail(damage))
    if found is None:
        return 0
    for part, saved in tensors(found.state["step"]).items():
        assert all(torch.equal(saved[name], value) for name, value in found.tensors(part).items())
    return found.state["step"]


def attempt(disk, action):
    """Carry out an action on a disk that fails: whether it succeeded, else it must say why in its own words."""
    with disk.attached():
        try:
            action()
        except (EdgewiseError, Killed):
            return False
    return True


def calls_of(root, action):
    disk = Disk(root)
    assert attempt(disk, action)
    return disk.calls


@pytest.fixture(scope="module")
def saving(tmp_path_factory):
    """A folder that holds the checkpoint of step 1 and a half of step 2; and the calls of saving the latter."""
    place = tmp_path_factory.mktemp("saving")
    save(place / "first" / "checkpoints", 1)
    shutil.copytree(
        place / "first" / "checkpoints" / "step-00000001", place / "first/checkpoints/.writing-step-00000002"
    )
    shutil.copytree(place / "first", place / "counted")
    return place / "first", calls_of(place / "counted", lambda: save(place / "counted" / "checkpoints", 2))


def test_the_disk_sees_every_call_of_a_checkpoint(saving):
    kinds = [call.split()[0] for call in saving[1]]
    assert kinds.count("fsync") == 6  # four files, their folder, and the folder above
    assert [kinds.count(kind) for kind in ("create", "write", "mkdir")] == [4, 4, 1]
    assert kinds.count("rename") == 3  # the leftovers and the older one lose their names, the new one gets its own


@pytest.mark.parametrize("fault", FAULTS)
def test_a_checkpoint_survives_any_failing_call(tmp_path, saving, fault):
    first, calls = saving
    for at in range(1, len(calls) + 1):
        root = Path(shutil.copytree(first, tmp_path / f"{at}"))
        done = attempt(Disk(root, fault, at), lambda root=root: save(root / "checkpoints", 2))
        reached = intact(root / "checkpoints")
        assert reached == 2 or (reached == 1 and not done), calls[at - 1]
        clean(root / "checkpoints", newest(root / "checkpoints", print))
        save(root / "checkpoints", 3)
        assert [path.name for path in (root / "checkpoints").iterdir()] == ["step-00000003"], calls[at - 1]


def test_a_checkpoint_survives_a_power_cut_at_any_call(tmp_path, saving):
    first, calls = saving
    for at in range(1, len(calls) + 2):  # the last one comes after all of them
        root = Path(shutil.copytree(first, tmp_path / f"{at}"))
        disk = Disk(root, "kill", at)
        done = attempt(disk, lambda root=root: save(root / "checkpoints", 2))
        assert done == (at > len(calls))
        for number, shares in enumerate(CUTS):
            left = disk.power_cut(tmp_path / f"{at}-{number}", Random(at * 100 + number), *shares)
            assert intact(left / "checkpoints") in ((2,) if done else (1, 2)), (at, number)


def test_the_simulated_power_cut_loses_what_is_not_flushed(tmp_path):
    """Without its flushes a checkpoint does not survive: the simulation sees the mistake."""
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk")
    with disk.attached(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        save(tmp_path / "disk" / "checkpoints", 1)
    left = disk.power_cut(tmp_path / "names", Random(0), 1, 0)
    assert [path.read_bytes() for path in left.glob("checkpoints/step-00000001/*")] == [b""] * 4
    assert not any(disk.power_cut(tmp_path / "nothing", Random(0), 0, 1).iterdir())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, fault):
    old, new = b"one" * 999, b"two" * 999
    for at in range(1, 9):
        root = tmp_path / f"{at}"
        write_file(root / "file", old)
        disk = Disk(root, fault, at)
        done = None
        with disk.attached():
            try:
                write_file(root / "file", new)
                done = True
            except (OSError, Killed):
                done = False
        assert (root / "file").read_bytes() in ((new,) if done else (old, new))
        assert (
            fault == "kill" or [path.name for path in root.iterdir()] == ["file"] or disk.calls[-1].startswith("unlink")
        )
        for number, shares in enumerate(CUTS):
            left = disk.power_cut(tmp_path / f"{at}-{number}", Random(number), *shares)
            assert (left / "file").read_bytes() in ((new,) if done else (old, new))
        write_file(root / "file", new)
        assert [path.read_bytes() for path in root.iterdir()] == [new]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_cache_costs_time_only(tmp_path, monkeypatch, fault):
    for at in range(1, 9):
        for number, shares in enumerate(CUTS):
            root = tmp_path / f"{at}-{number}"
            (root / "edgewise" / "task").mkdir(parents=True)
            monkeypatch.setenv("XDG_CACHE_HOME", str(root))
            disk = Disk(root, fault, at)
            attempt(disk, lambda: cached("task", "key", lambda: {"x": torch.arange(9)}))
            for place in (root, disk.power_cut(tmp_path / f"{at}-{number}-cut", Random(number), *shares)):
                monkeypatch.setenv("XDG_CACHE_HOME", str(place))
                made = []
                for _ in range(2):
                    read = cached("task", "key", lambda made=made: made.append(1) or {"x": torch.arange(9)})
                    assert torch.equal(read["x"], torch.arange(9))
                assert len(made) <= 1


class Promises:
    """The step of the last checkpoint that was written without an error."""

    def __init__(self, patch):
        self.step = 0
        patch.setattr(distributed, "save_checkpoint", self.save)

    def save(self, folder, state, parts, keep):
        path = save_checkpoint(folder, state, parts, keep)
        self.step = state["step"]
        return path


def go_on(run):
    """Resume a run, or begin it where it never came to be, as a user would."""
    if (run / "config.yaml").exists():
        return resume(run, progress=False)
    return train(CONFIG(), run, progress=False)


def newest_step(run):
    return int(checkpoints(run / "checkpoints")[0].name[5:]) if checkpoints(run / "checkpoints") else 0


@pytest.fixture(scope="module")
def made():
    return {}


@pytest.fixture
def whole(made, tmp_path_factory):
    """An undisturbed run, and its calls."""
    if not made:
        place = tmp_path_factory.mktemp("whole")
        made["calls"] = calls_of(place, lambda: train(CONFIG(), place / "run", progress=False))
        made["run"] = place / "run"
    return made["run"], made["calls"]


def disturbed(tmp_path, whole, fault, at, monkeypatch):
    """Train on a disk that fails, then go on, with and without a power cut in between: the same bits, nothing lost."""
    root = tmp_path / f"{fault}-{at}"
    root.mkdir()
    disk, promised = Disk(root, fault, at), Promises(monkeypatch)
    attempt(disk, lambda: go_on(root / "run"))
    number = at % len(CUTS)
    left = disk.power_cut(tmp_path / f"{fault}-{at}-cut", Random(at), *CUTS[number])
    step = promised.step
    for place in (root, left):
        assert newest_step(place / "run") >= step, disk.calls[-1]
        go_on(place / "run")
        assert same_run(place / "run", whole[0]), disk.calls[-1]
        assert {path.name for path in (place / "run").iterdir()} == {"checkpoints", "config.yaml", "metrics.jsonl"}
        last, *others = checkpoints(place / "run" / "checkpoints")
        assert last.name == "step-00000008"
        assert [path.name for path in others] in ([], ["step-00000006"])  # to be removed when the call failed
        shutil.rmtree(place)


@pytest.mark.parametrize("fault", ["short", "kill"])
def test_a_run_survives_failing_calls(tmp_path, whole, fault, monkeypatch):
    disturbed(tmp_path, whole, fault, Random(fault).randrange(1, len(whole[1]) + 1), monkeypatch)


def halfway(root, whole):
    """A run that was killed while it wrote the checkpoint of its step 6."""
    root.mkdir()
    last = max(number for number, call in enumerate(whole[1]) if "writing-step-00000006" in call)
    attempt(Disk(root, "kill", last), lambda: go_on(root / "run"))
    assert finished(root / "run") is None and newest_step(root / "run") == 4
    return root


def resumed_from_a_bad_disk(tmp_path, whole, fault, every):
    """Resume where a read fails: to the same bits, or a refusal that changes nothing but what a later attempt needs."""
    first = halfway(tmp_path / "halfway", whole)
    disk = Disk(Path(shutil.copytree(first, tmp_path / "counted")), reading=True)
    attempt(disk, lambda: resume(tmp_path / "counted" / "run", progress=False))
    for at in range(1, len(disk.calls) + 1, every):
        root = Path(shutil.copytree(first, tmp_path / f"{at}"))
        done = attempt(Disk(root, fault, at, reading=True), lambda root=root: resume(root / "run", progress=False))
        assert done or fault != "trickle"
        resume(root / "run", progress=False)
        assert same_run(root / "run", whole[0]), disk.calls[at - 1]
    return len(disk.calls)


@pytest.mark.parametrize("fault", ["short", "trickle"])
def test_a_run_resumes_from_a_disk_that_reads_badly(tmp_path, whole, fault):
    assert resumed_from_a_bad_disk(tmp_path, whole, fault, every=14) > 20


@pytest.mark.endurance
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ["EIO", "short", "trickle"])
def test_a_run_resumes_from_a_disk_that_fails_at_any_read(tmp_path, whole, fault):
    print(f"{resumed_from_a_bad_disk(tmp_path, whole, fault, every=1)} reads failed with {fault}, each once")


@pytest.mark.endurance
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_survives_every_failing_call(tmp_path, whole, fault, monkeypatch):
    for at in range(1, len(whole[1]) + 2):
        disturbed(tmp_path, whole, fault, at, monkeypatch)
    print(f"{len(whole[1])} calls failed with {fault}, each once")
