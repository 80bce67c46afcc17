"""Each operator of the C++ kernels is what PyTorch is told of it, in every dtype and layout."""

from typing import Any

import pytest
import torch
from torch import Tensor

from edgewise.kernels.operator.operator import DTYPES
from fuzz.operators import examples

LAYOUTS = ("contiguous", "offset", "strided", "expanded")
CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


def laid_out(value: Any, layout: str) -> Any:
    """The same numbers in another place of memory; expanded, those of one row."""
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim < 2:
        return value
    x = value.detach()
    if layout == "offset":
        x = torch.cat([x.flatten()[:3], x.flatten()])[3:].view(x.shape)
    elif layout == "strided":
        x = torch.cat([x, x], -2)[..., : x.shape[-2], :]
    elif layout == "expanded":
        x = x[..., :1, :].expand(x.shape)
    return x.requires_grad_(value.requires_grad)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", range(len(examples())), ids=lambda number: examples()[number][0])
def test_an_operator_is_what_pytorch_is_told_of_it(number: int, dtype: torch.dtype) -> None:
    name, arguments = examples(dtype)[number]
    namespace, short = name.split("::")
    operator = getattr(getattr(torch.ops, namespace), short).default
    layout = LAYOUTS[(number + DTYPES[dtype]) % len(LAYOUTS)]
    found = torch.library.opcheck(operator, tuple(laid_out(one, layout) for one in arguments), test_utils=CHECKS)
    assert set(found.values()) == {"SUCCESS"}, (layout, found)
