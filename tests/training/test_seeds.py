"""Seeds: the published hash, neighbours that share nothing, switches that are put back; threads and how they wait."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from threading import Event, Thread
from types import SimpleNamespace

import pytest
import torch

from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.training.distributed import World
from edgewise.training.loop import Trainer
from edgewise.training.machine import threads
from edgewise.training.machine.threads import Waiting, Way, worthwhile
from edgewise.training.seeds import mix, repeatable, seed

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


def cores():
    where = {}
    for number in threads._numbers():
        with suppress(ProcessLookupError):  # a thread that has just ended
            where[number] = os.sched_getaffinity(number)
    return where


@LINUX
@pytest.mark.parametrize("fastest", Way)
def test_beside_other_programs_threads_wait_in_the_fastest_way(fastest, switches):
    torch.ones(1 << 17).add_(1)
    waiting, had = Waiting(2), cores()
    waiting.look(1.0)
    assert waiting.holder is None, "the machine is quiet"
    tried = []
    for _ in Way:
        tried.append(waiting.way)
        switches[0] += 1_000_000
        waiting.look(0.5 if waiting.way is fastest else 1.0)
    assert tried == [*Way]
    assert waiting.way is fastest
    assert (waiting.holder is None) == (fastest is Way.SPIN)
    waiting.close()
    assert waiting.holder is None
    assert {number: where for number, where in cores().items() if number in had}.items() <= had.items()


@LINUX
def test_threads_that_share_a_core_have_theirs_back(switches):
    """PyTorch's threads share one; Python's others stay where they are, and those begun meanwhile are freed."""
    torch.ones(1 << 17).add_(1)
    had, other, release = os.sched_getaffinity(0), [], Event()
    before = Thread(target=release.wait)
    before.start()
    waiting = Waiting(2)
    waiting.wait(Way.TOGETHER)
    (core,) = os.sched_getaffinity(0)
    assert core in had
    assert os.sched_getaffinity(before.native_id) == had
    after = Thread(target=lambda: (other.append(os.sched_getaffinity(0)), release.wait()))
    after.start()
    waiting.close()
    assert set(map(frozenset, cores().values())) == {frozenset(had)}
    release.set()
    before.join()
    after.join()
    assert other == [{core}]


@LINUX
def test_threads_that_do_not_spin_try_it_from_time_to_time(switches):
    waiting = Waiting(2)
    waiting.wait(Way.SLEEP)
    for way, seconds in [(Way.SLEEP, 1.0), (Way.SPIN, 0.5), (Way.TOGETHER, 1.0)]:
        assert waiting.way is way, "tried"
        waiting.look(seconds)
    assert waiting.way is Way.SPIN
    waiting.close()


@LINUX
def test_comparisons_become_rare_while_they_agree(switches, monkeypatch):
    monkeypatch.setattr(threads, "SOON", 1.0)
    monkeypatch.setattr(threads.time, "perf_counter", lambda: clock[0])
    clock, compared, waiting = [100.0], [], Waiting(2)
    for number in range(328):
        switches[0] += 1_000_000
        fastest = Way.SPIN if number < 300 else Way.TOGETHER
        before = len(waiting.took)
        waiting.look(1.0 if waiting.way is fastest else 2.0)
        if before and not waiting.took:
            compared.append(clock[0])
        clock[0] += 1.0
    assert [later - one for one, later in pairwise(compared)] == [4, 6, 10, 18, 34, 62, 62, 62, 62, 3]
    waiting.close()


@LINUX
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
from edgewise.training.machine.threads import Waiting, Way
torch.set_num_threads(2)
x, waiting = torch.ones(1 << 17), Waiting(2)
waiting.wait(Way.SLEEP)
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
