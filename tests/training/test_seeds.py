"""Seeds: the published hash, neighbours that share nothing, switches that are put back; what a step is worth."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.training.distributed import World
from edgewise.training.loop import Trainer
from edgewise.training.machine import worthwhile
from edgewise.training.seeds import mix, repeatable, seed

CPU = torch.device("cpu")


def test_mix_is_splitmix64():
    assert mix(0) == 0xE220A8397B1DCDAF  # the generator's first output from the state 0
    assert mix(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4  # and its second


def test_neighbouring_seeds_steps_and_ranks_all_differ():
    seeds = {mix(s, t, r) for s in range(10) for t in range(100) for r in range(4)} | {mix(s, 7) for s in range(10)}
    assert len(seeds) == 10 * 100 * 4 + 10
    assert all(0 <= value < 2**64 for value in seeds)


def test_a_seed_gives_the_numbers_that_pytorch_gives():
    seed(5, CPU)
    ours = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(ours, torch.rand(3))


def test_switches_are_put_back():
    before = torch.get_num_threads()
    with repeatable(deterministic=True, threads=1):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
        assert torch.get_num_threads() == 1
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_algorithms_that_are_not_deterministic_warn_or_fail_as_before(monkeypatch, mode, loaded):
    monkeypatch.setattr("edgewise.training.seeds.sys", SimpleNamespace(modules={"torch._dynamo"} if loaded else {}))
    try:
        torch.set_deterministic_debug_mode(mode)
        for deterministic in (True, False):
            with repeatable(deterministic, threads=1):
                assert torch.get_deterministic_debug_mode() == (2 if deterministic else 0)
            assert torch.get_deterministic_debug_mode() == mode
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("recipe", "most"), [("karate", 1), ("demo-karate", 1), ("digits-vit", 2)])
def test_a_small_step_has_one_thread_and_a_larger_one_more(recipe, most, tmp_path):
    trainer = Trainer(configure(recipes.read(recipe)), tmp_path, World(torch.device("cpu"), 0, 1))
    state = torch.get_rng_state()
    assert worthwhile(trainer.rehearse, 2) == worthwhile(trainer.rehearse, 2) == most
    assert torch.equal(torch.get_rng_state(), state) and trainer.model.training


SPINS = "import edgewise, torch, os; print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"


@pytest.mark.processes
@pytest.mark.parametrize(("given", "expected"), [({}, "3000 PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None ACTIVE")])
def test_waiting_is_set_before_pytorch_loads_unless_the_user_did(given, expected):
    kept = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")}
    command = [sys.executable, "-c", SPINS]
    done = subprocess.run(command, env=kept | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
