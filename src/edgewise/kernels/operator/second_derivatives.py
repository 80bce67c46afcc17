"""Gradients by differentiable operations: what a backward pass returns that will itself be differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from edgewise.kernels.call import Attend
from edgewise.kernels.operator.dropout import drop
from edgewise.kernels.scores import EdgeBias, EdgeVectors, GatedAdditive


def differentiated_again(*tensors: Tensor | None) -> bool:
    """Whether a backward pass will itself be differentiated."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return any(x is not None and x.requires_grad for x in tensors)


def gradients_again(y: Tensor, inputs: Sequence[Tensor | None], dy: Tensor) -> list[Tensor | None]:
    """Differentiable gradients of y to those inputs that have one."""
    leaves = [x for x in inputs if x is not None and x.requires_grad]
    found = iter(torch.autograd.grad(y, leaves, dy, create_graph=True, allow_unused=True, materialize_grads=True))
    return [next(found) if x is not None and x.requires_grad else None for x in inputs]


def attend_again(
    dy: Tensor, call: Attend, a: Tensor | None, bias: Tensor | None, vectors: EdgeVectors | None, seed: Tensor
) -> list[Tensor | None]:
    """The gradients of a call without biases to its q, k, v and those a, bias, keys and values of edges."""
    from edgewise.kernels.backends.torch import segment

    keys, values = (None, None) if vectors is None else (vectors.keys, vectors.values)
    # Fresh names for the inputs, so that one tensor used twice has two gradients.
    inputs = [x if x is None else x.view_as(x) for x in (call.q, call.k, call.v, a, bias, keys, values)]
    q, k, v, a, bias, keys, values = inputs
    assert v is not None
    score = call.score
    if isinstance(score, GatedAdditive) and a is not None:
        score = replace(score, a=a.to(v.dtype))
    if bias is not None:
        score = score + EdgeBias(bias)
    if vectors is not None:
        score = score + EdgeVectors(keys, values)
    call = Attend(call.graph, q, k, v, score, call.dropout).with_own_senders()
    result = segment.run(replace(call, dropout=0.0, return_weights=True))
    assert isinstance(result, tuple)
    y, w_ij = result
    if call.dropout > 0:
        y = segment.weighted_values(call.graph, drop(w_ij, call.dropout, seed), call.v)
    return gradients_again(y, inputs, dy)
