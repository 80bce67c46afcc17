"""Seeds: the published hash, neighbours that share nothing, and switches that are put back."""

import os
import subprocess
import sys
import time
from itertools import pairwise

import pytest
import torch

from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.training import threads
from edgewise.training.distributed import World
from edgewise.training.loop import Trainer
from edgewise.training.seeds import mix, repeatable, seed
from edgewise.training.threads import Waiting, worthwhile

CPU = torch.device("cpu")


def test_mix_is_splitmix64():
    assert mix(0) == 0xE220A8397B1DCDAF  # the generator's first output from the state 0
    assert mix(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4  # and its second


def test_neighbouring_seeds_steps_and_ranks_all_differ():
    seeds = {mix(s, t, r) for s in range(10) for t in range(100) for r in range(4)} | {mix(s, 7) for s in range(10)}
    assert len(seeds) == 10 * 100 * 4 + 10
    assert all(0 <= value < 2**64 for value in seeds)


def test_every_bit_of_a_neighbours_seed_is_as_good_as_new():
    flips = [bin(mix(3, t) ^ mix(3, t + 1)).count("1") for t in range(1000)]
    assert 31 < sum(flips) / len(flips) < 33


def test_a_seed_gives_the_numbers_that_pytorch_gives():
    seed(5, CPU)
    ours = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(ours, torch.rand(3))


def test_switches_are_put_back():
    threads = torch.get_num_threads()
    with repeatable(deterministic=True, threads=1):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
        assert torch.get_num_threads() == 1
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("recipe", "most"), [("karate", 1), ("demo-karate", 1), ("digits-vit", 2)])
def test_a_small_step_has_one_thread_and_a_larger_one_more(recipe, most, tmp_path):
    trainer = Trainer(configure(recipes.read(recipe)), tmp_path, World(torch.device("cpu"), 0, 1))
    state = torch.get_rng_state()
    assert worthwhile(trainer.rehearse, 2) == worthwhile(trainer.rehearse, 2) == most
    assert torch.equal(torch.get_rng_state(), state) and trainer.model.training


@pytest.mark.parametrize(
    ("compute", "seconds"),
    [
        (lambda: torch.zeros(100, 50) @ torch.zeros(50, 200), 2 * 100 * 50 * 200 / threads.FLOPS),
        (lambda: torch.zeros(3, 10, 50) @ torch.zeros(3, 50, 20), 2 * 3 * 10 * 50 * 20 / threads.FLOPS),
        (lambda: torch.addmm(torch.zeros(20), torch.zeros(10, 50), torch.zeros(50, 20)), 20_000 / threads.FLOPS),
        (
            lambda: torch.conv2d(torch.zeros(1, 2, 8, 8), torch.zeros(4, 2, 3, 3)),
            2 * 4 * 36 * 18 / threads.FLOPS,
        ),
        (lambda: torch.zeros(1000).double(), 0.0),
    ],
)
def test_work_is_the_products_and_the_bytes(compute, seconds, monkeypatch):
    with threads._Work() as both:
        compute()
    monkeypatch.setattr(threads, "BYTES", float("inf"))
    with threads._Work() as products:
        compute()
    assert products.seconds == pytest.approx(seconds) and both.seconds > products.seconds
    assert both.operations == products.operations >= 2


def test_one_thread_needs_no_rehearsal():
    assert worthwhile(lambda: pytest.fail("carried out"), 1) == 1


@pytest.fixture
def switches(monkeypatch):
    """Involuntary switches, as the test counts them; every step is a window, and may begin a comparison."""
    count = [0]
    monkeypatch.setattr(threads, "_switches", lambda: count[0])
    monkeypatch.setattr(threads, "WINDOW", 0.0)
    monkeypatch.setattr(threads, "SOON", 0.0)
    return count


LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU's OpenMP")


@LINUX
@pytest.mark.parametrize(("asleep", "stays"), [(0.1, True), (2.0, False)])
def test_beside_other_programs_threads_sleep_if_that_is_faster(asleep, stays, switches):
    waiting = Waiting(2)
    waiting.look(1.0)
    assert waiting.holder is None, "the machine is quiet"
    switches[0] += 1_000_000
    waiting.look(1.0)
    holder = waiting.holder
    assert holder is not None and holder.is_alive(), "tried"
    waiting.look(asleep)
    assert (waiting.holder is holder) == stays == holder.is_alive()
    waiting.close()
    assert not holder.is_alive()


@LINUX
@pytest.mark.parametrize(("spinning", "stays"), [(0.1, True), (2.0, False)])
def test_threads_that_sleep_try_from_time_to_time_to_spin(spinning, stays, switches):
    waiting = Waiting(2)
    waiting.sleep()
    waiting.look(1.0)
    assert waiting.holder is None, "tried"
    waiting.look(spinning)
    assert (waiting.holder is None) == stays
    waiting.close()


@LINUX
def test_comparisons_become_rare(switches, monkeypatch):
    monkeypatch.setattr(threads, "SOON", 1.0)
    monkeypatch.setattr(threads.time, "perf_counter", lambda: clock[0])
    clock, tried, waiting = [100.0], [], Waiting(2)
    for _ in range(300):
        switches[0] += 1_000_000
        before = waiting.holder
        waiting.look(1.0 if waiting.holder is None else 2.0)
        if before is None and waiting.holder is not None:
            tried.append(clock[0])
        clock[0] += 1.0
    assert [later - one for one, later in pairwise(tried)] == [2, 2, 4, 8, 16, 32, 60, 60, 60]
    waiting.close()


def test_one_thread_waits_for_nobody(switches):
    waiting = Waiting(1)
    switches[0] = 1_000_000
    waiting.look(1.0)
    assert waiting.holder is None
    waiting.close()


SPINS = "import {first}, {second}, os; print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"


@pytest.mark.parametrize(
    ("first", "second", "given", "expected"),
    [
        ("edgewise", "torch", {}, "3000 PASSIVE"),
        ("torch", "edgewise", {}, "None None"),
        ("edgewise", "torch", {"OMP_WAIT_POLICY": "ACTIVE"}, "None ACTIVE"),
        ("edgewise", "torch", {"GOMP_SPINCOUNT": "7"}, "7 None"),
    ],
)
def test_waiting_is_set_before_pytorch_loads_unless_the_user_did(first, second, given, expected):
    kept = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")}
    command = [sys.executable, "-c", SPINS.format(first=first, second=second)]
    done = subprocess.run(command, env=kept | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


BESIDE = """
import time, torch
from edgewise.training.threads import Waiting
torch.set_num_threads(2)
x, waiting = torch.ones(1 << 17), Waiting(2)
waiting.sleep()
start = time.perf_counter()
for _ in range(300):
    x.add_(1)
print(time.perf_counter() - start)
waiting.close()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU's OpenMP")
def test_beside_busy_loops_two_threads_that_sleep_end_soon():
    """Spinning by default, 300 operations of 20 µs take seconds beside as many busy loops as there are cores."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        time.sleep(0.3)
        done = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True, check=True, timeout=60)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert float(done.stdout) < 1.0
