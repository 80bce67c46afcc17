import sys

import pytest
import torch

from benchmarks import memory


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux resets its high-water mark")
@pytest.mark.parametrize("megabytes", [64, 256])
def test_a_known_allocation_is_seen(megabytes: int) -> None:
    def step() -> None:
        torch.ones(megabytes * 2**20, dtype=torch.uint8)

    step()
    assert memory.peak_above(step) == pytest.approx(megabytes, abs=8)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux resets its high-water mark")
def test_an_earlier_peak_does_not_count() -> None:
    torch.ones(200 * 2**20, dtype=torch.uint8)
    assert memory.peak_above(lambda: None) < 8


def test_a_process_is_in_memory() -> None:
    assert memory.resident() > 10
