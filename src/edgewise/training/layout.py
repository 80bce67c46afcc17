"""How weights lie in memory: fused kernels pair numbers by their places there, not by their indices."""

import torch
from torch import Tensor


def is_dense(weight: Tensor) -> bool:
    """Whether a tensor's numbers fill their memory without gaps, each in a place of its own, in any order of the axes.

    >>> w = torch.zeros(3, 4)
    >>> is_dense(w), is_dense(w.T), is_dense(w[:, ::2]), is_dense(w[:, :1].expand(3, 4))
    (True, True, False, False)
    """
    place = 1
    for stride, size in sorted((s, n) for s, n in zip(weight.stride(), weight.shape, strict=True) if n != 1):
        if stride != place:
            return False
        place *= size
    return True


def laid_as(tensor: Tensor, weight: Tensor) -> Tensor:
    """The same numbers in the order in which a weight of this shape has its own.

    >>> laid_as(torch.zeros(3, 4), torch.zeros(4, 3).T).stride()
    (1, 3)
    """
    if tensor.stride() == weight.stride():
        return tensor
    return torch.empty_like(weight, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
