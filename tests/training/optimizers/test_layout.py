"""How weights lie in memory."""

import pytest
import torch

from edgewise.training.ranks import is_dense, laid_as

W = torch.arange(24.0).view(2, 3, 4)


@pytest.mark.parametrize(
    ("weight", "dense"),
    [
        (W, True),
        (W.permute(2, 0, 1), True),
        (W[..., ::2], False),
        (W[:, :, :1].expand(2, 3, 4), False),
        (W[1, 1], True),
    ],
)
def test_numbers_are_laid_as_a_weight_s(weight: torch.Tensor, dense: bool) -> None:
    assert is_dense(weight) == dense
    rows = torch.rand(weight.shape)
    laid = laid_as(rows, weight)
    assert torch.equal(laid, rows) and (not dense or laid.stride() == weight.stride())
    assert laid_as(laid, laid) is laid
