"""The GPU drops what the CPU drops."""

import pytest
import torch

from edgewise.kernels.backends.cuda.programs.dropout import drop
from edgewise.kernels.operator.dropout import drop as drop_on_cpu
from edgewise.native import library
from triton_device import DEVICE


@pytest.mark.skipif(library is None, reason="built without the C++ kernels")
@pytest.mark.parametrize("seed", [7, 2**62 - 5])
def test_the_mask_is_that_of_the_native_kernels(seed):
    x, seed = torch.randn(3, 700), torch.tensor([seed])
    found = drop(x.to(DEVICE), 0.3, seed.to(DEVICE))
    assert torch.equal(found.cpu(), drop_on_cpu(x, 0.3, seed))


def test_nothing_is_dropped_from_nothing():
    assert drop(torch.empty(0, 3, device=DEVICE), 0.5, torch.tensor([1], device=DEVICE)).shape == (0, 3)
