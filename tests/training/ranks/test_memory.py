"""Sums through shared memory: threads stand for ranks, since what they share is one file either way."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from edgewise import native
from edgewise.training.ranks import memory
from edgewise.training.ranks.memory import SharedSum, shared_sum

pytestmark = pytest.mark.skipif(not hasattr(native.library, "SharedSum"), reason="shared memory is Linux's, in C++")


@pytest.fixture
def ranks():
    """Makes so many ranks, all of this process, with windows of 1 kB or more."""
    opened = []

    def made(size, others=None, window=1024):
        file = memory._created(size, window)
        opened.append(file)
        known = os.getpid() if others is None else others
        return [SharedSum(file, rank, [os.pidfd_open(known) for _ in range(size)], window) for rank in range(size)]

    yield made
    for file in opened:
        os.close(file)


@pytest.mark.parametrize("window", [1 << 16, 1 << 18, 1 << 24])  # more than 64 kB are shared out among more than two
@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_ranks_have_the_sum_in_the_order_of_ranks_whatever_does_not_fit_in_a_window(ranks, size, window):
    made = ranks(size, window=window)
    generator = torch.Generator().manual_seed(size)
    shapes = [
        ((3, 7), torch.float32),
        ((), torch.float64),
        ((0, 5), torch.float32),
        ((50_001,), torch.float64),
        ((200_003,), torch.float32),
    ]
    for _ in range(5):
        given = [[torch.randn(shape, generator=generator, dtype=dtype) for shape, dtype in shapes] for _ in made]
        expected = []
        for same in zip(*given, strict=True):
            total = same[0].clone()
            for more in same[1:]:
                total += more
            expected.append(total)
        flags = [torch.tensor([rank, rank % 2 == 1]) for rank in range(size)]

        def add_up(rank, given=given, flags=flags):
            made[rank].add_up(given[rank], [flags[rank]])

        with ThreadPoolExecutor(size) as pool:
            list(pool.map(add_up, range(size)))
        for own, flag in zip(given, flags, strict=True):
            assert all(torch.equal(mine, total) for mine, total in zip(own, expected, strict=True))
            assert flag.tolist() == [0, 0]


def test_a_rank_that_comes_late_is_waited_for(ranks):
    made = ranks(2)
    x = [torch.ones(1000), torch.ones(1000)]
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(made[0].add_up, [x[0]])
        with pytest.raises(TimeoutError):
            early.result(timeout=0.3)  # long asleep
        pool.submit(made[1].add_up, [x[1]]).result()
        early.result()
    assert torch.equal(x[0], torch.full((1000,), 2.0))


def test_a_rank_whose_process_has_ended_ends_the_wait(ranks):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        made = ranks(2, others=process.pid)
        process.kill()
        with pytest.raises(RuntimeError, match="Connection closed: the process of rank 1 has ended"):
            made[0].add_up([torch.ones(3)])
    assert process.returncode == -signal.SIGKILL


def test_an_interrupt_ends_the_wait(ranks):
    made = ranks(2)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            made[0].add_up([torch.ones(3)])
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_is_no_group_of_one_machine_has_none(monkeypatch):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for local, world in (("1", "2"), ("2", "2")):  # two machines, and a group that is not torchrun's
            monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
            monkeypatch.setenv("WORLD_SIZE", world)
            assert shared_sum() is None
        for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"):
            monkeypatch.setenv(name, "1")
        made = shared_sum([torch.ones(100_000)])
        made.add_up([alone := torch.ones(100_000)])
        assert torch.equal(alone, torch.ones(100_000))
        monkeypatch.setattr(os, "pidfd_open", _refused)
        before = list(Path("/proc/self/fd").iterdir())
        assert shared_sum() is None
        assert list(Path("/proc/self/fd").iterdir()) == before
    finally:
        dist.destroy_process_group()


def _refused(process):
    raise PermissionError("not in here")
