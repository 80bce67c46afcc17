import pytest
import torch
from torch import nn

from edgewise.errors import ShapeError
from edgewise.layers.plain.linear import Embedding


def test_it_is_pytorchs() -> None:
    torch.manual_seed(0)
    ours = Embedding(5, 3)
    torch.manual_seed(0)
    theirs, x = nn.Embedding(5, 3), torch.tensor([[0, 4], [2, 2]])
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(torch.compile(ours, backend="eager", fullgraph=True)(x), theirs(x))
    assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_what_has_no_row_is_named() -> None:
    embed = Embedding(5, 3, of="atomic numbers")
    for x, message in (
        (torch.tensor([[0, 4], [2, 5]]), "atomic numbers must be from 0 to 4, but number 3 of them is 5"),
        (torch.tensor([1, -1]), "number 1 of them is -1"),
        (torch.tensor([1.0]), "atomic numbers must be int64, not float32"),
        ([1, 2], "atomic numbers must be a tensor of int64, not a list"),
        (None, "atomic numbers must be a tensor of int64, not a NoneType"),
    ):
        with pytest.raises(ShapeError, match=message):
            embed(x)
