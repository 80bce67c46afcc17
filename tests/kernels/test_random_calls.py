"""Random calls on every CPU backend equal each receiver's own equation: no crash, no raw exception, no other number."""

import pytest

from kernels.random_calls import trial


@pytest.mark.parametrize("block", range(4))
def test_random_calls(block):
    for seed in range(50 * block, 50 * (block + 1)):
        trial(seed).check()


@pytest.mark.endurance
@pytest.mark.timeout(3600)
def test_twenty_thousand_random_calls():
    for seed in range(20_000):
        trial(seed).check()
