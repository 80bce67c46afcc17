"""What a capture asks of a GPU, with fakes in its place."""

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from edgewise.training.distributed import World
from edgewise.training.machine import captured as module
from edgewise.training.machine.captured import captured
from edgewise.training.settings import MachineSettings

CPU = torch.device("cpu")


def test_steps_are_captured_on_a_gpu_alone_where_it_is_asked_for():
    machine, gpu = MachineSettings(), World(torch.device("cuda", 0))
    made = captured(sum, nn.Linear(1, 1), None, gpu, machine)
    assert made is not None and made.exact and made.reason == ""
    assert not captured(sum, nn.Linear(1, 1), None, gpu, replace(machine, deterministic=False)).exact
    assert captured(sum, nn.Linear(1, 1), None, World(CPU), machine) is None
    assert captured(sum, nn.Linear(1, 1), None, replace(gpu, size=2), machine) is None
    for off in ({"capture": False}, {"precision": "float16"}):
        assert captured(sum, nn.Linear(1, 1), None, gpu, replace(machine, **off)) is None


def test_compiled_steps_run_on_the_stream_that_is_captured(monkeypatch):
    def stream(name):
        return SimpleNamespace(device=CPU, wait_stream=lambda other: done.append(f"{name} waits"))

    @contextmanager
    def entered(stream):
        now.append(stream)
        yield
        now.pop()

    side, now, done = stream("side"), [stream("main")], []
    fakes = {"current_stream": lambda device: now[-1], "stream": entered, "Stream": lambda device: side}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    world = World(torch.device("cuda", 0))
    found = captured(lambda parts: done.append(now[-1]), nn.Linear(1, 1), None, world, MachineSettings(compile=True))
    found.gradient(())
    with entered(found.stream):  # as in the capture
        found.gradient(())
    assert found.stream is side and done == ["side waits", side, "main waits", side]
    assert captured(sum, nn.Linear(1, 1), None, world, MachineSettings()).stream is None


@pytest.mark.parametrize("fails", [False, True])
def test_a_graph_holds_the_memory_of_its_matrix_products_itself(monkeypatch, fails):
    @contextmanager
    def entered(*_, **__):
        done.append("begins")
        yield
        done.append("ends")

    def work():
        done.append("works")
        if fails:
            raise RuntimeError("cannot be captured")

    done = []
    own = SimpleNamespace(graphsafe_set_state=lambda state: None, graphsafe_get_state=lambda: None)
    fakes = {"CUDAGraph": lambda: SimpleNamespace(replay=None), "graph": entered, "device": entered}
    fakes |= {"synchronize": lambda device: None, "current_device": lambda: 0, "default_generators": [own]}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch, "Generator", lambda device: own)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: done.append("cleared"), raising=False)
    with pytest.raises(RuntimeError) if fails else nullcontext():
        module.record(work, torch.device("cuda"))
    assert done[0] == done[-1] == "cleared" and done.count("works") == 1
