"""What is applied to the numbers of a message: functions, and modules that are these functions."""

from collections.abc import Callable
from math import log

from torch import Tensor, nn
from torch.nn import functional

Activation = Callable[[Tensor], Tensor]
FUNCTIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: functional.relu,
    nn.SiLU: functional.silu,
    nn.Sigmoid: functional.sigmoid,
}


def shifted_softplus(z: Tensor) -> Tensor:
    """ssp(z) = log(e^z + 1) - log 2, which is 0 at 0 and has all derivatives, as forces need."""
    return functional.softplus(z) - log(2)


def as_function(activation: Activation) -> Activation:
    """The function that a module of PyTorch's computes, which kernels know; anything else as it is.

    Edge cases  a module with hooks, or of a class of one's own, stays one

    Example
        >>> as_function(nn.ReLU()) is functional.relu
        True
    """
    if isinstance(activation, nn.Module) and not has_hooks(activation):
        return FUNCTIONS.get(type(activation), activation)
    return activation


def has_hooks(module: nn.Module) -> bool:
    """Whether calling a module calls more than its class's forward pass, now or in the backward pass."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooks) or "forward" in module.__dict__
