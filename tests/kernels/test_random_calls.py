"""Random calls on every CPU backend equal each receiver's own equation: no crash, no raw exception, no other number."""

import subprocess
import sys

import pytest

from kernels.random_calls import trial

CHILD = """
import sys
from kernels.random_calls import trial
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    print(seed, flush=True)
    trial(seed).check()
"""


@pytest.mark.parametrize("block", range(8))
def test_random_calls(block):
    for seed in range(50 * block, 50 * (block + 1)):
        trial(seed).check()


@pytest.mark.endurance
@pytest.mark.timeout(3600)
def test_twenty_thousand_random_calls():
    """In children, so that a signal is seen: `pytest -m endurance tests/kernels/test_random_calls.py`."""
    failed = []
    for first in range(0, 20_000, 1000):
        child = [sys.executable, "-W", "ignore", "-c", CHILD, str(first), str(first + 1000)]
        done = subprocess.run(child, capture_output=True, text=True, check=False, cwd=sys.path[0] or ".")
        if done.returncode:
            failed.append((done.stdout.split()[-1], done.returncode, done.stderr[-500:]))
    assert not failed
