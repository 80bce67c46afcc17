import pytest
import torch

from edgewise.testing import assert_equivariant


def test_equivariance_is_what_it_says():
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    x = torch.randn(4, 3, dtype=torch.float64)
    assert_equivariant(lambda x: x * x.norm(dim=-1, keepdim=True), lambda x: (x @ turn,), lambda y: y @ turn, x)
    assert_equivariant(torch.cdist, lambda a, b: (a @ turn, b @ turn), lambda y: y, x, x + 1)
    with pytest.raises(AssertionError, match="differ by"):
        assert_equivariant(torch.relu, lambda x: (x @ turn,), lambda y: y @ turn, x)
    with pytest.raises(AssertionError, match="differ by inf"):
        assert_equivariant(lambda x: x / 0, lambda x: (x,), lambda y: y, 0 * x)
