"""Batches that threads make ahead: the same ones, never too many, and nothing left behind."""

import threading
import time
from contextlib import closing
from functools import wraps

import pytest
import torch

from edgewise.errors import DataError
from edgewise.tasks import TASKS
from edgewise.training import (
    CheckpointSettings,
    Choice,
    EvaluationSettings,
    MachineSettings,
    RunConfig,
    TrainSettings,
    read_config,
    resume,
    train,
)
from edgewise.training.machine import Prefetch
from edgewise.training.seeds import mix
from training.tiny import Tiny, configured, same_run


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


def sampled(workers):
    sizes = {"nodes": 800, "degree": 6, "classes": 4, "channels": 8}
    return RunConfig(
        Choice("planted", sizes | {"fanouts": [40, 30], "layerwise": True, "workers": workers}),
        Choice("gnn", {"layer": "fast-gcn", "width": 8, "dropout": 0.5}),
        optimizer=Choice("adamw", {"learning_rate": 0.01}),
        train=TrainSettings(steps=12, batch=32, checkpoints=CheckpointSettings(every=5)),
        evaluation=EvaluationSettings(every=6),
        machine=MachineSettings("cpu", threads=1),
    )


def test_a_run_has_the_same_bits_with_any_number_of_workers(tmp_path):
    for workers in (0, 1, 3):
        train(sampled(workers), tmp_path / str(workers), progress=False)
        assert not threads()
    assert same_run(tmp_path / "0", tmp_path / "1")
    assert same_run(tmp_path / "0", tmp_path / "3")


def test_a_resumed_run_has_them_too(tmp_path, monkeypatch):
    train(sampled(0), tmp_path / "whole", progress=False)
    draw, asked = TASKS["planted"], []

    @wraps(draw)
    def stops(*args, **options):
        task = draw(*args, **options)
        loss = task.loss

        def counted(outputs, batch):
            asked.append(batch.size)
            if len(asked) == 8:
                raise KeyboardInterrupt
            return loss(outputs, batch)

        task.loss = counted
        return task

    monkeypatch.setitem(TASKS, "planted", stops)
    with pytest.raises(KeyboardInterrupt):
        train(sampled(3), tmp_path / "cut", progress=False)
    assert not threads()
    assert read_config(tmp_path / "cut").task.options["workers"] == 3
    resume(tmp_path / "cut", progress=False)
    assert same_run(tmp_path / "whole", tmp_path / "cut")


class Slow(Tiny):
    """A task whose batches several threads make; some of them fail, or take long."""

    workers = 2

    def __init__(self, fails_at=0, waits=0.0):
        super().__init__("none", 10**9, False, "accuracy")
        self.fails_at, self.waits = fails_at, waits

    def train_batch(self, size, generator, pattern=None):
        time.sleep(self.waits)
        batch = super().train_batch(size, generator, pattern)
        if generator.initial_seed() == mix(0, self.fails_at):
            raise DataError("shard 7 is damaged")
        return batch


def test_a_workers_error_reaches_the_user_when_its_step_comes(tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, "tiny", lambda: Slow(fails_at=13))
    with pytest.raises(DataError, match="shard 7 is damaged"):
        train(configured(), tmp_path / "run", progress=False)
    assert not threads()
    assert (tmp_path / "run" / "checkpoints" / "step-00000010").is_dir()  # steps before it were trained


def test_ctrl_c_ends_at_once_and_leaves_no_thread(tmp_path, monkeypatch):
    task = Slow(waits=0.05)
    task.loss = lambda outputs, batch: (_ for _ in ()).throw(KeyboardInterrupt)
    monkeypatch.setitem(TASKS, "tiny", lambda: task)
    with pytest.raises(KeyboardInterrupt):
        train(configured(steps=10_000), tmp_path / "run", progress=False)
    assert not threads()
    assert task.drawn <= 1 + 2  # the first, and those that the workers had begun


def test_one_batch_less_than_two_for_each_worker_waits():
    made = []
    enough = threading.Event()

    def make(step):
        made.append(step)
        if len(made) == 6:
            enough.set()
        return step

    with closing(Prefetch(make, 100, 3)) as prefetch:
        assert prefetch(1) == 1
        assert enough.wait(10)
        time.sleep(0.05)  # for a seventh, if there were one
        assert sorted(made) == list(range(1, 7))
        assert [prefetch(step) for step in range(2, 101)] == list(range(2, 101))
    assert sorted(made) == list(range(1, 101))  # each once, and none after the last
    assert not threads()


def test_workers_run_on_one_thread_and_leave_the_others_theirs():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with closing(Prefetch(lambda step: (torch.get_num_threads(), threading.current_thread().name), 9, 3)) as ahead:
            (first, here), *later = [ahead(step) for step in range(1, 10)]
            assert torch.get_num_threads() == first == 2
            assert here == threading.current_thread().name
        assert {count for count, _ in later} == {1}
        assert all(name.startswith("batches") for _, name in later)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
