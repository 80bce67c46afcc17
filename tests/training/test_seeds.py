"""Seeds: the published hash, neighbours that share nothing, and switches that are put back."""

import torch

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
    threads = torch.get_num_threads()
    with repeatable(deterministic=True, threads=1):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
        assert torch.get_num_threads() == 1
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.get_num_threads() == threads
