"""How far two tensors are apart, and whether a function keeps to a symmetry."""

from collections.abc import Callable

import torch
from torch import Tensor

EXACT = 1e-9  # float64: the same equation, summed in another order


def assert_equivariant(
    function: Callable[..., Tensor],
    transform_in: Callable[..., tuple[Tensor, ...]],
    transform_out: Callable[[Tensor], Tensor],
    *inputs: Tensor,
    tolerance: float = EXACT,
) -> None:
    """Check that transforming the inputs transforms the output: f(T x) = T' f(x).

    Symbols     function = f; transform_in = T, takes all inputs and returns them all; transform_out = T'
    Errors      AssertionError with the difference, relative to the largest entry
    Edge cases  an invariant function has the identity as T'

    Example
        >>> import torch
        >>> assert_equivariant(torch.relu, lambda x: (x.flip(0),), lambda y: y.flip(0), torch.randn(3))
        >>> assert_equivariant(torch.relu, lambda x: (-x,), lambda y: -y, torch.tensor([1.0, -2.0]))
        Traceback (most recent call last):
            ...
        AssertionError: f(T x) and T' f(x) differ by 2.0e+00, at most 1e-09 expected
    """
    error = distance(function(*transform_in(*inputs)), transform_out(function(*inputs)))
    expect(error <= tolerance, f"f(T x) and T' f(x) differ by {error:.1e}, at most {tolerance:.0e} expected")


def with_gradients(y: Tensor, leaves: dict[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
    """The output, and the gradients of a fixed random projection of it to the leaves, by name."""
    projection = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    total = (y * projection.to(y)).sum()
    grads = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return {"output": y.detach()} | {f"gradient of {name}": g for name, g in zip(leaves, grads, strict=True)}


def expect(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def same(actual: Tensor, expected: Tensor, message: str) -> None:
    error = distance(actual, expected)
    expect(error <= EXACT, f"{message} (by {error:.1e}, at most {EXACT:.0e} expected)")


def distance(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest entry above 1; infinite for another shape or a NaN."""
    if actual.shape != expected.shape:
        return float("inf")
    if actual.numel() == 0:
        return 0.0
    actual, expected = actual.detach(), expected.detach()
    error = float((actual - expected).abs().max() / expected.abs().max().clamp(min=1))
    return float("inf") if error != error else error
