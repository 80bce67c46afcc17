"""Compare a layer with a peer of the same weights: outputs, and gradients to the inputs and to every weight."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from edgewise import Graph

EXACT = 1e-9


def each(*lists: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Cases in which each value of each parameter occurs: as many as the longest list, the others in turn."""
    values = [list(one) for one in lists]
    return [tuple(one[n % len(one)] for one in values) for n in range(max(map(len, values)))]


def messy_graph() -> Graph:
    """Directed, with two self-loops, a parallel edge, and node 6 isolated."""
    return Graph.from_edge_index([[0, 1, 2, 2, 4, 3, 5, 0, 5, 1], [1, 0, 0, 2, 0, 4, 5, 3, 3, 0]], num_nodes=7)


def assert_parity(
    layer: nn.Module,
    weights: dict[str, Tensor],
    arguments: tuple[object, ...],
    expected: Tensor,
    leaves: Sequence[Tensor],
    tolerance: float = EXACT,
) -> None:
    """With `weights`, functions of the leaves, the layer gives `expected` and the same gradients to the leaves."""
    assert weights.keys() == dict(layer.named_parameters()).keys()
    assert_same(torch.func.functional_call(layer, weights, arguments), expected, leaves, tolerance)


def assert_same(found: Tensor, expected: Tensor, leaves: Sequence[Tensor], tolerance: float = EXACT) -> None:
    """Both have the same entries and the same gradients to the leaves, which reach them."""
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= tolerance
    projection = torch.randn(expected.shape, dtype=expected.dtype, generator=torch.Generator().manual_seed(7))
    gradients = [torch.autograd.grad((y * projection).sum(), leaves, retain_graph=True) for y in (found, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        assert theirs.abs().max() > 0  # a gradient that is nowhere would prove nothing
        assert (ours - theirs).abs().max() <= tolerance


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


class LargestTensor(TorchDispatchMode):
    """The number of entries of the largest tensor that any operation makes, of a sparse one those that it stores."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            entries = result.numel() if result.layout is torch.strided else result._nnz()
            self.entries = max(self.entries, entries)
        return result
